//! Commands as bytes, built before the clock starts.
//!
//! An item is 17 bytes, `user:` and twelve digits: two for the set it belongs to, ten for its
//! number in the set. Members of one set are in a filter or they are not, so the right answers are
//! known.
//!
//! There are two ways to say the same thing. A module is told an item in one command, or many in
//! one command. The filter that clients build by hand of a string is told k bits of an item in k
//! commands; so its "batch" is a pipeline, which is what everything is sent in here.

use std::ops::Range;

/// What is asked of an item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    Add,
    Exists,
    Delete,
}

/// How a contender is spoken to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Speech {
    /// `BF.ADD`, `BF.MADD`, `BF.EXISTS`, `BF.MEXISTS`, `BF.DEL`.
    Commands,
    /// `SETBIT` and `GETBIT` on a string of this many bits, so many times an item.
    Bits { bits: u64, probes: u64 },
}

impl Speech {
    /// The classic filter of `capacity` items at `rate`, as a client makes it of a string.
    pub(crate) fn by_hand(capacity: u64, rate: f64) -> Self {
        let ln2 = std::f64::consts::LN_2;
        let bits = -(capacity as f64) * rate.ln() / (ln2 * ln2);
        Self::Bits {
            bits: bits.ceil() as u64,
            probes: (bits / capacity as f64 * ln2).round() as u64,
        }
    }
}

/// Which items: numbers of a set.
#[derive(Clone, Debug)]
pub(crate) enum Items {
    /// One after the other.
    InTurn { set: u64, numbers: Range<u64> },
    /// `count` numbers below `below`, scattered; `round` makes others.
    Scattered { set: u64, below: u64, count: u64, round: u64 },
}

/// The set of what is in.
pub(crate) const MEMBERS: u64 = 1;
/// The set of what is not.
pub(crate) const STRANGERS: u64 = 2;

impl Items {
    /// `count` items of a set, of numbers below `below`; others in each round.
    pub(crate) fn scattered(set: u64, below: u64, count: u64, round: u64) -> Self {
        Self::Scattered { set, below, count, round }
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::InTurn { numbers, .. } => numbers.end - numbers.start,
            Self::Scattered { count, .. } => *count,
        }
    }

    /// Each in a list of its own.
    pub(crate) fn each_alone(&self) -> impl Iterator<Item = Self> + '_ {
        self.each().map(|(set, number)| Self::InTurn { set, numbers: number..number + 1 })
    }

    /// Set and number of each.
    fn each(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        (0..self.len()).map(move |i| match self {
            Self::InTurn { set, numbers } => (*set, numbers.start + i),
            Self::Scattered { set, below, count, round } => (*set, mix(round * count + i) % below),
        })
    }
}

/// The finalizer of MurmurHash3: a bijection that scatters.
fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    x = (x ^ x >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    x ^ x >> 33
}

/// Appends an item.
fn put_item(out: &mut Vec<u8>, (set, number): (u64, u64)) {
    let mut text = *b"$17\r\nuser:000000000000\r\n";
    let mut rest = set * 10_000_000_000 + number;
    for digit in text[10..22].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend(text);
}

fn put_word(out: &mut Vec<u8>, word: &str) {
    out.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
}

/// The bits of an item in a string of `bits` bits.
pub(crate) fn positions(
    (set, number): (u64, u64),
    bits: u64,
    probes: u64,
) -> impl Iterator<Item = u64> {
    let hash = mix(set << 40 | number);
    (0..probes).map(move |i| {
        let x = mix(hash.wrapping_add((i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        ((u128::from(x) * u128::from(bits)) >> 64) as u64
    })
}

/// The commands that do `op` with `items`, `batch` items in each.
pub(crate) fn commands(speech: Speech, op: Op, key: &str, items: &Items, batch: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 * items.len() as usize);
    match speech {
        Speech::Commands => {
            let name = match (op, batch) {
                (Op::Add, 1) => "BF.ADD",
                (Op::Add, _) => "BF.MADD",
                (Op::Exists, 1) => "BF.EXISTS",
                (Op::Exists, _) => "BF.MEXISTS",
                (Op::Delete, _) => "BF.DEL",
            };
            let mut left = items.len();
            for (i, item) in (0..).zip(items.each()) {
                if i % batch == 0 {
                    let count = left.min(batch);
                    left -= count;
                    out.extend(format!("*{}\r\n", count + 2).bytes());
                    put_word(&mut out, name);
                    put_word(&mut out, key);
                }
                put_item(&mut out, item);
            }
        }
        Speech::Bits { bits, probes } => {
            assert!(op != Op::Delete, "bits of a string belong to many items");
            for item in items.each() {
                for at in positions(item, bits, probes) {
                    out.extend(if op == Op::Add { &b"*4\r\n"[..] } else { b"*3\r\n" });
                    put_word(&mut out, if op == Op::Add { "SETBIT" } else { "GETBIT" });
                    put_word(&mut out, key);
                    put_word(&mut out, &at.to_string());
                    if op == Op::Add {
                        put_word(&mut out, "1");
                    }
                }
            }
        }
    }
    out
}

/// The string of `bits` bits in which the first `count` members are set, as `SETBIT` would: bit 0
/// is the highest of byte 0.
pub(crate) fn string_of_members(count: u64, bits: u64, probes: u64) -> Vec<u8> {
    let mut string = vec![0_u8; bits.div_ceil(8) as usize];
    for number in 0..count {
        for at in positions((MEMBERS, number), bits, probes) {
            string[(at / 8) as usize] |= 0x80 >> (at % 8);
        }
    }
    string
}
