//! The option grammars of BF.RESERVE, BF.INSERT and BF.IMPORT: words in, a typed value or a refusal
//! out. No server in here.
//!
//! ```text
//!   RESERVE  key error capacity  [n] [COUNTING] [EXPANSION n] [NONSCALING] [SEED s]
//!   INSERT   key  [ERROR e] [CAPACITY n] [COUNTING] [EXPANSION n] [NONSCALING] [SEED s] [NOCREATE]  ITEMS item ...
//!            and of valkey-bloom's:  [TIGHTENING t] [VALIDATESCALETO n]
//!   IMPORT   key  GUAVA bytes [CAPACITY n] [ERROR e]
//!            key  BITMAP source [GUAVA32 | GUAVA64] CAPACITY n ERROR e
//! ```
//!
//! A seed of INSERT is a number, or 32 bytes: then a primary with valkey-bloom tells of a filter
//! that it made, which is made here as it was there, with the TIGHTENING that belongs to it, and
//! ITEMS may be missing. Beside a number, or no seed, TIGHTENING is checked and not used: a native
//! filter has no such ratio, and keeps the rate. VALIDATESCALETO is checked and not used either:
//! room is asked for when a filter grows.
//!
//! Words are whole and in any case; a word that is no option is refused. NRedisStack sends the
//! expansion of RESERVE as a bare number behind the capacity, which is taken for what it means.
//!
//! This is what clients may write. Commands of a primary or an AOF are read more widely:
//! `replayed.rs`.

use crate::{
    codec::guava::{Purpose, Strategy},
    filter::{CellKind, Expansion, MAX_CAPACITY, TIGHTENING, Valkey},
};

use super::{number, refusal::Refusal};

/// What a command says of a filter to be made. The settings have what is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// The rate of false positives, in (0, 1).
    pub error_rate: Option<f64>,
    /// Items that the first layer is made for, in [1, `MAX_CAPACITY`].
    pub capacity: Option<u64>,
    /// How the filter grows.
    pub expansion: Option<Expansion>,
    /// The key of the hash.
    pub seed: Option<u64>,
    /// Bits, or counters.
    pub cells: CellKind,
    /// Keys and growth of a filter as valkey-bloom makes one; a native one otherwise.
    pub valkey: Option<Valkey>,
}

/// What BF.INSERT says before its items.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Insert {
    /// How a missing filter is made.
    pub options: Options,
    /// Refuse a missing key.
    pub no_create: bool,
    /// Whether the word ITEMS is there.
    pub has_items: bool,
}

/// Parses what follows the key of BF.RESERVE.
pub fn reserve<'a>(mut words: impl Iterator<Item = &'a [u8]> + Clone) -> Result<Options, Refusal> {
    let error_rate =
        number::float(words.next().ok_or(Refusal::Arity)?).ok_or(Refusal::BadErrorRate)?;
    if !is_rate(error_rate) {
        return Err(Refusal::ErrorRateRange);
    }
    let capacity =
        number::integer(words.next().ok_or(Refusal::Arity)?).ok_or(Refusal::BadCapacity)?;
    let capacity =
        in_range(capacity, MAX_CAPACITY).filter(|&n| n > 0).ok_or(Refusal::CapacityRange)?;
    let mut options =
        Options { error_rate: Some(error_rate), capacity: Some(capacity), ..Options::default() };
    let (mut expansion, mut nonscaling) = (None, false);
    // NRedisStack sends it beside NONSCALING too, which wins then.
    let bare = words.clone().next().and_then(|word| factor(number::integer(word)?));
    if bare.is_some() {
        words.next();
    }
    while let Some(word) = words.next() {
        if is(word, "EXPANSION") {
            let number = number::integer(words.next().ok_or(Refusal::NoExpansion)?);
            expansion =
                Some(factor(number.ok_or(Refusal::BadExpansion)?).ok_or(Refusal::ExpansionRange)?);
        } else if is(word, "NONSCALING") {
            nonscaling = true;
        } else if is(word, "COUNTING") {
            options.cells = CellKind::Counters;
        } else if is(word, "SEED") {
            options.seed = Some(
                number::unsigned(words.next().ok_or(Refusal::NoSeed)?).ok_or(Refusal::BadSeed)?,
            );
        } else {
            let behind = u8::try_from(words.count()).unwrap_or(u8::MAX);
            return Err(Refusal::UnknownOption { behind });
        }
    }
    options.expansion = match expansion {
        Some(stated) if nonscaling && stated.factor().is_some() => {
            return Err(Refusal::NonscalingExpands);
        }
        _ if nonscaling => Some(Expansion::NONSCALING),
        stated => stated.or(bare),
    };
    Ok(options)
}

/// Parses what follows the key of BF.INSERT, up to and with ITEMS, or to the end in the form that
/// may end before; what is left of `words` are the items.
pub fn insert<'a>(words: &mut impl Iterator<Item = &'a [u8]>) -> Result<Insert, Refusal> {
    let Insert { mut options, mut no_create, mut has_items } = Insert::default();
    let (mut factor, mut nonscaling, mut expands_last) = (None, false, false);
    let (mut keys, mut tightening, mut scale_to) = (None, None, false);
    while let Some(word) = words.next() {
        if is(word, "ITEMS") {
            has_items = true;
            break;
        } else if is(word, "NOCREATE") {
            no_create = true;
        } else if is(word, "NONSCALING") {
            (nonscaling, expands_last) = (true, false);
        } else if is(word, "COUNTING") {
            options.cells = CellKind::Counters;
        } else if is(word, "ERROR") {
            options.error_rate = Some(rate(words.next())?.ok_or(Refusal::InsertErrorRate)?);
        } else if is(word, "CAPACITY") {
            options.capacity = Some(capacity(words.next())?);
        } else if is(word, "EXPANSION") {
            let number = number::integer(words.next().ok_or(Refusal::Arity)?);
            let number = number.and_then(|n| in_range(n, u32::MAX.into()));
            (factor, expands_last) = (Some(number.ok_or(Refusal::InsertExpansion)?), true);
        } else if is(word, "SEED") {
            let word = words.next().ok_or(Refusal::Arity)?;
            match <[u8; 32]>::try_from(word) {
                Ok(seed) => keys = Some(seed),
                Err(_) => options.seed = Some(number::unsigned(word).ok_or(Refusal::InsertSeed)?),
            }
        } else if is(word, "TIGHTENING") {
            tightening = Some(rate(words.next())?.ok_or(Refusal::Tightening)?);
        } else if is(word, "VALIDATESCALETO") {
            capacity(words.next())?;
            scale_to = true;
        } else {
            return Err(Refusal::UnknownArgument);
        }
    }
    if !has_items && keys.is_none() {
        return Err(Refusal::Arity);
    }
    if scale_to && nonscaling {
        return Err(Refusal::ScalesNot);
    }
    // valkey-bloom says neither; who does means another filter.
    if keys.is_some() && (options.seed.is_some() || options.cells == CellKind::Counters) {
        return Err(Refusal::InsertSeed);
    }
    options.valkey = keys.map(|seed| Valkey { seed, tightening: tightening.unwrap_or(TIGHTENING) });
    let expansion = match factor {
        None => None,
        // valkey-bloom has no upper limit.
        Some(factor) if keys.is_some() => u32::try_from(factor).ok().map(Expansion::stored),
        Some(factor) => Some(Expansion::new(factor).map_err(|_| Refusal::InsertExpansion)?),
    };
    // redis-py sends both words. In RedisBloom NONSCALING wins then, in valkey-bloom the last.
    options.expansion = if nonscaling && !(keys.is_some() && expands_last) {
        Some(Expansion::NONSCALING)
    } else {
        expansion
    };
    Ok(Insert { options, no_create, has_items })
}

/// What BF.IMPORT takes.
#[derive(Clone, Copy)]
pub enum Import {
    /// The bytes of a filter of Guava's.
    Guava(Option<Purpose>),
    /// A bitmap in another key.
    Bitmap(Strategy, Purpose),
}

/// Parses what stands before and behind the bytes, or the other key, of BF.IMPORT.
pub fn import<'a>(
    form: &[u8],
    mut words: impl Iterator<Item = &'a [u8]>,
) -> Result<Import, Refusal> {
    let bitmap = is(form, "BITMAP");
    if !bitmap && !is(form, "GUAVA") {
        return Err(Refusal::UnknownArgument);
    }
    let (mut strategy, mut items, mut error_rate) = (Strategy::Mitz32, None, None);
    while let Some(word) = words.next() {
        if is(word, "CAPACITY") {
            items = Some(capacity(words.next())?);
        } else if is(word, "ERROR") {
            error_rate = Some(rate(words.next())?.ok_or(Refusal::InsertErrorRate)?);
        } else if bitmap && is(word, "GUAVA32") {
            strategy = Strategy::Mitz32;
        } else if bitmap && is(word, "GUAVA64") {
            strategy = Strategy::Mitz64;
        } else {
            return Err(Refusal::UnknownArgument);
        }
    }
    let purpose = match (items, error_rate) {
        (Some(capacity), Some(error_rate)) => Some(Purpose { capacity, error_rate }),
        (None, None) => None,
        // One says nothing without the other.
        _ => return Err(Refusal::Arity),
    };
    if bitmap {
        Ok(Import::Bitmap(strategy, purpose.ok_or(Refusal::Arity)?))
    } else {
        Ok(Import::Guava(purpose))
    }
}

/// A number in (0, 1), `None` for another word.
fn rate(word: Option<&[u8]>) -> Result<Option<f64>, Refusal> {
    let word = word.ok_or(Refusal::Arity)?;
    Ok(number::float(word).filter(|&rate| is_rate(rate)))
}

/// A number of items.
fn capacity(word: Option<&[u8]>) -> Result<u64, Refusal> {
    let number = number::integer(word.ok_or(Refusal::Arity)?);
    let capacity = number.and_then(|n| in_range(n, MAX_CAPACITY)).filter(|&n| n > 0);
    capacity.ok_or(Refusal::InsertCapacity)
}

pub(super) fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

pub(super) fn is_rate(rate: f64) -> bool {
    rate > 0.0 && rate < 1.0
}

fn in_range(number: i64, most: u64) -> Option<u64> {
    u64::try_from(number).ok().filter(|&number| number <= most)
}

fn factor(number: i64) -> Option<Expansion> {
    Expansion::new(u64::try_from(number).ok()?).ok()
}
