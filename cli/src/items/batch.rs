//! Whole items, packed as `BF.BULKADD` and `BF.BULKEXISTS` take them.
//!
//! Lines are sent as they are. Other items are packed with their lengths before them (unsigned
//! LEB128).

use std::iter;

use bloom::sharding::shard_of;
use memchr::memchr;

/// How the items of a batch are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// Items separated by line feeds.
    Lines,
    /// Each item after its length, in unsigned LEB128.
    Lengths,
}

impl Packing {
    /// The word of `BF.BULKADD` for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Lines => "LINES",
            Self::Lengths => "LENGTHS",
        }
    }
}

/// Whole items, packed.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) packing: Packing,
    pub(crate) blob: Vec<u8>,
    /// Number of items.
    pub(crate) count: u64,
    /// Bytes of the input up to and with the last item of this batch.
    pub(crate) end: u64,
}

impl Batch {
    /// These items, of no input.
    pub(crate) fn of<'i>(items: impl IntoIterator<Item = &'i [u8]>) -> Self {
        let mut batch = Self { packing: Packing::Lengths, blob: Vec::new(), count: 0, end: 0 };
        for item in items {
            push_item(&mut batch.blob, item);
            batch.count += 1;
        }
        batch
    }

    /// Each item, alone and as it is packed. The last line may lack its line feed.
    fn parts(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let (packing, mut rest) = (self.packing, &self.blob[..]);
        iter::from_fn(move || {
            let (start, end, next) = match packing {
                _ if rest.is_empty() => return None,
                Packing::Lines => match memchr(b'\n', rest) {
                    Some(end) => (0, end, end + 1),
                    None => (0, rest.len(), rest.len()),
                },
                Packing::Lengths => {
                    let (start, length) = length_of(rest)?;
                    (start, start + length, start + length)
                }
            };
            let (packed, after) = rest.split_at(next);
            rest = after;
            Some((&packed[start..end], packed))
        })
    }

    /// The items, one by one.
    pub(crate) fn items(&self) -> Vec<&[u8]> {
        self.parts().map(|(item, _)| item).collect()
    }

    /// The items by shard: a batch for each shard, some of them empty. Calls `owned`
    /// with the shard of each item, in order.
    pub(crate) fn split(&self, shards: u16, mut owned: impl FnMut(u16)) -> Vec<Batch> {
        // A little more than the mean, so that few batches grow.
        let mean = self.blob.len() / usize::from(shards.max(1));
        let empty = |_| Batch {
            packing: self.packing,
            blob: Vec::with_capacity(mean + mean / 8 + 64),
            count: 0,
            end: self.end,
        };
        let mut batches: Vec<Batch> = (0..shards).map(empty).collect();
        for (item, packed) in self.parts() {
            let shard = shard_of(item, shards);
            owned(shard);
            let batch = &mut batches[usize::from(shard)];
            batch.blob.extend_from_slice(packed);
            if self.packing == Packing::Lines && item.len() == packed.len() {
                batch.blob.push(b'\n');
            }
            batch.count += 1;
        }
        batches
    }
}

/// Appends an item after its length.
fn push_item(blob: &mut Vec<u8>, item: &[u8]) {
    let mut length = item.len();
    while length >= 0x80 {
        blob.push(length as u8 | 0x80);
        length >>= 7;
    }
    blob.push(length as u8);
    blob.extend_from_slice(item);
}

/// Where the item at the start of `packed` begins, and its length; `None` if it is cut.
fn length_of(packed: &[u8]) -> Option<(usize, usize)> {
    let size = packed.iter().position(|byte| byte & 0x80 == 0)? + 1;
    let digits = packed[..size].iter().rev();
    Some((size, digits.fold(0, |sum, byte| sum << 7 | usize::from(byte & 0x7f))))
}
