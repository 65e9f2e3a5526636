//! Work on all shards at the same time: threads, one for each primary, share the shards. Each shard
//! has its own connection, to the node that has its slot.

use std::{
    collections::HashSet,
    sync::{
        Mutex, Once, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{
    connection::{Connection, Target, Targets},
    error::Error,
    output::Output,
    replication::{Replication, acknowledged},
    retry::{Over, RETRY_FOR, Retry, retry},
};

/// The longest time of one WAIT.
const WAIT: Duration = Duration::from_secs(30);
/// A user who waits for longer than this is told why.
const SILENCE: Duration = Duration::from_secs(1);

/// The servers of a cluster, or one server.
pub(crate) struct Servers {
    pub(crate) all: Targets,
    output: Output,
    /// The user is told once why this takes so long.
    remarked: Once,
    /// Servers that had a replica when they were written to. If the replica goes away, it is waited
    /// for.
    replicated: Mutex<HashSet<String>>,
}

impl Servers {
    /// Asks the server of the command line for the others.
    pub(crate) fn of(target: Target, output: &Output) -> Result<Self, Error> {
        let all = Targets::of(target)?;
        let replicated = Mutex::default();
        Ok(Self { all, output: *output, remarked: Once::new(), replicated })
    }

    /// Waits until a replica of this server has what was written, if it has a replica.
    ///
    /// # Errors
    /// A temporary error, if the server is no primary any more. `Error::incomplete`, if after
    /// [`RETRY_FOR`] no replica has it.
    pub(crate) fn acknowledged(&self, server: &mut Connection) -> Result<(), Error> {
        let mut retry = Retry::failing_within(RETRY_FOR);
        let connected = Replication::of_primary(server)?.connected > 0;
        if !self.had_replica(server.target().to_string(), connected) {
            return Ok(());
        }
        let (mut offset, mut longest) = (None, SILENCE);
        loop {
            // A reply that comes after the connection's timeout would not be seen.
            let most = longest.min(server.target().timeout / 2);
            longest = WAIT;
            if acknowledged(server, 1, &mut offset, most)? {
                return Ok(());
            }
            retry.pause().map_err(|over| match over {
                Over::Interrupted => Error::Interrupted { hint: String::new() },
                Over::Late => Error::incomplete(
                    format!("{}: no replica has what was written", server.target()),
                    "See that a replica is linked, then repeat the command.",
                ),
            })?;
            if retry.failing() >= Some(SILENCE) {
                self.remarked.call_once(|| {
                    self.output.remark(format_args!(
                        "{}: waiting up to {} s until a replica has what was written",
                        server.target(),
                        RETRY_FOR.as_secs()
                    ));
                });
            }
        }
    }

    /// Whether a server has a replica now, or had one.
    fn had_replica(&self, server: String, now: bool) -> bool {
        let mut replicated = self.replicated.lock().unwrap_or_else(PoisonError::into_inner);
        if now {
            replicated.insert(server);
            return true;
        }
        replicated.contains(&server)
    }

    /// Waits until replicas have these keys, which an earlier run may have written.
    pub(crate) fn confirm(&self, keys: &[Vec<u8>]) -> Result<(), Error> {
        on_all(self, keys, |server, _, _| self.acknowledged(server)).map(|_| ())
    }
}

/// Does `work` for the key at each place, on a connection that leads to its node, and returns what
/// it gave, in order. `work` is told whether it is tried again.
///
/// # Errors
/// The first error; work on keys behind it may not have begun.
pub(crate) fn on_all<T: Send>(
    servers: &Servers,
    keys: &[Vec<u8>],
    work: impl Fn(&mut Connection, usize, bool) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error> {
    let one = |place: usize| on_one(servers, &keys[place], place, RETRY_FOR, &work);
    spread(servers, keys.len(), one)
}

/// Like [`on_all`], but an error of one key does not end the work on the others: it is the result
/// of that key. Nothing is tried again.
pub(crate) fn on_each<T: Send>(
    servers: &Servers,
    keys: &[Vec<u8>],
    work: impl Fn(&mut Connection, usize) -> Result<T, Error> + Sync,
) -> Result<Vec<Result<T, Error>>, Error> {
    let work = |server: &mut Connection, place, _| work(server, place);
    let one = |place: usize| Ok(on_one(servers, &keys[place], place, Duration::ZERO, work));
    spread(servers, keys.len(), one)
}

/// Does `one` for each place below `count`.
fn spread<T: Send>(
    servers: &Servers,
    count: usize,
    one: impl Fn(usize) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error> {
    let threads = servers.all.primaries().min(count);
    // Keys ascend by slot, and a node has a range of slots: neighbours in this order are on
    // different nodes.
    let each = count.div_ceil(threads.max(1));
    let runs = |row| (0..threads).map(move |run| run * each + row);
    let order: Vec<_> = (0..each).flat_map(runs).filter(|place| *place < count).collect();
    let next = AtomicUsize::new(0);
    let share = || {
        let mut done = Vec::new();
        while let Some(&place) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            match one(place) {
                Ok(result) => done.push((place, result)),
                Err(error) => {
                    // Nothing is left for the others.
                    next.store(count, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(done)
    };
    let shares: Result<Vec<_>, Error> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(share)).collect();
        let joined = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(joined).collect()
    });
    let mut done: Vec<_> = shares?.into_iter().flatten().collect();
    done.sort_unstable_by_key(|(place, _)| *place);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

fn on_one<T>(
    servers: &Servers,
    key: &[u8],
    place: usize,
    retry_for: Duration,
    work: impl Fn(&mut Connection, usize, bool) -> Result<T, Error>,
) -> Result<T, Error> {
    retry(retry_for, |again| {
        servers.all.connect_for(key).and_then(|mut server| work(&mut server, place, again))
    })
}
