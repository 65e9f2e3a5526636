//! `BF.FORGET key`: forgets the generations that are out of the window. `BF.SHIFT key OPEN ms |
//! FORGET ms | SWEEP pages`: repeats, on a copy, what time did to the filter on its primary.
//!
//! Additions forget too, but a server at `maxmemory` refuses them. BF.FORGET runs without
//! `deny-oom`, because it makes no filter larger. The memory is freed between later commands
//! (`module/sweeps.rs`).
//!
//! BF.SHIFT is the only form in which time reaches a replica or an AOF (`filter/paged/window.rs`).
//! It is refused to clients: a wrong time would make the filter forget what it must remember.

use super::{Argument, Call, Command, Kind, add::Before};
use crate::{
    command::{args, refusal::Refusal},
    filter::{
        Author,
        paged::{Paged, Shift, Window},
    },
    module::{
        api::{Access, Key, clock},
        effects, limit, sweeps,
        value::Stored,
    },
};

pub(super) const FORGET: Command = Command {
    name: c"bf.forget",
    arity: 2,
    summary: c"Frees the memory of what is out of the window of a Bloom filter",
    complexity: c"O(1); the memory is freed later, in slices of at most a millisecond",
    run: bf_forget,
    ..Command::DELETES
};

fn bf_forget(call: &Call) -> Result<(), Refusal> {
    let mut key = Key::open(call.ctx, call.key, Access::Write);
    let paged = window(Stored::complete_in_key(&mut key)?)?;
    // A replica forgets when its primary does.
    if limit::must_obey(call.ctx) {
        return Err(Refusal::ON_REPLICA);
    }
    let now = clock();
    let oldest = |paged: &Paged| paged.window().map_or(0, Window::first_alive);
    let (before, first) = (Before::of(paged, Author::Client(now)), oldest(paged));
    let shift = paged.forget(now);
    before.changed(call, paged, shift);
    let forgotten = oldest(paged).saturating_sub(first);
    drop(key);
    if let Some(shift) = shift {
        effects::shifted(call.ctx, call.key, shift);
    }
    // An unfinished pass may be left after a restart or a promotion.
    sweeps::begin(call.ctx, call.key.bytes());
    call.ctx.reply_integer(forgotten);
    Ok(())
}

/// The filter, if it has a window.
fn window(filter: Option<&mut Stored>) -> Result<&mut Paged, Refusal> {
    match filter.ok_or(Refusal::NOT_FOUND)? {
        Stored::Pages(paged) if paged.window().is_some() => Ok(paged),
        _ => Err(Refusal::NO_WINDOW),
    }
}

const MILLISECONDS: Argument = Argument::new(c"milliseconds", Kind::Integer);

pub(super) const SHIFT: Command = Command {
    name: c"bf.shift",
    flags: c"write",
    arity: 4,
    summary: c"Internal: repeats what time did to the generations of a Bloom filter",
    complexity: c"O(P), where P is the number of pages, and O(1) without one",
    arguments: &[Argument::one_of(
        c"shift",
        &[
            Argument::block(c"OPEN", &[MILLISECONDS]),
            Argument::block(c"FORGET", &[MILLISECONDS]),
            Argument::block(c"SWEEP", &[Argument::new(c"pages", Kind::Integer)]),
        ],
    )],
    run: bf_shift,
    ..Command::FILLS
};

fn bf_shift(call: &Call) -> Result<(), Refusal> {
    let [word, number] = call.exactly()?;
    let mut key = Key::open(call.ctx, call.key, Access::Write);
    let filter = Stored::complete_in_key(&mut key)?;
    if !call.ctx.is_replayed() {
        return Err(Refusal::NOT_REPLICATED);
    }
    let shift = args::shift(word.bytes(), number.bytes())?;
    let paged = window(filter)?;
    let before = Before::of(paged, Author::Obeyed);
    paged.obey(shift).map_err(|_| Refusal::BAD_SHIFT)?;
    before.changed(call, paged, Some(shift));
    drop(key);
    if let Shift::Sweep { .. } = shift {
        effects::replicate_shift(call.ctx, call.key, shift);
    } else {
        effects::shifted(call.ctx, call.key, shift);
    }
    call.ctx.reply_simple(c"OK");
    Ok(())
}
