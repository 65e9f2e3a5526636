//! Commands as bytes, built before the clock starts.
//!
//! An item has 17 bytes: `user:` and twelve digits, two for its set and ten for its number in the
//! set. The members of a set are all in a filter or all absent, so the right answers are known.
//!
//! There are two protocols. A module gets one item or many in a command. The filter in a string
//! gets k bits of an item in k commands; its "batch" is a pipeline, and all commands here are sent
//! in a pipeline.

use std::ops::Range;

/// An operation on an item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    Add,
    Exists,
    Delete,
}

/// The commands that a contender understands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Speech {
    /// `BF.ADD`, `BF.MADD`, `BF.EXISTS`, `BF.MEXISTS`, `BF.DEL`.
    Commands,
    /// As `Commands`, but adds by `BF.INSERT` with these words between the key and the items.
    Insert(&'static str),
    /// `CF.ADD`, `CF.INSERT`, `CF.EXISTS`, `CF.MEXISTS`, and `CF.DEL`, which takes one item.
    Cuckoo,
    /// `SETBIT` and `GETBIT` on a string of `bits` bits, `probes` times an item.
    Bits { bits: u64, probes: u64 },
}

impl Speech {
    /// A classic filter for `capacity` items at `rate` in a string.
    pub(crate) fn by_hand(capacity: u64, rate: f64) -> Self {
        let ln2 = std::f64::consts::LN_2;
        let bits = -(capacity as f64) * rate.ln() / (ln2 * ln2);
        Self::Bits {
            bits: bits.ceil() as u64,
            probes: (bits / capacity as f64 * ln2).round() as u64,
        }
    }
}

/// A format of packed batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Format {
    /// `LINES`: 17 bytes an item, and a line end.
    Lines,
    /// `LENGTHS`: 17 bytes an item, and a length of one byte.
    Lengths,
    /// `WIDTH 8`: the set and the number of the item as an integer.
    Width,
}

impl Format {
    /// The name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lines => "LINES",
            Self::Lengths => "LENGTHS",
            Self::Width => "WIDTH 8",
        }
    }
}

/// A list of items: numbers of a set.
#[derive(Clone, Debug)]
pub(crate) enum Items {
    /// Consecutive numbers.
    InTurn { set: u64, numbers: Range<u64> },
    /// Consecutive numbers, but the last of each `batch` is the number 0, which comes first in a
    /// set.
    LastKnown { set: u64, numbers: Range<u64>, batch: u64 },
    /// `count` pseudorandom numbers of `numbers`; different ones for each `round`.
    Scattered { set: u64, numbers: Range<u64>, count: u64, round: u64 },
}

/// The set of items that are added.
pub(crate) const MEMBERS: u64 = 1;
/// The set of items that are never added.
pub(crate) const STRANGERS: u64 = 2;

impl Items {
    /// `count` pseudorandom items of a set, with numbers below `below`; different ones in each
    /// round.
    pub(crate) fn scattered(set: u64, below: u64, count: u64, round: u64) -> Self {
        Self::scattered_in(set, 0..below, count, round)
    }

    /// Like [`Self::scattered`], with numbers of a range.
    pub(crate) fn scattered_in(set: u64, numbers: Range<u64>, count: u64, round: u64) -> Self {
        Self::Scattered { set, numbers, count, round }
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::InTurn { numbers, .. } | Self::LastKnown { numbers, .. } => {
                numbers.end - numbers.start
            }
            Self::Scattered { count, .. } => *count,
        }
    }

    /// One list for each item.
    pub(crate) fn each_alone(&self) -> impl Iterator<Item = Self> + '_ {
        self.each().map(|(set, number)| Self::InTurn { set, numbers: number..number + 1 })
    }

    /// The 17 bytes of each item.
    pub(crate) fn texts(&self) -> impl Iterator<Item = [u8; 17]> + '_ {
        self.each().map(text_of)
    }

    /// The set and the number of each item.
    fn each(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        (0..self.len()).map(move |i| match self {
            Self::InTurn { set, numbers } => (*set, numbers.start + i),
            Self::LastKnown { set, batch, .. } if (i + 1) % batch == 0 => (*set, 0),
            Self::LastKnown { set, numbers, .. } => (*set, numbers.start + i),
            Self::Scattered { set, numbers, count, round } => {
                (*set, numbers.start + mix(round * count + i) % (numbers.end - numbers.start))
            }
        })
    }
}

/// The finalizer of MurmurHash3: a bijection that mixes all bits.
fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    x = (x ^ x >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    x ^ x >> 33
}

/// The 17 bytes of an item.
fn text_of((set, number): (u64, u64)) -> [u8; 17] {
    let mut text = *b"user:000000000000";
    let mut rest = set * 10_000_000_000 + number;
    for digit in text[5..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    text
}

/// Appends an item as an argument of a command.
fn put_item(out: &mut Vec<u8>, item: (u64, u64)) {
    out.extend(b"$17\r\n");
    out.extend(text_of(item));
    out.extend(b"\r\n");
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
        Speech::Commands | Speech::Insert(_) | Speech::Cuckoo => {
            let (options, batch) = match (speech, op) {
                (Speech::Insert(words), Op::Add) => (words, batch),
                (Speech::Cuckoo, Op::Add) if batch > 1 => ("ITEMS", batch),
                (Speech::Cuckoo, Op::Delete) => ("", 1),
                _ => ("", batch),
            };
            let options: Vec<&str> = options.split_whitespace().collect();
            let name = match (op, batch) {
                (Op::Add, 1) if speech == Speech::Cuckoo => "CF.ADD",
                (Op::Add, _) if speech == Speech::Cuckoo => "CF.INSERT",
                (Op::Exists, 1) if speech == Speech::Cuckoo => "CF.EXISTS",
                (Op::Exists, _) if speech == Speech::Cuckoo => "CF.MEXISTS",
                (Op::Delete, _) if speech == Speech::Cuckoo => "CF.DEL",
                (Op::Add, _) if !options.is_empty() => "BF.INSERT",
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
                    out.extend(format!("*{}\r\n", count as usize + 2 + options.len()).bytes());
                    put_word(&mut out, name);
                    put_word(&mut out, key);
                    options.iter().for_each(|word| put_word(&mut out, word));
                }
                put_item(&mut out, item);
            }
        }
        Speech::Bits { bits, probes } => {
            assert!(op != Op::Delete, "a bit of a string belongs to many items");
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

/// The commands BF.BULKADD or BF.BULKEXISTS with `batch` items in each, made one by one.
pub(crate) fn packed<'a>(
    format: Format,
    op: Op,
    key: &'a str,
    items: &'a Items,
    batch: u64,
) -> impl Iterator<Item = Vec<u8>> + Send + 'a {
    let name = match op {
        Op::Add => "BF.BULKADD",
        Op::Exists => "BF.BULKEXISTS",
        Op::Delete => panic!("there is no packed deletion"),
    };
    let words: Vec<&str> = [name, key].into_iter().chain(format.name().split(' ')).collect();
    let mut each = items.each();
    (0..items.len().div_ceil(batch)).map(move |_| {
        let mut blob = Vec::with_capacity(18 * batch as usize);
        for item in each.by_ref().take(batch as usize) {
            match format {
                Format::Lines => {
                    blob.extend(text_of(item));
                    blob.push(b'\n');
                }
                Format::Lengths => {
                    blob.push(17);
                    blob.extend(text_of(item));
                }
                Format::Width => blob.extend((item.0 << 40 | item.1).to_le_bytes()),
            }
        }
        let mut out = Vec::with_capacity(blob.len() + 100);
        out.extend(format!("*{}\r\n", words.len() + 1).bytes());
        words.iter().for_each(|word| put_word(&mut out, word));
        out.extend(format!("${}\r\n", blob.len()).bytes());
        out.append(&mut blob);
        out.extend(b"\r\n");
        out
    })
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
