//! The way to the grammar, which is private to the commands.

#[path = "../../../src/module/commands/args.rs"]
mod args;

use super::{create::Options, reply::Refusal};

pub(crate) fn reserve<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<Options, Refusal> {
    args::reserve(words)
}

pub(crate) fn insert<'a>(words: &mut impl Iterator<Item = &'a [u8]>) -> Result<Options, Refusal> {
    args::insert(words).map(|insert| insert.options)
}
