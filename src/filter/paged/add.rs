//! Additions, queries and deletions, one item or a chunk of 64.
//!
//! ```text
//!   base layer, if there is one: holds the item? ─▶ known, nothing changes
//!   pages: one slot matches, or none
//!
//!            no slot matches     a slot matches
//!   grows    new slot            nothing changes
//!   counts   new slot            count + 1
//!   forgets  new slot            generation that is alive: known; gets the newest number
//!                                (without refresh: nothing changes)
//!                                dead generation: new; gets the newest number
//! ```
//!
//! All three write by one rule ([`Writing`]). Without [`Paged::room`], the item is looked for first
//! ([`Paged::prepare`]), because only a new one may be refused.
//!
//! An item at the highest count stays for ever, because its count is not known, and its deletion is
//! refused. One misuse cannot be detected: deleting a false positive.

use super::{Paged, Part, Rest, Span, base_bytes};
use crate::filter::{
    error::{Demand, Error},
    hash::Hash,
    layer::{
        Layer,
        item_set::{Answers, CHUNK, ItemSet},
    },
    pages::Generations,
    params::Expansion,
};

/// Who adds an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// A client, at this time. [`Paged::turn`] came before. Without a window, anyone at time 0.
    Client(i64),
    /// A primary or an AOF, whose additions changed the newest generation. No filter is full for
    /// them.
    Obeyed,
}

/// What an addition did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addition {
    /// Whether no generation that is alive held the item. For an obeyed addition, only the newest
    /// generation counts.
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

/// The additions to a filter of layers, which changes by new items alone.
impl From<Answers> for Additions {
    fn from(new: Answers) -> Self {
        Self { new, changed: new }
    }
}

/// What an addition writes into a slot. A new slot gets the newest number: 0 without generations.
#[derive(Clone, Copy, Debug)]
struct Writing {
    /// Which slots hold their items.
    generations: Generations,
    /// How many of the newest generations keep their number; 0 if the payload is a count.
    kept: u64,
    /// Whether the payload is a count, which an addition raises.
    counts: bool,
}

impl Writing {
    #[inline(always)]
    fn apply(self, payload: u64) -> u64 {
        if self.generations.age(payload) < self.kept {
            payload
        } else if self.counts {
            (payload + 1).min(self.generations.most)
        } else {
            self.generations.newest
        }
    }

    /// What an addition does if the payload was `before`.
    #[inline(always)]
    fn addition(self, before: Option<u64>) -> Addition {
        Addition {
            new: before.is_none_or(|payload| !self.generations.is_alive(payload)),
            changed: before.is_none_or(|payload| self.apply(payload) != payload),
        }
    }
}

impl Paged {
    /// Whether the item may have been added; to a window, within the one that ends at `now`.
    pub fn contains(&self, hash: Hash, now: i64) -> bool {
        self.base().is_some_and(|base| base.contains(hash))
            || self.pages.find(hash).is_some_and(|payload| self.holds(now)(payload))
    }

    /// Answers each item as [`Self::contains`] does, in order, one chunk at a time.
    #[inline]
    pub fn contains_each<'a>(
        &self,
        mut items: impl Iterator<Item = &'a [u8]>,
        now: i64,
        mut answer: impl FnMut(Answers),
    ) {
        let (mut chunk, holds) = ([Hash::default(); CHUNK], self.holds(now));
        while let Some((count, mut found, missing)) = self.next_chunk(&mut items, &mut chunk) {
            let mut members = ItemSet::first(count).without(found).members();
            self.pages.find_chunk(missing, |payload| {
                let index = members.next().unwrap_or(0);
                if payload.is_some_and(&holds) {
                    found = found.with(ItemSet::single(index));
                }
            });
            answer(Answers::new(found, count));
        }
    }

    /// Adds an item. `ceiling` returns the bytes that the filter may have in total, and is called
    /// only before a page is split.
    ///
    /// # Errors
    /// For a client, `Error::Full`. For all, `Error::Ceiling` and `Error::OutOfMemory`. The filter
    /// is unchanged then.
    pub fn add(
        &mut self,
        hash: Hash,
        author: Author,
        mut ceiling: impl FnMut(Demand) -> u64,
    ) -> Result<Addition, Error> {
        let mut done = Addition::default();
        if !self.base().is_some_and(|base| base.contains(hash)) {
            self.add_missing(&[hash], &mut [None], author, &mut ceiling, |it| done = it)?;
        }
        Ok(done)
    }

    /// [`Self::add`] of each item, in order; answers one chunk at a time.
    ///
    /// # Errors
    /// Those of [`Self::add`]. The first item that fails and all items after it are not added and
    /// get no answer.
    #[inline]
    pub fn add_each<'a>(
        &mut self,
        mut items: impl Iterator<Item = &'a [u8]>,
        author: Author,
        mut ceiling: impl FnMut(Demand) -> u64,
        mut answer: impl FnMut(Additions),
    ) -> Result<(), Error> {
        let (mut chunk, mut before) = ([Hash::default(); CHUNK], [None; CHUNK]);
        while let Some((count, in_base, missing)) = self.next_chunk(&mut items, &mut chunk) {
            let mut members = ItemSet::first(count).without(in_base).members();
            let (mut new, mut changed) = (ItemSet::default(), ItemSet::default());
            let outcome = self.add_missing(missing, &mut before, author, &mut ceiling, |done| {
                let item = members.next().map_or(ItemSet::default(), ItemSet::single);
                if done.new {
                    new = new.with(item);
                }
                if done.changed {
                    changed = changed.with(item);
                }
            });
            // An item that failed is the next one.
            let end = outcome.err().map_or(count, |_| members.next().unwrap_or(0));
            answer(Additions { new: Answers::new(new, end), changed: Answers::new(changed, end) });
            outcome?;
        }
        Ok(())
    }

    /// Adds items that the base does not hold. `before` has room for the payload of each.
    #[inline]
    fn add_missing(
        &mut self,
        mut hashes: &[Hash],
        before: &mut [Option<u64>],
        author: Author,
        ceiling: &mut impl FnMut(Demand) -> u64,
        mut done: impl FnMut(Addition),
    ) -> Result<(), Error> {
        while !hashes.is_empty() {
            let mut room = self.room(author).min(hashes.len() as u64) as usize;
            if room == 0 {
                self.prepare(hashes[0], author, &mut *ceiling)?;
                room = 1;
            }
            let (piece, rest) = hashes.split_at(room);
            let (writing, mut count) = (self.writing(author), 0);
            let outcome = self.pages.insert_chunk(
                piece,
                writing.generations.newest,
                |payload| writing.apply(payload),
                |payload| {
                    before[count] = payload;
                    count += 1;
                },
            );
            self.note(writing, &before[..count], &mut done);
            outcome?;
            hashes = rest;
        }
        Ok(())
    }

    /// How many items can be added before a refusal, a check of the memory limit, a new generation,
    /// or the sweep of a page is due.
    #[inline]
    fn room(&self, author: Author) -> u64 {
        let mut room = self.pages.most_slots().saturating_sub(self.pages.slot_count());
        if let Author::Client(now) = author {
            room = room.min(self.left(now));
        }
        if let Some(window) = self.window() {
            room = room.min(window.left(self.capacity)).min(window.until_sweep());
        }
        room
    }

    /// How many new items it takes at `now` before it is full; `u64::MAX` if it never is.
    #[inline]
    pub fn left(&self, now: i64) -> u64 {
        let drops = self.window().is_some_and(|window| window.rules.span == Span::Items);
        if drops || self.expansion().factor().is_some() {
            return u64::MAX;
        }
        self.capacity.saturating_sub(self.items(now))
    }

    /// Refuses a new item, or asks for memory, when there is no [`Self::room`].
    #[cold]
    fn prepare(
        &self,
        hash: Hash,
        author: Author,
        ceiling: impl FnOnce(Demand) -> u64,
    ) -> Result<(), Error> {
        let before = self.pages.find(hash);
        if let Author::Client(now) = author
            && self.writing(author).addition(before).new
            && self.left(now) == 0
        {
            return Err(Error::Full);
        }
        let splits = self.pages.slot_count() >= self.pages.most_slots();
        if before.is_none() && splits {
            let pages_bytes = self.pages.bytes();
            let present = pages_bytes + self.base().map_or(0, base_bytes);
            let wanted = present + pages_bytes / self.pages.pages().len() as u64;
            Demand { present, wanted }.check(ceiling)?;
        }
        Ok(())
    }

    #[inline]
    fn writing(&self, author: Author) -> Writing {
        let (mut generations, counts) = (self.pages.generations(), self.counts());
        let mut kept = u64::from(!counts);
        if let Some(window) = self.window() {
            generations.alive = match author {
                // At least the newest generation is alive after a turn.
                Author::Client(now) => window.alive(now).max(1),
                Author::Obeyed => 1,
            };
            if !window.rules.refresh {
                kept = generations.alive;
            }
        }
        Writing { generations, kept, counts }
    }

    /// Whether a query counts a slot with a payload as the item's.
    #[inline]
    fn holds(&self, now: i64) -> impl Fn(u64) -> bool + use<> {
        let alive = self.window().map(|window| window.alive(now));
        let window = alive.map(|alive| Generations { alive, ..self.pages.generations() });
        move |payload| window.is_none_or(|window| window.is_alive(payload))
    }

    /// Counts what additions did to the pages, and answers each. `before` has the payload that each
    /// slot had; `None` for a new slot.
    #[inline]
    fn note(&mut self, writing: Writing, before: &[Option<u64>], mut answer: impl FnMut(Addition)) {
        let (mut window, mut changed) = (self.window_mut(), 0);
        for &before in before {
            let addition = writing.addition(before);
            answer(addition);
            let Some((window, ..)) = &mut window else { continue };
            if addition.changed {
                changed += 1;
                if let Some(payload) = before {
                    window.leaves(writing.generations.age(payload));
                }
            }
        }
        if changed > 0 {
            self.moved_to_newest(changed);
        }
    }

    /// Deletes each item once, in order. Answers, one chunk at a time, whether the filter changed.
    /// Counts refusals ([`Self::refused_deletions`]). Deletes nothing from a filter that does not
    /// count.
    pub fn delete_each<'a>(
        &mut self,
        mut items: impl Iterator<Item = &'a [u8]>,
        mut answer: impl FnMut(Answers),
    ) {
        let (counts, highest) = (self.counts(), self.pages.plan().payload.most() + 1);
        let (mut chunk, mut refused) = ([Hash::default(); CHUNK], 0_u32);
        while let Some((count, _, hashes)) = self.next_chunk(&mut items, &mut chunk) {
            let mut answers = Answers::default();
            let mut lowered = |before| {
                answers.push(before > 0 && before < highest);
                refused += u32::from(before == highest);
            };
            if counts {
                self.pages.lower_chunk(hashes, lowered);
            } else {
                (0..count).for_each(|_| lowered(0));
            }
            answer(answers);
        }
        if refused > 0 {
            self.refuse(refused);
        }
    }

    /// How often the item was added and not deleted since: never too low. The highest count means
    /// "at least that often".
    pub fn count(&self, hash: Hash) -> u64 {
        let payload = self.pages.find(hash).filter(|_| self.counts());
        payload.map_or(0, |payload| payload + 1)
    }

    /// Refused deletions of saturated items, since the filter was made, loaded or copied here.
    pub fn refused_deletions(&self) -> u64 {
        self.rest.as_deref().map_or(0, |rest| rest.refused.into())
    }

    #[cold]
    fn refuse(&mut self, deletions: u32) {
        let usual = || Box::new(Rest::new(Part::Nothing, Expansion::USUAL, None));
        let rest = self.rest.get_or_insert_with(usual);
        rest.refused = rest.refused.saturating_add(deletions);
    }

    /// Hashes the next items, at most a chunk, if there are any. Returns their number, those that
    /// the base holds, and the hashes of the others, in order.
    #[inline]
    fn next_chunk<'c, 'a>(
        &self,
        items: &mut impl Iterator<Item = &'a [u8]>,
        chunk: &'c mut [Hash; CHUNK],
    ) -> Option<(usize, ItemSet, &'c [Hash])> {
        let mut count = 0;
        for (slot, item) in chunk.iter_mut().zip(items) {
            *slot = self.hash(item);
            count += 1;
        }
        if count == 0 {
            return None;
        }
        let base = self.base().and_then(Layer::blocks);
        let in_base = base.map_or(ItemSet::default(), |base| base.present(&chunk[..count]));
        let mut missing = count;
        if !in_base.is_empty() {
            missing = 0;
            for index in ItemSet::first(count).without(in_base).members() {
                chunk[missing] = chunk[index];
                missing += 1;
            }
        }
        Some((count, in_base, &chunk[..missing]))
    }
}
