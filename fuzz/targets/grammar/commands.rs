//! The way to the grammar, which is private to the commands.

#[path = "../../../src/module/commands/args.rs"]
mod args;
#[path = "../../../src/module/commands/replayed.rs"]
mod replayed;

use redis_bloom::codec::guava::{Purpose, Strategy};

use super::{create::Options, reply::Refusal};

pub(crate) fn reserve<'a>(words: impl Iterator<Item = &'a [u8]> + Clone) -> Result<Options, Refusal> {
    args::reserve(words)
}

/// As a primary or an AOF may have them; the first word is the key.
pub(crate) fn replayed_reserve<'a>(mut words: impl Iterator<Item = &'a [u8]> + Clone) -> Option<Options> {
    let options = replayed::reserve(words.next()?, words)?;
    (!replayed::is_own(&options)).then_some(options)
}

/// As a primary or an AOF may have them.
pub(crate) fn replayed_insert<'a>(words: &mut impl Iterator<Item = &'a [u8]>) -> Option<Options> {
    replayed::insert(words).map(|insert| insert.options)
}

pub(crate) fn insert<'a>(words: &mut impl Iterator<Item = &'a [u8]>) -> Result<Options, Refusal> {
    args::insert(words).map(|insert| insert.options)
}

/// The form is the first word; what the filter is for, if that is said.
pub(crate) fn import<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Result<Option<Purpose>, Refusal> {
    let form = words.next().unwrap_or_default();
    Ok(match args::import(form, words)? {
        args::Import::Guava(purpose) => purpose,
        args::Import::Bitmap(Strategy::Mitz32 | Strategy::Mitz64, purpose) => Some(purpose),
    })
}
