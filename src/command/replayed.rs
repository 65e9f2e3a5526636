//! The options of BF.RESERVE and BF.INSERT in commands that a primary, an AOF or a slot migration
//! sends.
//!
//! The item of such a command is in a filter elsewhere, so the command must not fail here for the
//! way it is written. RedisBloom and valkey-bloom replicate BF.RESERVE and BF.INSERT as their
//! clients wrote them, and both read more than `args.rs` does. What `args.rs` refuses is read here
//! as its author reads it:
//!
//! ```text
//!   RESERVE  RedisBloom looks for NONSCALING and for the first EXPANSION anywhere, the key included, and ignores the rest
//!   INSERT   RedisBloom looks at letters:   i... = ITEMS   c... n = CAPACITY   er... e = ERROR   e... n = EXPANSION
//!                                           n.c... = NOCREATE   n... = NONSCALING
//!            valkey-bloom adds whole words: TIGHTENING t   SEED s   VALIDATESCALETO n
//!   numbers  RedisBloom: as strtod reads them, hexadecimal too; valkey-bloom: with a plus sign or leading zeros
//! ```
//!
//! Both check the ranges. A number beyond a range of ours becomes the nearest that is in it: the
//! filter may grow in other steps than the original, but it holds the same items. valkey-bloom
//! replicates a creation in the one form that `args.rs` reads, so its own options are skipped here.

use super::{
    args::{Insert, Options, is, is_rate},
    number,
};
use crate::filter::{CellKind, Expansion, MAX_CAPACITY, MAX_EXPANSION};

/// Reads what follows `key` in a BF.RESERVE of RedisBloom's; `None` for what RedisBloom refuses.
pub fn reserve<'a>(
    key: &'a [u8],
    mut words: impl Iterator<Item = &'a [u8]> + Clone,
) -> Option<Options> {
    let error_rate = to_rate(number::any_float(words.next()?)?)?;
    let capacity = to_capacity(number::any_integer(words.next()?)?)?;
    let mut all = words.clone().chain([key]);
    let nonscaling = all.any(|word| is(word, "NONSCALING"));
    let expansion = match words.find(|word| is(word, "EXPANSION")) {
        Some(_) => Some(to_expansion(number::any_integer(words.next()?)?)?),
        None => None,
    };
    Some(Options {
        error_rate: Some(error_rate),
        capacity: Some(capacity),
        expansion: growth(nonscaling, expansion),
        ..Options::default()
    })
}

/// Whether only this module writes a BF.RESERVE with these options.
pub fn is_own(options: &Options) -> bool {
    options.seed.is_some() || options.cells == CellKind::Counters
}

/// Reads what follows the key of a BF.INSERT of either product, up to and with the word for ITEMS;
/// what is left of `words` are the items. `None` for what both refuse.
pub fn insert<'a>(words: &mut impl Iterator<Item = &'a [u8]>) -> Option<Insert> {
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
    let options = Options {
        error_rate: in_range(error_rate, to_rate)?,
        capacity: in_range(capacity, to_capacity)?,
        expansion: growth(nonscaling, in_range(expansion, to_expansion)?),
        ..Options::default()
    };
    Some(Insert { options, no_create, has_items: true })
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
