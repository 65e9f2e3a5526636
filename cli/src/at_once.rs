//! Work on all shards at once: as many threads as there are primaries. Shard keys ascend by slot,
//! and a node has a range of slots, so each thread takes a run of shards, which is about a node.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use redis::Value;

use crate::{
    connection::{Connection, Target},
    error::Error,
    loading::{all_nodes, passes},
};

/// How long the work on a key is tried again while its node fails or its slot moves.
pub(crate) const RETRY_FOR: Duration = Duration::from_secs(60);
/// Pause between two tries, and between two calls of `watch`.
const PAUSE: Duration = Duration::from_millis(50);

/// The servers of a cluster, or one server.
pub(crate) struct Servers {
    /// The server of the command line, then the others.
    all: Vec<Target>,
    /// The number of those that have keys.
    primaries: usize,
}

impl Servers {
    /// Asks the server of the command line for the others.
    pub(crate) fn of(target: Target) -> Result<Self, Error> {
        let mut server = target.connect()?;
        let primaries = match server.primaries() {
            Ok(nodes) => nodes.len().max(1),
            // The user may not ask: redirections lead to the others.
            Err(Error::Refused { .. }) => 1,
            Err(error) => return Err(error),
        };
        Ok(Self { all: all_nodes(target, &mut server)?, primaries })
    }

    /// Connects to the node of `key`, by the first server that answers.
    pub(crate) fn connect(&self, key: &[u8]) -> Result<Connection, Error> {
        let mut result = self.all[0].connect_for(key);
        for other in &self.all[1..] {
            if !matches!(result, Err(Error::Connection { .. })) {
                break;
            }
            result = other.connect_for(key);
        }
        result
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

/// Waits until a replica has what this connection wrote, if the server has a replica.
///
/// # Errors
/// `Error::Incomplete` if no replica has it for a long time.
pub(crate) fn acknowledged(server: &mut Connection) -> Result<(), Error> {
    let text = match server.call(redis::cmd("INFO").arg("replication")) {
        Ok(Value::BulkString(text)) => String::from_utf8_lossy(&text).into_owned(),
        Ok(_) | Err(Error::Refused { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    let replicas = text.lines().find_map(|line| line.strip_prefix("connected_slaves:"));
    if replicas.is_none_or(|replicas| replicas.trim() == "0") {
        return Ok(());
    }
    match server.call(redis::cmd("WAIT").arg(1).arg(RETRY_FOR.as_millis() as u64 / 2)) {
        Ok(Value::Int(0)) => Err(Error::Incomplete {
            what: format!("{}: no replica has what was written", server.target()),
            hint: "See that a replica is linked, then repeat the command.".to_owned(),
        }),
        Ok(_) | Err(Error::Refused { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
