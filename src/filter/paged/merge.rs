//! The union of filters with equal parameters, of which at least one has pages.
//!
//! ```text
//!   base  ─┐  bit by bit, if the union of the layers holds no more items than one is made for
//!   base  ─┘
//!   pages ─┐  a copy of the larger ones gets the slots of the others  (pages/unite.rs)
//!   pages ─┘
//! ```
//!
//! Everything happens in a copy, so a refusal changes nothing. What is refused, besides filters
//! that differ: a window; a layer or a non-scaling filter that would be too full
//! (`filter/merge.rs`); pages that would take too long to copy and to move ([`MOST_UNITED`]); and a
//! union above its rate.
//!
//! The rate of a union is at most the sum of their rates, and it grows further with each item. If
//! it would pass the configured rate while the filter grows as planned, all levels to come get
//! longer tags, so that it takes at most two units more (`pages/plan.rs`). If that is too much, the
//! union is refused. At 1 %, two filters of a million items can be united, and then the union of
//! two such unions cannot.

use super::{Paged, Part, SHARE_ABOVE, base_bytes};
use crate::filter::{
    error::Error,
    foreign::Family,
    layer::Layer,
    merge::{Difference, UnitedLayer, Unmergeable, difference_of},
    pages::{self, Pages},
    plan::Demand,
    stack::Filter,
};

/// The most slots that a union moves, if it copies few: some two seconds.
const MOST_UNITED: u64 = 1 << 24;

/// Slots that are copied, compared and freed in the time in which one is moved.
const COPIED_PER_MOVED: u64 = 64;

/// A filter of a union.
#[derive(Clone, Copy, Debug)]
pub enum Member<'a> {
    /// A native filter of one layer.
    Layer(&'a Filter),
    /// A paged filter.
    Pages(&'a Paged),
}

/// Why there is no union.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum NoUnion {
    /// What the filters are, or hold.
    #[error(transparent)]
    Refused(#[from] Unmergeable),
    /// `Error::Ceiling` or `Error::OutOfMemory`.
    #[error(transparent)]
    Memory(#[from] Error),
}

impl<'a> Member<'a> {
    fn base(self) -> Option<&'a Layer> {
        match self {
            Self::Layer(filter) => Some(filter.newest()),
            Self::Pages(paged) => paged.base(),
        }
    }

    fn pages(self) -> Option<&'a Pages> {
        match self {
            Self::Layer(_) => None,
            Self::Pages(paged) => Some(&paged.pages),
        }
    }

    /// Bytes of bits and pages.
    pub fn bytes(self) -> u64 {
        self.base().map_or(0, base_bytes) + self.pages().map_or(0, Pages::bytes)
    }

    /// The first property in which two members differ.
    fn difference(self, other: Self) -> Option<Difference> {
        match (self.numbers(), other.numbers()) {
            (Some((a, of_a)), Some((b, of_b))) => {
                let alike = self.base().is_some() == other.base().is_some();
                difference_of(alike, a.seed == b.seed, [a, b], [of_a, of_b])
            }
            _ => Some(Difference::Kind),
        }
    }

    /// Parameters and shard; `None` for a filter that has no pages to go on in.
    fn numbers(self) -> Option<(crate::filter::Params, Option<crate::sharding::Shard>)> {
        match self {
            Self::Layer(filter) => {
                let one = filter.family() == Family::Native && filter.older().is_empty();
                let scales = filter.expansion().factor().is_some();
                (one && scales).then(|| (filter.params(), filter.shard()))
            }
            Self::Pages(paged) => Some((paged.params(), paged.shard())),
        }
    }
}

impl Paged {
    /// The union of filters, of which at least one has pages. `None` if the first one is the union
    /// already. Without `limited`, neither the number of items nor the rate refuses it. `ceiling`
    /// is called only if the union may take more than the first one.
    ///
    /// # Errors
    /// [`NoUnion`]; nothing has changed then.
    pub fn union(
        members: &[Member],
        limited: bool,
        ceiling: impl FnOnce(Demand) -> u64,
    ) -> Result<Option<Self>, NoUnion> {
        let Some((&first, others)) = members.split_first() else {
            return Err(Unmergeable::Differ(Difference::Kind).into());
        };
        let forgets =
            |member: &Member| matches!(member, Member::Pages(paged) if paged.window().is_some());
        if members.iter().any(forgets) {
            return Err(Unmergeable::Window.into());
        }
        if let Some(difference) = others.iter().find_map(|&other| first.difference(other)) {
            return Err(Unmergeable::Differ(difference).into());
        }
        let mut tables: Vec<&Pages> = members.iter().filter_map(|member| member.pages()).collect();
        // The first one of those with the most pages: what others have fits into its levels.
        tables.sort_by_key(|table| std::cmp::Reverse((table.pages().len(), table.slot_count())));
        let Some((&largest, smaller)) = tables.split_first() else {
            return Err(Unmergeable::Differ(Difference::Kind).into());
        };
        let numbers = |table: &Pages| pages::Plan { doublings: 0, ..table.plan() };
        if smaller.iter().any(|table| numbers(table) != numbers(largest)) {
            return Err(Unmergeable::Differ(Difference::Layer).into());
        }
        let copied = largest.slot_count();
        let sum = |slots: fn(&Pages, &Pages) -> u64| {
            smaller.iter().map(|table| slots(largest, table)).fold(0, u64::saturating_add)
        };
        // Before they are looked at one by one.
        check_work(copied, sum(|_, table| table.slot_count()))?;
        check_work(copied, sum(Pages::united_slots))?;
        let bases: Vec<&Layer> = members.iter().filter_map(|member| member.base()).collect();
        let united = bases.first().map(|_| UnitedLayer::of(&bases, true)).transpose()?;
        if let Some(UnitedLayer { plan, estimate: items, .. }) = united
            && limited
            && items > plan.capacity
        {
            let capacity = plan.capacity;
            return Err(Unmergeable::Full { index: 0, layers: 1, items, capacity }.into());
        }
        let all = tables.iter().map(|table| table.bytes()).fold(0, u64::saturating_add);
        let (present, base) = (first.bytes(), bases.first().map_or(0, |base| base_bytes(base)));
        let wanted = all.saturating_add(base);
        if wanted > present {
            Demand { present, wanted }.check(ceiling)?;
        }
        let mut pages = largest.duplicate()?;
        smaller.iter().try_for_each(|table| pages.unite(table))?;
        let base = match (bases.as_slice(), united) {
            ([first, others @ ..], Some(united)) => {
                let mut base = first.duplicate()?;
                base.unite(others);
                base.set_counted(united.plan.items);
                Some(base)
            }
            _ => None,
        };
        if first.pages() == Some(&pages) && bits(first.base()) == bits(base.as_ref()) {
            return Ok(None);
        }
        let Some((params, shard)) = first.numbers() else {
            return Err(Unmergeable::Differ(Difference::Kind).into());
        };
        let (items, capacity) = (pages.items(), params.capacity);
        if params.expansion.factor().is_none() {
            if limited && items > capacity {
                return Err(Unmergeable::Full { index: 0, layers: 1, items, capacity }.into());
            }
        } else if !smaller.is_empty() {
            let share = if base.is_some() { SHARE_ABOVE } else { 1.0 };
            keep_rate(&mut pages, params.error_rate * share, limited)?;
        }
        let part = base.map_or(Part::Nothing, Part::Base);
        Ok(Some(Self::of(&params, pages, part, shard)))
    }
}

fn bits(base: Option<&Layer>) -> &[u64] {
    base.map_or(&[], |base| base.bits().words())
}

/// Checks that a union does not stop the server for too long: by slots, as replicas must agree.
fn check_work(copied: u64, moved: u64) -> Result<(), Unmergeable> {
    if moved.saturating_add(copied / COPIED_PER_MOVED) > MOST_UNITED {
        return Err(Unmergeable::Large(moved.saturating_add(copied)));
    }
    Ok(())
}

/// Plans the growth of a union so that it keeps the rate.
fn keep_rate(pages: &mut Pages, asked: f64, limited: bool) -> Result<(), Unmergeable> {
    let (plan, rate) = (pages.plan(), pages.sample().error_rate);
    let unit = f64::from(plan.page_slots) / pages::PAGE_BUCKETS as f64
        * libm::exp2(-f64::from(plan.tag_bits));
    let count = pages.pages().len().max(1) as u64;
    let level = count.ilog2();
    let planned = plan.first_pages.ilog2() + u32::from(plan.doublings);
    // What is done of the present doubling: x - x^2 / 4 of 3/4.
    let split = count as f64 / libm::exp2(level.into()) - 1.0;
    let rest = 2.0 - split * (1.0 - 0.25 * split);
    let later = 0.75 * (f64::from(planned) - f64::from(level) - 1.0) + rest;
    if rate + unit * later.max(1.25) <= asked {
        return Ok(());
    }
    pages.plan_no_doublings();
    if limited && rate + unit * rest > asked { Err(Unmergeable::Rate) } else { Ok(()) }
}
