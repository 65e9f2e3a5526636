//! `BF.BULKADD key [options] format blob` and `BF.BULKEXISTS key format blob`: BF.INSERT and
//! BF.MEXISTS with all items in one argument and all answers in one string (`codec/packed.rs`).
//!
//! The whole blob is checked before the key is opened, so a malformed blob changes nothing.

use super::{Argument, Batch, Call, Command, Kind, PER_ITEMS, add, exists::ask};
use crate::{
    codec::packed::{self, Packed},
    command::{args, refusal::Refusal},
    module::effects::Items,
};

/// The arguments that both commands end with.
const FORMAT: Argument = Argument::one_of(
    c"format",
    &[
        Argument::token(c"LINES"),
        Argument::token(c"LENGTHS"),
        Argument::valued(c"WIDTH", Kind::Integer),
    ],
);
const BLOB: Argument = Argument::new(c"blob", Kind::String);

pub(super) const BULKADD: Command = Command {
    name: c"bf.bulkadd",
    arity: -4,
    summary: c"Adds the items of one packed string to a Bloom filter, which is created with the \
          given options if it does not exist",
    complexity: PER_ITEMS,
    arguments: &[Argument::new(c"options", Kind::Options), FORMAT, BLOB],
    run: bf_bulkadd,
    ..Command::ADDS
};

fn bf_bulkadd(call: &Call) -> Result<(), Refusal> {
    let mut words = call.words.iter();
    let (options, format) = args::bulk_add(&mut words.by_ref().map(|word| word.bytes()))?;
    let [blob] = words.as_slice() else { return Err(Refusal::ARITY) };
    let items = Packed::new(format, blob.bytes()).map_err(Refusal::BadPacked)?;
    let added = add::add(call, options, items, true)?;
    let new = &added.new;
    reply(call, new.count(), &packed::pack_answers(new.iter()), added.error);
    Ok(())
}

pub(super) const BULKEXISTS: Command = Command {
    name: c"bf.bulkexists",
    flags: c"readonly",
    arity: -4,
    summary: c"Checks for each item of one packed string whether it may be in a Bloom filter",
    complexity: PER_ITEMS,
    arguments: &[FORMAT, BLOB],
    run: bf_bulkexists,
    ..Command::READS
};

fn bf_bulkexists(call: &Call) -> Result<(), Refusal> {
    let mut words = call.words.iter();
    let format = args::bulk_exists(&mut words.by_ref().map(|word| word.bytes()))?;
    let [blob] = words.as_slice() else { return Err(Refusal::ARITY) };
    let items = Packed::new(format, blob.bytes()).map_err(Refusal::BadPacked)?;
    let (count, bits) = match ask(call, items)? {
        Some(found) => (found.count(), packed::pack_answers(found.iter())),
        None => {
            let count = items.items().count();
            (count, vec![0; count.div_ceil(8)])
        }
    };
    reply(call, count, &bits, None);
    Ok(())
}

/// Replies with the number of answers, the answers as bits, and the error that stopped additions,
/// if any.
fn reply(call: &Call, count: usize, bits: &[u8], error: Option<Refusal>) {
    call.ctx.reply_array(2 + usize::from(error.is_some()));
    call.ctx.reply_integer(count as u64);
    call.ctx.reply_bulk(bits);
    if let Some(error) = error {
        call.refuse(error);
    }
}

impl<'a> Batch<'a> for Packed<'a> {
    fn items(self) -> impl Iterator<Item = &'a [u8]> + Clone {
        Packed::items(self)
    }

    fn select(self, changed: impl Iterator<Item = bool>) -> Items<'a> {
        Items::Packed(Packed::select(self, changed))
    }
}
