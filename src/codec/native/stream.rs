//! The bits of all layers, oldest first, as one stream of bytes; byte i of a layer holds its bits 8
//! i to 8 i + 7, least significant first. A layer is a whole number of words, so a stream position
//! that is a multiple of 8 starts a word.
//!
//! A piece of the stream is found by its position (`Filter::layer_at`): by halving in filters of
//! other products, whose chunks may be as many as their layers; by walking in native ones. Their
//! pieces are of 1 MiB and more, and layers are at most `MAX_LAYERS`, so all walks together look at
//! no more than one layer for every four bytes of the filter.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "sums of positions inside a filter that exists: callers have checked the range"
)]

use std::iter;

use crate::filter::{Filter, Layer};

/// Bytes of a word.
pub(in crate::codec) const WORD: u64 = 8;

/// Appends the bytes from `from` on, as many as there are up to `count`, to `out`.
pub(in crate::codec) fn read(filter: &Filter, from: u64, count: usize, out: &mut Vec<u8>) {
    let (index, mut skip) = seek(filter, from);
    let mut left = count;
    for layer in filter.layers_from(index) {
        let words = layer.bits().words();
        // A start inside a word gives its tail, byte by byte.
        let (first, inside) = ((skip / WORD) as usize, (skip % WORD) as usize);
        let mut rest = words.get(first..).unwrap_or_default().iter();
        skip = 0;
        if inside > 0
            && let Some(word) = rest.next()
        {
            let tail = word.to_le_bytes().into_iter().skip(inside).take(left);
            left -= tail.len();
            out.extend(tail);
        }
        let count = left.min(size_of_val(rest.as_slice()));
        put(rest.as_slice(), count, out);
        left -= count;
        if left == 0 {
            return;
        }
    }
}

/// Appends the first `count` bytes of `words` to `out`.
pub(in crate::codec) fn put(words: &[u64], count: usize, out: &mut Vec<u8>) {
    let (start, whole) = (out.len(), count / WORD as usize);
    // One step a word, which compiles to a copy.
    out.resize(start + whole * WORD as usize, 0);
    let copied = out.get_mut(start..).unwrap_or_default();
    for (bytes, word) in copied.chunks_exact_mut(WORD as usize).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    if let Some(word) = words.get(whole) {
        out.extend(word.to_le_bytes().into_iter().take(count % WORD as usize));
    }
}

/// The layer with byte `from` of the stream, and the byte in it.
fn seek(filter: &Filter, from: u64) -> (usize, u64) {
    let (index, start) = filter.layer_at(from, |start| start.memory);
    (index, from - start.memory)
}

/// The words that lie whole in the bytes from `from` up to `to`, layer by layer.
pub(in crate::codec) fn spans(filter: &Filter, from: u64, to: u64) -> impl Iterator<Item = &[u64]> {
    let (index, mut skip) = seek(filter, from);
    let mut left = to.saturating_sub(from);
    let mut layers = filter.layers_from(index);
    iter::from_fn(move || {
        let layer = layers.next().filter(|_| left > 0)?;
        let words = layer.bits().words();
        let first = skip.div_ceil(WORD);
        let past = (skip.saturating_add(left) / WORD).min(words.len() as u64);
        left = left.saturating_sub((layer.shape().words() * WORD).saturating_sub(skip));
        skip = 0;
        Some(words.get(first as usize..past as usize).unwrap_or_default())
    })
    .filter(|span| !span.is_empty())
}

/// Sets the bits of `bytes` at `from` of the stream, and keeps those that are set. `from` is a
/// multiple of [`WORD`], the length too or it ends inside the last word of a layer, and the range
/// lies in the stream. `changed` is told the items of each layer of the range, before and after.
pub(in crate::codec) fn merge(
    filter: &mut Filter,
    from: u64,
    bytes: &[u8],
    mut changed: impl FnMut(u64, u64),
) {
    let mut new = words(bytes);
    let (index, skip) = seek(filter, from);
    let mut skip = skip / WORD;
    for layer in filter.layers_from_mut(index) {
        let before = layer.items();
        let more = layer.merge(skip as usize, &mut new);
        changed(before, layer.items());
        if !more {
            return;
        }
        skip = 0;
    }
}

/// Sets the bits of `bytes` in a layer, from its byte `from` on, a multiple of [`WORD`]. There is
/// room for them.
pub(in crate::codec) fn merge_into(layer: &mut Layer, from: u64, bytes: &[u8]) {
    layer.merge((from / WORD) as usize, &mut words(bytes));
}

/// Whether every bit of `bytes` at `from` of the stream is set. The arguments are as for [`merge`].
pub(in crate::codec) fn holds(filter: &Filter, from: u64, bytes: &[u8]) -> bool {
    let mut stored = Vec::new();
    read(filter, from, bytes.len(), &mut stored);
    words(bytes).zip(words(&stored)).all(|(bits, word)| bits & !word == 0)
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
