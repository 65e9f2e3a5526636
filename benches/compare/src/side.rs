//! A common trait for the filters of both commits, whose types are unrelated.

use crate::case::{Case, Item, Op, Work, item};

/// The filter of one commit.
pub(crate) trait Side: Sized {
    /// An empty filter.
    fn empty(case: &Case) -> Self;
    /// Adds items in batches; returns how many were new.
    fn add_by(&mut self, batch: usize, items: &[Item]) -> usize;
    /// Queries items in batches; returns how many were found.
    fn ask_by(&self, batch: usize, items: &[Item]) -> usize;
    /// Queries items by single calls; returns how many were found.
    fn ask_single(&self, items: &[Item]) -> usize;

    /// A filter with the members of the case.
    fn filled(case: &Case) -> Self {
        const CHUNK: u64 = 4096;
        let mut filter = Self::empty(case);
        for start in (0..case.members).step_by(CHUNK as usize) {
            let end = case.members.min(start + CHUNK);
            let items: Vec<Item> = (start..end).map(item).collect();
            filter.add_by(100, &items);
        }
        filter
    }

    /// Runs one turn; returns how many answers were yes.
    fn turn(&mut self, work: &Work, items: &[Item]) -> usize {
        match (work.op, work.batch) {
            (Op::Add, batch) => self.add_by(batch, items),
            (Op::Hit | Op::Miss, 1) => self.ask_single(items),
            (Op::Hit | Op::Miss, batch) => self.ask_by(batch, items),
        }
    }
}

/// Implements `Side` for the filter of one commit. The loops are not inlined, so that the compiler
/// cannot merge them with the code around.
macro_rules! side {
    ($commit:ident) => {
        impl Side for $commit::filter::Filter {
            fn empty(case: &Case) -> Self {
                use $commit::filter::{Expansion, Params, Plan};
                let params = Params {
                    error_rate: case.rate,
                    capacity: case.capacity,
                    expansion: Expansion::new(2).expect("a factor in range"),
                    seed: 7,
                    // Fields that only some commits have: bits, no shard.
                    ..Plan::default().params()
                };
                Self::new(&params, u64::MAX).expect("memory for the filter")
            }

            #[inline(never)]
            fn add_by(&mut self, batch: usize, items: &[Item]) -> usize {
                let mut new = 0;
                for batch in items.chunks(batch) {
                    let items = batch.iter().map(|item| &item[..]);
                    self.add_each(items, |_| u64::MAX, |answers| new += answers.ones())
                        .expect("memory for another layer");
                }
                new
            }

            #[inline(never)]
            fn ask_by(&self, batch: usize, items: &[Item]) -> usize {
                let mut found = 0;
                for batch in items.chunks(batch) {
                    let items = batch.iter().map(|item| &item[..]);
                    self.contains_each(items, |there| found += there.ones());
                }
                found
            }

            #[inline(never)]
            fn ask_single(&self, items: &[Item]) -> usize {
                items.iter().filter(|item| self.contains(self.hash(&item[..]))).count()
            }
        }
    };
}

side!(redis_bloom_before);
side!(redis_bloom);
