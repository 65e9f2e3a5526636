//! Work on all shards at once: as many threads as there are primaries. Shard keys ascend by slot,
//! and a node has a range of slots, so each thread takes a run of shards, which is about a node.

use std::{
    collections::HashSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{
    connection::{Connection, Target, Targets},
    error::Error,
    output::Output,
    replication::{Acknowledged, LastWrite, Replication},
    retry::{Over, RETRY_FOR, Retry, retry},
};

/// Pause between two calls of `watch`.
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
    pub(crate) fn remark(&self, text: String) {
        let mut remarks = self.remarks.lock().unwrap_or_else(PoisonError::into_inner);
        if !remarks.contains(&text) {
            self.output.remark(&text);
            remarks.insert(text);
        }
    }

    /// Waits until a replica of this server has what was written, if it has a replica.
    ///
    /// # Errors
    /// One that passes, if the server is no primary any more; `Error::Incomplete` if no replica has
    /// it for [`RETRY_FOR`].
    pub(crate) fn acknowledged(
        &self,
        server: &mut Connection,
        last: LastWrite,
    ) -> Result<(), Error> {
        let mut retry = Retry::failing_within(RETRY_FOR);
        let unknown = || {
            self.remark(
                "whether replicas have what is written is unknown: the user has no right to INFO \
                 (ACL SETUSER ... +info)"
                    .to_owned(),
            );
            Ok(())
        };
        // A replica that goes away later is waited for.
        match Replication::of_primary(server)? {
            None => return unknown(),
            Some(seen) if seen.connected == 0 => return Ok(()),
            Some(_) => {}
        }
        let (mut offset, mut longest) = (None, SILENCE);
        loop {
            // A reply after the time of the connection would not be seen.
            let most = longest.min(server.target().timeout() / 2);
            longest = WAIT;
            match Acknowledged::by(server, 1, last, &mut offset, most)? {
                Acknowledged::Yes => return Ok(()),
                Acknowledged::Unknown => return unknown(),
                Acknowledged::NotYet => {}
            }
            retry.pause().map_err(|over| match over {
                Over::Interrupted => Error::Interrupted { hint: String::new() },
                Over::Late => Error::incomplete(
                    format!("{}: no replica has what was written", server.target()),
                    "See that a replica is linked, then repeat the command.",
                ),
            })?;
            if retry.failing() >= Some(SILENCE) {
                self.remark(format!(
                    "{}: waiting up to {} s until a replica has what was written",
                    server.target(),
                    RETRY_FOR.as_secs()
                ));
            }
        }
    }

    /// Waits until replicas have these keys, which an earlier run may have written.
    pub(crate) fn confirm(&self, keys: &[Vec<u8>]) -> Result<(), Error> {
        let confirm =
            |server: &mut Connection, _, _| self.acknowledged(server, LastWrite::Elsewhere);
        on_all(self, keys, confirm).map(|_| ())
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
    on_all_watched(servers, keys, work, || {})
}

/// Like [`on_all`]. `watch` is called many times a second.
pub(crate) fn on_all_watched<T: Send>(
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
    retry(retry_for, |again| {
        servers.connect(key).and_then(|mut server| work(&mut server, place, again))
    })
}
