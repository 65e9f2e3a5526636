//! Brings batches to the server, and knows which of them have arrived.
//!
//! ```text
//!   offer(batch) ──▶ unsent ──▶ sent ──reply──▶ answered ──WAIT, WAITAOF──▶ confirmed ──▶ journal
//!                      ▲         │ connection broke, LOADING, MOVED …
//!                      └─────────┘
//! ```
//!
//! A few batches are under way at a time, so that the server never waits. A batch is kept until it
//! is confirmed: adding an item twice is harmless, so a batch without a confirmation is sent again.
//! A COUNTING filter counts an item twice if it is added twice. So it gets one batch at a time, and
//! a batch whose reply is lost is not sent again.
//!
//! **Loss.** A server that restarts may have lost what it acknowledged, and so may one that takes
//! the place of another. So after each new connection and at the end it must be proved that the
//! filter has what was confirmed: `proof.rs`.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use bloom::{filter::Rules, sharding::Shard};
use redis::{Cmd, Value};

use crate::{
    connection::{Connection, Targets},
    error::Error,
    interrupt, name,
    output::Output,
    refusal::{Kind, Passing, Refusal},
    replication::{Acknowledged, LastWrite, Replication},
    reply::{number, only, text},
    retry::{Over, Retry},
    window::{self, Forgets, Window},
};

use super::{
    ledger::{Ledger, Piece},
    proof::{Mark, Process, Seen, Verdict},
    wire::{Form, Outcome, Trouble, not_shard, outcome, packed_outcome, write_command},
};

/// Bytes of items under way. A server needs some milliseconds for them.
const WINDOW: usize = 2 << 20;
/// Bytes of items that wait for their confirmation, over all deliveries of a load.
pub(crate) const HELD: usize = 48 << 20;
/// A buffer for a command that grew larger than this is not kept.
const BUFFER: usize = 512 << 10;
/// The longest time between two confirmations by WAIT, and by WAITAOF: a server that syncs its AOF
/// once a second needs up to a second for each.
const CONFIRM_EVERY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// The longest time of one WAIT.
const WAIT: Duration = Duration::from_millis(500);
/// A user who waits for replicas for longer than this is told why.
const SILENCE: Duration = Duration::from_secs(1);
/// Seconds for which the key that is written before WAITAOF stays.
const WRITTEN_FOR: u64 = 60;
/// Items of one BF.INSERT.
pub(crate) const INSERTED: usize = 500;

/// What the caller asks for.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Replicas that must acknowledge; `None` for one if the server has any.
    pub(crate) acks: Option<u64>,
    /// Whether the AOF must be synced.
    pub(crate) durable: bool,
    /// How long to try again.
    pub(crate) retry_for: Duration,
}

/// When batches are to be confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Now {
    /// Later, if the server cannot tell now.
    IfPossible,
    Surely,
}

/// Why a load ended early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The server refused a command, and would again.
    Refused(Refusal),
    /// There was no answer, or only "try again", for as long as the user wants to wait.
    Unreachable(String),
    /// The connection to a COUNTING filter broke: so many items may or may not be in.
    Uncertain(String, u64),
    /// Whether items are confirmed cannot be told.
    Unproved(String),
    /// Another process answers, and nothing proves that it has the items that were confirmed.
    Restarted,
    /// Items that were confirmed are not in the filter.
    Lost(String),
    /// Ctrl-C.
    Interrupted,
    /// Anything else.
    Failed(Error),
}

impl Stop {
    /// Whether it may mean that the key is no shard any more: a rebuild has replaced it.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.is_gone())
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused { refusal, .. } => Self::Refused(refusal),
            Error::Interrupted { .. } => Self::Interrupted,
            error => Self::Failed(error),
        }
    }
}

/// What is counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// Items before the first that is not confirmed.
    pub(crate) items: u64,
    /// Those of them that were new.
    pub(crate) new: u64,
    /// Items that `--skip` may leave out: for a COUNTING filter, those that were answered.
    pub(crate) before: u64,
    /// Nothing proves that the filter has these items.
    pub(crate) unknown: bool,
    /// Items that were sent again.
    pub(crate) resent: u64,
}

/// A piece, from its offer to its confirmation.
struct Entry {
    piece: Piece,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unsent,
    Sent,
    /// So many items of the batch were new.
    Answered(u64),
}

/// Where a delivery goes, and what all deliveries of a load share.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) key: Vec<u8>,
    /// The place of the filter in the counts of the ledger.
    pub(crate) place: Option<usize>,
    /// Which shard the filter must be; `None` for any filter.
    pub(crate) shard: Option<Shard>,
    /// The servers of the cluster.
    pub(crate) targets: Targets,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) output: Output,
    /// Bytes of items that may wait for their confirmation.
    pub(crate) held: usize,
    /// What is not confirmed is wanted back at once: it has to go elsewhere, too.
    pub(crate) give_back: Arc<AtomicBool>,
    /// Whether items of this load are in the filter already: those of an earlier run, or of an
    /// earlier thread.
    pub(crate) loaded: bool,
}

impl Route {
    /// The route of a load that begins, to the filter `key`.
    pub(crate) fn new(key: &[u8], targets: Targets, output: &Output) -> Self {
        Self {
            key: key.to_vec(),
            place: None,
            shard: None,
            targets,
            ledger: Arc::default(),
            output: *output,
            held: HELD,
            give_back: Arc::default(),
            loaded: false,
        }
    }
}

pub(crate) struct Delivery {
    settings: Settings,
    route: Route,
    connection: Connection,
    form: Form,
    counting: bool,
    entries: VecDeque<Entry>,
    /// The number of the first of `entries`.
    first: u64,
    /// Numbers of entries.
    unsent: VecDeque<u64>,
    /// Numbers of entries, and whether ASKING was sent with them.
    under_way: VecDeque<(u64, bool)>,
    under_way_bytes: usize,
    held_bytes: usize,
    trouble: Option<Trouble>,
    /// Whether the server took items.
    answered_any: bool,
    retry: Retry,
    /// Whether the user may not see how many replicas there are.
    blind: bool,
    confirmed: Instant,
    /// What proves that the filter has all confirmed items, once it was found.
    mark: Option<Mark>,
    /// What was seen of the filter when it was found.
    found: Option<Seen>,
    /// Whether WAIT and WAITAOF cover all items that were answered: they wait for what the
    /// connection wrote last, and for all before that, and the last piece wrote. What is known may
    /// have been added by another connection, or by an earlier load, a moment ago.
    covered: bool,
    /// The end of what the server had written when replicas were asked for first after the last
    /// reply.
    offset: Option<u64>,
    /// The first items of a batch that are in, before the one that was refused: the number of the
    /// batch, the items, and how many were new.
    partly: Option<(u64, u64, u64)>,
    /// What the filter has could not be seen at the end.
    unknown: bool,
    /// Another process took over: it may lack what was answered and not confirmed.
    replaced: bool,
    totals: Totals,
    buffer: Vec<u8>,
}

impl Delivery {
    /// Finds the filter: `false` if there is none. `connection` leads to the server that has it.
    pub(crate) fn open(
        settings: Settings,
        route: Route,
        connection: Connection,
    ) -> Result<(Self, bool), Stop> {
        let mut delivery = Self {
            retry: Retry::within(settings.retry_for),
            settings,
            route,
            connection,
            form: Form::Packed,
            counting: false,
            entries: VecDeque::new(),
            first: 0,
            unsent: VecDeque::new(),
            under_way: VecDeque::new(),
            under_way_bytes: 0,
            held_bytes: 0,
            trouble: None,
            answered_any: false,
            blind: false,
            confirmed: Instant::now(),
            mark: None,
            found: None,
            covered: false,
            offset: None,
            partly: None,
            unknown: false,
            replaced: false,
            totals: Totals::default(),
            buffer: Vec::new(),
        };
        let found = delivery.patiently(Self::find)?;
        if delivery.settings.acks.is_none() {
            let seen = delivery.patiently(Self::replication)?;
            delivery.blind = seen.is_none();
            // A primary that was just demoted had a replica: that which took its place.
            let watched = seen.is_some_and(|seen| seen.is_replica || seen.connected > 0);
            delivery.settings.acks = Some(u64::from(watched));
        }
        Ok((delivery, found))
    }

    /// What the server says about its replicas; `None` without the right to INFO.
    fn replication(&mut self) -> Result<Option<Replication>, Stop> {
        Ok(Replication::of(&mut self.connection)?)
    }

    /// Asks about the filter; `false` if there is none.
    fn find(&mut self) -> Result<bool, Stop> {
        self.counting = match self.ask_about("BF.INFO", &["SATURATED"]) {
            Ok(Value::Array(values)) => matches!(values[..], [Value::Int(_)]),
            Err(Stop::Refused(refusal)) if refusal.is_forbidden() => {
                self.route.output.remark(
                    "without the right to BF.INFO the filter is treated as COUNTING: one command \
                     at a time, no --resume",
                );
                true
            }
            // Other modules have no such field, and no such filters.
            Err(Stop::Refused(refusal)) if !refusal.passes() => false,
            other => {
                other?;
                false
            }
        };
        let seen = match self.look() {
            Err(Stop::Refused(refusal)) if refusal.kind == Kind::NotFound => return Ok(false),
            seen => seen?,
        };
        self.mark = Some(Mark::of(&seen));
        self.found = Some(seen);
        Ok(true)
    }

    /// Creates the filter, unless somebody else did.
    pub(crate) fn create(
        &mut self,
        items: u64,
        error: f64,
        rules: Option<Rules>,
    ) -> Result<(), Stop> {
        let mut words = vec![error.to_string(), items.to_string()];
        if let Some(rules) = rules {
            self.patiently(|delivery| {
                Ok(window::is_known(&mut delivery.connection, &delivery.route.key)?)
            })?;
            words.extend(window::words(rules));
        }
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        self.patiently(|delivery| match delivery.ask_about("BF.RESERVE", &words) {
            Err(Stop::Refused(refusal)) if refusal.kind == Kind::Exists => Ok(()),
            reply => reply.map(|_| ()),
        })?;
        self.patiently(Self::find).map(|_| ())
    }

    /// Finds out how the server takes items, and whether it can confirm them as asked for. Adds
    /// nothing.
    pub(crate) fn prepare(&mut self) -> Result<(), Stop> {
        if self.settings.durable {
            self.patiently(|delivery| delivery.ask(&["WAITAOF", "1", "0", "1"])).map_err(
                |stop| match stop {
                    Stop::Refused(refusal) if refusal.kind == Kind::UnknownCommand => {
                        Stop::Refused(
                            "ERR --durable needs WAITAOF: Redis 7.2 or later, or Valkey".into(),
                        )
                    }
                    Stop::Refused(refusal) if refusal.text.contains("appendonly") => Stop::Refused(
                        "ERR --durable needs an append-only file: CONFIG SET appendonly yes".into(),
                    ),
                    other => other,
                },
            )?;
        }
        match self
            .patiently(|delivery| delivery.ask_about("BF.BULKADD", &["NOCREATE", "LINES", ""]))
        {
            Err(Stop::Refused(refusal)) if refusal.lacks_command() => {
                self.form = Form::Arguments;
                Ok(())
            }
            reply => reply.map(|_| ()),
        }
    }

    /// Asks whether the filter forgets.
    pub(crate) fn forgets(&mut self) -> Result<Forgets, Stop> {
        self.patiently(|delivery| Ok(Forgets::of(&mut delivery.connection, &delivery.route.key)?))
    }

    /// Whether the filter counts additions.
    pub(crate) fn counting(&self) -> bool {
        self.counting
    }

    /// The largest number of items in a batch.
    pub(crate) fn most(&self) -> usize {
        match self.form {
            Form::Packed => usize::MAX,
            Form::Arguments => INSERTED,
        }
    }

    /// What the filter has at least.
    pub(crate) fn mark(&self) -> Option<&Mark> {
        self.mark.as_ref()
    }

    /// What was seen of the filter when it was found.
    pub(crate) fn found(&self) -> Option<&Seen> {
        self.found.as_ref()
    }

    /// Takes a piece. Returns when few enough are under way.
    pub(crate) fn offer(&mut self, piece: Piece) -> Result<(), Stop> {
        let number = self.first + self.entries.len() as u64;
        self.held_bytes += piece.batch.blob.len();
        self.entries.push_back(Entry { piece, state: State::Unsent });
        self.unsent.push_back(number);
        while !self.unsent.is_empty() {
            self.step()?;
        }
        let every = CONFIRM_EVERY[usize::from(self.settings.durable)];
        if self.waits() && (self.held_bytes > self.route.held || self.confirmed.elapsed() > every) {
            self.confirm(Now::IfPossible)?;
        }
        Ok(())
    }

    /// Receives what is under way, and confirms it if the reader waits for that, or if it is time.
    /// Returns whether all is confirmed.
    pub(crate) fn idle(&mut self) -> Result<bool, Stop> {
        while !self.unsent.is_empty() || !self.under_way.is_empty() {
            self.step()?;
        }
        let every = CONFIRM_EVERY[usize::from(self.settings.durable)];
        let awaited = self.route.ledger.awaits(HELD);
        if self.waits() && !self.entries.is_empty() && (awaited || self.confirmed.elapsed() > every)
        {
            // If the reader waits for these, nothing follows that could prove them.
            self.confirm(if awaited { Now::Surely } else { Now::IfPossible })?;
        }
        Ok(self.entries.is_empty())
    }

    /// Whether what is not confirmed is wanted back.
    pub(crate) fn gives_back(&self) -> bool {
        self.route.give_back.load(Ordering::Relaxed)
    }

    /// The pieces that are not confirmed.
    pub(crate) fn into_pieces(self) -> impl Iterator<Item = Piece> {
        self.entries.into_iter().map(|entry| entry.piece)
    }

    /// The server that the connection leads to.
    pub(crate) fn server(&self) -> String {
        self.connection.target().to_string()
    }

    /// Waits until every batch is confirmed.
    pub(crate) fn confirm(&mut self, now: Now) -> Result<(), Stop> {
        loop {
            while !self.unsent.is_empty() || !self.under_way.is_empty() {
                self.step()?;
            }
            if !self.waits() || self.entries.is_empty() {
                break;
            }
            let acknowledged = match self.cover() {
                Ok(Ok(())) => self.acknowledged(),
                Ok(Err(_)) if now == Now::IfPossible && self.held_bytes <= 2 * self.route.held => {
                    self.confirmed = Instant::now();
                    return Ok(());
                }
                Ok(Err(why)) => return Err(self.unproved(&why)),
                Err(stop) => Err(stop),
            };
            match acknowledged {
                Ok(true) => break,
                Ok(false) if interrupt::requested() => return Err(Stop::Interrupted),
                Ok(false) => {
                    const WHY: &str = "too few replicas acknowledged, or the AOF is not synced";
                    if self.retry.failing() >= Some(SILENCE) {
                        self.remark_failing(WHY);
                    }
                    self.pause(WHY)?;
                }
                Err(Stop::Failed(error @ Error::Connection { .. })) => self.reconnect(&error)?,
                Err(Stop::Refused(refusal)) => {
                    self.trouble = Some(Trouble::of(refusal, true));
                    self.act()?;
                }
                Err(other) => return Err(other),
            }
        }
        self.retry.succeed();
        self.confirmed = Instant::now();
        self.retire();
        Ok(())
    }

    /// Sees that WAITAOF covers what was answered: if the last items were known already, another
    /// key is written. What is known may be younger than all that this connection wrote before.
    /// Returns the error of a server that refuses that.
    fn cover(&mut self) -> Result<Result<(), String>, Stop> {
        if !self.settings.durable || self.covered {
            return Ok(Ok(()));
        }
        let mut command = redis::cmd("SET");
        command.arg(self.beside()).arg(1).arg("EX").arg(WRITTEN_FOR);
        // A redirection is followed by the caller: another node may not have the items.
        match self.connection.call(&command) {
            Ok(_) => {
                self.covered = true;
                Ok(Ok(()))
            }
            // The next item that is new covers those before it.
            Err(Error::Refused { refusal, .. })
                if refusal.is_forbidden() || refusal.kind == Kind::OutOfMemory =>
            {
                Ok(Err(refusal.text))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A key in the slot of the filter.
    fn beside(&self) -> Vec<u8> {
        name::beside(&self.route.key, "wait")
    }

    fn unproved(&self, why: &str) -> Stop {
        Stop::Unproved(format!(
            "the last items were known already, and whether those are synced to the append-only \
             file cannot be told without SET {}: {why}",
            name::readable(&self.beside())
        ))
    }

    /// Tells that something is tried again, once in a while for each server.
    fn remark_failing(&self, why: &str) {
        let server = self.connection.target().to_string();
        if self.route.ledger.may_remark(server.clone()) {
            let seconds = self.settings.retry_for.as_secs();
            let why = match why.starts_with(&server) {
                true => why.to_owned(),
                false => format!("{server}: {why}"),
            };
            self.route.output.remark(format_args!("{why}; trying again for {seconds} s"));
        }
    }

    /// Sees, however the load ended, whether the filter has what was confirmed.
    pub(crate) fn concluded(&mut self, result: Result<(), Stop>) -> Result<(), Stop> {
        let look = match &result {
            Ok(()) => true,
            Err(Stop::Unreachable(_)) => true,
            Err(stop @ (Stop::Refused(_) | Stop::Unproved(_) | Stop::Interrupted)) => {
                self.loaded_any() && !stop.is_stale() && !self.gives_back()
            }
            Err(stop) => {
                self.unknown = !matches!(stop, Stop::Uncertain(..));
                false
            }
        };
        if !look {
            return result;
        }
        // A server that was waited for is asked once more, for it may be a replica that is away.
        let seen = match &result {
            Err(Stop::Unreachable(_)) => self.look(),
            _ => self.patiently(Self::look),
        };
        let seen = seen.map_err(|stop| self.vanished(stop));
        let looked = seen.and_then(|seen| self.compare(seen, false));
        self.unknown = looked.is_err();
        match (result, looked) {
            (Ok(()), looked) => looked,
            (Err(_), Err(Stop::Lost(why))) => Err(Stop::Lost(why)),
            (Err(Stop::Refused(_) | Stop::Unproved(_)), Err(Stop::Restarted)) => {
                Err(Stop::Restarted)
            }
            (result, _) => result,
        }
    }

    /// Whether items of this load are in, or of an earlier one that it continues.
    fn loaded_any(&self) -> bool {
        let partly = self.partly.is_some() || (self.counting && self.loaded());
        self.first > 0 || self.route.loaded || partly
    }

    /// Whether the user may not see how many replicas there are.
    pub(crate) fn blind(&self) -> bool {
        self.blind
    }

    /// Replicas that must acknowledge.
    pub(crate) fn acks(&self) -> u64 {
        self.settings.acks.unwrap_or(0)
    }

    /// This is a new connection, which wrote nothing.
    fn forget_writes(&mut self) {
        (self.covered, self.offset) = (false, None);
    }

    fn waits(&self) -> bool {
        self.acks() > 0 || self.settings.durable
    }

    /// Sends one batch, or receives one reply; tries again what can be tried again.
    fn step(&mut self) -> Result<(), Stop> {
        let result = match self.unsent.front() {
            Some(&number) if self.may_send(number) => self.send(number),
            _ => self.receive(),
        };
        match result {
            Ok(()) if self.trouble.is_none() => Ok(()),
            // The replies that are under way say which batches are in.
            Ok(()) if !self.under_way.is_empty() => self.drained().and_then(|()| self.act()),
            Ok(()) => self.act(),
            Err(error @ Error::Connection { .. }) => self.reconnect(&error),
            Err(other) => Err(other.into()),
        }
    }

    /// Receives all replies that are under way.
    fn drained(&mut self) -> Result<(), Stop> {
        while !self.under_way.is_empty() {
            match self.receive() {
                Ok(()) => {}
                Err(Error::Connection { .. })
                    if matches!(self.trouble, Some(Trouble { passing: None, .. })) =>
                {
                    return Ok(());
                }
                Err(error @ Error::Connection { .. }) => return self.reconnect(&error),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn may_send(&self, number: u64) -> bool {
        if self.trouble.is_some() {
            return false;
        }
        let next = self.entry(number).map_or(0, |entry| entry.piece.batch.blob.len());
        self.under_way.is_empty() || (!self.counting && self.under_way_bytes + next <= WINDOW)
    }

    fn entry(&self, number: u64) -> Option<&Entry> {
        self.entries.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn entry_mut(&mut self, number: u64) -> Option<&mut Entry> {
        self.entries.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn send(&mut self, number: u64) -> Result<(), Error> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let asking = self.connection.asking;
        if asking {
            buffer.extend(b"*1\r\n$6\r\nASKING\r\n");
        }
        let mut size = 0;
        if let Some(entry) = self.entry(number) {
            write_command(&mut buffer, self.form, &self.route.key, &entry.piece.batch);
            size = entry.piece.batch.blob.len();
        }
        let sent = self.connection.send_raw(&buffer);
        if buffer.capacity() <= BUFFER {
            self.buffer = buffer;
        }
        sent?;
        self.unsent.pop_front();
        self.under_way.push_back((number, asking));
        self.under_way_bytes += size;
        if let Some(entry) = self.entry_mut(number) {
            entry.state = State::Sent;
        }
        Ok(())
    }

    /// Receives the next reply. An error in it becomes `self.trouble`.
    fn receive(&mut self) -> Result<(), Error> {
        let Some(&(number, asking)) = self.under_way.front() else { return Ok(()) };
        if asking {
            self.connection.receive()?;
        }
        let reply = self.connection.receive()?;
        self.under_way.pop_front();
        let Some(count) = self.entry(number).map(|entry| entry.piece.batch.count) else {
            return Ok(());
        };
        let size = self.entry(number).map_or(0, |entry| entry.piece.batch.blob.len());
        self.under_way_bytes -= size;
        let outcome = match self.form {
            Form::Packed => packed_outcome(reply, count),
            Form::Arguments => outcome(reply, count),
        }?;
        match outcome {
            Outcome::Added { new } => self.answered(number, new),
            Outcome::Partly { count, new, refusal } => {
                self.answered_any |= count > 0;
                self.partly.get_or_insert((number, count, new));
                self.meet(Trouble { refusal, passing: None });
            }
            Outcome::Error(refusal) => {
                self.meet(Trouble::of(refusal, self.loaded()));
                self.unsend(number);
            }
        }
        Ok(())
    }

    /// Notes an error. One that stays is the first of its kind.
    fn meet(&mut self, trouble: Trouble) {
        if !matches!(self.trouble, Some(Trouble { passing: None, .. })) {
            self.trouble = Some(trouble);
        }
    }

    /// Whether items were answered here.
    fn loaded(&self) -> bool {
        self.answered_any
    }

    fn answered(&mut self, number: u64, new: u64) {
        self.retry.succeed();
        self.answered_any = true;
        if let Some(entry) = self.entry_mut(number) {
            entry.state = State::Answered(new);
            (self.covered, self.offset) = (new > 0, None);
        }
        if !self.waits() {
            self.retire();
        }
    }

    /// What was counted so far: items up to the first that is not confirmed.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals { unknown: self.unknown, ..self.totals };
        // Not confirmed, but a COUNTING filter must not get them twice.
        if self.counting && !self.replaced {
            let answered = self.entries.iter().filter(|it| matches!(it.state, State::Answered(_)));
            totals.before += answered.map(|entry| entry.piece.batch.count).sum::<u64>();
        }
        if let Some((number, count, new)) = self.partly {
            let confirmed = number == self.first;
            totals.items += if confirmed { count } else { 0 };
            totals.new += if confirmed { new } else { 0 };
            totals.before += if confirmed || self.counting { count } else { 0 };
        }
        totals
    }

    /// Puts a batch back, to be sent again.
    fn unsend(&mut self, number: u64) {
        if let Some(entry) = self.entry_mut(number)
            && entry.state != State::Unsent
        {
            entry.state = State::Unsent;
            let at = self.unsent.partition_point(|&other| other < number);
            self.unsent.insert(at, number);
        }
    }

    /// Confirms the pieces at the front that are answered, and notes it in the ledger.
    fn retire(&mut self) {
        let (mut confirmed, mut added) = (Vec::new(), 0);
        while let Some(&Entry { state: State::Answered(new), .. }) = self.entries.front()
            && let Some(entry) = self.entries.pop_front()
        {
            self.first += 1;
            let bytes = entry.piece.batch.blob.len();
            self.held_bytes -= bytes;
            self.totals.items += entry.piece.batch.count;
            self.totals.before += entry.piece.batch.count;
            self.totals.new += new;
            added += new;
            confirmed.push((entry.piece.number, bytes));
        }
        if !confirmed.is_empty() {
            if let Some(mark) = &mut self.mark {
                mark.confirm(added, self.offset);
            }
            self.route.ledger.confirm(&confirmed, self.route.place, self.mark.clone());
        }
    }

    /// Whether everything that was answered is acknowledged as the caller asked for.
    fn acknowledged(&mut self) -> Result<bool, Stop> {
        if self.acks() > 0 {
            // What replicas have up to an offset proves later that one of them has all items.
            let (acks, offset) = (self.acks(), &mut self.offset);
            let server = &mut self.connection;
            let mut by = |last| Acknowledged::by(server, acks, last, offset, WAIT);
            let acknowledged = match by(LastWrite::Elsewhere)? {
                Acknowledged::Unknown if self.covered => by(LastWrite::Here)?,
                acknowledged => acknowledged,
            };
            match acknowledged {
                Acknowledged::Yes => {}
                Acknowledged::NotYet => return Ok(false),
                Acknowledged::Unknown => {
                    return Err(Stop::Unproved(
                        "items were known already, and without the right to INFO nobody can tell \
                         whether replicas have them"
                            .to_owned(),
                    ));
                }
            }
        }
        if self.settings.durable {
            let reply = self.ask(&["WAITAOF", "1", "0", &WAIT.as_millis().to_string()])?;
            if !matches!(&reply, Value::Array(parts) if matches!(parts[..], [Value::Int(1..), ..]))
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Acts on an error reply when nothing is under way.
    fn act(&mut self) -> Result<(), Stop> {
        let Some(Trouble { refusal, passing }) = self.trouble.take() else { return Ok(()) };
        match passing {
            None if refusal.kind == Kind::NotFound && self.loaded() => {
                Err(self.vanished(Stop::Refused(refusal)))
            }
            None => {
                // What was answered before can still be confirmed.
                let covered = self.waits() && matches!(self.cover(), Ok(Ok(())));
                if covered && matches!(self.acknowledged(), Ok(true)) {
                    self.retire();
                }
                Err(Stop::Refused(refusal))
            }
            Some(Passing::Later) => self.pause(&refusal.text),
            Some(Passing::Reconnect) => {
                self.pause(&refusal.text)?;
                self.reconnect(&Error::refused("load", refusal))
            }
            Some(Passing::Redirected) => {
                let Some(target) = self.connection.target().redirected(&refusal) else {
                    return Err(Stop::Refused(refusal));
                };
                self.pause(&refusal.text)?;
                let asking = refusal.kind == Kind::Asked;
                // A primary that gave its slot away gave all items with it. One that another server
                // replaced did not.
                let moved = asking || matches!(self.replication(), Ok(Some(it)) if !it.is_replica);
                let arrived = match target.connect() {
                    Ok(connection) => {
                        self.connection = connection;
                        self.connection.asking = asking;
                        self.arrive(moved).and_then(|()| self.certain(&refusal.text))
                    }
                    Err(error) => Err(error.into()),
                };
                match arrived {
                    Err(Stop::Failed(error @ Error::Connection { .. })) => self.reconnect(&error),
                    Err(Stop::Refused(refusal)) if refusal.passing(true).is_some() => {
                        self.reconnect(&Error::refused("load", refusal))
                    }
                    arrived => arrived.map_err(|stop| self.vanished(stop)),
                }
            }
        }
    }

    /// Goes on with another connection. `moved`: the filter came to this server with all its items.
    fn arrive(&mut self, moved: bool) -> Result<(), Stop> {
        let seen = self.look()?;
        // A primary that was demoted: another one takes its place, or it is promoted again.
        if seen.process.is_replica() && self.loaded() {
            return Err(Stop::Refused("READONLY the server became a replica".into()));
        }
        self.compare(seen, moved)?;
        self.forget_writes();
        self.trouble = None;
        if !self.counting {
            self.resend();
        }
        Ok(())
    }

    /// Waits before another try, unless the user has waited for long enough.
    fn pause(&mut self, why: &str) -> Result<(), Stop> {
        if self.gives_back() {
            return Err(Stop::Interrupted);
        }
        self.retry.pause().map_err(|over| ended(over, why))
    }

    /// Does something while nothing is under way, again and again while the server says "later".
    fn patiently<T>(
        &mut self,
        mut work: impl FnMut(&mut Self) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        loop {
            match work(self) {
                Err(Stop::Refused(refusal)) if refusal.kind == Kind::Later => {
                    self.pause(&refusal.text)?;
                }
                Err(Stop::Failed(error @ Error::Connection { .. })) => self.reconnect(&error)?,
                result => {
                    self.retry.succeed();
                    return result;
                }
            }
        }
    }

    /// Every batch that is not confirmed is to be sent again.
    fn resend(&mut self) {
        let mut again = 0;
        for entry in &mut self.entries {
            if entry.state != State::Unsent {
                entry.state = State::Unsent;
                again += entry.piece.batch.count;
            }
        }
        self.unsent = (self.first..self.first + self.entries.len() as u64).collect();
        self.under_way.clear();
        self.under_way_bytes = 0;
        self.totals.resent += again;
        self.route.ledger.resend(again);
    }

    /// Items of a COUNTING filter that may be in or not. They must not be sent again.
    fn uncertain(&self) -> u64 {
        let is = |state| match state {
            State::Unsent => false,
            State::Sent => true,
            State::Answered(_) => self.replaced,
        };
        let entries = self.entries.iter().filter(|entry| self.counting && is(entry.state));
        entries.map(|entry| entry.piece.batch.count).sum()
    }

    /// Connects again, to the same server or to another node of the cluster.
    fn reconnect(&mut self, why: &Error) -> Result<(), Stop> {
        self.connected_again(why).map_err(|stop| match (stop, self.uncertain()) {
            (Stop::Unreachable(why), sent @ 1..) => {
                Stop::Unreachable(format!("{why}; {sent} items have no reply"))
            }
            (stop, _) => stop,
        })
    }

    fn connected_again(&mut self, why: &Error) -> Result<(), Stop> {
        let broken = why.to_string();
        let mut why = broken.clone();
        if self.retry.failing().is_none() {
            self.remark_failing(&why);
        }
        loop {
            self.pause(&why)?;
            for (tried, place) in self.route.targets.places().enumerate() {
                if let Some(over) = self.retry.over()
                    && (tried > 0 || over == Over::Interrupted)
                {
                    return Err(ended(over, &why));
                }
                match self.route.targets.connect_by(place, &self.route.key) {
                    Ok(connection) => self.connection = connection,
                    Err(error @ (Error::Connection { .. } | Error::Authentication { .. })) => {
                        why = error.to_string();
                        continue;
                    }
                    Err(Error::Refused { refusal, .. }) if refusal.passing(true).is_some() => {
                        why = refusal.text;
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                }
                match self.arrive(false) {
                    Ok(()) => return self.certain(&broken),
                    Err(Stop::Refused(refusal)) if refusal.passing(true).is_some() => {
                        why = refusal.text;
                    }
                    Err(Stop::Failed(error @ Error::Connection { .. })) => why = error.to_string(),
                    Err(stop) => return Err(self.vanished(stop)),
                }
            }
        }
    }

    /// Refuses to go on where what was sent must not be sent again.
    fn certain(&self, why: &str) -> Result<(), Stop> {
        match self.uncertain() {
            0 => Ok(()),
            uncertain => Err(Stop::Uncertain(why.to_owned(), uncertain)),
        }
    }

    /// Sees that the filter has what was confirmed. `moved`: it came to this server with all its
    /// items.
    fn compare(&mut self, seen: Seen, moved: bool) -> Result<(), Stop> {
        let any = self.loaded_any();
        // Before the filter was found there is nothing to compare.
        let Some(mark) = &mut self.mark else { return Ok(()) };
        if moved {
            mark.move_to(&seen.process);
        }
        self.replaced |= !mark.is_at(&seen.process);
        match mark.judged(&seen) {
            Verdict::Lost(why) => return Err(Stop::Lost(why)),
            Verdict::Unproved if any => return Err(Stop::Restarted),
            // Nothing is confirmed yet, and all that was sent is sent again.
            Verdict::Unproved => *mark = Mark::of(&seen),
            Verdict::Proved => mark.follow(seen.process),
        }
        Ok(())
    }

    fn look(&mut self) -> Result<Seen, Stop> {
        let items = match self.ask_about("BF.INFO", &["ITEMS"]) {
            Err(Stop::Refused(refusal)) if refusal.is_forbidden() => None,
            reply => number(only(&reply?)),
        };
        let forgets = Window::of(&mut self.connection, &self.route.key)?.is_some();
        let identity = match self.ask_about("BF.INFO", &["IDENTITY"]) {
            // Other modules have no such field.
            Err(Stop::Refused(refusal)) if refusal.kind != Kind::NotFound && !refusal.passes() => {
                None
            }
            reply => text(only(&reply?)).map(str::to_owned),
        };
        self.see_shard()?;
        // What is forgotten or deleted makes the number of items smaller.
        let items = items.filter(|_| !self.counting && !forgets);
        Ok(Seen { identity, items, process: self.process()? })
    }

    /// Sees that the filter is the shard that it must be. `BF.ADD` makes a lost shard anew, as a
    /// filter of another kind.
    fn see_shard(&mut self) -> Result<(), Stop> {
        let Some(shard) = self.route.shard else { return Ok(()) };
        match self.ask_about("BF.INFO", &["SHARD"]) {
            Err(Stop::Refused(refusal)) if refusal.is_forbidden() => Ok(()),
            reply => match not_shard(&reply?, shard) {
                Some(text) => Err(Stop::Refused(text.into())),
                None => Ok(()),
            },
        }
    }

    /// The filter was there, and is not any more. A shard may have been replaced by a rebuild: the
    /// descriptor says that.
    fn vanished(&self, stop: Stop) -> Stop {
        match stop {
            Stop::Refused(refusal)
                if refusal.kind == Kind::NotFound && self.route.shard.is_none() =>
            {
                Stop::Lost(GONE.to_owned())
            }
            other => other,
        }
    }

    /// The process that the connection leads to.
    fn process(&mut self) -> Result<Process, Stop> {
        let info = match self.connection.info(&["server", "replication"]) {
            Err(Error::Refused { refusal, .. }) if !refusal.passes() => None,
            info => info?,
        };
        Ok(Process::of(info.as_ref(), self.connection.number()))
    }

    /// One command on the connection; nothing is under way.
    fn ask(&mut self, words: &[&str]) -> Result<Value, Stop> {
        Ok(self.connection.call_for_key(Cmd::new().arg(words))?)
    }

    /// One command about the filter; nothing is under way.
    fn ask_about(&mut self, name: &str, words: &[&str]) -> Result<Value, Stop> {
        let command = &mut redis::cmd(name);
        Ok(self.connection.call_for_key(command.arg(&self.route.key).arg(words))?)
    }
}

/// Why a load ended early that is not tried again.
fn ended(over: Over, why: &str) -> Stop {
    match over {
        Over::Late => Stop::Unreachable(why.to_owned()),
        Over::Interrupted => Stop::Interrupted,
    }
}

/// What is said about a filter that was there.
pub(crate) const GONE: &str =
    "the filter is gone: removed, evicted, or lost when the server restarted";
