//! Filters that forget: a ring of generations, each a stack of layers as a plain filter has.
//!
//! ```text
//!                ┌ ─ ─ ┐                              ┌─────┐
//!                 layer                               │layer│ ◀── additions
//!   ┌ ─ ─ ┐      ├ ─ ─ ┤      ┌─────┐      ┌─────┐    ├─────┤
//!    layer        layer       │layer│      │layer│    │layer│
//!   └ ─ ─ ┘      └ ─ ─ ┘      └─────┘      └─────┘    └─────┘
//!     dead         dead        oldest                  newest
//!                              └────── a query asks ──────┘
//! ```
//!
//! A generation takes the additions of a G-th of the window, and is forgotten whole (`ring.rs`).
//!
//! > An item added within the last T is always found. An item last added more than T (1 + 1/G) ago
//! > is found only with the error rate.
//!
//! Without refresh: an addition that answered "new" is remembered for at least T, and at most
//! T (1 + 1/G), whatever is added meanwhile; one that answered "known" promises nothing.
//!
//! All of it by a clock that is right (`move_back` in `ring.rs` has what another one costs).
//!
//! # Answers and changes
//!
//! An addition is new if no generation that is alive holds the item. With refresh, it changes the
//! filter unless the newest generation holds the item. It must, even if an older generation does:
//! that one may hold the item by accident, and be forgotten before the item is T old. Without
//! refresh it changes the filter only if it is new.
//!
//! # Copies
//!
//! Time reaches copies of the filter (replicas, an AOF) only as a [`Shift`], which is obeyed
//! without a look at a clock. A copy gets the shifts, and the items that changed the filter. It
//! asks the newest generation alone whether it must take such an item ([`Author::Obeyed`]): in an
//! older one, it may be there by accident where the author had dropped that generation already. So
//! copies are equal bit by bit, whatever their clocks show.
//!
//! A query asks the generations that are alive by the clock of its server, and changes nothing.
//!
//! All layers of all generations are the layers of one [`Filter`], oldest first, which is stored,
//! copied and measured like any other.

mod ring;

pub use ring::{
    Fault, Generation, MAX_GENERATIONS, MAX_MILLISECONDS, MAX_TIME, NEVER, Ring, Rules, Shift, Span,
};

use std::ops::Range;

use super::{
    batch::found_in,
    error::Error,
    foreign::Family,
    geometry::MAX_WORDS,
    hash::Hash,
    layer::{
        Layer,
        item_set::{Answers, CHUNK, ItemSet},
    },
    params::{CellKind, Expansion, MAX_LAYERS, Params},
    plan::{Demand, LayerPlan},
    sizing::layer_rate,
    stack::Filter,
};

/// A filter that forgets.
#[derive(Debug)]
pub struct Window(Filter);

/// Who adds an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// A client, at this time. [`Window::turn`] came before.
    Client(i64),
    /// A primary or an AOF, whose additions changed the newest generation. They are never refused.
    Obeyed,
}

/// The layers that left a window.
#[derive(Debug, Default)]
pub struct Dropped {
    /// How many there were.
    pub count: usize,
}

/// What an addition did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addition {
    /// Whether no generation that is alive held the item. If the author is [`Author::Obeyed`], only
    /// the newest generation counts.
    pub new: bool,
    /// Whether the filter changed.
    pub changed: bool,
}

/// What the additions of a chunk of items did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Additions {
    /// [`Addition::new`] of each item.
    pub new: Answers,
    /// [`Addition::changed`] of each item.
    pub changed: Answers,
}

impl TryFrom<Filter> for Window {
    type Error = Filter;

    /// The window that a filter is, or else the filter.
    fn try_from(filter: Filter) -> Result<Self, Filter> {
        if filter.window().is_some() { Ok(Self(filter)) } else { Err(filter) }
    }
}

impl Window {
    /// Makes an empty filter that forgets. `params.capacity` is for the whole window. All
    /// generations that may be alive at once, each as large as planned, take at most `ceiling`
    /// bytes of bits, but only the first one is allocated.
    ///
    /// # Errors
    /// Those of [`Filter::new`]; `Error::Window` for rules out of range, for counters, and for a
    /// window of items that has an expansion.
    pub fn new(params: &Params, rules: Rules, ceiling: u64) -> Result<Self, Error> {
        params.check()?;
        let &Params { error_rate, capacity, expansion, seed, cells } = params;
        rules.check(expansion.factor().is_some())?;
        if cells != CellKind::Bits {
            return Err(Error::Window);
        }
        let ring = Ring::new(rules, capacity);
        let plan = first_layer(&ring, error_rate, expansion, rules.generation_capacity(capacity));
        // The generations that are not there yet count as present.
        let words = plan.map_or(0, |plan| plan.shape.words());
        let others = words.saturating_mul(8).saturating_mul(rules.generations.into());
        let newest = LayerPlan::make(plan, others, |_| ceiling.min(MAX_WORDS * 8))?;
        Filter::from_layers(Family::Native, seed, error_rate, expansion, vec![newest])
            .map(|filter| Self(filter.with_window(Some(ring))))
            .ok_or(Error::OutOfMemory(0))
    }

    /// The filter of all layers, to store, copy and measure. It does not forget: it holds what was
    /// not dropped yet.
    #[must_use]
    pub fn filter(&self) -> &Filter {
        &self.0
    }

    /// The filter of all layers, to move its memory.
    pub fn filter_mut(&mut self) -> &mut Filter {
        &mut self.0
    }

    /// The filter of all layers.
    #[must_use]
    pub fn into_filter(self) -> Filter {
        self.0
    }

    /// The rules and the generations.
    #[expect(clippy::expect_used, reason = "a window is only made of a filter that has a ring")]
    #[must_use]
    pub fn ring(&self) -> &Ring {
        self.0.window().expect("a window has a ring")
    }

    #[expect(clippy::expect_used, reason = "a window is only made of a filter that has a ring")]
    fn ring_mut(&mut self) -> &mut Ring {
        self.0.window_mut().expect("a window has a ring")
    }

    /// The layers of each generation, oldest first.
    pub fn generations(&self) -> impl Iterator<Item = (Generation, Vec<&Layer>)> {
        let ring = self.ring();
        let starts = std::iter::once(0).chain(ring.ends());
        ring.generations.iter().zip(starts.zip(ring.ends())).map(|(generation, (start, end))| {
            (*generation, self.0.layers().skip(start).take(end - start).collect())
        })
    }

    /// The items that are remembered at `now`: each counts once in every generation that took it.
    #[must_use]
    pub fn items(&self, now: i64) -> u64 {
        self.0.layers().skip(self.first_alive(now)).map(Layer::items).sum()
    }

    /// The number of the first layer that is alive at `now`.
    #[inline]
    fn first_alive(&self, now: i64) -> usize {
        let ring = self.ring();
        match ring.dead(now) {
            0 => 0,
            dead => ring.layers_of(dead),
        }
    }

    /// The number of the first layer of the newest generation.
    #[inline]
    fn newest_generation(&self) -> usize {
        self.0.layers().len().saturating_sub(self.ring().newest().layers as usize)
    }

    /// Items that the newest generation counts.
    fn counted(&self) -> u64 {
        self.0.layers_from(self.newest_generation()).map(Layer::counted).sum()
    }

    /// Returns whether the item may have been added within the window that ends at `now`.
    #[must_use]
    pub fn contains(&self, hash: Hash, now: i64) -> bool {
        let alive = self.first_alive(now)..self.0.layers().len();
        self.prefetch(alive.clone(), hash);
        self.holds(alive, hash)
    }

    /// Answers each item as [`Self::contains`] does, in order, one chunk at a time.
    #[inline]
    pub fn contains_each<'a>(
        &self,
        mut items: impl Iterator<Item = &'a [u8]>,
        now: i64,
        mut answer: impl FnMut(Answers),
    ) {
        let first = self.first_alive(now);
        if first == 0 {
            return self.0.contains_each(items, answer);
        }
        let mut chunk = [Hash::default(); CHUNK];
        let alive = || self.0.layers_in(first..self.0.layers().len());
        loop {
            // `by_ref` for the reason given in `add_each_counted`.
            let hashes = self.0.hash_chunk(&mut items.by_ref(), &mut chunk, false);
            if hashes.is_empty() {
                return;
            }
            let found = found_in(alive(), hashes, ItemSet::first(hashes.len()));
            answer(Answers::new(found, hashes.len()));
        }
    }

    /// Prefetches an item's cache lines in the newest of these layers, so that the waits for them
    /// overlap. Processors keep about ten lines under way.
    fn prefetch(&self, layers: Range<usize>, hash: Hash) {
        self.0.layers_in(layers).take(8).for_each(|layer| layer.prefetch(hash));
    }

    fn holds(&self, layers: Range<usize>, hash: Hash) -> bool {
        self.0.layers_in(layers).any(|layer| layer.contains(hash))
    }

    /// The first layers that decide whether an addition is new, and whether it changes the filter.
    fn asked(&self, author: Author) -> (usize, usize) {
        let newest = self.newest_generation();
        let alive = match author {
            Author::Client(now) => self.first_alive(now).min(newest),
            Author::Obeyed => newest,
        };
        (alive, if self.ring().rules.refresh { newest } else { alive })
    }

    /// What an addition of the item does, if the newest generation has room.
    fn addition(&self, hash: Hash, author: Author) -> Addition {
        let (alive, changing) = self.asked(author);
        let count = self.0.layers().len();
        self.prefetch(alive..count, hash);
        if self.holds(changing..count, hash) {
            Addition::default()
        } else {
            Addition { new: !self.holds(alive..changing, hash), changed: true }
        }
    }

    /// Adds an item if the window needs neither a generation nor a layer for it. Else returns
    /// `None`, and nothing has changed: [`Self::turn`] and [`Self::add`] do it.
    pub fn add_in_place(&mut self, hash: Hash, author: Author) -> Option<Addition> {
        if let Author::Client(now) = author
            && self.ring().due(now).is_some()
        {
            return None;
        }
        let addition = self.addition(hash, author);
        if addition.changed {
            if self.0.newest().is_full() {
                return None;
            }
            self.0.newest_mut().add(hash);
        }
        Some(addition)
    }

    /// Adds an item. If the newest generation has no room, a layer or a generation is added first,
    /// and then `ceiling` is called as [`Filter::grow`] does. A window of items may drop its oldest
    /// generation for that.
    ///
    /// # Errors
    /// Those of [`Filter::grow`], for a client. The filter is unchanged then.
    pub fn add(
        &mut self,
        hash: Hash,
        author: Author,
        ceiling: impl FnOnce(Demand) -> u64,
        dropped: &mut Dropped,
    ) -> Result<Addition, Error> {
        let addition = self.addition(hash, author);
        if !addition.changed {
            return Ok(addition);
        }
        let room = if self.0.newest().is_full() { self.grow(ceiling, dropped) } else { Ok(()) };
        match (room, author) {
            (Ok(()), _) => self.0.newest_mut().add(hash),
            // What a primary added is never lost, but the error rate is guaranteed only up to the
            // capacity.
            (Err(_), Author::Obeyed) => self.0.newest_mut().add_uncounted(hash),
            (Err(error), Author::Client(_)) => return Err(error),
        };
        Ok(addition)
    }

    /// Adds each item in order, as [`Self::add`] does. Answers one chunk at a time.
    ///
    /// # Errors
    /// Those of [`Self::add`]. The first item that fails and all items after it are not added and
    /// get no answer.
    pub fn add_each<'a>(
        &mut self,
        mut items: impl Iterator<Item = &'a [u8]>,
        author: Author,
        ceiling: impl Fn(Demand) -> u64,
        dropped: &mut Dropped,
        mut answer: impl FnMut(Additions),
    ) -> Result<(), Error> {
        let mut chunk = [Hash::default(); CHUNK];
        loop {
            // `by_ref` for the reason given in `add_each_counted`.
            let hashes = self.0.hash_chunk(&mut items.by_ref(), &mut chunk, true);
            if hashes.is_empty() {
                return Ok(());
            }
            let (alive, changing) = self.asked(author);
            let (count, newest) = (hashes.len(), self.0.newest_number());
            let held = found_in(self.0.layers_in(changing..newest), hashes, ItemSet::first(count));
            let missing = ItemSet::first(count).without(held);
            self.0.newest().prefetch_remaining(hashes, missing);
            if self.0.newest().room() < missing.len() {
                let mut done = Additions::default();
                let outcome = hashes.iter().try_for_each(|&hash| {
                    let Addition { new, changed } = self.add(hash, author, &ceiling, dropped)?;
                    done.new.push(new);
                    done.changed.push(changed);
                    Ok(())
                });
                answer(done);
                outcome?;
            } else {
                let changed = self.0.newest_mut().add_chunk(hashes, missing);
                let known = found_in(self.0.layers_in(alive..changing), hashes, changed);
                let answers = |items| Answers::new(items, count);
                answer(Additions {
                    new: answers(changed.without(known)),
                    changed: answers(changed),
                });
            }
        }
    }

    /// Makes room in the newest generation: a layer more, or the next generation of a window of
    /// items.
    #[cold]
    fn grow(
        &mut self,
        ceiling: impl FnOnce(Demand) -> u64,
        dropped: &mut Dropped,
    ) -> Result<(), Error> {
        if let Span::Time(_) = self.ring().rules.span {
            return self.0.grow(ceiling);
        }
        let ring = self.ring();
        let gone = usize::from(ring.generations.len() >= ring.rules.most_generations());
        let (start, capacity) = (ring.next_number(), ring.planned_capacity());
        self.open(Generation { start, layers: 1 }, capacity, 0..gone, ceiling, dropped)
    }

    /// Opens a generation of one layer, for `capacity` items, and drops those that are `leaving`
    /// for it.
    ///
    /// # Errors
    /// `Error::Layers`, `Error::Ceiling`, `Error::OutOfMemory`. Nothing has changed then.
    fn open(
        &mut self,
        generation: Generation,
        capacity: u64,
        leaving: Range<usize>,
        ceiling: impl FnOnce(Demand) -> u64,
        dropped: &mut Dropped,
    ) -> Result<(), Error> {
        let ring = self.ring();
        let (start, end) = (ring.layers_of(leaving.start), ring.layers_of(leaving.end));
        if self.0.layers().len() - (end - start) >= MAX_LAYERS {
            return Err(Error::Layers);
        }
        let freed: u64 = self.0.layers().skip(start).take(end - start).map(bit_bytes).sum();
        let left = self.0.bit_bytes().saturating_sub(freed);
        let (rate, expansion) = (self.0.error_rate(), self.0.expansion());
        let plan = first_layer(ring, rate, expansion, capacity);
        // What is leaving is freed after the new layer is made.
        let ceiling = |Demand { present, wanted }| {
            ceiling(Demand { present: present.saturating_add(freed), wanted })
        };
        let layer = LayerPlan::make(plan, left, ceiling)?;
        self.0.push_generation(generation, layer);
        self.0.drop_generations(leaving, dropped);
        Ok(())
    }

    /// Does what an addition by a client at `now` must do first: opens the next generation if it is
    /// time, and drops those that are out of the window. Returns the change for the copies of the
    /// filter to obey, also with an error: what was dropped stays dropped.
    ///
    /// # Errors
    /// In the second part: `Error::Layers`, `Error::Ceiling` and `Error::OutOfMemory`. No item may
    /// be added then.
    pub fn turn(
        &mut self,
        now: i64,
        ceiling: impl Fn(Demand) -> u64,
        dropped: &mut Dropped,
    ) -> (Option<Shift>, Result<(), Error>) {
        let Some(start) = self.ring().due(now) else {
            return (None, Ok(()));
        };
        let planned = self.ring().planned_capacity();
        let wanted = self.ring().next_capacity(self.counted());
        let forgot = self.forget(start, dropped) > 0;
        let mut capacity = wanted;
        let mut outcome = self.shift(Shift { start, capacity }, &ceiling, dropped);
        // After a burst, the next generation may be too large where a planned one is not.
        if wanted > planned && outcome.is_err() {
            capacity = planned;
            outcome = self.shift(Shift { start, capacity }, &ceiling, dropped);
        }
        match outcome {
            Ok(()) => (Some(Shift { start, capacity }), Ok(())),
            Err(error) => (forgot.then_some(Shift { start, capacity: 0 }), Err(error)),
        }
    }

    /// Makes a change that [`Self::turn`] or [`Self::forget`] made elsewhere.
    ///
    /// # Errors
    /// `Error::Window` for a change that no copy of this filter can have made; nothing changes
    /// then. `Error::Layers`, `Error::Ceiling` and `Error::OutOfMemory`: no generation is opened.
    /// The newest one starts anew in its place, so that its items, and those that follow, are
    /// remembered for longer, not for less.
    pub fn obey(
        &mut self,
        shift: Shift,
        ceiling: impl FnOnce(Demand) -> u64,
        dropped: &mut Dropped,
    ) -> Result<(), Error> {
        let outcome = self.shift(shift, ceiling, dropped);
        if outcome.is_err_and(|error| error != Error::Window) {
            self.ring_mut().stamp(shift.start);
        }
        outcome
    }

    /// What [`Self::obey`] does, but a generation that cannot be opened is no change.
    fn shift(
        &mut self,
        Shift { start, capacity }: Shift,
        ceiling: impl FnOnce(Demand) -> u64,
        dropped: &mut Dropped,
    ) -> Result<(), Error> {
        let (rules, newest) = (self.ring().rules, self.ring().newest().start);
        if rules.span == Span::Items || !(0..=MAX_TIME).contains(&start) {
            return Err(Error::Window);
        }
        let is_empty = self.counted() == 0;
        if capacity == 0 {
            self.forget(start, dropped);
        } else if newest == NEVER && !is_empty {
            // Only a copy that missed a shift has such items. They live longer than they should.
            self.ring_mut().stamp(start);
        } else if newest != NEVER && start < newest {
            self.ring_mut().move_back(start);
        } else if !is_empty && !rules.is_over(newest, start) {
            return Err(Error::Window);
        } else {
            self.forget(start, dropped);
            self.open_next(start, capacity, ceiling, dropped)?;
        }
        Ok(())
    }

    /// Opens the next generation after the newest one, or in its place if that is empty, or is out
    /// of the window and was not dropped for want of memory.
    fn open_next(
        &mut self,
        start: i64,
        capacity: u64,
        ceiling: impl FnOnce(Demand) -> u64,
        dropped: &mut Dropped,
    ) -> Result<(), Error> {
        let is_empty = self.counted() == 0;
        if is_empty && self.0.newest().capacity() == capacity {
            self.ring_mut().stamp(start);
            return Ok(());
        }
        let count = self.ring().generations.len();
        let newest = self.ring().newest().start;
        let leaves = is_empty || !self.ring().rules.is_alive(newest, start);
        let leaving = count - usize::from(leaves)..count;
        self.open(Generation { start, layers: 1 }, capacity, leaving, ceiling, dropped)
    }

    /// Drops the generations that are out of the window at `now`, and returns their number. If all
    /// are out, a generation for one item takes their place. Copies of the filter obey a [`Shift`]
    /// of capacity 0.
    pub fn forget(&mut self, now: i64, dropped: &mut Dropped) -> usize {
        let (count, dead) = (self.ring().generations.len(), self.ring().dead(now));
        let unused = Generation { start: NEVER, layers: 1 };
        if dead < count {
            self.0.drop_generations(0..dead, dropped);
            dead
        } else if self.open(unused, 1, 0..count, |demand| demand.wanted, dropped).is_ok() {
            count
        } else {
            self.0.drop_generations(0..count - 1, dropped);
            count - 1
        }
    }
}

/// Bytes of the bits of a layer.
fn bit_bytes(layer: &Layer) -> u64 {
    layer.shape().words() * 8
}

/// The first layer of a generation for `capacity` items, in a filter of rate `asked`.
fn first_layer(ring: &Ring, asked: f64, expansion: Expansion, capacity: u64) -> Option<LayerPlan> {
    let rate = layer_rate(ring.rules.share(asked), 0, expansion.factor().is_some());
    LayerPlan::native(CellKind::Bits, capacity, rate)
}

// What a window changes in the filter of its layers.
impl Filter {
    /// Puts a new generation on top of the others.
    fn push_generation(&mut self, generation: Generation, layer: Layer) {
        self.push(layer);
        if let Some(ring) = self.window_mut() {
            ring.generations.push(generation);
        }
    }

    /// Drops generations that are not the newest.
    fn drop_generations(&mut self, which: Range<usize>, dropped: &mut Dropped) {
        let Some(ring) = self.window_mut() else {
            return;
        };
        let layers = ring.layers_of(which.start)..ring.layers_of(which.end);
        ring.generations.drain(which);
        let left = self.extract_older(|number, _| layers.contains(&number));
        dropped.count = dropped.count.saturating_add(left.len());
    }
}
