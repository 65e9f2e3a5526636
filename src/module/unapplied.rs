//! Changes from a primary, an AOF, a slot migration or a file that this server could not make.
//!
//! This server's data differ from the source's from then on: the log names the key, and INFO counts
//! the change. A missing key must not answer "absent". Nor must the next addition create a filter
//! with this server's settings and that one item. So the key gets a placeholder
//! ([`Stored::placeholder`]), which returns an error to queries and refuses additions.

use std::{
    ffi::c_int,
    fmt::Display,
    sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
};

use super::{
    api::{Access, Context, Key, Str, logged, raw},
    effects, limit, stats,
    value::Stored,
};
use crate::codec::native::dump;

/// Reports a command, or a filter that the server loads. Warnings that clients cause do not hide
/// these, which have a pace of their own.
#[cold]
pub(crate) fn report(ctx: Context, what: &[u8], key: &[u8], why: impl Display) {
    static PACE: AtomicI64 = AtomicI64::new(0);
    stats::UNAPPLIED.add(1);
    ctx.warn_at(&PACE, || {
        format!(
            "{} of key '{}' was not applied, though it came from a primary, an AOF, a slot \
             migration or a file: {why} ({} in all)",
            logged(what),
            logged(key),
            stats::UNAPPLIED.get(),
        )
    });
}

/// Puts a placeholder into the key `name` if the key is missing. It also replaces a value that
/// `lacks` items which could not be added: a filter would answer "absent" for these, and so would a
/// load that is completed later. The AOF of this server and the replicas of a slot's new node do
/// not get the command. They get the placeholder, as a header of a dump.
#[cold]
pub(crate) fn leave_placeholder(ctx: Context, name: Str, lacks: bool) {
    let Some(placeholder) = Stored::placeholder(true) else { return };
    let (iterator, header) = dump::header(&placeholder);
    let mut key = Key::open(ctx, name, Access::Write);
    let deleted = match Stored::in_key(&mut key) {
        Ok(None) => false,
        Ok(Some(value)) if lacks && !value.is_written_placeholder() => true,
        _ => return,
    };
    if deleted {
        key.delete();
    }
    // The server takes any value for an empty key that is open for writing.
    let _ = placeholder.put(&mut key);
    drop(key);
    effects::placeholder(ctx, name, deleted, iterator, &header);
}

/// [`report`] for a callback that gets no client (COPY, RESTORE, a full sync), if this server is a
/// replica or loads. Returns whether it is.
#[cold]
pub(crate) fn report_without_client(what: &str, key: Str, why: impl Display) -> bool {
    let obeyed = limit::must_obey(Context::none());
    if obeyed {
        report(Context::none(), format!("bf: {what}").as_bytes(), key.bytes(), why);
    }
    obeyed
}

/// Whether a stored filter that is read now comes from the primary of this server: in a full sync,
/// or in a RESTORE. A replica that loads its own file at start reads what it has saved itself.
pub(crate) fn is_from_the_primary() -> bool {
    const REPLICA: c_int = raw::REDISMODULE_CTX_FLAGS_SLAVE as c_int;
    const LOADING: c_int = raw::REDISMODULE_CTX_FLAGS_LOADING as c_int;
    FULL_SYNC.load(Relaxed) || Context::none().flags() & (REPLICA | LOADING) == REPLICA
}

/// Whether the server loads a full sync.
static FULL_SYNC: AtomicBool = AtomicBool::new(false);

/// Notes that a load of this kind (`REDISMODULE_SUBEVENT_LOADING_*`) begins, or that it ends.
pub(crate) fn loading(what: u64) {
    FULL_SYNC.store(what == raw::REDISMODULE_SUBEVENT_LOADING_REPL_START, Relaxed);
}
