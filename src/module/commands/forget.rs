//! `BF.FORGET key`: gives back the generations that are out of the window.
//! `BF.SHIFT key start capacity`: what time did to the generations of a filter elsewhere.
//!
//! Additions give back memory too, but a server at `maxmemory` refuses them. BF.FORGET runs without
//! `deny-oom`, because it makes no filter larger.
//!
//! BF.SHIFT is the only form in which time reaches a replica or an AOF (`filter/window/mod.rs`). It
//! is refused to clients: a wrong time would make the filter forget what it must remember.

use super::{Argument, Call, Command, CommandSpec, Uses, windows};
use crate::{
    command::{number, refusal::Refusal},
    filter::{Dropped, Error, MAX_TIME, Shift},
    module::{
        api::{Access, Key, clock},
        effects, limit, stats,
        value::Value,
    },
};

pub(super) struct Forget;

impl Command for Forget {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.forget",
        flags: c"write",
        arity: 2,
        uses: Uses::Deletes,
        categories: "write",
        summary: c"Gives back the memory of what is out of the window of a Bloom filter",
        complexity: c"O(L), where L is the number of layers of the filter",
        since: c"0.1.0",
        tips: None,
        arguments: &[],
    };

    const REDISBLOOMS: bool = false;

    fn run(call: &Call) -> Result<(), Refusal> {
        let (name, []) = call.key_and()?;
        let mut key = Key::open(call.ctx, name, Access::Write);
        let Value::Window(window) = Value::complete_in_key(&mut key)?.ok_or(Refusal::NotFound)?
        else {
            return Err(Refusal::NoWindow);
        };
        // A replica forgets when its primary does.
        if limit::must_obey(call.ctx) {
            return Err(Refusal::OnReplica);
        }
        let (now, mut dropped) = (clock().clamp(0, MAX_TIME), Dropped::default());
        let before = stats::Share::of(window.filter());
        let count = window.forget(now, &mut dropped);
        before.changed(window.filter());
        drop(key);
        if count > 0 {
            let shift = Shift { start: now, capacity: 0 };
            windows::count_shift(shift, count);
            effects::shifted(call.ctx, name, shift);
        }
        call.ctx.reply_integer(count as u64);
        Ok(())
    }
}

pub(super) struct Shifted;

impl Command for Shifted {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.shift",
        flags: c"write",
        arity: 4,
        uses: Uses::Fills,
        categories: "write",
        summary: c"Internal: repeats what time did to the generations of a Bloom filter",
        complexity: c"O(L), where L is the number of layers of the filter",
        since: c"0.1.0",
        tips: None,
        arguments: &[Argument::Integer(c"start"), Argument::Integer(c"capacity")],
    };

    const REDISBLOOMS: bool = false;

    fn run(call: &Call) -> Result<(), Refusal> {
        let (name, [start, capacity]) = call.key_and()?;
        let mut key = Key::open(call.ctx, name, Access::Write);
        let value = Value::complete_in_key(&mut key)?;
        if !call.ctx.is_replayed() {
            return Err(Refusal::NotReplicated);
        }
        let start = number::integer(start.bytes()).ok_or(Refusal::BadShift)?;
        let capacity = number::unsigned(capacity.bytes()).ok_or(Refusal::BadShift)?;
        let Value::Window(window) = value.ok_or(Refusal::NotFound)? else {
            return Err(Refusal::NoWindow);
        };
        let (before, mut dropped) = (stats::Share::of(window.filter()), Dropped::default());
        let dead = window.ring().dead(start);
        let ceiling = |demand| limit::ceiling(call.ctx, demand);
        let shift = Shift { start, capacity };
        let outcome = window.obey(shift, ceiling, &mut dropped);
        before.changed(window.filter());
        drop(key);
        if outcome == Err(Error::Window) {
            return Err(Refusal::BadShift);
        }
        windows::count_shift(shift, dead);
        effects::shifted(call.ctx, name, shift);
        outcome.map_err(|_| Refusal::NoGrowth)?;
        call.ctx.reply_ok();
        Ok(())
    }
}
