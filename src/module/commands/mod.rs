//! The commands. Each file has one or more of them, and one line in the table of [`commands!`].
//!
//! A [`Command`] has what the server must know before it runs, and the function that runs it.
//! Between the server and that function is only `run`: it catches a panic and sends a refusal.

mod registration;

use std::{
    ffi::{CStr, c_int},
    fmt::Display,
};

use registration::{Command, Uses};

use super::{
    api::{Context, OK, Str, logged, raw},
    effects::Items,
    guarded, limit, stats, unapplied,
};
use crate::{
    codec,
    command::{
        options::{Argument, Kind},
        refusal::Refusal,
    },
    filter::Answers,
    sharding::Shard,
};

const ITEMS: Argument = Argument { multiple: true, ..Argument::new(c"item", Kind::String) };

/// The time that a command of one item takes, and of many.
const PER_ITEM: &CStr =
    c"O(L), where L is the number of layers of the filter (1 unless another product made it)";
const PER_ITEMS: &CStr =
    c"O(N * L), where N is the number of items and L the number of layers of the filter";

/// Declares the file of each line as a module, and registers the commands that are in it.
macro_rules! commands {
    ($($file:ident: $($command:ident),+;)+) => {
        $(mod $file;)+

        pub(super) fn register(ctx: Context) -> Result<(), String> {
            ctx.add_category(registration::CATEGORY);
            $($({
                unsafe extern "C" fn entry(
                    ctx: *mut raw::RedisModuleCtx,
                    argv: *mut *mut raw::RedisModuleString,
                    argc: c_int,
                ) -> c_int {
                    // SAFETY: the server's own context, alive until this returns.
                    let ctx = unsafe { Context::new(ctx) };
                    let words = usize::try_from(argc).unwrap_or(0);
                    // SAFETY: 1. the server passes `argc` pointers at `argv`, which live, with what
                    // they point to, until this returns.
                    // 2. `Str` is transparent over such a pointer.
                    let words = unsafe { std::slice::from_raw_parts(argv.cast(), words) };
                    run(&$file::$command, ctx, words)
                }
                $file::$command.register(ctx, Some(entry))?;
            })+)+
            Ok(())
        }
    };
}

// File: the commands in it.
commands! {
    add: ADD, MADD, INSERT;
    bulk: BULKADD, BULKEXISTS;
    dump: SCANDUMP, LOADCHUNK, IMPORT, LOAD;
    exists: EXISTS, MEXISTS;
    info: CARD, DEBUG, INFO;
    merge: MERGE;
    paged: COUNT, DEL, FORGET, SHIFT;
    reserve: RESERVE;
}

/// Runs a command, and sends its refusal.
#[inline(always)] // The command is known at compile time then.
fn run(command: &Command, ctx: Context, words: &[Str]) -> c_int {
    let enough = words.len() >= command.arity.unsigned_abs() as usize;
    let [name, key, words @ ..] = words else {
        if command.uses != Uses::Reads && ctx.is_replayed() {
            unapplied::report(ctx, command.name.to_bytes(), b"", "wrong number of arguments");
        }
        ctx.reply_wrong_arity();
        return OK;
    };
    let call = Call { ctx, name: *name, key: *key, words, uses: command.uses };
    // Refused inside: a result that `guarded` returns costs instructions, more for a larger result.
    let finished = guarded(command.name, false, || {
        // The server has checked the arity, but not in a damaged AOF.
        let refused = if enough { (command.run)(&call).err() } else { Some(Refusal::ARITY) };
        if let Some(refusal) = refused {
            call.refuse(refusal);
        }
        true
    });
    if !finished {
        guarded(command.name, (), || call.refuse(Refusal::INTERNAL));
    }
    OK
}

/// A command as it was called.
struct Call<'a> {
    ctx: Context<'a>,
    name: Str<'a>,
    key: Str<'a>,
    /// The words after the key.
    words: &'a [Str<'a>],
    uses: Uses,
}

impl<'a> Call<'a> {
    /// The words after the key, of which there are `N`.
    #[inline]
    fn exactly<const N: usize>(&self) -> Result<[Str<'a>; N], Refusal> {
        self.words.as_array().copied().ok_or(Refusal::ARITY)
    }

    /// Replies that the command was refused, or stopped in the middle of its reply. If a primary,
    /// an AOF or a slot migration sent it, the change is reported as lost, and a key that lacks
    /// items gets a placeholder. A full filter is no loss: the sender refused the item, too.
    #[cold]
    fn refuse(&self, refusal: Refusal) {
        let text = refusal.text(self.words.iter().map(|word| word.bytes()));
        if self.ctx.is_replayed() && refusal != Refusal::FULL {
            self.report_unapplied(&text);
            if matches!(self.uses, Uses::Adds | Uses::Fills) {
                let lacks = self.uses == Uses::Adds && !refusal.is_of_the_options();
                unapplied::leave_placeholder(self.ctx, self.key, lacks);
            }
        }
        if refusal == Refusal::ARITY {
            self.ctx.reply_wrong_arity();
        } else {
            self.ctx.reply_error(&text);
        }
    }

    /// Replies with an array of booleans and the error that stopped the command, which comes last:
    /// clients stop reading at the first error.
    fn reply_each(&self, count: usize, each: impl Iterator<Item = bool>, error: Option<Refusal>) {
        self.ctx.reply_array(count + usize::from(error.is_some()));
        each.for_each(|yes| self.ctx.reply_bool(yes));
        if let Some(error) = error {
            self.refuse(error);
        }
    }

    /// Counts and logs a change that a primary, an AOF or a slot migration sent, and that was not
    /// made here.
    #[cold]
    fn report_unapplied(&self, why: &CStr) {
        if self.uses != Uses::Reads && self.ctx.is_replayed() {
            let why = why.to_string_lossy();
            unapplied::report(self.ctx, self.name.bytes(), self.key.bytes(), why);
        }
    }

    /// Tells the log, for example what the client's error text cannot say.
    #[cold]
    fn log(&self, what: impl Display) {
        let (key, name) = (self.key.bytes(), self.name.bytes().to_ascii_uppercase());
        self.ctx.warn_rate_limited(|| format!("key '{}': {} {what}", logged(key), logged(&name)));
    }

    /// Counts a refusal for want of memory, and logs why something was refused.
    #[cold]
    fn refused(&self, error: impl Into<codec::Error>, refusal: Refusal) -> Refusal {
        self.log(format_args!("refused: {}", limit::explained(error)));
        if [Refusal::NO_MEMORY, Refusal::NO_GROWTH].contains(&refusal) {
            stats::REFUSED.add(1);
        }
        refusal
    }
}

/// The items of a command.
trait Batch<'a>: Copy {
    fn items(self) -> impl Iterator<Item = &'a [u8]> + Clone;

    /// The items whose element of `changed` is true, in the form in which they are replicated.
    fn select(self, changed: impl Iterator<Item = bool>) -> Items<'a>;
}

/// Items that are one argument each.
impl<'a> Batch<'a> for &[Str<'a>] {
    fn items(self) -> impl Iterator<Item = &'a [u8]> + Clone {
        self.iter().map(|item| item.bytes())
    }

    fn select(self, changed: impl Iterator<Item = bool>) -> Items<'a> {
        let changed = self.iter().zip(changed).filter(|(_, changed)| *changed);
        Items::Listed(changed.map(|(item, _)| *item).collect())
    }
}

/// Answers in chunks. The first chunk has its own field, so that a small batch allocates nothing.
#[derive(Default)]
struct Chunks {
    first: Option<Answers>,
    more: Vec<Answers>,
}

impl Chunks {
    #[inline]
    fn push(&mut self, chunk: Answers) {
        if self.first.is_none() {
            self.first = Some(chunk);
        } else {
            self.more.push(chunk);
        }
    }

    fn count(&self) -> usize {
        self.iter().map(Answers::count).sum()
    }

    /// The number of answers that are true.
    fn ones(&self) -> usize {
        self.iter().map(Answers::ones).sum()
    }

    fn iter(&self) -> impl Iterator<Item = Answers> {
        self.first.into_iter().chain(self.more.iter().copied())
    }

    fn each(&self) -> impl Iterator<Item = bool> {
        self.iter().flat_map(Answers::each)
    }
}

/// Refuses a client's command if one of its items belongs to a shard that is not the filter's
/// (`docs/reference/sharding.md`). What a primary, an AOF or a slot migration sends is obeyed: the
/// item is in the filter there, and a refusal would lose it here.
#[inline]
fn check_shard<'a>(
    call: &Call,
    shard: Option<Shard>,
    items: impl Iterator<Item = &'a [u8]>,
) -> Result<(), Refusal> {
    shard.map_or(Ok(()), |shard| check_each(call, shard, items))
}

#[inline(never)] // So that the code for other filters does not depend on it.
fn check_each<'a>(
    call: &Call,
    shard: Shard,
    items: impl Iterator<Item = &'a [u8]>,
) -> Result<(), Refusal> {
    let Some(owner) = shard.foreign(items) else { return Ok(()) };
    if !call.ctx.is_replayed() {
        return Err(misrouted(call, Some(shard), Refusal::OtherShard(owner)));
    }
    call.log(format_args!(
        "of a primary or an AOF took an item of shard {owner}, though the filter is shard {shard}"
    ));
    Ok(())
}

/// Counts and logs the refusal of a command for another shard. `shard` is the filter's own.
#[cold]
fn misrouted(call: &Call, shard: Option<Shard>, refusal: Refusal) -> Refusal {
    stats::MISROUTED.add(1);
    let text = refusal.text(std::iter::empty());
    let is = shard.map_or_else(|| "no shard".into(), |shard| format!("shard {shard}"));
    call.log(format_args!("refused: {} (the filter is {is})", text.to_string_lossy()));
    refusal
}
