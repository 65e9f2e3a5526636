//! Deliveries to all shards at the same time: a thread and a connection for each shard. A filter in
//! one key has one.
//!
//! ```text
//!   offer(batch) ──split by the rule──▶ piece ──▶ thread of shard 0: Delivery ──▶ its node
//!                                       piece ──▶ thread of shard 1: Delivery ──▶ its node
//!   while the filter is rebuilt: and once more, by the rule of the next generation
//! ```
//!
//! **Memory.** The pieces that are not confirmed have at most [`HELD`] bytes, and one batch more.
//! Then the reader waits. A batch has 64 KiB for each shard, and at most 8 MiB, so pieces are of
//! full size up to 128 shards. In addition, each thread holds one command.
//!
//! **The descriptor** is read again every `poll` seconds, and when a key is no longer a shard; also
//! while the reader waits for confirmations. If its generations have changed, all threads end, new
//! ones begin, and what is not confirmed is split again. Otherwise the old shards alone could
//! confirm an item, and a new generation would lack it.

use std::{
    collections::HashMap,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Sender, channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{
    failure::{Failure, Stop},
    goal::{Goal, batch_bytes},
    ledger::Piece,
    proof::{Mark, Seen, Verdict},
    route::{HELD, Options, Route, Totals},
    wire::Wire,
    worker::{Ended, Ready, patient, work},
};
use crate::{
    error::Error,
    interrupt,
    items::Batch,
    retry::retry,
    sharded::{self, Filter},
    sharding::Generation,
};

/// Bytes that are read ahead of the replies of one key, if no replica is waited for.
const AHEAD: usize = 4 << 20;
/// How long the reader waits before it looks whether a thread ended.
const MOMENT: Duration = Duration::from_millis(100);

/// The threads of a generation.
struct Lane {
    generation: Identity,
    /// A thread for each shard.
    workers: Vec<Worker>,
}

/// The number of a generation, and how many shards it has. After a rebuild was given up, another
/// generation may get the same number, but not the same keys.
pub(crate) type Identity = (u64, usize);

struct Worker {
    key: Vec<u8>,
    pieces: Sender<Piece>,
    thread: JoinHandle<Ended>,
}

/// A shard of a lane, for messages.
#[derive(Clone, Copy)]
struct Member {
    generation: u64,
    shard: usize,
    shards: usize,
    /// The place of its counts in the ledger.
    place: Option<usize>,
}

/// Why the threads of a generation ended early.
type Ending = (u64, Failure);

/// A piece that is to be sent to the shards of another generation, and its own generation.
type Leftover = (Identity, Piece);

pub(crate) struct Fleet {
    goal: Goal,
    settings: Options,
    /// The route of each thread, but for key and place. Its key is that of the descriptor.
    route: Route,
    lanes: Vec<Lane>,
    /// A thread ended early.
    failed: Arc<AtomicBool>,
    /// The largest number of bytes in a command.
    most: u64,
    /// Whether a filter counts additions.
    pub(crate) counting: bool,
    /// The generation whose shards become tombstones, at the end of a rebuild.
    ending: Option<u64>,
    /// What shards have at least, by their keys.
    marks: HashMap<Vec<u8>, Mark>,
    /// What was seen of the shards of the first generation when their threads began.
    pub(crate) found: Vec<Option<Seen>>,
    /// The keys of those shards.
    keys: Vec<Vec<u8>>,
    totals: Totals,
}

impl Fleet {
    /// Connects to all shards.
    pub(crate) fn start(goal: Goal, settings: Options, route: Route) -> Result<Self, Failure> {
        let mut fleet = Self {
            goal,
            settings,
            route,
            lanes: Vec::new(),
            failed: Arc::default(),
            most: u64::MAX,
            counting: false,
            ending: None,
            marks: HashMap::new(),
            found: Vec::new(),
            keys: Vec::new(),
            totals: Totals::default(),
        };
        fleet.begin_as_described()?;
        Ok(fleet)
    }

    /// Starts a thread for each shard, by the newest descriptor if a key is no shard any more. Says
    /// for how many shards replicas are not waited for.
    fn begin_as_described(&mut self) -> Result<(), Failure> {
        let alone = loop {
            match self.begin() {
                Ok(alone) => break alone,
                Err(ending) => self.renew(ending)?,
            }
        };
        if self.settings.acks.is_some() {
            return Ok(());
        }
        let all: usize = self.lanes.iter().map(|lane| lane.workers.len()).sum();
        if alone > 0 {
            self.route.output.remark(format_args!(
                "{alone} of {all} shards are on servers without a replica: there an item counts as \
                 loaded when its server has it"
            ));
        }
        Ok(())
    }

    /// Starts a thread for each shard, and returns when all of them are connected: how many are on
    /// servers without a replica.
    fn begin(&mut self) -> Result<usize, Ending> {
        let plans = self.goal.plans(&self.route.key, self.ending);
        let plans = plans.map_err(|error| (0, error.into()))?;
        // There is at least the generation that answers.
        let (generation, keys) =
            plans.first().map_or((0, Vec::new()), |plan| (plan.number, plan.keys.clone()));
        let valid_until = self.goal.valid_until();
        self.route.ledger.begin(generation, vec![None; keys.len()], valid_until);
        self.found = vec![None; keys.len()];
        self.keys = keys;
        self.failed = Arc::default();
        self.route.give_back = Arc::default();
        self.route.held = HELD / plans.iter().map(|plan| plan.keys.len()).sum::<usize>().max(1);
        let (sender, ready) = channel();
        let mut result = Ok(());
        for (number, plan) in plans.into_iter().enumerate() {
            let Generation { number: generation, keys, .. } = plan;
            let (mut workers, shards) = (Vec::new(), keys.len());
            for (shard, key) in keys.into_iter().enumerate() {
                let place = (number == 0).then_some(shard);
                let member = Member { generation, shard, shards, place };
                match self.worker(member, key, sender.clone()) {
                    Ok(worker) => workers.push(worker),
                    Err(ending) => result = Err(ending),
                }
            }
            self.lanes.push(Lane { generation: (generation, shards), workers });
        }
        drop(sender);
        let mut alone = 0;
        for (member, key, ready) in ready {
            match ready.and_then(|ready| self.not_fewer(&key, ready)) {
                Ok(ready) => {
                    alone += usize::from(ready.acks == 0);
                    self.counting |= ready.counting;
                    self.most = self.most.min(ready.most);
                    let mark = Some(Mark::of(&ready.seen));
                    self.route.ledger.confirm(&[], member.place, mark);
                    if let Some(found) = member.place.and_then(|at| self.found.get_mut(at)) {
                        *found = Some(ready.seen);
                    }
                }
                Err(stop) => result = result.and_then(|()| Err(self.ending(member, stop))),
            }
        }
        if result.is_err() {
            self.join();
        }
        result.map(|()| alone)
    }

    /// Starts the thread of a shard, which says in `sender` when it is ready.
    fn worker(
        &self,
        member: Member,
        key: Vec<u8>,
        sender: Sender<(Member, Vec<u8>, Result<Ready, Stop>)>,
    ) -> Result<Worker, Ending> {
        let shard = match self.goal.has_shards() {
            true => sharded::shard_at(member.shard, member.shards),
            false => None,
        };
        let route = Route { key: key.clone(), place: member.place, shard, ..self.route.clone() };
        let (settings, failed) = (self.settings, Arc::clone(&self.failed));
        let (pieces, received) = channel();
        let own = key.clone();
        let ready = move |ready: Result<Ready, Stop>| {
            // The reader is there until all threads are ready.
            let _ = sender.send((member, own, ready));
        };
        let run = move || work(settings, route, received, &failed, ready);
        match thread::Builder::new().spawn(run) {
            Ok(thread) => Ok(Worker { key, pieces, thread }),
            Err(error) => {
                let what = format!("a thread for shard {} of {}", member.shard, member.shards);
                let hint = "Each shard takes a thread: raise the limit (ulimit -u).";
                Err(self.ending(member, Error::usage(format!("{what}: {error}"), hint).into()))
            }
        }
    }

    /// The end of a thread that never began.
    fn ending(&self, member: Member, stop: Stop) -> Ending {
        (member.generation, self.failure(stop, member.shard, member.shards))
    }

    fn failure(&self, stop: Stop, shard: usize, shards: usize) -> Failure {
        Failure { stop, shard: self.goal.has_shards().then_some((shard, shards)) }
    }

    /// A shard has at least what it had when an earlier thread left it.
    fn not_fewer(&self, key: &[u8], ready: Ready) -> Result<Ready, Stop> {
        match self.marks.get(key).map(|mark| mark.judged(&ready.seen)) {
            Some(Verdict::Lost(why)) => Err(Stop::Lost(why)),
            Some(Verdict::Unproved) => Err(Stop::Restarted),
            Some(Verdict::Proved) | None => Ok(ready),
        }
    }

    /// The bytes of a batch, if one command is to have `command` bytes.
    pub(crate) fn batch_size(&self, command: u64) -> usize {
        let (command, lanes) = (command.min(self.most), self.lanes.iter());
        let bytes = match self.goal.has_shards() {
            false => command,
            true => batch_bytes(command, lanes.map(|lane| lane.workers.len()).max().unwrap_or(1)),
        };
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Takes a batch of a file. Returns when few enough are in flight.
    pub(crate) fn offer(&mut self, file: usize, batch: Batch) -> Result<(), Failure> {
        self.follow()?;
        // What waits for no replica is confirmed as fast as it is sent: more only takes memory.
        let waits = self.goal.has_shards() || self.settings.acks != Some(0);
        let limit = if waits { HELD } else { AHEAD };
        while !self.route.ledger.has_room(limit, MOMENT) && !self.stopped() {
            self.follow()?;
        }
        if self.failed.load(Ordering::Relaxed) {
            self.join_and_follow()?;
        }
        if !self.goal.has_shards() {
            let number = self.route.ledger.open(file, &batch, NonZeroUsize::MIN, batch.blob.len());
            let worker = self.lanes.first().and_then(|lane| lane.workers.first());
            send(number, worker.map(|worker| (&worker.pieces, batch)));
            return Ok(());
        }
        let pieces = self.pieces(&batch, |_| true);
        let bytes = pieces.iter().map(|(_, piece)| piece.blob.len()).sum();
        // A batch has at least one item.
        let Some(count) = NonZeroUsize::new(pieces.len()) else { return Ok(()) };
        let number = self.route.ledger.open(file, &batch, count, bytes);
        send(number, pieces);
        Ok(())
    }

    /// The pieces of a batch, and their threads: for the shards of each lane that `takes` it.
    fn pieces(&self, batch: &Batch, takes: impl Fn(&Lane) -> bool) -> Vec<(&Sender<Piece>, Batch)> {
        let mut pieces = Vec::new();
        for lane in self.lanes.iter().filter(|lane| takes(lane)) {
            let shards = u16::try_from(lane.workers.len()).unwrap_or(u16::MAX);
            for (piece, worker) in batch.split(shards, |_| ()).into_iter().zip(&lane.workers) {
                if piece.count > 0 {
                    pieces.push((&worker.pieces, piece));
                }
            }
        }
        pieces
    }

    /// Reads the descriptor again if it is time, and continues as it says.
    pub(crate) fn follow(&mut self) -> Result<(), Failure> {
        let Goal::Filter(descriptor, read) = &self.goal else { return Ok(()) };
        if read.elapsed() < Duration::from_secs(descriptor.poll) {
            return Ok(());
        }
        if self.read_again()? {
            self.route.ledger.extend(self.goal.valid_until());
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
            // The thread of a filter in one key has looked when it ended.
            if self.goal.has_shards() && !self.look_again()? {
                let why = "a shard did not answer at the end".to_owned();
                return Err(match interrupt::requested() {
                    true => Stop::Interrupted.into(),
                    false => Stop::Unreachable(why).into(),
                });
            }
            break;
        }
        Ok(())
    }

    /// Sees, after a load that ended early, whether the shards have what was confirmed.
    pub(crate) fn concluded(&mut self, failure: Failure) -> Failure {
        if !self.goal.has_shards() {
            return failure;
        }
        self.totals.unknown = true;
        if !matches!(failure.stop, Stop::Refused(_) | Stop::Interrupted) {
            return failure;
        }
        match self.look_again() {
            Ok(proved) => self.totals.unknown = !proved,
            Err(loss) if loss.is_loss() && matches!(failure.stop, Stop::Refused(_)) => return loss,
            Err(_) => {}
        }
        failure
    }

    /// Looks at all shards at the same time: one may have lost items while another one was waited
    /// for. `false` if one does not answer.
    ///
    /// # Errors
    /// The first shard that has lost items, or whose items nothing proves; or that refuses to say.
    fn look_again(&self) -> Result<bool, Failure> {
        let shards = self.keys.len();
        let looks: Vec<_> = thread::scope(|scope| {
            let begin = |key: &'_ Vec<u8>| {
                let key = key.clone();
                thread::Builder::new().spawn_scoped(scope, move || self.look(&key))
            };
            let threads: Vec<_> = self.keys.iter().map(begin).collect();
            let joined = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(|thread| thread.map_or(Ok(false), joined)).collect()
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
        // A node that is busy is waited for.
        let seen = retry(self.settings.retry_for, |_| {
            let look = |connection| Wire::new(connection, key, None).look();
            match self.route.targets.on_node(key, look) {
                Err(Error::Connection { .. }) => Ok(None),
                seen => seen.map(Some),
            }
        });
        let seen = match seen {
            Ok(Some(seen)) => seen,
            Err(error) if !error.passes() => return Err(error.into()),
            Ok(None) | Err(_) => return Ok(false),
        };
        match mark.judged(&seen) {
            Verdict::Proved => Ok(true),
            Verdict::Lost(why) => Err(Stop::Lost(why)),
            Verdict::Unproved => Err(Stop::Restarted),
        }
    }

    /// Ends all threads. Starts others if the keys are no shards any more, because the filter was
    /// rebuilt: returns whether it did.
    fn join_and_follow(&mut self) -> Result<bool, Failure> {
        let old = self.generations();
        let (mut endings, leftovers) = self.join();
        if let Some(at) = endings.iter().position(|(_, failure)| !failure.stop.is_stale()) {
            return Err(endings.swap_remove(at).1);
        }
        let Some(ending) = endings.pop() else {
            // The end came before the reader had a newer descriptor.
            let confirmed = leftovers.is_empty();
            return confirmed.then_some(false).ok_or_else(|| Stop::Interrupted.into());
        };
        self.renew(ending)?;
        self.go_on(&old, leftovers)?;
        Ok(true)
    }

    /// Reads the descriptor again, because a key is no shard any more.
    ///
    /// # Errors
    /// The failure, if the descriptor still names the key: then the shard is lost.
    fn renew(&mut self, (generation, failure): Ending) -> Result<(), Failure> {
        if !failure.stop.is_stale() || !matches!(self.goal, Goal::Filter(..)) {
            return Err(failure);
        }
        let unchanged = self.read_again()?;
        let Goal::Filter(now, _) = &self.goal else { return Err(failure) };
        // The shards of an older generation become tombstones before the descriptor forgets them.
        let ending = generation < now.current.number && self.ending != Some(generation);
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
    fn go_on(&mut self, old: &[Identity], leftovers: Vec<Leftover>) -> Result<(), Failure> {
        self.route.loaded = true;
        self.begin_as_described()?;
        self.route.output.remark(format_args!(
            "the filter is being rebuilt, or was: generation {}",
            self.generations().iter().map(|of| of.0.to_string()).collect::<Vec<_>>().join(" and ")
        ));
        for (generation, piece) in leftovers {
            // A generation that was there before gets what it has not confirmed. A new one gets
            // what the generation that answered has not confirmed.
            let takes = |lane: &Lane| {
                let known = old.contains(&lane.generation);
                generation == if known { lane.generation } else { old[0] }
            };
            let parts = self.pieces(&piece.batch, takes);
            let bytes = parts.iter().map(|(_, part)| part.blob.len()).sum();
            self.route.ledger.replace(&piece, parts.len(), bytes);
            self.route.ledger.resend(piece.batch.count);
            send(piece.number, parts);
        }
        Ok(())
    }

    /// Waits until all threads have confirmed what they can. Returns why threads ended early, and
    /// what is not confirmed.
    fn join(&mut self) -> (Vec<Ending>, Vec<Leftover>) {
        let (mut endings, mut leftovers) = (Vec::new(), Vec::new());
        // All of them hear of the end before one of them is waited for.
        let closed = |worker: Worker| (worker.key, worker.thread);
        let closed = |lane: Lane| {
            (lane.generation, lane.workers.into_iter().map(closed).collect::<Vec<_>>())
        };
        let lanes: Vec<_> = self.lanes.drain(..).map(closed).collect();
        for (number, (generation, threads)) in lanes.into_iter().enumerate() {
            let shards = threads.len();
            for (shard, (key, thread)) in threads.into_iter().enumerate() {
                let ended = thread.join().unwrap_or_else(|it| std::panic::resume_unwind(it));
                if number == 0 {
                    self.totals.items += ended.totals.items;
                    self.totals.new += ended.totals.new;
                    // For shards this is known after `concluded` has looked at all of them.
                    self.totals.unknown = ended.totals.unknown && !self.goal.has_shards();
                }
                if let Some(mark) = ended.mark {
                    self.marks.insert(key, mark);
                }
                let pieces = ended.pieces.into_iter().chain(ended.later.try_iter());
                leftovers.extend(pieces.map(|piece| (generation, piece)));
                if let Err(stop) = ended.result {
                    endings.push((generation.0, self.failure(stop, shard, shards)));
                }
            }
        }
        (endings, leftovers)
    }

    /// What was counted by threads that have ended. Items of a sharded filter count when all
    /// generations have them, and all items before them.
    pub(crate) fn totals(&self) -> Totals {
        let ledger = &self.route.ledger;
        let items = if self.goal.has_shards() { ledger.before() } else { self.totals.items };
        Totals { items, resent: ledger.resent(), ..self.totals }
    }

    /// The generations that take the items.
    pub(crate) fn generations(&self) -> Vec<Identity> {
        self.lanes.iter().map(|lane| lane.generation).collect()
    }

    /// Reads the descriptor again, from any node that knows it. Returns whether it has the same
    /// generations.
    fn read_again(&mut self) -> Result<bool, Failure> {
        let Route { key, targets, .. } = &self.route;
        let found = patient(self.settings.retry_for, || sharded::find_by(targets, key));
        match found {
            Ok((read, Filter::Sharded(now))) => {
                sharded::filled(key, &now)?;
                let same = matches!(&self.goal, Goal::Filter(before, _)
                    if (&before.current, &before.next) == (&now.current, &now.next));
                self.goal = Goal::Filter(now, read);
                Ok(same)
            }
            Ok((_, Filter::Key)) => Err(Stop::Lost("its descriptor is gone".to_owned()).into()),
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

/// Sends the pieces of a batch. A thread that has ended gives them back when it is joined.
fn send<'s>(number: u64, pieces: impl IntoIterator<Item = (&'s Sender<Piece>, Batch)>) {
    for (thread, batch) in pieces {
        let _ = thread.send(Piece { number, batch });
    }
}
