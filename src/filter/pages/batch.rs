//! Up to 64 items at once, so that their waits for memory overlap. Three stages prefetch entries
//! of the table, starts of pages, and blocks. Each reads what the stage before has prefetched.

use super::{Pages, block, page::Place, words::with_select};
use crate::filter::{
    error::Error,
    hash::Hash,
    layer::{bits::prefetch, item_set::CHUNK},
};

impl Pages {
    /// [`Self::find`] of each item of a chunk of at most 64. Calls `answer` for each, in order.
    #[inline]
    pub fn find_chunk(&self, hashes: &[Hash], mut answer: impl FnMut(Option<u64>)) {
        if let &[hash] = hashes {
            return answer(self.find(hash));
        }
        let pages = self.table.len();
        let all_long = with_select!(select => {
            let (blocks, all_long) = self.prefetch(hashes);
            let answered = if all_long { hashes } else { &[] };
            for (block, &hash) in blocks.iter().zip(answered) {
                let (_, format, tag) = self.levels.address(hash.block, pages);
                let bucket = Place::of(hash).bucket();
                let found = block::find(select, block, format, bucket, tag);
                answer(found.slot.map(|(_, slot)| format.payload(slot)));
            }
            all_long
        });
        if !all_long {
            hashes.iter().for_each(|&hash| answer(self.find(hash)));
        }
    }

    /// Adds each item of a chunk of at most 64, in order: with the payload `fresh` if no slot
    /// matches it; otherwise `change` makes the payload from what it was. Answers with the payload
    /// before, `None` if the item is new.
    ///
    /// # Errors
    /// `Error::OutOfMemory`. The item that fails and all after it are not added.
    #[inline]
    pub fn insert_chunk(
        &mut self,
        hashes: &[Hash],
        fresh: u64,
        change: impl Fn(u64) -> u64,
        mut answer: impl FnMut(Option<u64>),
    ) -> Result<(), Error> {
        if let &[hash] = hashes {
            answer(with_select!(select => self.insert(select, hash, fresh, change))?);
            return Ok(());
        }
        with_select!(select => {
            self.prefetch(hashes);
            hashes.iter().try_for_each(|&hash| {
                answer(self.insert(select, hash, fresh, &change)?);
                Ok(())
            })
        })
    }

    /// Deletes each item of a chunk of at most 64 once, and answers with the count before.
    #[inline]
    pub fn lower_chunk(&mut self, hashes: &[Hash], mut answer: impl FnMut(u64)) {
        with_select!(select => {
            self.prefetch(hashes);
            hashes.iter().for_each(|&hash| answer(self.lower_by(select, hash)));
        });
    }

    /// Prefetches the block of each item of a chunk. Returns the blocks, and `false` if a page is
    /// short; the blocks are of no use then.
    #[inline(always)]
    fn prefetch(&self, hashes: &[Hash]) -> ([&[u64]; CHUNK], bool) {
        let (mut blocks, mut pages, table) = ([&[][..]; CHUNK], [0; CHUNK], &self.table);
        for (page, &hash) in pages.iter_mut().zip(hashes) {
            (*page, _) = self.levels.page(hash.block, table.len());
            prefetch((&raw const table[*page]).cast());
        }
        let pages = &pages[..hashes.len().min(CHUNK)];
        pages.iter().for_each(|&page| table[page].prefetch_starts());
        let mut all_long = true;
        for ((&page, &hash), block) in pages.iter().zip(hashes).zip(&mut blocks) {
            match table[page].prefetch_block(Place::of(hash)) {
                Some(words) => *block = words,
                None => all_long = false,
            }
        }
        (blocks, all_long)
    }
}
