//! Packed batches: all items of a command in one string, all answers in a string of bits.
//! docs/reference/commands.md has the format LENGTHS, at BF.BULKADD.
//!
//! [`add`] and [`exists`] make the commands, 10,000 items each, for a connection of any kind. The
//! replies make [`Answers`]: `commands.map(|command| command.query(&mut redis)).collect()`.

use redis::{Cmd, cmd};

/// Items of a command, a multiple of 8, so that the bits of batches follow each other.
const BATCH: usize = 10_000;

/// The answers of a batch, in the order of the items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// How many items were answered.
    pub count: usize,
    /// The most significant bit of byte 0 is the answer for item 0; unused bits are 0.
    pub bits: Vec<u8>,
}

impl Answers {
    /// The answers as booleans.
    pub fn iter(&self) -> impl Iterator<Item = bool> {
        (0..self.count).map(|i| self.bits[i / 8] & (0x80 >> (i % 8)) != 0)
    }

    /// How many answers are yes.
    pub fn ones(&self) -> u64 {
        self.bits.iter().map(|byte| u64::from(byte.count_ones())).sum()
    }
}

/// Joins the replies to batches. If a reply has an error after its answers, redis-rs returns that
/// error for the call.
impl FromIterator<(usize, Vec<u8>)> for Answers {
    fn from_iter<T: IntoIterator<Item = (usize, Vec<u8>)>>(replies: T) -> Self {
        let mut all = Answers::default();
        for (count, bits) in replies {
            all.count += count;
            all.bits.extend(bits);
        }
        all
    }
}

/// Items with their lengths in front: the format LENGTHS.
pub fn pack(items: impl IntoIterator<Item: AsRef<[u8]>>) -> Vec<u8> {
    let mut packed = Vec::new();
    for item in items {
        let item = item.as_ref();
        let mut rest = item.len();
        while rest > 127 {
            packed.push((rest & 127) as u8 | 128);
            rest >>= 7;
        }
        packed.push(rest as u8);
        packed.extend(item);
    }
    packed
}

/// BF.BULKADD: adds items. The answer for each is whether it was new. `options` are words of
/// BF.INSERT, such as "NOCREATE". If a command fails, some items may have been added: send all
/// again, but not to a COUNTING filter.
pub fn add(
    key: &str,
    items: impl IntoIterator<Item: AsRef<[u8]>>,
    options: &[&str],
) -> impl Iterator<Item = Cmd> {
    batches(cmd("BF.BULKADD").arg(key).arg(options).to_owned(), items)
}

/// BF.BULKEXISTS: queries items. The answer for each is whether it was probably added; no is
/// certain.
pub fn exists(key: &str, items: impl IntoIterator<Item: AsRef<[u8]>>) -> impl Iterator<Item = Cmd> {
    batches(cmd("BF.BULKEXISTS").arg(key).to_owned(), items)
}

fn batches(command: Cmd, items: impl IntoIterator<Item: AsRef<[u8]>>) -> impl Iterator<Item = Cmd> {
    let mut items = items.into_iter();
    std::iter::from_fn(move || {
        let packed = pack(items.by_ref().take(BATCH));
        let batch = || command.clone().arg("LENGTHS").arg(&packed).to_owned();
        (!packed.is_empty()).then(batch)
    })
}
