//! The options of BF.RESERVE and BF.INSERT in commands from a primary, an AOF or a slot migration.
//!
//! The item of such a command is already in a filter elsewhere, so the command must not fail here
//! because of its syntax. RedisBloom and valkey-bloom replicate both commands as their clients
//! wrote them, and accept more than `args.rs`. What `args.rs` refuses is read here by the rules of
//! its product:
//!
//! ```text
//!   RESERVE  RedisBloom takes NONSCALING and the first EXPANSION at any position, the key
//!            included, and ignores other words; it refuses both together
//!   INSERT   RedisBloom compares letters:
//!                i... = ITEMS     c... n = CAPACITY n   er... e = ERROR e
//!                e... n = EXPANSION n   n.c... = NOCREATE   n... = NONSCALING
//!            valkey-bloom adds whole words:  TIGHTENING t   SEED s   VALIDATESCALETO n
//!   numbers  RedisBloom: like strtod, hexadecimal included
//!            valkey-bloom: a plus sign or leading zeros are allowed
//! ```
//!
//! A number outside a range of this module becomes the nearest number inside: the filter may grow
//! in other steps than the original, but it has the same items. valkey-bloom replicates the
//! creation of a filter in the form that `args.rs` reads, so this file skips its three options.

use super::{
    args, number,
    options::{Options, is, is_rate},
    refusal::Refusal,
};
use crate::filter::{Expansion, MAX_CAPACITY, MAX_EXPANSION};

/// Reads the arguments of a BF.RESERVE of either product after `key`.
///
/// A command of this module has a seed, unless it creates a filter as RedisBloom does. So without
/// one RedisBloom's reading comes first, which ignores the options of this module.
pub fn reserve<'a>(
    key: &'a [u8],
    words: impl Iterator<Item = &'a [u8]> + Clone,
) -> Result<Options, Refusal> {
    let follows = words.clone().skip(1);
    let has_seed = words
        .clone()
        .zip(follows)
        .any(|(word, next)| is(word, "SEED") && next.first().is_some_and(u8::is_ascii_digit));
    let by_redisbloom = if has_seed { None } else { redisblooms_reserve(key, words.clone()) };
    by_redisbloom.map_or_else(|| args::reserve(words), Ok)
}

/// Reads the arguments of a RedisBloom BF.RESERVE after `key`; `None` if RedisBloom refuses them.
fn redisblooms_reserve<'a>(
    key: &'a [u8],
    mut words: impl Iterator<Item = &'a [u8]> + Clone,
) -> Option<Options> {
    let error_rate = to_rate(number::any_float(words.next()?)?)?;
    let capacity = to_capacity(number::any_integer(words.next()?)?)?;
    let mut nonscaling = words.clone().any(|word| is(word, "NONSCALING"));
    let expansion = match words.find(|word| is(word, "EXPANSION")) {
        Some(_) => Some(to_expansion(number::any_integer(words.next()?)?)?),
        // With EXPANSION, RedisBloom refuses this key. So a primary of this module has sent it.
        None => {
            nonscaling |= is(key, "NONSCALING");
            None
        }
    };
    Some(Options {
        error_rate: Some(error_rate),
        capacity: Some(capacity),
        expansion: growth(nonscaling, expansion),
        ..Options::default()
    })
}

/// Reads the arguments of a BF.INSERT of either product after the key, up to and including the word
/// for ITEMS. Leaves the items in `words`. `None` if both products refuse the arguments.
pub fn insert<'a>(words: &mut impl Iterator<Item = &'a [u8]>) -> Option<Options> {
    let (mut no_create, mut nonscaling) = (false, false);
    // RedisBloom 2 checks the ranges of the last values alone: an earlier one may lie outside.
    let (mut error_rate, mut capacity, mut expansion) = (None, None, None);
    loop {
        let word = words.next()?;
        let letter = |index: usize| word.get(index).map(u8::to_ascii_lowercase);
        match letter(0)? {
            b'i' => break,
            b'c' => capacity = Some(number::any_integer(words.next()?)?),
            b'e' if letter(1) == Some(b'r') => {
                error_rate = Some(number::any_float(words.next()?)?);
            }
            b'e' => expansion = Some(number::any_integer(words.next()?)?),
            b'n' if letter(2) == Some(b'c') => no_create = true,
            b'n' => nonscaling = true,
            _ if ["TIGHTENING", "SEED", "VALIDATESCALETO"]
                .iter()
                .any(|option| is(word, option)) =>
            {
                words.next()?;
            }
            _ => return None,
        }
    }
    Some(Options {
        error_rate: in_range(error_rate, to_rate)?,
        capacity: in_range(capacity, to_capacity)?,
        expansion: growth(nonscaling, in_range(expansion, to_expansion)?),
        no_create,
        ..Options::default()
    })
}

/// NONSCALING wins over EXPANSION.
fn growth(nonscaling: bool, expansion: Option<Expansion>) -> Option<Expansion> {
    if nonscaling { Some(Expansion::NONSCALING) } else { expansion }
}

/// The option in its range, if there is one; `None` for an option that is out of range.
fn in_range<T, U>(option: Option<T>, to: impl Fn(T) -> Option<U>) -> Option<Option<U>> {
    match option {
        Some(value) => to(value).map(Some),
        None => Some(None),
    }
}

fn to_rate(rate: f64) -> Option<f64> {
    is_rate(rate).then_some(rate)
}

fn to_capacity(capacity: i64) -> Option<u64> {
    let capacity = u64::try_from(capacity).ok()?;
    (capacity > 0).then(|| capacity.min(MAX_CAPACITY))
}

fn to_expansion(factor: i64) -> Option<Expansion> {
    Expansion::new(u64::try_from(factor).ok()?.min(MAX_EXPANSION.into())).ok()
}
