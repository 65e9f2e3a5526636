//! The bits of all layers, oldest first, as one stream of bytes; byte i of a layer holds its bits 8 i to 8 i + 7, least
//! significant first. A layer is a whole number of words, so a stream position that is a multiple of 8 starts a word.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "sums of positions inside a filter that exists: callers have checked the range"
)]

use crate::filter::{Filter, Layer};

/// Bytes of a word.
pub(super) const WORD: u64 = 8;

/// Appends the bytes from `from` on, as many as there are up to `count`, to `out`.
pub(super) fn read(filter: &Filter, from: u64, count: usize, out: &mut Vec<u8>) {
    let (mut skip, mut left) = (from, count);
    for layer in filter.layers() {
        let words = layer.bits().words();
        let bytes = words.len() as u64 * WORD;
        if skip >= bytes {
            skip -= bytes;
            continue;
        }
        // A start inside a word gives its tail, byte by byte; then whole words, which compile to a copy.
        let (mut rest, inside) = (words.iter().skip((skip / WORD) as usize), (skip % WORD) as usize);
        skip = 0;
        if inside > 0
            && let Some(word) = rest.next()
        {
            let tail = word.to_le_bytes().into_iter().skip(inside).take(left);
            left -= tail.len();
            out.extend(tail);
        }
        let whole = (left / WORD as usize).min(rest.len());
        let start = out.len();
        out.resize(start + whole * WORD as usize, 0);
        let copied = out.get_mut(start..).unwrap_or_default();
        for (bytes, word) in copied.chunks_exact_mut(WORD as usize).zip(rest.by_ref()) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        left -= whole * WORD as usize;
        if let Some(word) = rest.next() {
            out.extend(word.to_le_bytes().into_iter().take(left));
            left = 0;
        }
        if left == 0 {
            return;
        }
    }
}

/// The words that lie whole in the bytes from `from` up to `to`, layer by layer.
pub(super) fn spans(filter: &Filter, from: u64, to: u64) -> impl Iterator<Item = &[u64]> {
    let mut start = 0;
    filter.layers().filter_map(move |layer| {
        let words = layer.bits().words();
        let first = from.saturating_sub(start).div_ceil(WORD);
        let past = (to.saturating_sub(start) / WORD).min(words.len() as u64);
        start += words.len() as u64 * WORD;
        // Nothing where the range begins behind this layer, or ends before it.
        words
            .get(first as usize..past as usize)
            .filter(|span| !span.is_empty())
    })
}

/// Sets the bits of `bytes` at `from` of the stream, and keeps those that are set. `from` is a multiple of [`WORD`], the
/// length too or it ends inside the last word of a layer, and the range lies in the stream.
pub(super) fn merge(filter: &mut Filter, from: u64, bytes: &[u8]) {
    let mut new = words(bytes);
    let mut skip = from / WORD;
    for layer in filter.layers_mut() {
        let length = layer.bits().words().len() as u64;
        if skip >= length {
            skip -= length;
            continue;
        }
        if !layer.merge(skip as usize, &mut new) {
            return;
        }
        skip = 0;
    }
}

/// Sets the bits of `bytes` in a layer, from its byte `from` on, a multiple of [`WORD`]. There is room for them.
pub(super) fn merge_into(layer: &mut Layer, from: u64, bytes: &[u8]) {
    layer.merge((from / WORD) as usize, &mut words(bytes));
}

/// Whether every bit of `bytes` at `from` of the stream is set. The arguments are as for [`merge`].
pub(super) fn holds(filter: &Filter, from: u64, bytes: &[u8]) -> bool {
    let mut stored = Vec::new();
    read(filter, from, bytes.len(), &mut stored);
    words(bytes)
        .zip(words(&stored))
        .all(|(bits, word)| bits & !word == 0)
}

/// The words of `bytes`; the last is filled up with zeros.
fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (words, rest) = bytes.as_chunks::<{ WORD as usize }>();
    let mut last = [0; WORD as usize];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    let last = (!rest.is_empty()).then_some(last);
    words.iter().copied().chain(last).map(u64::from_le_bytes)
}
