//! Deliveries to all shards at once: a thread and a connection for each shard.
//!
//! ```text
//!   offer(batch) ──split by the rule──▶ piece ──▶ thread of shard 0: Delivery ──▶ its node
//!                                       piece ──▶ thread of shard 1: Delivery ──▶ its node
//!   while the filter is rebuilt: and once more, by the rule of the next generation
//! ```
//!
//! **Memory.** All pieces that are not confirmed have at most [`HELD`] bytes together, and one
//! batch more; then the reader waits. A batch has 64 KiB for each shard, at most 8 MiB: so pieces
//! do not thin out up to 128 shards. A thread keeps one command.
//!
//! **The descriptor** is read again every `poll` seconds, and when a shard answers that it is none
//! any more; also while the reader waits for confirmations. If its generations changed, all threads
//! end at once, others begin, and what is not confirmed is split anew: were it confirmed by the old
//! shards alone, it would be missing in those of a generation that appeared.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::sharding::{Descriptor, Generation, Shard};

use super::delivery::HELD;
use super::{Delivery, Failure, Mark, Now, Piece, Route, Seen, Settings, Stop, Totals, Verdict};
use crate::{
    amount,
    error::Error,
    interrupt,
    items::Batch,
    retry::retry,
    sharded::{self, Filter},
};

/// Bytes of a piece, where the input has as many.
const PIECE: u64 = 64 << 10;
/// Bytes of a batch, whatever the number of shards is.
const BATCH: u64 = 8 << 20;
/// How long a thread without work waits before it looks whether to confirm.
const IDLE: Duration = Duration::from_millis(10);
/// How long the reader waits before it looks whether a thread ended.
const MOMENT: Duration = Duration::from_millis(100);

/// The bytes of a batch for so many shards, if one command is to have `command` bytes.
pub(crate) fn batch_bytes(command: u64, shards: usize) -> u64 {
    command.min(PIECE).saturating_mul(shards as u64).min(BATCH)
}

/// Where items go.
#[derive(Clone, Debug)]
pub(crate) enum Goal {
    /// A sharded filter: the generation that answers and the next one, as its descriptor says,
    /// which is read again and again.
    Filter(Descriptor),
    /// The shards of one generation, whatever the descriptor says.
    Generation(Generation),
    /// One shard under this key. Items of the other shards are left out.
    Shard(Shard, Vec<u8>),
}

/// The shards that take items by one rule.
struct Plan {
    generation: u64,
    /// The keys of the shards; `None` for a shard whose items are left out.
    keys: Vec<Option<Vec<u8>>>,
}

impl Goal {
    /// What is sent where, for the filter `name`; nothing to a generation that is `ending`.
    ///
    /// # Errors
    /// Those of [`sharded::filled`].
    fn plans(&self, name: &[u8], ending: Option<u64>) -> Result<Vec<Plan>, Error> {
        let plan = |generation: &Generation| Plan {
            generation: generation.number,
            keys: generation.keys.iter().cloned().map(Some).collect(),
        };
        Ok(match self {
            Self::Filter(filter) => sharded::filled(name, filter)?
                .into_iter()
                .filter(|generation| Some(generation.number) != ending)
                .map(plan)
                .collect(),
            Self::Generation(generation) => vec![plan(generation)],
            Self::Shard(shard, key) => {
                let mut keys = vec![None; usize::from(shard.count())];
                if let Some(own) = keys.get_mut(usize::from(shard.index())) {
                    *own = Some(key.clone());
                }
                vec![Plan { generation: 0, keys }]
            }
        })
    }
}

/// The threads of a plan.
struct Lane {
    generation: u64,
    /// A thread for each shard.
    workers: Vec<Option<Worker>>,
}

struct Worker {
    key: Vec<u8>,
    pieces: Sender<Piece>,
    thread: JoinHandle<Ended>,
}

/// The thread of a shard, and its key.
type Thread = (Vec<u8>, JoinHandle<Ended>);

/// What a thread leaves.
struct Ended {
    result: Result<(), Stop>,
    totals: Totals,
    /// What the shard has at least.
    mark: Option<Mark>,
    /// Pieces that are not confirmed.
    pieces: Vec<Piece>,
    /// Pieces that came after the thread had ended.
    later: Receiver<Piece>,
}

/// A thread is ready.
struct Ready {
    key: Vec<u8>,
    server: String,
    /// What the shard has at least.
    mark: Option<Mark>,
    /// What was seen of the shard.
    seen: Option<Seen>,
    /// The largest number of items in a piece.
    most: usize,
    acks: u64,
    /// Whether the user may not see how many replicas there are.
    blind: bool,
}

/// Shards whose items count as loaded when their server has them.
#[derive(Clone, Copy, Default)]
struct Unwatched {
    /// Their servers have no replica.
    alone: usize,
    /// The user may not see whether their servers have one.
    blind: usize,
}

/// Why the threads of a generation ended early.
type Ending = (u64, Failure);

/// A piece that is to be sent to the shards of another generation, and its own generation.
type Leftover = (u64, Piece);

pub(crate) struct Fleet {
    goal: Goal,
    settings: Settings,
    /// The route of each thread, but for key and place. Its key is that of the descriptor.
    route: Route,
    lanes: Vec<Lane>,
    /// A thread ended early.
    failed: Arc<AtomicBool>,
    /// The largest number of items in a piece.
    most: usize,
    servers: usize,
    /// When the descriptor was read.
    read: Instant,
    /// The generation whose shards become tombstones, at the end of a rebuild.
    ending: Option<u64>,
    /// What shards have at least, by their keys.
    marks: HashMap<Vec<u8>, Mark>,
    /// What was seen of the shards of the first generation when their threads began.
    found: Vec<Option<Seen>>,
    /// The keys of those shards.
    keys: Vec<Vec<u8>>,
    totals: Totals,
}

impl Fleet {
    /// Connects to all shards.
    pub(crate) fn start(goal: Goal, settings: Settings, route: Route) -> Result<Self, Failure> {
        let mut fleet = Self {
            goal,
            settings,
            route,
            lanes: Vec::new(),
            failed: Arc::default(),
            most: usize::MAX,
            servers: 0,
            read: Instant::now(),
            ending: None,
            marks: HashMap::new(),
            found: Vec::new(),
            keys: Vec::new(),
            totals: Totals::default(),
        };
        fleet.begin_as_described()?;
        Ok(fleet)
    }

    /// Starts a thread for each shard, by the newest descriptor if a shard is none any more. Says
    /// for how many shards replicas are not waited for.
    fn begin_as_described(&mut self) -> Result<(), Failure> {
        let unwatched = loop {
            match self.begin() {
                Ok(unwatched) => break unwatched,
                Err(ending) => self.renew(ending)?,
            }
        };
        if self.settings.acks.is_some() {
            return Ok(());
        }
        let all: usize = self.lanes.iter().map(|lane| lane.workers.iter().flatten().count()).sum();
        if unwatched.alone > 0 {
            self.route.output.remark(format_args!(
                "{} of {all} shards are on servers without a replica: there an item counts as \
                 loaded when its server has it",
                unwatched.alone
            ));
        }
        if unwatched.blind > 0 {
            self.route.output.remark(format_args!(
                "whether the servers of {} of {all} shards have replicas is unknown: the user has \
                 no right to INFO (ACL SETUSER ... +info). There an item counts as loaded when its \
                 server has it; --acks 1 waits for a replica",
                unwatched.blind
            ));
        }
        Ok(())
    }

    /// Starts a thread for each shard, and returns when all of them are connected.
    fn begin(&mut self) -> Result<Unwatched, Ending> {
        let plans = self.goal.plans(&self.route.key, self.ending);
        let plans = plans.map_err(|error| (0, error.into()))?;
        let numbers = plans.iter().map(|plan| plan.generation).collect();
        let first = plans.first().map_or(0, |plan| plan.keys.len());
        self.route.ledger.begin(numbers, vec![None; first]);
        self.found = vec![None; first];
        self.keys = plans.iter().take(1).flat_map(|plan| plan.keys.clone()).flatten().collect();
        self.failed = Arc::default();
        self.route.give_back = Arc::default();
        let (sender, ready) = channel();
        let held = HELD / plans.iter().map(|plan| plan.keys.len()).sum::<usize>().max(1);
        let mut result = Ok(());
        for (number, plan) in plans.into_iter().enumerate() {
            let (shards, generation) = (plan.keys.len(), plan.generation);
            let mut start = |(shard, key): (usize, Option<Vec<u8>>)| {
                let place = (number == 0).then_some(shard);
                let (key, own) = (key?, sharded::shard_at(shard, shards));
                let route = Route { key, place, shard: own, held, ..self.route.clone() };
                let key = route.key.clone();
                let (settings, failed) = (self.settings.clone(), Arc::clone(&self.failed));
                let (pieces, received) = channel();
                let sender = sender.clone();
                let ready = move |ready: Result<Ready, Stop>| {
                    // The reader is there until all threads are ready.
                    let _ = sender.send((generation, shard, shards, place, ready));
                };
                let thread = thread::Builder::new()
                    .spawn(move || work(settings, route, received, &failed, ready));
                match thread {
                    Ok(thread) => Some(Worker { key, pieces, thread }),
                    Err(error) => {
                        let error = Error::usage(
                            format!("a thread for shard {shard} of {shards}: {error}"),
                            "Each shard takes a thread: raise the limit (ulimit -u).",
                        );
                        result = Err((generation, error.into()));
                        None
                    }
                }
            };
            let workers = plan.keys.into_iter().enumerate().map(&mut start).collect();
            self.lanes.push(Lane { generation, workers });
        }
        drop(sender);
        let (mut servers, mut unwatched) = (HashSet::new(), Unwatched::default());
        for (generation, shard, shards, place, ready) in ready {
            let ready = ready.and_then(|ready| self.not_fewer(ready));
            match ready {
                Ok(ready) => {
                    servers.insert(ready.server);
                    unwatched.blind += usize::from(ready.blind);
                    unwatched.alone += usize::from(ready.acks == 0 && !ready.blind);
                    self.most = self.most.min(ready.most);
                    self.route.ledger.confirm(&[], place, ready.mark);
                    if let Some(found) = place.and_then(|place| self.found.get_mut(place)) {
                        *found = ready.seen;
                    }
                }
                Err(stop) if result.is_ok() => {
                    result = Err((generation, Failure { stop, shard: Some((shard, shards)) }));
                }
                Err(_) => {}
            }
        }
        self.servers = servers.len();
        if result.is_err() {
            self.join();
        }
        result.map(|()| unwatched)
    }

    /// A shard has at least what it had when an earlier thread left it.
    fn not_fewer(&self, ready: Ready) -> Result<Ready, Stop> {
        let before = self.marks.get(&ready.key).zip(ready.seen.as_ref());
        match before.map(|(mark, seen)| mark.judged(seen)) {
            Some(Verdict::Lost(why)) => Err(Stop::Lost(why)),
            Some(Verdict::Unproved) => Err(Stop::Restarted),
            Some(Verdict::Proved) | None => Ok(ready),
        }
    }

    /// What was seen of the shards of the generation that answers when this began.
    pub(crate) fn found(&self) -> &[Option<Seen>] {
        &self.found
    }

    /// For the progress: servers that have shards, and items that were sent again.
    pub(crate) fn note(&self) -> String {
        let resent = amount::readable_items(self.route.ledger.resent());
        format!("{}  retried {resent}", amount::counted(self.servers as u64, "node"))
    }

    /// The bytes of a batch, if one command is to have so many.
    pub(crate) fn batch_size(&self, command: u64) -> usize {
        let shards = self.lanes.iter().map(|lane| lane.workers.len()).max().unwrap_or(1);
        usize::try_from(batch_bytes(command, shards)).unwrap_or(usize::MAX)
    }

    /// Takes a batch of a file. Returns when few enough are under way.
    pub(crate) fn offer(&mut self, file: usize, batch: Batch) -> Result<(), Failure> {
        self.follow()?;
        while !self.route.ledger.has_room(HELD, MOMENT) && !self.stopped() {
            self.follow()?;
        }
        if self.failed.load(Ordering::Relaxed) {
            self.join_and_follow()?;
        }
        let pieces: Vec<_> = self.lanes.iter().map(|lane| split(&batch, lane, self.most)).collect();
        let all = || pieces.iter().flatten();
        let bytes = all().map(|(_, batch)| batch.blob.len()).sum();
        let number = self.route.ledger.open(file, &batch, all().count(), bytes);
        for (lane, pieces) in self.lanes.iter().zip(pieces) {
            lane.send(number, pieces);
        }
        Ok(())
    }

    /// Reads the descriptor again if it is time, and goes on as it says.
    pub(crate) fn follow(&mut self) -> Result<(), Failure> {
        let Goal::Filter(descriptor) = &self.goal else { return Ok(()) };
        if self.read.elapsed() < Duration::from_secs(descriptor.poll) {
            return Ok(());
        }
        let before = (descriptor.current.clone(), descriptor.next.clone());
        let now = self.descriptor()?;
        let changed = (&before.0, &before.1) != (&now.current, &now.next);
        self.goal = Goal::Filter(now);
        if !changed {
            return Ok(());
        }
        let old = self.generations();
        self.route.give_back.store(true, Ordering::Relaxed);
        let (endings, leftovers) = self.join();
        match endings.into_iter().find(|(_, failure)| !failure.stop.is_stale()) {
            Some((_, failure)) => Err(failure),
            None => self.go_on(&old, leftovers),
        }
    }

    /// Whether a thread ended early, or the user wants the end.
    fn stopped(&self) -> bool {
        self.failed.load(Ordering::Relaxed) || interrupt::requested()
    }

    /// Confirms all that was offered, and ends the threads.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        self.route.ledger.end();
        while !self.lanes.is_empty() {
            while !self.route.ledger.has_room(1, MOMENT) && !self.stopped() {
                if let Err(failure) = self.follow() {
                    self.join();
                    return Err(failure);
                }
            }
            if self.join_and_follow()? {
                continue;
            }
            if !interrupt::requested() && !self.look_again()? {
                let why = "a shard did not answer at the end".to_owned();
                return Err(Stop::Unreachable(why).into());
            }
            break;
        }
        Ok(())
    }

    /// Sees, after a load that ended early, whether the shards have what was confirmed.
    pub(crate) fn concluded(&mut self, failure: Failure) -> Failure {
        self.totals.unknown = true;
        if !matches!(failure.stop, Stop::Refused(_) | Stop::Interrupted) {
            return failure;
        }
        match self.look_again() {
            Ok(proved) => self.totals.unknown = !proved,
            Err(loss) if matches!(failure.stop, Stop::Refused(_)) => return loss,
            Err(_) => {}
        }
        failure
    }

    /// Looks at all shards at the same time: one may have lost items while another one was waited
    /// for. `false` if one does not answer.
    ///
    /// # Errors
    /// The first shard that has lost items, or whose items nothing proves.
    fn look_again(&self) -> Result<bool, Failure> {
        let shards = self.keys.len();
        let looks: Vec<_> = thread::scope(|scope| {
            let begin = |look| thread::Builder::new().spawn_scoped(scope, look);
            let threads: Vec<_> =
                self.keys.iter().map(|key| begin(move || self.look(key))).collect();
            let ended = |thread: io::Result<thread::ScopedJoinHandle<'_, _>>| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|it| std::panic::resume_unwind(it)),
                Err(_) => Ok(false),
            };
            threads.into_iter().map(ended).collect()
        });
        let mut all = true;
        for (number, look) in looks.into_iter().enumerate() {
            all &= look.map_err(|stop| Failure { stop, shard: Some((number, shards)) })?;
        }
        Ok(all)
    }

    /// Looks at a shard: whether it has what was confirmed. `false` if it does not answer.
    fn look(&self, key: &[u8]) -> Result<bool, Stop> {
        let Some(mark) = self.marks.get(key) else { return Ok(true) };
        let route = Route { key: key.to_vec(), place: None, shard: None, ..self.route.clone() };
        let settings = Settings { acks: Some(0), ..self.settings.clone() };
        let connected = route.targets.connect_for(key, Error::passes).map_err(Stop::from);
        let opened = connected.and_then(|server| Delivery::open(settings, route, server));
        let Ok((delivery, true)) = opened else { return Ok(false) };
        match delivery.found().map(|seen| mark.judged(seen)) {
            Some(Verdict::Proved) => Ok(true),
            // Without the right to INFO only the connection of its thread proved it.
            Some(Verdict::Unproved) if !mark.names_process() => Ok(true),
            Some(Verdict::Lost(why)) => Err(Stop::Lost(why)),
            Some(Verdict::Unproved) | None => Err(Stop::Restarted),
        }
    }

    /// Ends all threads. Starts others if the shards are none any more, because the filter was
    /// rebuilt: returns whether it did.
    fn join_and_follow(&mut self) -> Result<bool, Failure> {
        let old = self.generations();
        let (mut endings, leftovers) = self.join();
        if let Some(at) = endings.iter().position(|(_, failure)| !failure.stop.is_stale()) {
            return Err(endings.swap_remove(at).1);
        }
        let Some(ending) = endings.pop() else { return Ok(false) };
        self.renew(ending)?;
        self.go_on(&old, leftovers)?;
        Ok(true)
    }

    /// Reads the descriptor again, because a shard is none any more.
    ///
    /// # Errors
    /// The failure, if it says the same: the shard is lost.
    fn renew(&mut self, (generation, failure): Ending) -> Result<(), Failure> {
        let Goal::Filter(before) = &self.goal else { return Err(failure) };
        if !failure.stop.is_stale() {
            return Err(failure);
        }
        let before = before.clone();
        let now = self.descriptor()?;
        let unchanged = (&before.current, &before.next) == (&now.current, &now.next);
        // The shards of an older generation become tombstones before the descriptor forgets them.
        let ending = generation < now.current.number && self.ending != Some(generation);
        self.goal = Goal::Filter(now);
        match unchanged {
            true if ending => {
                self.ending = Some(generation);
                Ok(())
            }
            true => Err(failure.lost()),
            false => Ok(()),
        }
    }

    /// Starts threads for the generations of the descriptor, and sends them what those of the `old`
    /// generations have not confirmed.
    fn go_on(&mut self, old: &[u64], leftovers: Vec<Leftover>) -> Result<(), Failure> {
        self.route.loaded = true;
        self.begin_as_described()?;
        self.route.output.remark(format_args!(
            "the filter is being rebuilt, or was: generation {}",
            self.generations().iter().map(u64::to_string).collect::<Vec<_>>().join(" and ")
        ));
        for (generation, piece) in leftovers {
            // What the next generation has not confirmed is sent to it; a generation that is new
            // gets what that which answered has not confirmed.
            let takes = |lane: &&Lane| {
                let known = old.contains(&lane.generation);
                generation == if known { lane.generation } else { old[0] }
            };
            let lanes: Vec<_> = self.lanes.iter().filter(takes).collect();
            let parts: Vec<_> =
                lanes.iter().map(|lane| split(&piece.batch, lane, self.most)).collect();
            let all = || parts.iter().flatten();
            let bytes: usize = all().map(|(_, batch)| batch.blob.len()).sum();
            let added = bytes as isize - piece.batch.blob.len() as isize;
            self.route.ledger.split(piece.number, all().count(), added);
            self.route.ledger.resend(piece.batch.count);
            for (lane, parts) in lanes.into_iter().zip(parts) {
                lane.send(piece.number, parts);
            }
        }
        Ok(())
    }

    /// Waits until all threads have confirmed what they can. Returns why threads ended early, and
    /// what is not confirmed.
    fn join(&mut self) -> (Vec<Ending>, Vec<Leftover>) {
        let (mut endings, mut leftovers) = (Vec::new(), Vec::new());
        // All of them hear of the end before one of them is waited for.
        let lanes: Vec<_> = self.lanes.drain(..).map(Lane::closed).collect();
        for (number, (generation, threads)) in lanes.into_iter().enumerate() {
            let shards = threads.len();
            for (shard, thread) in threads.into_iter().enumerate() {
                let Some((key, thread)) = thread else { continue };
                let ended = match thread.join() {
                    Ok(ended) => ended,
                    Err(panic) => std::panic::resume_unwind(panic),
                };
                if number == 0 {
                    self.totals.items += ended.totals.items;
                    self.totals.new += ended.totals.new;
                }
                if let Some(mark) = ended.mark {
                    self.marks.insert(key, mark);
                }
                let pieces = ended.pieces.into_iter().chain(ended.later.try_iter());
                leftovers.extend(pieces.map(|piece| (generation, piece)));
                if let Err(stop) = ended.result {
                    let failure = Failure { stop, shard: Some((shard, shards)) };
                    endings.push((generation, failure));
                }
            }
        }
        (endings, leftovers)
    }

    /// What was counted by threads that have ended. Items count when all generations have them, and
    /// all items before them; for one shard, those of the shard.
    pub(crate) fn totals(&self) -> Totals {
        let ledger = &self.route.ledger;
        let (before, resent) = (ledger.before(), ledger.resent());
        let items = match self.goal {
            Goal::Shard(..) => self.totals.items,
            Goal::Filter(_) | Goal::Generation(_) => before,
        };
        Totals { items, before, resent, ..self.totals }
    }

    /// The generations that take the items.
    pub(crate) fn generations(&self) -> Vec<u64> {
        self.lanes.iter().map(|lane| lane.generation).collect()
    }

    /// Reads the descriptor, from any node that knows it.
    fn descriptor(&mut self) -> Result<Descriptor, Failure> {
        let Route { key, targets, .. } = &self.route;
        let found = patient(self.settings.retry_for, || {
            let mut why = Error::usage("no server", "");
            for place in targets.places() {
                let server = targets.connect_by(place, key);
                match server.and_then(|mut server| sharded::find(&mut server, key)) {
                    Err(error) if error.passes() => why = error,
                    found => return found,
                }
            }
            Err(why)
        });
        match found {
            Ok(Filter::Sharded(descriptor)) => {
                sharded::filled(key, &descriptor)?;
                self.read = Instant::now();
                Ok(descriptor)
            }
            Ok(Filter::Key) => Err(Stop::Lost("its descriptor is gone".to_owned()).into()),
            Err(Stop::Unreachable(why)) => {
                Err(Stop::Unreachable(format!("its descriptor: {why}")).into())
            }
            Err(stop) => Err(stop.into()),
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.join();
    }
}

impl Lane {
    /// Sends the pieces of a batch. A thread that has ended gives them back when it is joined.
    fn send(&self, number: u64, pieces: Vec<(usize, Batch)>) {
        for (shard, batch) in pieces {
            if let Some(Some(worker)) = self.workers.get(shard) {
                let _ = worker.pieces.send(Piece { number, batch });
            }
        }
    }

    /// Tells the threads that nothing more comes.
    fn closed(self) -> (u64, Vec<Option<Thread>>) {
        let threads =
            self.workers.into_iter().map(|worker| worker.map(|worker| (worker.key, worker.thread)));
        (self.generation, threads.collect())
    }
}

/// The pieces of a batch for the shards of a lane.
fn split(batch: &Batch, lane: &Lane, most: usize) -> Vec<(usize, Batch)> {
    let shards = u16::try_from(lane.workers.len()).unwrap_or(u16::MAX);
    let pieces = batch.split(shards, |_| ()).into_iter().enumerate();
    pieces
        .filter(|(shard, batch)| {
            batch.count > 0 && lane.workers.get(*shard).is_some_and(Option::is_some)
        })
        .flat_map(|(shard, batch)| batch.cut(most).into_iter().map(move |part| (shard, part)))
        .collect()
}

/// Tells the reader of a thread that panics: it would wait for ever.
struct Alarm<'f>(&'f AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// The thread of a shard.
fn work(
    settings: Settings,
    route: Route,
    pieces: Receiver<Piece>,
    failed: &AtomicBool,
    ready: impl FnOnce(Result<Ready, Stop>),
) -> Ended {
    let _alarm = Alarm(failed);
    let key = route.key.clone();
    let mut delivery = match opened(settings, route) {
        Ok(delivery) => delivery,
        Err(stop) => {
            ready(Err(stop));
            let totals = Totals::default();
            let nothing = Vec::new();
            return Ended { result: Ok(()), totals, mark: None, pieces: nothing, later: pieces };
        }
    };
    ready(Ok(Ready {
        key,
        server: delivery.server(),
        mark: delivery.mark().cloned(),
        seen: delivery.found().cloned(),
        most: delivery.most(),
        acks: delivery.acks(),
        blind: delivery.blind(),
    }));
    let result = deliver(&mut delivery, &pieces);
    let result = match delivery.concluded(result) {
        Err(Stop::Interrupted) if delivery.gives_back() => Ok(()),
        result => result,
    };
    if result.is_err() {
        failed.store(true, Ordering::Relaxed);
    }
    let totals = delivery.totals();
    let mark = delivery.mark().cloned();
    Ended { result, totals, mark, pieces: delivery.into_pieces().collect(), later: pieces }
}

/// Does something until it succeeds, or for so long.
fn patient<T>(most: Duration, mut work: impl FnMut() -> Result<T, Error>) -> Result<T, Stop> {
    retry(most, |_| work()).map_err(|error| match error.passes() {
        true => Stop::Unreachable(error.to_string()),
        false => error.into(),
    })
}

/// Connects to the node of the shard. Waits for a node that fails at the moment.
fn opened(settings: Settings, route: Route) -> Result<Delivery, Stop> {
    let connect = || route.targets.connect_for(&route.key, Error::passes);
    let connection = patient(settings.retry_for, connect)?;
    let (mut delivery, found) = Delivery::open(settings, route, connection)?;
    if !found {
        return Err(Stop::Refused("ERR not found".into()));
    }
    if delivery.counting() {
        return Err(Stop::Failed(Error::usage(
            "a sharded filter with counters cannot be loaded: an item that is sent again would \
             count twice",
            "Load a filter of bits; without the right to BF.INFO nobody can tell which it is.",
        )));
    }
    delivery.prepare()?;
    Ok(delivery)
}

fn deliver(delivery: &mut Delivery, pieces: &Receiver<Piece>) -> Result<(), Stop> {
    loop {
        if delivery.gives_back() {
            return Ok(());
        }
        let piece = match pieces.try_recv() {
            Ok(piece) => piece,
            Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) => {
                let next = if delivery.idle()? {
                    pieces.recv().map_err(|_| RecvTimeoutError::Disconnected)
                } else {
                    pieces.recv_timeout(IDLE)
                };
                match next {
                    Ok(piece) => piece,
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        };
        delivery.offer(piece)?;
    }
    delivery.confirm(Now::Surely)
}
