//! The filters that are compared, what is done to them, and with which items.

use std::fmt::{self, Display, Formatter};

/// A filter, as it is when the work begins.
pub(crate) struct Case {
    /// What CASE calls it.
    pub(crate) name: &'static str,
    /// Of the first layer; it doubles when it is full.
    pub(crate) capacity: u64,
    pub(crate) rate: f64,
    /// Items that are in before.
    pub(crate) members: u64,
    /// Layers that these make. The newest has room for what the work adds.
    pub(crate) layers: usize,
}

/// One layer 30 % full: in the processor's second cache or not, then far larger than all caches;
/// lower rates, which have more probes and longer blocks; deep stacks, where an item that is absent
/// is looked for in all of the layers.
pub(crate) const CASES: [Case; 7] = [
    case("2M", 2_000_000, 0.01, 600_000, 1),
    case("2M-0.1%", 2_000_000, 0.001, 600_000, 1),
    case("2M-0.01%", 2_000_000, 0.000_1, 600_000, 1),
    case("100M", 100_000_000, 0.01, 30_000_000, 1),
    case("2layers", 1_000_000, 0.01, 2_500_000, 2),
    case("8layers", 4_000, 0.01, 750_000, 8),
    case("12layers", 1_100, 0.01, 4_200_000, 12),
];

const fn case(name: &'static str, capacity: u64, rate: f64, members: u64, layers: usize) -> Case {
    Case {
        name,
        capacity,
        rate,
        members,
        layers,
    }
}

impl Display for Case {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let (percent, plural) = (self.rate * 100.0, if self.layers == 1 { "" } else { "s" });
        write!(
            f,
            "{}: {} items at {percent} % in {} layer{plural}",
            self.name, self.members, self.layers
        )
    }
}

/// What is done to an item.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Op {
    /// Asked for, and there.
    Hit,
    /// Asked for, and not there.
    Miss,
    /// Added, and new.
    Add,
}

/// What is done, and to how many items in one call.
pub(crate) struct Work {
    pub(crate) op: Op,
    pub(crate) batch: usize,
}

/// Additions come last, since they change what the others find.
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

/// Items of a turn.
pub(crate) const TURN: usize = 10_000;

/// As long as keys in a server often are.
pub(crate) type Item = [u8; 17];

/// The item of a number below 10^12.
pub(crate) fn item(number: u64) -> Item {
    let mut item = *b"item:000000000000";
    let mut rest = number;
    for digit in item[5..].iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    item
}

/// Where the items of the next turns come from.
pub(crate) struct Source<'a> {
    case: &'a Case,
    /// State of a congruential generator: which members are asked for.
    random: u64,
    /// Numbers of the next item to add, and of the next that is never added.
    new: u64,
    stranger: u64,
}

impl<'a> Source<'a> {
    pub(crate) fn new(case: &'a Case) -> Self {
        Self {
            case,
            random: 1,
            new: case.members,
            stranger: 500_000_000_000,
        }
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
                // The low bits of such a generator repeat soon.
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
