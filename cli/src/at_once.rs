//! Work on all shards at once: as many threads as there are primaries. Shard keys ascend by slot,
//! and a node has a range of slots, so each thread takes a run of shards, which is about a node.

use std::{
    collections::HashSet,
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use redis::Value;

use crate::{
    connection::{Connection, Target, Targets},
    error::Error,
    loading::passes,
    output::Output,
    replication::Replication,
};

/// How long the work on a key is tried again while its node fails or its slot moves.
pub(crate) const RETRY_FOR: Duration = Duration::from_secs(60);
/// Pause between two tries, and between two calls of `watch`.
const PAUSE: Duration = Duration::from_millis(50);

/// The longest time of one WAIT.
const WAIT: Duration = Duration::from_secs(30);
/// A user who waits for longer than this is told why.
const SILENCE: Duration = Duration::from_secs(1);

/// The servers of a cluster, or one server.
pub(crate) struct Servers {
    all: Targets,
    /// The number of those that have keys.
    primaries: usize,
    output: Output,
    /// Remarks that were printed.
    remarks: Mutex<HashSet<String>>,
}

impl Servers {
    /// Asks the server of the command line for the others.
    pub(crate) fn of(target: Target, output: &Output) -> Result<Self, Error> {
        let mut server = target.connect()?;
        let primaries = match server.primaries() {
            Ok(nodes) => nodes.len().max(1),
            // The user may not ask: redirections lead to the others.
            Err(Error::Refused { .. }) => 1,
            Err(error) => return Err(error),
        };
        Ok(Self {
            all: Targets::of(target, &mut server)?,
            primaries,
            output: *output,
            remarks: Mutex::default(),
        })
    }

    /// Connects to the node of `key`, by the first server that answers.
    pub(crate) fn connect(&self, key: &[u8]) -> Result<Connection, Error> {
        self.all.connect_for(key, |error| matches!(error, Error::Connection { .. }))
    }

    /// Prints a remark, once.
    fn remark(&self, text: String) {
        let mut remarks = self.remarks.lock().unwrap_or_else(PoisonError::into_inner);
        if !remarks.contains(&text) {
            self.output.remark(&text);
            remarks.insert(text);
        }
    }

    /// Waits until a replica of this server has what was written, if it has a replica. `wrote`: the
    /// last write is one of this connection. For what another connection wrote, perhaps that of a
    /// run that ended early, newer servers answer WAIT at once; so the offsets of the replicas are
    /// compared then.
    ///
    /// # Errors
    /// `Error::Incomplete` if no replica has it for [`RETRY_FOR`].
    pub(crate) fn acknowledged(&self, server: &mut Connection, wrote: bool) -> Result<(), Error> {
        let started = Instant::now();
        let mut offset = None;
        let mut longest = SILENCE;
        loop {
            let text = match server.call(redis::cmd("INFO").arg("replication")) {
                Ok(Value::BulkString(text)) => text,
                Ok(_) => return Ok(()),
                Err(Error::Refused { text, .. }) if text.starts_with("NOPERM") => {
                    self.remark(
                        "whether replicas have what is written is unknown: the user has no right \
                         to INFO (ACL SETUSER ... +info)"
                            .to_owned(),
                    );
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            let seen = Replication::parse(&text);
            // A replica that goes away later is waited for.
            if offset.is_none() && seen.connected == 0 {
                return Ok(());
            }
            let wanted = *offset.get_or_insert(seen.offset.unwrap_or(u64::MAX));
            if !wrote && seen.having(wanted) > 0 {
                return Ok(());
            }
            if started.elapsed() >= RETRY_FOR {
                return Err(Error::Incomplete {
                    what: format!("{}: no replica has what was written", server.target()),
                    hint: "See that a replica is linked, then repeat the command.".to_owned(),
                });
            }
            if started.elapsed() >= SILENCE {
                self.remark(format!(
                    "{}: waiting up to {} s until a replica has what was written",
                    server.target(),
                    RETRY_FOR.as_secs()
                ));
            }
            // A reply after the time of the connection would not be seen.
            let most = longest.min(server.target().timeout() / 2);
            longest = WAIT;
            if waited(server, most)? > 0 && wrote {
                return Ok(());
            }
            if !wrote {
                thread::sleep(PAUSE);
            }
        }
    }

    /// Waits until replicas have these keys, which an earlier run may have written.
    pub(crate) fn confirm(&self, keys: &[Vec<u8>]) -> Result<(), Error> {
        let confirm = |server: &mut Connection, _, _| self.acknowledged(server, false);
        on_all(self, keys, confirm, || {}).map(|_| ())
    }
}

/// Waits so long for a replica that has what this connection wrote. Returns how many have it.
fn waited(server: &mut Connection, most: Duration) -> Result<i64, Error> {
    match server.call(redis::cmd("WAIT").arg(1).arg(most.as_millis() as u64)) {
        Ok(Value::Int(replicas)) => Ok(replicas),
        Ok(other) => Err(Error::Reply { command: "WAIT".to_owned(), reply: format!("{other:?}") }),
        // A primary that became a replica: another one may have what was written, or not.
        Err(Error::Refused { text, .. })
            if text.starts_with("UNBLOCKED") || text.contains("with replica instances") =>
        {
            let server = server.target().to_string();
            Err(Error::Connection { server, source: io::Error::other(text) })
        }
        Err(error) => Err(error),
    }
}

/// Does `work` for the key at each place, on a connection that leads to its node, and returns what
/// it gave, in order. `work` is told whether it is tried again. `watch` is called many times a
/// second.
///
/// # Errors
/// The first error; work on keys behind it may not have begun.
pub(crate) fn on_all<T: Send>(
    servers: &Servers,
    keys: &[Vec<u8>],
    work: impl Fn(&mut Connection, usize, bool) -> Result<T, Error> + Sync,
    watch: impl FnMut(),
) -> Result<Vec<T>, Error> {
    let one = |place: usize| on_one(servers, &keys[place], place, RETRY_FOR, &work);
    spread(servers, keys.len(), one, watch)
}

/// Like [`on_all`], to look at all shards whatever happens to one of them: nothing is tried again,
/// and an error of one key is its result.
pub(crate) fn on_each<T: Send>(
    servers: &Servers,
    keys: &[Vec<u8>],
    work: impl Fn(&mut Connection, usize) -> Result<T, Error> + Sync,
) -> Result<Vec<Result<T, Error>>, Error> {
    let work = |server: &mut Connection, place, _| work(server, place);
    let one = |place: usize| Ok(on_one(servers, &keys[place], place, Duration::ZERO, work));
    spread(servers, keys.len(), one, || {})
}

/// Does `one` for each place below `count`.
fn spread<T: Send>(
    servers: &Servers,
    count: usize,
    one: impl Fn(usize) -> Result<T, Error> + Sync,
    mut watch: impl FnMut(),
) -> Result<Vec<T>, Error> {
    let each = count.div_ceil(servers.primaries).max(1);
    let stop = AtomicBool::new(false);
    let failed: Mutex<Option<Error>> = Mutex::new(None);
    let mut results: Vec<Vec<T>> = Vec::new();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .step_by(each)
            .map(|first| {
                let (stop, failed, one) = (&stop, &failed, &one);
                scope.spawn(move || {
                    let mut done = Vec::new();
                    for place in first..count.min(first + each) {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        match one(place) {
                            Ok(result) => done.push(result),
                            Err(error) => {
                                stop.store(true, Ordering::Relaxed);
                                let mut failed =
                                    failed.lock().unwrap_or_else(PoisonError::into_inner);
                                failed.get_or_insert(error);
                                break;
                            }
                        }
                    }
                    done
                })
            })
            .collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            watch();
            thread::sleep(PAUSE);
        }
        for thread in threads {
            match thread.join() {
                Ok(done) => results.push(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(results.into_iter().flatten().collect()),
    }
}

fn on_one<T>(
    servers: &Servers,
    key: &[u8],
    place: usize,
    retry_for: Duration,
    work: impl Fn(&mut Connection, usize, bool) -> Result<T, Error>,
) -> Result<T, Error> {
    let started = Instant::now();
    let mut again = false;
    loop {
        let result = servers.connect(key).and_then(|mut server| work(&mut server, place, again));
        match result {
            Err(error) if passes(&error) && started.elapsed() < retry_for => {
                again = true;
                thread::sleep(PAUSE);
            }
            result => return result,
        }
    }
}
