//! Removes what windows forgot, between commands.
//!
//! The slots of forgotten items leave in passes over all pages (`filter/paged/window.rs`). Of the
//! additions that change the filter, every 32nd sweeps a page. The rest is done here, so that a
//! window that gets no more additions frees its memory, too.
//!
//! The timer serves the keys in turn, so that none waits for a large window. Only a primary sweeps.
//! Its replicas and the AOF get each slice as BF.SHIFT. Each server frees the pages of an emptied
//! window on its own, because no state depends on them. BF.FORGET, and additions that sweep a page
//! or start a generation, put a key into the queue, also one that was renamed, or after a restart.

use std::{
    collections::BTreeSet,
    ffi::{c_int, c_void},
    ops::Bound,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{
    api::{Access, Context, Key, OwnedStr, raw, replication_is_paused},
    effects, guarded, limit,
    stats::Share,
    value::Stored,
};

/// Pages of a slice: some 60 µs each, and at most a millisecond on a busy machine, too.
const PAGES: u64 = 8;

/// Pages of an emptied window that are freed in a slice: less than a millisecond.
const FREED: usize = 4_096;

/// Milliseconds between two turns of the timer: commands have at least three quarters of the time.
const PAUSE: i64 = 5;

/// How long a turn begins further slices.
const TURN: Duration = Duration::from_micros(500);

/// A database and the name of a key in it.
type Place = (c_int, Vec<u8>);

struct Queue {
    waiting: BTreeSet<Place>,
    /// The key that had the last turn.
    last: Place,
    /// Whether a timer is set.
    armed: bool,
}

static QUEUE: Mutex<Queue> =
    Mutex::new(Queue { waiting: BTreeSet::new(), last: (0, Vec::new()), armed: false });

/// The queue. It is not locked during a slice: a subscriber to what that publishes may add to it.
fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Queue {
    /// The key that is next, after the last one in turn.
    fn next(&mut self) -> Option<Place> {
        let after = (Bound::Excluded(&self.last), Bound::Unbounded);
        let next = self.waiting.range(after).next().or_else(|| self.waiting.first())?.clone();
        self.last.clone_from(&next);
        Some(next)
    }
}

/// Removes what the window in a key forgot, from now on.
#[cold]
pub(crate) fn begin(ctx: Context, key: &[u8]) {
    queue().waiting.insert((ctx.database(), key.to_vec()));
    arm(ctx);
}

/// Sets the timer, if there is work.
fn arm(ctx: Context) {
    let mut queue = queue();
    if !queue.armed && !queue.waiting.is_empty() {
        queue.armed = true;
        ctx.set_timer(PAUSE, Some(ring));
    }
}

unsafe extern "C" fn ring(ctx: *mut raw::RedisModuleCtx, _: *mut c_void) {
    guarded(c"timer", (), || {
        // SAFETY: the server's own context, for this call.
        let ctx = unsafe { Context::new(ctx) };
        queue().armed = false;
        let start = Instant::now();
        // While clients are paused for a failover, nothing may be replicated.
        while !replication_is_paused() && start.elapsed() < TURN {
            let next = queue().next();
            let Some(place) = next else { break };
            if !sweep(ctx, &place) {
                queue().waiting.remove(&place);
            }
        }
        arm(ctx);
    });
}

/// Sweeps a slice of a window. Returns whether there may be more to do.
fn sweep(ctx: Context, (database, name): &Place) -> bool {
    if !ctx.select_database(*database) {
        return false;
    }
    let name = OwnedStr::new(name);
    let name = name.as_str();
    let mut key = Key::open(ctx, name, Access::Write);
    let Ok(Some(Stored::Pages(paged))) = Stored::complete_in_key(&mut key) else {
        return false;
    };
    let before = Share::of_pages(paged);
    // The primary of a replica sweeps.
    let shift = if limit::must_obey(ctx) { None } else { paged.sweep(PAGES) };
    let more = paged.release(FREED);
    before.changed(Share::of_pages(paged));
    drop(key);
    if let Some(shift) = shift {
        effects::replicate_shift(ctx, name, shift);
    }
    more || shift.is_some()
}
