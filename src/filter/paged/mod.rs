//! Filters that grow, count, or forget: what they are, on top of pages that split (`pages/mod.rs`).
//!
//! ```text
//!                 ┌───────────────┐   ┌──────────────────────────────────────────┐
//!    item ──▶     │ base          │   │ pages: a slot for each item              │
//!    hashed once  │ a full layer  │   │ payload   nothing   it grows    add.rs   │
//!                 │ of plain bits │   │           count     COUNTING    count.rs │
//!                 │ (or none)     │   │           number    WINDOW      window.rs│
//!                 └───────────────┘   └──────────────────────────────────────────┘
//! ```
//!
//! If a filter that grows was reserved, its first layer stays below the pages when it is full
//! ([`Paged::above`]). The layer is made for 3/4 of the error rate, and the pages take 1/4. Without
//! a layer, the pages have the whole rate. The payload of a window is the number of the
//! generation in which an item came last.
//!
//! `EXPANSION` does not decide how a paged filter grows. It says what [`Paged::stack`] reports, and
//! 0 makes the filter refuse new items at its capacity.
//!
//! # What always holds
//! 1. An item that was added and not deleted is found; in a window, for as long as the window says.
//! 2. The state follows from the sequence of changing operations: additions that answer
//!    [`changed`](Addition::changed), deletions that answer true, and [`Shift`]s. A copy
//!    that gets these as [`Obeyed`](Author::Obeyed) is equal word for word.
//! 3. An operation that fails has changed nothing.
//!
//! The third point has one exception. If the allocator refuses a few kilobytes, pages that should
//! be joined or emptied stay as they are, and a later operation tries again. All answers stay
//! right, but such a copy is no longer equal word for word.
//!
//! Bytes on disk, commands and the clock do not belong here.

mod add;
mod count;
mod figures;
mod rules;
mod window;

pub use add::{Addition, Additions, Author};
pub use rules::{MAX_GENERATIONS, MAX_MILLISECONDS, MAX_TIME, NEVER, Rules, Span};
pub use window::{Generation, MOST_SWEPT, SWEEP_EVERY, Shift, Sweep, Window};
pub(super) use window::{list_bytes, number_bits};

use super::{
    error::{Demand, Error},
    hash::Hash,
    layer::Layer,
    pages::{self, Growth, Page, Pages, Payload},
    params::{Expansion, MAX_CAPACITY, Params, check_ranges},
    plan::Plan,
};
use crate::sharding::Shard;

/// Bits of a count: counts up to 15 are exact, and 16 means "16 or more".
const COUNT_BITS: u8 = 4;

/// A filter that was reserved for more than one page takes the least memory up to this many
/// doublings of its reservation.
const RESERVED_DOUBLINGS: u8 = 4;

/// The share of the error rate that the pages above a layer get.
const SHARE_ABOVE: f64 = 0.25;

/// A filter that grows, counts, or forgets.
#[derive(Debug)]
pub struct Paged {
    seed: u64,
    error_rate: f64,
    /// Items that it was reserved for: of the first layer of a stack, or of the whole window.
    capacity: u64,
    pages: Pages,
    /// What most filters do not have.
    rest: Option<Box<Rest>>,
}

#[derive(Debug)]
struct Rest {
    part: Part,
    expansion: Expansion,
    shard: Option<Shard>,
    /// Deletions of saturated items since it was made, loaded or copied on this server. Not stored.
    refused: u32,
    /// Pages of slots that are all forgotten, to be freed.
    leaving: Vec<Page>,
}

/// What a filter has besides pages.
#[derive(Debug, Default)]
enum Part {
    #[default]
    Nothing,
    /// The first layer, which is full.
    Base(Layer),
    /// How the filter forgets.
    Window(Window),
}

/// Bytes of [`Paged`] and of [`Rest`] on a server. Their sizes here may be less: plans are computed
/// in browsers, too.
pub(super) const STRUCT_BYTES: u64 = 96;
pub(super) const REST_BYTES: u64 = 128;
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<Paged>() as u64 == STRUCT_BYTES);
    assert!(size_of::<Rest>() as u64 == REST_BYTES);
};

impl Paged {
    /// Makes an empty filter: a window if there are `rules`, a counting filter if `params` has
    /// counters, otherwise one that grows. When it is as full as it was reserved for, it takes at
    /// most about `ceiling` bytes.
    ///
    /// # Errors
    /// `Error::ErrorRate`, `Error::Capacity`; `Error::Window` for rules out of range, for a window
    /// with counters, and for a window of items that has an expansion; `Error::Ceiling`,
    /// `Error::OutOfMemory`.
    pub fn new(params: &Params, rules: Option<Rules>, ceiling: u64) -> Result<Self, Error> {
        let plan = plan(params, rules)?;
        let wanted = plan.expected_bytes(plan.most_slots(plan.first_pages.into()))?;
        Demand { present: 0, wanted }.check(|_| ceiling)?;
        let part = rules.map(Window::new).transpose()?.map_or(Part::Nothing, Part::Window);
        Ok(Self::of(params, Pages::new(plan)?, part))
    }

    fn of(params: &Params, pages: Pages, part: Part) -> Self {
        let &Params { seed, error_rate, capacity, expansion, shard, .. } = params;
        let some = !Rest::is_nothing(&part, expansion, shard);
        let rest = some.then(|| Box::new(Rest { part, expansion, shard, ..Rest::default() }));
        Self { seed, error_rate, capacity, pages, rest }
    }

    /// The filter with empty pages above a full layer of the filter of `params`. Calls `base` last.
    ///
    /// # Errors
    /// The errors of [`check_ranges`], and `Error::OutOfMemory`.
    pub fn above(base: impl FnOnce() -> Layer, params: &Params) -> Result<Self, Error> {
        check_ranges(params.error_rate, params.capacity)?;
        let pages = Pages::new(plan_above(params.error_rate)?)?;
        Ok(Self::of(params, pages, Part::Base(base())))
    }

    /// Copies the filter, if there is memory.
    pub fn duplicate(&self) -> Result<Self, Error> {
        let part = match self.part() {
            Part::Nothing => Part::Nothing,
            Part::Base(base) => Part::Base(base.duplicate()?),
            Part::Window(window) => Part::Window(window.clone()),
        };
        Ok(Self::of(&self.params(), self.pages.duplicate()?, part))
    }

    /// The key of the filter's hash. It is secret: never send it to a client.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The false positive rate that the filter does not exceed on average.
    pub fn error_rate(&self) -> f64 {
        self.error_rate
    }

    /// How many items it was reserved for; in a window, the items of the whole window.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Whether it refuses new items at its capacity, and the factor for [`Self::stack`].
    #[inline]
    pub fn expansion(&self) -> Expansion {
        self.rest.as_deref().map_or(Expansion::USUAL, |rest| rest.expansion)
    }

    /// The shard that the filter is; `None` for a filter that takes all items.
    pub fn shard(&self) -> Option<Shard> {
        self.rest.as_deref().and_then(|rest| rest.shard)
    }

    #[inline(always)]
    fn part(&self) -> &Part {
        self.rest.as_deref().map_or(&Part::Nothing, |rest| &rest.part)
    }

    /// The full layer of plain bits below the pages.
    #[inline]
    pub fn base(&self) -> Option<&Layer> {
        if let Part::Base(base) = self.part() { Some(base) } else { None }
    }

    /// The pages.
    pub fn pages(&self) -> &Pages {
        &self.pages
    }

    /// How the filter forgets, and its generations.
    #[inline]
    pub fn window(&self) -> Option<&Window> {
        if let Part::Window(window) = self.part() { Some(window) } else { None }
    }

    /// Whether items can be deleted.
    pub fn counts(&self) -> bool {
        matches!(self.pages.plan().payload, Payload::Count { .. })
    }

    /// The parameters of an equal empty filter; for a window, its rules are needed too.
    pub fn params(&self) -> Params {
        Plan::of_pages(self).params()
    }

    /// Hashes an item with the filter's seed.
    #[inline]
    pub fn hash(&self, item: &[u8]) -> Hash {
        Hash::of(item, self.seed)
    }

    /// The items that are in the filter at `now`, without those that tested present when added.
    pub fn items(&self, now: i64) -> u64 {
        match self.window() {
            Some(window) => window.items(now),
            None => self.base().map_or(0, |layer| layer.counted) + self.pages.items(),
        }
    }

    /// Bytes of the whole filter. Equal filters give equal numbers.
    pub fn bytes(&self) -> u64 {
        let part = match self.part() {
            Part::Nothing => 0,
            Part::Base(base) => base_bytes(base),
            Part::Window(window) => window::list_bytes(window.rules),
        };
        // Not `self.rest.is_some()`: a filter may have a `Rest` for refused deletions alone, and
        // its copy has none.
        let none = Rest::is_nothing(self.part(), self.expansion(), self.shard());
        let rest = if none { 0 } else { REST_BYTES };
        STRUCT_BYTES + self.pages.bytes() + rest + part
    }

    /// What a stack of layers that grows by the expansion would have for `items` items: the number
    /// of layers, and the sum of their capacities. The first layer is for the capacity, and each
    /// next one for expansion times as many as the last. `BF.INFO` reports both.
    pub fn stack(&self, items: u64) -> (u64, u64) {
        match self.expansion().factor() {
            None => (1, self.capacity),
            Some(1) => {
                let layers = items.div_ceil(self.capacity).max(1);
                (layers, layers.saturating_mul(self.capacity))
            }
            Some(factor) => {
                let (mut layers, mut last, mut sum) = (1, self.capacity, self.capacity);
                while sum < items {
                    last = last.saturating_mul(factor.into()).min(MAX_CAPACITY);
                    sum = sum.saturating_add(last);
                    layers += 1;
                }
                (layers, sum)
            }
        }
    }
}

impl Plan {
    /// The filter of this plan, which has pages and was checked, with its layer and pages.
    pub fn with_pages(&self, base: Option<Layer>, mut pages: Pages) -> Paged {
        let window = self.paged.as_ref().and_then(|paged| paged.window.clone());
        let part = match (base, window) {
            (Some(base), _) => Part::Base(base),
            (None, Some(window)) => {
                window.tell(&mut pages);
                Part::Window(window)
            }
            (None, None) => Part::Nothing,
        };
        Paged::of(&self.params(), pages, part)
    }
}

impl Default for Rest {
    fn default() -> Self {
        let (part, expansion, leaving) = (Part::Nothing, Expansion::USUAL, Vec::new());
        Self { part, expansion, shard: None, refused: 0, leaving }
    }
}

impl Rest {
    fn is_nothing(part: &Part, expansion: Expansion, shard: Option<Shard>) -> bool {
        matches!(part, Part::Nothing) && expansion == Expansion::USUAL && shard.is_none()
    }
}

fn base_bytes(base: &Layer) -> u64 {
    base.shape().words() * 8
}

/// The pages of an empty filter without a layer below, of parameters and rules that are checked.
pub(super) fn plan(params: &Params, rules: Option<Rules>) -> Result<pages::Plan, Error> {
    let &Params { error_rate, capacity, expansion, counts, .. } = params;
    check_ranges(error_rate, capacity)?;
    if let Some(rules) = rules {
        rules.check(expansion.factor().is_some())?;
        if counts {
            return Err(Error::Window);
        }
    }
    let (capacity, payload) = match rules {
        // Only a filter of plain bits gains from a reservation.
        None if !counts => (0, Payload::Nothing),
        None => (capacity, Payload::Count { bits: COUNT_BITS }),
        Some(rules) => (
            rules.most_items(capacity).min(MAX_CAPACITY),
            Payload::Generation { bits: window::number_bits(rules) },
        ),
    };
    if expansion.factor().is_none() {
        return pages::Plan::new(error_rate, capacity, Growth::Never, payload);
    }
    // A reservation for one page is treated as none: nobody has estimated the number of items.
    let growth = Growth::Doublings(RESERVED_DOUBLINGS);
    let plan = pages::Plan::new(error_rate, capacity, growth, payload)?;
    if plan.first_pages > 1 {
        return Ok(plan);
    }
    pages::Plan::new(error_rate, 0, Growth::Endless, payload)
}

/// The pages above a full layer, of a filter of rate `asked`.
pub(super) fn plan_above(asked: f64) -> Result<pages::Plan, Error> {
    let rate = (asked * SHARE_ABOVE).max(f64::MIN_POSITIVE);
    pages::Plan::new(rate, 0, Growth::Endless, Payload::Nothing)
}
