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
    let error_rate = rate(words.next()?)?;
    let capacity = capacity(words.next()?)?;
    let mut all = words.clone().chain([key]);
    let nonscaling = all.any(|word| is(word, "NONSCALING"));
    let expansion = match words.find(|word| is(word, "EXPANSION")) {
        Some(_) => Some(expansion(words.next()?)?),
        None => None,
    };
    Some(Options {
        error_rate: Some(error_rate),
        capacity: Some(capacity),
        expansion: if nonscaling { Some(Expansion::NONSCALING) } else { expansion },
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
    let mut insert = Insert::default();
    let (options, mut nonscaling) = (&mut insert.options, false);
    loop {
        let word = words.next()?;
        let letter = |index: usize| word.get(index).map(u8::to_ascii_lowercase);
        match letter(0)? {
            b'i' => break,
            b'c' => options.capacity = Some(capacity(words.next()?)?),
            b'e' if letter(1) == Some(b'r') => options.error_rate = Some(rate(words.next()?)?),
            b'e' => options.expansion = Some(expansion(words.next()?)?),
            b'n' if letter(2) == Some(b'c') => insert.no_create = true,
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
    if nonscaling {
        options.expansion = Some(Expansion::NONSCALING);
    }
    insert.has_items = true;
    Some(insert)
}

fn rate(word: &[u8]) -> Option<f64> {
    number::any_float(word).filter(|&rate| is_rate(rate))
}

fn capacity(word: &[u8]) -> Option<u64> {
    let capacity = number::any_unsigned(word)?;
    (capacity > 0).then(|| capacity.min(MAX_CAPACITY))
}

fn expansion(word: &[u8]) -> Option<Expansion> {
    Expansion::new(number::any_unsigned(word)?.min(MAX_EXPANSION.into())).ok()
}
