//! The cache lines of a single item, asked for before its key is looked up.
//!
//! A single command waits for the block of its item, and before it knows the filter it has the server look up the key, some
//! 300 instructions in which that wait could pass. So the filter of the last single command is remembered by the name of its key,
//! and where the name comes again, the item is hashed and its block asked for first:
//!
//! ```text
//!   name ──the same as last time?──▶ hash, prefetch ─┐
//!      └───────────────▶ the server looks up the key ─┴─▶ filter ──the same seed?──▶ probe
//! ```
//!
//! Each thread remembers for itself: a module may run commands from a thread of its own, under the server's lock. Nothing of it
//! is borrowed while the server is called, which may run other commands meanwhile.
//!
//! By then the name may lead to another filter, or to none. What is remembered is an address to prefetch, which is never
//! read, and the hash is used only where it was made under the filter's seed.
//!
//! One filter, not a table of them, which costs a hash of the name. It takes 75 instructions of a command's 4,600 where the
//! name is the same. Filters that the processor caches anyway are not remembered. Time of a single command above that of
//! the floor (`examples/floor.rs`), without and with this, Redis 7.0, server CPU by turns in one run:
//!
//! | filter          | hit           | miss          | new           |
//! |-----------------|---------------|---------------|---------------|
//! | 2 M items       | 0.14 -> 0.08  | 0.13 -> 0.06  | 0.24 -> 0.13  |
//! | 100 M items     | 0.29 -> 0.25  | 0.28 -> 0.19  | 0.34 -> 0.24  |
//! | 1,000 items     | 0.04 -> 0.05  | 0.05 -> 0.04  |               |
//!
//! In three later runs of the first row 0.03 to 0.07 less for questions, and 0.01 to 0.06 for additions.

use std::cell::RefCell;

use crate::filter::{Ahead, Filter, Hash, Hashed};

/// The longest name that is remembered, in bytes.
const NAME: usize = 64;

/// After so many commands on other filters worth it the remembered one is given up.
const PATIENCE: u8 = 8;

/// The filter that is remembered.
struct Last {
    name: [u8; NAME],
    len: usize,
    ahead: Option<Ahead>,
    patience: u8,
}

thread_local! {
    static LAST: RefCell<Last> = const {
        RefCell::new(Last { name: [0; NAME], len: 0, ahead: None, patience: 0 })
    };
}

/// An item of a command on the filter of that name, before the filter is known.
pub(crate) struct Lookahead<'a> {
    name: &'a [u8],
    item: &'a [u8],
    hashed: Option<Hashed>,
}

impl<'a> Lookahead<'a> {
    /// Asks for the item's cache lines, if this is the name that is remembered.
    #[inline]
    pub(crate) fn new(name: &'a [u8], item: &'a [u8]) -> Self {
        let hashed = LAST.with_borrow(|last| {
            let ahead = last.ahead.filter(|_| last.name.get(..last.len) == Some(name));
            ahead.map(|ahead| ahead.hash(item))
        });
        Self { name, item, hashed }
    }

    /// The item's hash in the filter that the name led to.
    #[inline(always)]
    pub(crate) fn hash(self, filter: &Filter) -> Hash {
        if let Some(hash) = self.hashed.and_then(|hashed| hashed.of(filter)) {
            return hash;
        }
        let ahead = Ahead::of(filter);
        // The name that is remembered leads elsewhere by now: at once. Another name: once there is no patience left.
        if self.hashed.is_some() || ahead.is_some() {
            remember(self.name, ahead, self.hashed.is_some());
        }
        filter.hash(self.item)
    }
}

/// Remembers what a name leads to: of the `same` name at once, of another when there is no patience left.
#[inline(never)]
fn remember(name: &[u8], ahead: Option<Ahead>, same: bool) {
    LAST.with_borrow_mut(|last| {
        if let Some(patience) = last.patience.checked_sub(1).filter(|_| !same) {
            last.patience = patience;
        } else if let Some(to) = last.name.get_mut(..name.len()) {
            to.copy_from_slice(name);
            (last.len, last.ahead) = (name.len(), ahead);
            last.patience = if ahead.is_some() { PATIENCE } else { 0 };
        }
    });
}
