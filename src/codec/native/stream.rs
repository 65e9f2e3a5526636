//! The bits of all layers, oldest first, as one stream: byte i has the bits 8 i to 8 i + 7, least
//! significant first. A layer is a whole number of words, so a position in the stream that is a
//! multiple of 8 starts a word.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "sums of positions inside a filter that exists: callers have checked the range"
)]

use crate::filter::{Demand, Error, Filter, Layer, LayerPlan};

/// Bytes of a word.
pub(in crate::codec) const WORD: u64 = 8;

/// Appends the bytes from `from` on to `out`: `count` bytes, or fewer at the end of the stream.
/// `from` is a multiple of [`WORD`].
pub(in crate::codec) fn read(filter: &Filter, from: u64, count: usize, out: &mut Vec<u8>) {
    let (index, start) = filter.layer_at(from, |start| start.memory);
    let (mut first, mut left) = (((from - start.memory) / WORD) as usize, count);
    for layer in filter.layers_from(index) {
        let words = layer.bits().words().get(first..).unwrap_or_default();
        let here = left.min(size_of_val(words));
        put(words, here, out);
        (first, left) = (0, left - here);
        if left == 0 {
            return;
        }
    }
}

/// Appends the first `count` bytes of `words` to `out`.
pub(in crate::codec) fn put(words: &[u64], count: usize, out: &mut Vec<u8>) {
    let (start, whole) = (out.len(), count / WORD as usize);
    // One iteration for each word; this compiles to a copy.
    out.resize(start + whole * WORD as usize, 0);
    let copied = out.get_mut(start..).unwrap_or_default();
    for (bytes, word) in copied.chunks_exact_mut(WORD as usize).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    if let Some(word) = words.get(whole) {
        out.extend(word.to_le_bytes().into_iter().take(count % WORD as usize));
    }
}

/// Sets the bits of `bytes` at position `from` of the stream, and clears none. The range lies
/// inside the stream and has room (`Layer::make_room`). `from` is a multiple of [`WORD`], and so is
/// the length, unless the range ends inside the last word of a layer.
pub(in crate::codec) fn merge(filter: &mut Filter, from: u64, bytes: &[u8]) {
    let mut new = words(bytes);
    let (index, start) = filter.layer_at(from, |start| start.memory);
    let mut skip = (from - start.memory) / WORD;
    for layer in filter.layers_from_mut(index) {
        if !layer.bits_mut().merge(skip as usize, &mut new) {
            return;
        }
        skip = 0;
    }
}

/// Makes a layer of all its bits. `present` counts the bytes of all layers so far.
pub(in crate::codec) fn layer(
    plan: &LayerPlan,
    bytes: &[u8],
    present: &mut u64,
    ceiling: u64,
) -> Result<Layer, Error> {
    *present = present.saturating_add(plan.shape.words().saturating_mul(WORD));
    Demand { present: 0, wanted: *present }.check(|_| ceiling)?;
    let mut layer = plan.empty()?;
    layer.bits_mut().merge(0, &mut words(bytes));
    Ok(layer)
}

/// The words of `bytes`; the last one is padded with zeros.
pub(super) fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (words, rest) = bytes.as_chunks::<{ WORD as usize }>();
    let padded = || std::array::from_fn(|at| rest.get(at).copied().unwrap_or(0));
    let last = (!rest.is_empty()).then(padded);
    words.iter().copied().chain(last).map(u64::from_le_bytes)
}
