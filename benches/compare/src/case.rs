//! The filters that are compared, the operations, and the items.

use std::fmt::{self, Display, Formatter};

/// A filter, as it is before the first turn.
pub(crate) struct Case {
    /// The name in `CASE=`.
    pub(crate) name: &'static str,
    /// Capacity, which is never reached.
    pub(crate) capacity: u64,
    pub(crate) rate: f64,
    /// Items that the filter holds before the first turn.
    pub(crate) members: u64,
}

/// One layer, 30 % full, of two sizes: near that of the second-level cache, and far larger than all
/// caches. Lower rates, with more probes and longer blocks.
pub(crate) const CASES: [Case; 4] = [
    case("2M", 2_000_000, 0.01, 600_000),
    case("2M-0.1%", 2_000_000, 0.001, 600_000),
    case("2M-0.01%", 2_000_000, 0.000_1, 600_000),
    case("100M", 100_000_000, 0.01, 30_000_000),
];

const fn case(name: &'static str, capacity: u64, rate: f64, members: u64) -> Case {
    Case { name, capacity, rate, members }
}

impl Display for Case {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let percent = self.rate * 100.0;
        write!(f, "{}: {} items at {percent} %", self.name, self.members)
    }
}

/// An operation on an item.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Op {
    /// Query of a member.
    Hit,
    /// Query of an absent item.
    Miss,
    /// Addition of a new item.
    Add,
}

/// An operation, and the number of items in a call.
pub(crate) struct Work {
    pub(crate) op: Op,
    pub(crate) batch: usize,
}

/// Additions come last, because they change the filter.
pub(crate) const WORKS: [Work; 7] = [
    work(Op::Hit, 100),
    work(Op::Miss, 100),
    work(Op::Hit, 10),
    work(Op::Miss, 10),
    work(Op::Hit, 1),
    work(Op::Miss, 1),
    work(Op::Add, 100),
];

const fn work(op: Op, batch: usize) -> Work {
    Work { op, batch }
}

impl Display for Work {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let op = match self.op {
            Op::Hit => "hit",
            Op::Miss => "miss",
            Op::Add => "add",
        };
        match self.batch {
            1 => write!(f, "{op}, single"),
            batch => write!(f, "{op} by {batch}"),
        }
    }
}

/// Items in a turn.
pub(crate) const TURN: usize = 10_000;

/// 17 bytes, a typical length of a key.
pub(crate) type Item = [u8; 17];

/// The item with a number below 10^12.
pub(crate) fn item(number: u64) -> Item {
    let mut item = *b"item:000000000000";
    let mut rest = number;
    for digit in item[5..].iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    item
}

/// Generates the items of each turn.
pub(crate) struct Source<'a> {
    case: &'a Case,
    /// State of a linear congruential generator, which chooses members to query.
    random: u64,
    /// Number of the next item to add.
    new: u64,
    /// Number of the next item that is never added.
    stranger: u64,
}

impl<'a> Source<'a> {
    pub(crate) fn new(case: &'a Case) -> Self {
        Self { case, random: 1, new: case.members, stranger: 500_000_000_000 }
    }

    /// The items of one turn.
    pub(crate) fn turn(&mut self, op: Op) -> Vec<Item> {
        (0..TURN).map(|_| item(self.number(op))).collect()
    }

    fn number(&mut self, op: Op) -> u64 {
        match op {
            Op::Hit => {
                self.random = self
                    .random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                // The low bits of a linear congruential generator have a short period.
                (self.random >> 20) % self.case.members
            }
            Op::Miss => next(&mut self.stranger),
            Op::Add => next(&mut self.new),
        }
    }
}

fn next(number: &mut u64) -> u64 {
    *number += 1;
    *number - 1
}
