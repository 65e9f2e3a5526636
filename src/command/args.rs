//! The arguments of commands: from words to a typed value or a refusal. Needs no server.
//!
//! ```text
//!   RESERVE  key error capacity  [n] [options]
//!   INSERT   key  [options]  ITEMS item ...
//!   BULKADD  key  [options]  LINES | LENGTHS | WIDTH n  blob
//!   BULKEXISTS key           LINES | LENGTHS | WIDTH n  blob
//!   SHIFT    key  OPEN ms | FORGET ms | SWEEP pages
//! ```
//!
//! The options are those of `options.rs`. An unknown word is refused. NRedisStack sends the
//! expansion of RESERVE as a bare number after the capacity; it is accepted as EXPANSION.
//!
//! A RESERVE that is `obeyed` (sent by a primary, an AOF or a slot migration) is read by
//! RedisBloom's rules, unless it has a seed: this module always sends one with a native filter.

use std::num::NonZeroUsize;

use crate::{
    codec::packed::{Format, MAX_WIDTH},
    filter::{Expansion, MAX_EXPANSION, TIGHTENING, Valkey, paged::Shift},
};

use super::{
    number,
    options::{CAPACITIES, Draft, Options, integer, is, rate},
    refusal::Refusal,
};

/// Parses the arguments of BF.RESERVE after the key.
pub fn reserve<'a>(
    mut words: impl Iterator<Item = &'a [u8]> + Clone,
    obeyed: bool,
) -> Result<Options, Refusal> {
    let rates = [Refusal::BAD_ERROR_RATE, Refusal::ERROR_RATE_RANGE];
    let error_rate = rate(words.next(), rates)?;
    let capacities = [Refusal::BAD_CAPACITY, Refusal::CAPACITY_RANGE];
    let capacity = integer(words.next(), CAPACITIES, capacities)?;
    let mut draft = Draft::default();
    draft.options.error_rate = Some(error_rate);
    draft.options.capacity = Some(capacity);
    if obeyed && !has_seed(words.clone()) {
        let expansion = redisblooms_growth(words)?;
        return Ok(Options { expansion, ..draft.options });
    }
    let expansion = |factor: u64| Expansion::new(factor).ok();
    // NRedisStack may send the bare number together with NONSCALING; NONSCALING wins.
    let bare = words.clone().next().and_then(number::integer).and_then(expansion);
    if bare.is_some() {
        words.next();
    }
    while let Some(word) = words.next() {
        if !draft.take(word, &mut words, true)? {
            return Err(Refusal::UnknownOption(words.count()));
        }
    }
    draft.options.expansion = match draft.factor.and_then(expansion) {
        Some(stated) if draft.nonscaling && stated.factor().is_some() => {
            return Err(Refusal::NONSCALING_EXPANDS);
        }
        _ if draft.nonscaling => Some(Expansion::NONSCALING),
        stated => stated.or(bare),
    };
    draft.finish()
}

/// Whether the words have a number after SEED.
fn has_seed<'a>(words: impl Iterator<Item = &'a [u8]> + Clone) -> bool {
    let mut pairs = words.clone().zip(words.skip(1));
    pairs.any(|(word, next)| is(word, "SEED") && next.first().is_some_and(u8::is_ascii_digit))
}

/// The expansion that RedisBloom takes from the words of a RESERVE: NONSCALING anywhere, or the
/// first EXPANSION.
fn redisblooms_growth<'a>(
    mut words: impl Iterator<Item = &'a [u8]> + Clone,
) -> Result<Option<Expansion>, Refusal> {
    if words.clone().any(|word| is(word, "NONSCALING")) {
        return Ok(Some(Expansion::NONSCALING));
    }
    if !words.any(|word| is(word, "EXPANSION")) {
        return Ok(None);
    }
    let factor = words.next().and_then(number::integer).ok_or(Refusal::BAD_EXPANSION)?;
    Ok(clamped(factor))
}

/// The expansion, or the largest that a filter of this module may have. With the largest, the
/// filter grows in other steps than the original, but has the same items.
fn clamped(factor: u64) -> Option<Expansion> {
    Expansion::new(factor.min(MAX_EXPANSION.into())).ok()
}

/// Parses the arguments of BF.INSERT after the key, up to and including ITEMS, and returns whether
/// ITEMS is there: with a seed of 32 bytes it may be missing. Leaves the items in `words`.
pub fn insert<'a>(
    words: &mut impl Iterator<Item = &'a [u8]>,
    obeyed: impl Fn() -> bool,
) -> Result<(Options, bool), Refusal> {
    let (draft, word) = given(words)?;
    match word {
        None if draft.valkeys_seed.is_none() => Err(Refusal::ARITY),
        Some(word) if !is(word, "ITEMS") => Err(Refusal::UNKNOWN_ARGUMENT),
        word => Ok((creation(draft, obeyed)?, word.is_some())),
    }
}

/// Parses the arguments of BF.BULKADD between the key and the blob.
pub fn bulk_add<'a>(
    words: &mut impl Iterator<Item = &'a [u8]>,
) -> Result<(Options, Format), Refusal> {
    let (draft, word) = given(words)?;
    let format = format(word, words)?;
    Ok((creation(draft, || false)?, format))
}

/// Parses the arguments of BF.BULKEXISTS between the key and the blob.
pub fn bulk_exists<'a>(words: &mut impl Iterator<Item = &'a [u8]>) -> Result<Format, Refusal> {
    format(words.next(), words)
}

/// Reads the format of a packed batch, which begins with `word`.
fn format<'a>(
    word: Option<&[u8]>,
    words: &mut impl Iterator<Item = &'a [u8]>,
) -> Result<Format, Refusal> {
    match word.ok_or(Refusal::ARITY)? {
        word if is(word, "LINES") => Ok(Format::Lines),
        word if is(word, "LENGTHS") => Ok(Format::Lengths),
        word if is(word, "WIDTH") => {
            let width = number::integer(words.next().ok_or(Refusal::ARITY)?);
            let width = width.filter(|&width| width <= MAX_WIDTH).and_then(NonZeroUsize::new);
            Ok(Format::Width(width.ok_or(Refusal::BAD_WIDTH)?))
        }
        _ => Err(Refusal::UNKNOWN_ARGUMENT),
    }
}

/// Reads options, and returns the word that follows them. The caller refuses an unknown word before
/// it refuses options that do not fit together.
fn given<'a>(
    words: &mut impl Iterator<Item = &'a [u8]>,
) -> Result<(Draft, Option<&'a [u8]>), Refusal> {
    let (mut draft, mut last) = (Draft::default(), words.next());
    while let Some(word) = last
        && draft.take(word, words, false)?
    {
        last = words.next();
    }
    Ok((draft, last))
}

/// The options of a filter that a command creates.
fn creation(mut draft: Draft, obeyed: impl Fn() -> bool) -> Result<Options, Refusal> {
    let seed = draft.valkeys_seed;
    let options = &mut draft.options;
    // valkey-bloom never writes these together with its seed.
    let own = options.seed.is_some() || options.shard.is_some();
    if seed.is_some() && (own || options.counts) {
        return Err(Refusal::BAD_SEED);
    }
    let tightening = draft.tightening.unwrap_or(TIGHTENING);
    options.valkey = seed.map(|seed| Valkey { seed, tightening });
    let expansion = match draft.factor {
        None => None,
        // valkey-bloom has no upper limit.
        Some(factor) if seed.is_some() => u32::try_from(factor).ok().map(Expansion::stored),
        Some(factor) if obeyed() => clamped(factor),
        Some(factor) => Some(Expansion::new(factor).map_err(|_| Refusal::INSERT_EXPANSION)?),
    };
    // redis-py sends both options. In RedisBloom NONSCALING wins, in valkey-bloom the last one.
    options.expansion = if draft.nonscaling && !(seed.is_some() && draft.expands_last) {
        Some(Expansion::NONSCALING)
    } else {
        expansion
    };
    draft.finish()
}

/// Parses the arguments of BF.SHIFT after the key.
pub fn shift(word: &[u8], number: &[u8]) -> Result<Shift, Refusal> {
    let shift = match word {
        word if is(word, "OPEN") => number::integer(number).map(Shift::Open),
        word if is(word, "FORGET") => number::integer(number).map(Shift::Forget),
        word if is(word, "SWEEP") => number::integer(number).map(Shift::Sweep),
        _ => None,
    };
    shift.ok_or(Refusal::BAD_SHIFT)
}

/// The arguments of BF.SHIFT for a shift.
pub fn shift_words(shift: Shift) -> (&'static str, String) {
    match shift {
        Shift::Open(start) => ("OPEN", start.to_string()),
        Shift::Forget(start) => ("FORGET", start.to_string()),
        Shift::Sweep(pages) => ("SWEEP", pages.to_string()),
    }
}
