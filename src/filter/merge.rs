//! The union of filters with equal parameters: the filter that all their items would have made.
//!
//! Layers are united bit by bit: equal parameters give equal layers, and an item has the same
//! positions in each. Of pages, a copy of the larger ones gets the slots of the others
//! (`pages/unite.rs`).
//!
//! A filter does not know its items, so they cannot be moved to another layer or to pages. So a
//! union is refused where its layer would hold too many. A filter with several layers is refused
//! because all but the newest are full.
//!
//! # How many items a layer holds
//! If one of the layers has all nonzero positions of the union, the count of the union is the
//! highest count of a layer. Otherwise it is n(r) of the r nonzero positions
//! (`layer/occupancy.rs`), but at least 1 more than the count of each layer, and at most the sum of
//! the counts. At 1 %, the standard deviation of n(r) is 8 in a full filter of 1,000 items, and 250
//! in a million (`tests/filter/merge.rs`).
//!
//! # The rate of pages
//! The rate of a union of pages is at most the sum of their rates, and grows with each further
//! item. If the planned growth would take it above the configured rate, all later levels get longer
//! tags. The growth then adds at most 2 d 2^-r (`pages/plan.rs`). If the rate would still be too
//! high, the union is refused.

use super::{
    error::{Demand, Error, Unmergeable},
    foreign::Family,
    layer::{Layer, bits::Bits, occupancy},
    paged::Paged,
    pages::{self, PAGE_BUCKETS, Pages},
    plan::Plan,
    stack::Filter,
};

/// The most slots that a union moves, if it copies few: some two seconds.
const MOST_UNITED: u64 = 1 << 24;

/// Slots that are copied, compared and freed in the time in which one is moved.
const COPIED_PER_MOVED: u64 = 64;

/// For filters with equal parameters and different shapes: another version made one of them.
const OTHER_SHAPE: Unmergeable = Unmergeable::Differ("the size of a layer");

/// A filter of a union.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "they are the kinds of filters")]
pub enum Member<'a> {
    Layers(&'a Filter),
    Pages(&'a Paged),
}

/// A union that differs from the first of its members.
#[derive(Debug)]
pub enum Union {
    /// Of layers that [`Filter::unite`] unites in place: its items.
    Layer(u64),
    /// With pages.
    Pages(Paged),
}

impl<'a> Member<'a> {
    fn layer(self) -> Option<&'a Layer> {
        match self {
            Self::Layers(filter) => Some(filter.newest()),
            Self::Pages(paged) => paged.base(),
        }
    }

    fn paged(self) -> Option<&'a Paged> {
        if let Self::Pages(paged) = self { Some(paged) } else { None }
    }

    /// Bytes of bits and pages.
    pub fn bytes(self) -> u64 {
        let bits = self.layer().map_or(0, |layer| layer.shape().words() * 8);
        bits + self.paged().map_or(0, |paged| paged.pages().bytes())
    }

    /// The first property in which two members differ.
    fn difference(self, other: Self) -> Option<&'static str> {
        let numbers = |member| match member {
            Self::Layers(filter) => (filter.family(), filter.params()),
            Self::Pages(paged) => (Family::Native, paged.params()),
        };
        let ((family, a), (other_family, b)) = (numbers(self), numbers(other));
        let (seeds, ratios) = match (family, other_family) {
            (Family::Valkey(a), Family::Valkey(b)) => {
                (a.seed == b.seed, a.tightening == b.tightening)
            }
            _ => (a.seed == b.seed, true),
        };
        let kind = (family.tag(), a.counts, self.layer().is_some());
        let other_kind = (other_family.tag(), b.counts, other.layer().is_some());
        let checks = [
            // The product that made them, its version, counters, or whether there is a layer.
            (kind == other_kind, "kind"),
            (a.shard == b.shard, "shard"),
            (seeds, "seed"),
            (a.error_rate == b.error_rate, "error rate"),
            (a.capacity == b.capacity, "capacity"),
            (a.expansion == b.expansion, "expansion"),
            (ratios, "tightening ratio"),
        ];
        checks.into_iter().find(|(alike, _)| !alike).map(|(_, difference)| difference)
    }
}

impl Union {
    /// The union of filters; `None` if the first one is the union already. Without `limited`,
    /// neither the number of items nor the rate refuses it. `ceiling` is called only if the union
    /// may take more than the first one.
    ///
    /// # Errors
    /// `Error::Unmergeable`, `Error::Ceiling`, `Error::OutOfMemory`.
    pub fn of(
        members: &[Member],
        limited: bool,
        ceiling: impl FnOnce(Demand) -> u64,
    ) -> Result<Option<Self>, Error> {
        let Some((&first, others)) = members.split_first() else {
            return Ok(None);
        };
        let paged: Vec<&Paged> = members.iter().filter_map(|member| member.paged()).collect();
        if paged.iter().any(|paged| paged.window().is_some()) {
            return Err(Unmergeable::Window.into());
        }
        if let Some(difference) = others.iter().find_map(|&other| first.difference(other)) {
            return Err(Unmergeable::Differ(difference).into());
        }
        if members.iter().any(|it| matches!(it, Member::Layers(it) if !it.older().is_empty())) {
            return Err(Unmergeable::Layers.into());
        }
        if others.is_empty() {
            return Ok(None);
        }
        let layers: Vec<&Layer> = members.iter().filter_map(|member| member.layer()).collect();
        if paged.is_empty() {
            return Ok(unite_layers(&layers, limited)?.map(Self::Layer));
        }
        Self::of_pages(first, paged, &layers, limited, ceiling)
    }

    fn of_pages(
        first: Member,
        mut paged: Vec<&Paged>,
        layers: &[&Layer],
        limited: bool,
        ceiling: impl FnOnce(Demand) -> u64,
    ) -> Result<Option<Self>, Error> {
        // The first one of those with the most pages: what others have fits into its levels.
        paged.sort_by_key(|paged| {
            std::cmp::Reverse((paged.pages().pages().len(), paged.pages().slot_count()))
        });
        let Some((model, smaller)) = paged.split_first() else {
            return Ok(None);
        };
        let largest = model.pages();
        let smaller: Vec<&Pages> = smaller.iter().map(|paged| paged.pages()).collect();
        let numbers = |table: &Pages| pages::Plan { doublings: 0, ..table.plan() };
        if smaller.iter().any(|table| numbers(table) != numbers(largest)) {
            return Err(OTHER_SHAPE.into());
        }
        // By slots, as replicas must agree.
        let mut left = MOST_UNITED.saturating_sub(largest.slot_count() / COPIED_PER_MOVED);
        let moved = smaller.iter().map(|table| table.slot_count()).fold(0, u64::saturating_add);
        if moved > left {
            return Err(Unmergeable::Large.into());
        }
        let items = if layers.is_empty() { None } else { unite_layers(layers, limited)? };
        let bits = layers.first().map_or(0, |layer| layer.shape().words() * 8);
        let wanted = paged.iter().map(|it| it.pages().bytes()).fold(bits, u64::saturating_add);
        let present = first.bytes();
        if wanted > present {
            Demand { present, wanted }.check(ceiling)?;
        }
        let mut pages = largest.duplicate()?;
        smaller.iter().try_for_each(|table| pages.unite(table, &mut left))?;
        if items.is_none() && first.paged().is_some_and(|paged| *paged.pages() == pages) {
            return Ok(None);
        }
        let capacity = model.capacity();
        if model.expansion().factor().is_none() {
            check_items(pages.items(), capacity, limited)?;
        } else if !smaller.is_empty() {
            keep_rate(&mut pages, model.error_rate_of_pages(), limited)?;
        }
        let layer = match layers {
            [] => None,
            [first, others @ ..] => {
                let mut layer = first.duplicate()?;
                layer.unite(others.iter().copied(), items.unwrap_or(first.counted));
                Some(layer)
            }
        };
        Ok(Some(Self::Pages(Plan::of_pages(model).with_pages(layer, pages))))
    }
}

impl Filter {
    /// Makes the filter the union of itself and `others`. The union has `items` items.
    pub fn unite(&mut self, others: &[Member], items: u64) {
        self.newest_mut().unite(others.iter().filter_map(|other| other.layer()), items);
    }
}

/// The items of the union of layers; `None` if the first is the union already.
fn unite_layers(layers: &[&Layer], limited: bool) -> Result<Option<u64>, Unmergeable> {
    let numbers = |layer: &Layer| (layer.shape(), layer.capacity, layer.error_rate);
    let first = layers[0];
    if layers.iter().any(|other| numbers(other) != numbers(first)) {
        return Err(OTHER_SHAPE);
    }
    let (shape, capacity, _) = numbers(first);
    let bits: Vec<_> = layers.iter().map(|layer| layer.bits()).collect();
    let (nonzero, union) = Bits::count_union(&bits);
    let counts = layers.iter().map(|layer| layer.counted);
    let mut items = counts.clone().max().unwrap_or_default();
    if nonzero.iter().all(|&nonzero| nonzero < union) {
        let by_positions = (occupancy::counted(shape, union) + 0.5) as u64;
        let most = counts.fold(0, u64::saturating_add);
        items = by_positions.min(most).max(items.saturating_add(1));
        check_items(items, capacity, limited)?;
    }
    // A layer never counts above its capacity (`plan.rs`).
    let items = items.min(capacity);
    Ok((union > nonzero[0] || items != first.counted).then_some(items))
}

fn check_items(items: u64, capacity: u64, limited: bool) -> Result<(), Unmergeable> {
    if limited && items > capacity { Err(Unmergeable::Full { items, capacity }) } else { Ok(()) }
}

/// Plans the growth of a union so that it keeps the rate.
fn keep_rate(pages: &mut Pages, asked: f64, limited: bool) -> Result<(), Unmergeable> {
    let (plan, rate) = (pages.plan(), pages.sample().error_rate);
    let unit =
        f64::from(plan.page_slots) / PAGE_BUCKETS as f64 * libm::exp2(-f64::from(plan.tag_bits));
    let count = pages.pages().len() as u64;
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
