//! Filters that grow, count, or forget: what they are, on top of pages that split (`pages/mod.rs`).
//!
//! ```text
//!                 ┌───────────────┐   ┌──────────────────────────────────────────┐
//!    item ──▶     │ base          │   │ pages: a slot for each item              │
//!    hashed once  │ a full layer  │   │ payload   nothing   it grows    add.rs   │
//!                 │ of plain bits │   │           count     COUNTING             │
//!                 │ (or none)     │   │           number    WINDOW      window.rs│
//!                 └───────────────┘   └──────────────────────────────────────────┘
//! ```
//!
//! If a filter that grows was reserved, its first layer stays below the pages when it is full. The
//! layer is made for 3/4 of the error rate, and the pages take 1/4. `EXPANSION` decides only what
//! [`Paged::stack`] reports, and 0 makes the filter refuse new items at its capacity.
//!
//! # What always holds
//! 1. An item that was added and not deleted is found; in a window, for as long as the window says.
//! 2. The state follows from the sequence of changing operations: additions that answer
//!    [`changed`](Addition::changed), deletions that answer true, and [`Shift`]s. A copy
//!    that gets these as [`Obeyed`](Author::Obeyed) is equal word for word.
//! 3. An operation that fails has changed nothing. But if the allocator refuses a few kilobytes,
//!    pages that should be joined or emptied stay as they are until a later operation. All answers
//!    stay right, but such a copy is no longer equal word for word.

mod add;
mod rules;
mod window;

pub use add::{Addition, Additions, Author};
pub use rules::{MAX_GENERATIONS, MAX_MILLISECONDS, MAX_TIME, NEVER, Rules, Span};
pub use window::{Generation, MOST_SWEPT, SWEEP_EVERY, Shift, Sweep, Window};
pub(super) use window::{list_bytes, number_bits};

use super::{
    error::{Demand, Error},
    estimate::Estimate,
    hash::Hash,
    layer::Layer,
    pages::{self, Growth, Page, Pages, Payload},
    params::{Expansion, MAX_CAPACITY, Params, check_ranges},
};
use crate::sharding::Shard;

/// Bits of a count: counts up to 15 are exact, and 16 means "16 or more".
const COUNT_BITS: u8 = 4;

/// A reserved filter takes the least memory up to this many doublings of its reservation.
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
#[derive(Debug)]
enum Part {
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
    /// counters, otherwise one that grows. As full as it was reserved for, it takes at most about
    /// `ceiling` bytes.
    ///
    /// # Errors
    /// Those of [`check_ranges`]; `Error::Window` for rules out of range, a window with counters,
    /// or a window of items that has an expansion; `Error::Ceiling`, `Error::OutOfMemory`.
    pub fn new(params: &Params, rules: Option<Rules>, ceiling: u64) -> Result<Self, Error> {
        let plan = plan(params, rules)?;
        let wanted = plan.expected_bytes(plan.most_slots(plan.first_pages.into()))?;
        Demand { present: 0, wanted }.check(|_| ceiling)?;
        let part = rules.map(Window::new).transpose()?.map_or(Part::Nothing, Part::Window);
        Ok(Self::of(params, Pages::new(plan)?, part))
    }

    fn of(params: &Params, pages: Pages, part: Part) -> Self {
        let &Params { seed, error_rate, capacity, expansion, shard, .. } = params;
        let rest = Rest::new(part, expansion, shard);
        let rest = (!rest.is_usual()).then(|| Box::new(rest));
        Self { seed, error_rate, capacity, pages, rest }
    }

    /// A filter of these parts; a layer below the pages and a window exclude each other.
    pub(super) fn with(
        params: &Params,
        base: Option<Layer>,
        window: Option<Window>,
        mut pages: Pages,
    ) -> Self {
        let part = if let Some(window) = window {
            window.tell(&mut pages);
            Part::Window(window)
        } else {
            base.map_or(Part::Nothing, Part::Base)
        };
        Self::of(params, pages, part)
    }

    /// The filter of `params` with empty pages above its full layer. Calls `base` last.
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

    /// How many items it was reserved for.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The factor for [`Self::stack`]. A filter without one refuses new items at its capacity.
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
        matches!(self.pages.plan().payload, Payload::Count(_))
    }

    /// The parameters of an equal empty filter, which for a window also needs the rules.
    pub fn params(&self) -> Params {
        let &Self { error_rate, capacity, seed, .. } = self;
        let (expansion, counts, shard) = (self.expansion(), self.counts(), self.shard());
        Params { error_rate, capacity, expansion, seed, counts, shard }
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
            Part::Window(window) => list_bytes(window.rules),
        };
        // A filter may have a `Rest` for refused deletions alone, and its copy has none.
        let usual = self.rest.as_deref().is_none_or(Rest::is_usual);
        STRUCT_BYTES + self.pages.bytes() + if usual { 0 } else { REST_BYTES } + part
    }

    /// What `BF.INFO` reports: the number of layers, and the sum of their capacities, of a stack of
    /// layers for `items` items. The first one is for the capacity, and each next one for expansion
    /// times as many as the last.
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

    /// The share of slots that are taken, and the rate of base and pages together.
    pub fn estimate(&self) -> Estimate {
        let pages = self.estimate_pages();
        let base = self.base().map_or(0.0, |base| base.estimate().error_rate);
        Estimate { error_rate: base + pages.error_rate * (1.0 - base), ..pages }
    }

    /// [`Self::estimate`] of the pages alone.
    pub fn estimate_pages(&self) -> Estimate {
        let fill = (self.pages.slot_count() as f64 / self.pages.most_slots() as f64).min(1.0);
        Estimate { fill, error_rate: self.pages.sample().error_rate }
    }

    /// The rate for which the pages were made.
    pub fn error_rate_of_pages(&self) -> f64 {
        self.error_rate * if self.base().is_some() { SHARE_ABOVE } else { 1.0 }
    }

    /// Items whose count is the highest and stays; `None` in a filter that does not count.
    pub fn saturated(&self) -> Option<u64> {
        self.counts().then(|| self.pages.sample().saturated)
    }

    /// Bytes that the allocator spends on all that the filter has. `size` returns the bytes of one
    /// allocation. It is not called for pages, which fill their size classes.
    pub fn memory(&self, size: impl Fn(*const u8) -> usize) -> usize {
        let Some(rest) = self.rest.as_deref() else {
            return self.pages.bytes() as usize;
        };
        let part = match &rest.part {
            Part::Nothing => 0,
            Part::Base(base) => size(base.bits().words().as_ptr().cast()),
            Part::Window(window) => size(window.generations.as_ptr().cast()),
        };
        let rest = size(std::ptr::from_ref(rest).cast());
        part + rest + (self.pages.bytes() + self.leaving_bytes()) as usize
    }

    /// Bytes of forgotten pages that are not freed yet.
    pub fn leaving_bytes(&self) -> u64 {
        self.rest.as_deref().map_or(0, |rest| rest.leaving.iter().map(Page::bytes).sum())
    }

    /// Lets an allocator move allocations, from number `from` on, until `stop` says so. Returns the
    /// number of the next allocation, or `None` at the end.
    ///
    /// # Safety
    /// As for [`Bits::relocate`](crate::filter::Bits::relocate).
    pub unsafe fn relocate(
        &mut self,
        from: u64,
        mut mover: impl FnMut(*mut u8, usize) -> *mut u8,
        stop: impl FnMut() -> bool,
    ) -> Option<u64> {
        if from == 0
            && let Some(Rest { part: Part::Base(base), .. }) = self.rest.as_deref_mut()
        {
            // SAFETY: the caller's promise.
            unsafe { base.bits_mut().relocate(&mut mover) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.pages.relocate(from, mover, stop) }
    }
}

/// Up to this capacity, RedisBloom's default, nobody has estimated the number of items. Pages from
/// the first item on then take less memory.
const UNRESERVED: u64 = 100;

impl Params {
    /// Whether a new native filter has pages from its first item on.
    pub fn has_pages(&self, rules: Option<Rules>) -> bool {
        let grows = self.expansion.factor().is_some();
        rules.is_some() || self.counts || (grows && self.capacity <= UNRESERVED)
    }
}

impl Rest {
    fn new(part: Part, expansion: Expansion, shard: Option<Shard>) -> Self {
        Self { part, expansion, shard, refused: 0, leaving: Vec::new() }
    }

    /// Whether the filter needs none, except for refused deletions.
    fn is_usual(&self) -> bool {
        let none = matches!(self.part, Part::Nothing) && self.shard.is_none();
        none && self.expansion == Expansion::USUAL
    }
}

fn base_bytes(base: &Layer) -> u64 {
    base.shape().words() * 8
}

/// The pages of an empty filter without a layer below. Checks the parameters and the rules.
pub(super) fn plan(params: &Params, rules: Option<Rules>) -> Result<pages::Plan, Error> {
    let &Params { error_rate, capacity, expansion, counts, .. } = params;
    check_ranges(error_rate, capacity)?;
    let scales = expansion.factor().is_some();
    let (capacity, payload) = match rules {
        // Only a filter of plain bits gains from a reservation.
        None if !counts => (0, Payload::Nothing),
        None => (capacity, Payload::Count(COUNT_BITS)),
        Some(_) if counts => return Err(Error::Window),
        Some(rules) => {
            rules.check(scales)?;
            let most = rules.most_items(capacity).min(MAX_CAPACITY);
            (most, Payload::Generation(number_bits(rules)))
        }
    };
    if !scales {
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
