//! A packed batch (BF.BULKADD, BF.BULKEXISTS): many items in one string, their answers in another.
//!
//! ```text
//!            ┌──────────┬────┬──────────┬────┬──────────┬ ─ ─ ┐
//!   LINES    │ item     │ \n │ item     │ \n │ item     │ \n     the last \n may be missing
//!            └──────────┴────┴──────────┴────┴──────────┴ ─ ─ ┘
//!            ┌────────┬──────────┬────────┬──────────┐
//!   LENGTHS  │ length │ item     │ length │ item     │           length: unsigned LEB128
//!            └────────┴──────────┴────────┴──────────┘
//!            ┌──────────┬──────────┬──────────┐
//!   WIDTH n  │ item     │ item     │ item     │                  each of n bytes
//!            └──────────┴──────────┴──────────┘
//!
//!            ┌─┬─┬─┬─┬─┬─┬─┬─┐┌─┬─┬─┬─ ─
//!   answers  │0│1│2│3│4│5│6│7││8│9│ │                           unused bits of the last byte: 0
//!            └─┴─┴─┴─┴─┴─┴─┴─┘└─┴─┴─┴─ ─
//!             ▲ bit 7 of byte 0: the answer for item 0, as SETBIT and GETBIT count bits
//! ```
//!
//! A line may be empty, but nothing follows a last `\n`. An empty blob has no items. LEB128 is
//! seven bits a byte, the lowest first; the top bit of a byte says that another follows. A length
//! has at most ten bytes and need not be the shortest form. AOF files contain batches in all three
//! formats: none may change.

use std::num::NonZeroUsize;

use crate::filter::Answers;

/// The most bytes of an item of [`Format::Width`].
pub const MAX_WIDTH: usize = 4096;

/// How items are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Each item ends with `\n`; the last item may lack it.
    Lines,
    /// The length of each item precedes it.
    Lengths,
    /// Every item has this number of bytes.
    Width(NonZeroUsize),
}

/// Why a blob is not a packed batch: the offset at which its first malformed item begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadByte(pub usize);

/// A blob that has been checked.
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a> {
    format: Format,
    blob: &'a [u8],
}

impl<'a> Packed<'a> {
    /// Checks the whole blob.
    ///
    /// # Errors
    /// A length that is no LEB128 of at most ten bytes, or reaches beyond the end; bytes behind the
    /// last item of a WIDTH.
    pub fn new(format: Format, blob: &'a [u8]) -> Result<Self, BadByte> {
        let unread = match format {
            Format::Lines => 0,
            Format::Lengths => {
                let mut left = blob;
                while let Some((_, behind)) = split_item(left) {
                    left = behind;
                }
                left.len()
            }
            Format::Width(width) => blob.chunks_exact(width.get()).remainder().len(),
        };
        match unread {
            0 => Ok(Self { format, blob }),
            _ => Err(BadByte(blob.len().saturating_sub(unread))),
        }
    }

    /// The items, in order. They are slices of the blob.
    pub fn items(mut self) -> impl Iterator<Item = &'a [u8]> + Clone {
        std::iter::from_fn(move || self.next_item())
    }

    #[inline]
    fn next_item(&mut self) -> Option<&'a [u8]> {
        if self.blob.is_empty() {
            return None;
        }
        let (item, behind) = match self.format {
            Format::Lines => {
                let end = memchr::memchr(b'\n', self.blob);
                let line = end.and_then(|end| self.blob.split_at_checked(end));
                let (item, end) = line.unwrap_or((self.blob, &[]));
                (item, end.get(1..).unwrap_or_default())
            }
            Format::Lengths => split_item(self.blob)?,
            Format::Width(width) => self.blob.split_at_checked(width.get())?,
        };
        self.blob = behind;
        Some(item)
    }

    /// Packs those items as LENGTHS whose element of `chosen` is true.
    pub fn select(self, chosen: impl Iterator<Item = bool>) -> Vec<u8> {
        let mut items = self.items();
        // Most items of a large batch may not be chosen.
        let mut blob = Vec::with_capacity(self.blob.len().min(1 << 20));
        // `for_each` is faster than a `zip`: its loops follow the chunks of answers.
        chosen.for_each(|chosen| {
            if let Some(item) = items.next().filter(|_| chosen) {
                put(&mut blob, item);
            }
        });
        blob
    }
}

/// Splits the first item of LENGTHS from the bytes behind it; `None` if there is no sound one.
#[inline]
fn split_item(blob: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&first, behind) = blob.split_first()?;
    if first < 0x80 {
        return behind.split_at_checked(first.into());
    }
    split_long_item(blob)
}

/// [`split_item`] for a length of several bytes. Not inlined: most lengths have one.
#[inline(never)]
fn split_long_item(blob: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut length = 0;
    // The last shift is 63, that of the tenth byte.
    for (at, shift) in (0..u64::BITS).step_by(7).enumerate() {
        let byte = *blob.get(at)?;
        length |= u64::from(byte & 0x7F).checked_mul(1_u64.wrapping_shl(shift))?;
        if byte < 0x80 {
            let behind = blob.get(at..)?.get(1..)?;
            return behind.split_at_checked(usize::try_from(length).ok()?);
        }
    }
    None
}

/// Packs items as LENGTHS.
pub fn pack<'a>(items: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut blob = Vec::new();
    items.for_each(|item| put(&mut blob, item));
    blob
}

fn put(blob: &mut Vec<u8>, item: &[u8]) {
    let mut length = item.len();
    while length >= 0x80 {
        blob.push(length as u8 | 0x80);
        length >>= 7;
    }
    blob.push(length as u8);
    blob.extend_from_slice(item);
}

/// Packs answers, one bit each.
pub fn pack_answers(chunks: impl Iterator<Item = Answers>) -> Vec<u8> {
    let mut words: Vec<u64> = Vec::new();
    let mut count: usize = 0;
    for chunk in chunks.filter(|chunk| chunk.count() > 0) {
        let bits = chunk.bits().reverse_bits();
        // A chunk is short if an item in it was refused; only at a replica, more chunks follow.
        let used = count as u32 % u64::BITS;
        match words.last_mut() {
            Some(last) if used > 0 => {
                *last |= bits.wrapping_shr(used);
                words.push(bits.wrapping_shl(used.wrapping_neg()));
            }
            _ => words.push(bits),
        }
        count = count.saturating_add(chunk.count());
        words.truncate(count.div_ceil(u64::BITS as usize));
    }
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_be_bytes).collect();
    bytes.truncate(count.div_ceil(8));
    bytes
}
