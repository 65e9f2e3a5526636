//! The option grammars of BF.RESERVE and BF.INSERT: words in, a typed value or a refusal out. No server in here.
//!
//! ```text
//!   RESERVE  key error_rate capacity  [COUNTING] [EXPANSION n] [NONSCALING] [SEED s]        anything else is passed over
//!   INSERT   key  [ERROR e] [CAPACITY n] [COUNTING] [EXPANSION n] [NONSCALING] [SEED s] [NOCREATE]  ITEMS item ...  strict
//! ```
//!
//! Words are whole and in any case. RESERVE is lenient because RedisBloom is and clients rely on it: NRedisStack sends
//! the expansion as a bare number behind the capacity, which is taken for what it means.

use crate::{
    filter::{Cells, Expansion, MAX_CAPACITY},
    module::{create::Options, number, reply::Refusal},
};

/// What BF.INSERT says before its items.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Insert {
    pub(super) options: Options,
    /// Refuse a missing key.
    pub(super) no_create: bool,
}

/// Parses what follows the key of BF.RESERVE.
pub(super) fn reserve<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Result<Options, Refusal> {
    let error_rate = number::float(words.next().ok_or(Refusal::Arity)?).ok_or(Refusal::BadErrorRate)?;
    if !is_rate(error_rate) {
        return Err(Refusal::ErrorRateRange);
    }
    let capacity = number::integer(words.next().ok_or(Refusal::Arity)?).ok_or(Refusal::BadCapacity)?;
    let capacity = in_range(capacity, MAX_CAPACITY)
        .filter(|&n| n > 0)
        .ok_or(Refusal::CapacityRange)?;
    let mut options = Options {
        error_rate: Some(error_rate),
        capacity: Some(capacity),
        ..Options::default()
    };
    let mut growth = Growth::default();
    let mut first = true;
    while let Some(word) = words.next() {
        if is(word, "EXPANSION") {
            let factor =
                number::integer(words.next().ok_or(Refusal::NoExpansion)?).ok_or(Refusal::BadExpansion)?;
            growth.expansion = Some(expansion(factor).ok_or(Refusal::ExpansionRange)?);
        } else if is(word, "NONSCALING") {
            growth.nonscaling = true;
        } else if is(word, "COUNTING") {
            options.cells = Cells::Counters;
        } else if is(word, "SEED") {
            options.seed =
                Some(number::unsigned(words.next().ok_or(Refusal::NoSeed)?).ok_or(Refusal::BadSeed)?);
        } else if first {
            growth.expansion = number::integer(word).and_then(expansion);
        }
        first = false;
    }
    options.expansion = growth.resolve()?;
    Ok(options)
}

/// Parses what follows the key of BF.INSERT, up to and with ITEMS; what is left of `words` are the items.
pub(super) fn insert<'a>(words: &mut impl Iterator<Item = &'a [u8]>) -> Result<Insert, Refusal> {
    let Insert {
        mut options,
        mut no_create,
    } = Insert::default();
    let mut growth = Growth::default();
    loop {
        let word = words.next().ok_or(Refusal::Arity)?;
        if is(word, "ITEMS") {
            break;
        } else if is(word, "NOCREATE") {
            no_create = true;
        } else if is(word, "NONSCALING") {
            growth.nonscaling = true;
        } else if is(word, "COUNTING") {
            options.cells = Cells::Counters;
        } else if is(word, "ERROR") {
            let rate = number::float(words.next().ok_or(Refusal::Arity)?).filter(|&rate| is_rate(rate));
            options.error_rate = Some(rate.ok_or(Refusal::InsertErrorRate)?);
        } else if is(word, "CAPACITY") {
            let capacity = number::integer(words.next().ok_or(Refusal::Arity)?);
            let capacity = capacity
                .and_then(|n| in_range(n, MAX_CAPACITY))
                .filter(|&n| n > 0);
            options.capacity = Some(capacity.ok_or(Refusal::InsertCapacity)?);
        } else if is(word, "EXPANSION") {
            let factor = number::integer(words.next().ok_or(Refusal::Arity)?);
            growth.expansion = Some(factor.and_then(expansion).ok_or(Refusal::InsertExpansion)?);
        } else if is(word, "SEED") {
            let seed = number::unsigned(words.next().ok_or(Refusal::Arity)?);
            options.seed = Some(seed.ok_or(Refusal::InsertSeed)?);
        } else {
            return Err(Refusal::UnknownArgument);
        }
    }
    options.expansion = growth.resolve()?;
    Ok(Insert { options, no_create })
}

/// What was said of growing, in any order.
#[derive(Default)]
struct Growth {
    expansion: Option<Expansion>,
    nonscaling: bool,
}

impl Growth {
    fn resolve(self) -> Result<Option<Expansion>, Refusal> {
        match self.expansion {
            Some(expansion) if self.nonscaling && expansion.factor().is_some() => {
                Err(Refusal::NonscalingExpands)
            }
            _ if self.nonscaling => Ok(Some(Expansion::NONSCALING)),
            expansion => Ok(expansion),
        }
    }
}

fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

fn is_rate(rate: f64) -> bool {
    rate > 0.0 && rate < 1.0
}

fn in_range(number: i64, most: u64) -> Option<u64> {
    u64::try_from(number).ok().filter(|&number| number <= most)
}

fn expansion(factor: i64) -> Option<Expansion> {
    Expansion::new(u64::try_from(factor).ok()?).ok()
}
