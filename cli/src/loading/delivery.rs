//! Sends pieces of batches to one filter, and knows which of them have arrived.
//!
//! ```text
//!   offer(piece) ──▶ Queue: unsent ──▶ in flight ──reply──▶ answered ──Confirmation──▶ Ledger
//!                             ▲  Wire                          │
//!                             └── connection broke, LOADING, MOVED … : all of them again
//! ```
//!
//! A few pieces are in flight at a time, so that the server never waits. A piece is kept until it
//! is confirmed, and sent again if it is not: adding an item twice is harmless, except in a
//! COUNTING filter.
//!
//! **Loss.** A server that restarts may have lost what it acknowledged, and so may one that takes
//! the place of another. So after each new connection and at the end, `proof.rs` must prove that
//! the filter has what was confirmed.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use redis::Value;

use crate::{
    connection::Connection,
    error::Error,
    refusal::{Kind, Passing, Refusal},
    replication::{Replication, acknowledged},
    retry::{Over, Retry},
};

use super::{
    failure::{GONE, Stop},
    ledger::Piece,
    proof::{Mark, Seen, Verdict},
    queue::Queue,
    route::{HELD, Options, Route, Totals},
    wire::Wire,
};

/// The most bytes of items in flight, and the most pieces. A server needs milliseconds for them.
const WINDOW: (usize, usize) = (2 << 20, 64);
/// The longest time between two confirmations by replicas.
const CONFIRM_EVERY: Duration = Duration::from_secs(1);
/// The longest time of one WAIT.
const WAIT: Duration = Duration::from_millis(500);
/// What the user is told about the wait.
const LACKING: &str = "too few replicas acknowledged (--acks 0 waits for none)";
/// Why additions are not confirmed, if the reader cannot read the descriptor again.
const TOO_OLD: &str = "the descriptor is too old";
/// A user who waits for replicas for longer than this is told why.
const SILENCE: Duration = Duration::from_secs(1);

/// The items of a piece before the one that was refused.
#[derive(Clone, Copy, Debug)]
struct Partly {
    count: u64,
    new: u64,
    /// Whether replicas have them, as the user wants it.
    confirmed: bool,
}

pub(crate) struct Delivery {
    settings: Options,
    route: Route,
    pub(super) wire: Wire,
    queue: Queue,
    /// Replicas that must acknowledge.
    pub(super) acks: u64,
    /// The replication offset of the server after the last reply; `None` until it is read. Replicas
    /// that have reached it have all items. WAIT alone proves nothing: another connection may have
    /// added an item that this one found known.
    offset: Option<u64>,
    /// When items were confirmed last.
    confirmed_at: Instant,
    retry: Retry,
    /// What proves that the filter has all confirmed items, once it was found.
    pub(super) mark: Option<Mark>,
    /// Whether the server took items.
    loaded: bool,
    /// The first items of the piece in flight are in, then one was refused.
    partly: Option<Partly>,
    totals: Totals,
}

impl Delivery {
    /// Finds the filter. `connection` leads to the server that has it.
    pub(crate) fn open(
        settings: Options,
        route: Route,
        connection: Connection,
    ) -> Result<(Self, Seen), Stop> {
        let mut delivery = Self {
            wire: Wire::new(connection, &route.key, route.shard),
            queue: Queue::default(),
            acks: settings.acks.unwrap_or(0),
            offset: None,
            confirmed_at: Instant::now(),
            retry: Retry::within(settings.retry_for),
            settings,
            route,
            mark: None,
            loaded: false,
            partly: None,
            totals: Totals::default(),
        };
        let found = delivery.patiently(Wire::find)?;
        let seen = found.ok_or_else(|| Stop::Refused("ERR not found".into()))?;
        delivery.mark = Some(Mark::of(&seen));
        if delivery.settings.acks.is_none() {
            let own = delivery.patiently(|wire| Replication::of(&mut wire.connection))?;
            // A primary that was just demoted had a replica: the one that took its place.
            delivery.acks = u64::from(own.is_replica || own.connected > 0);
        }
        delivery.patiently(Wire::prepare)?;
        Ok((delivery, seen))
    }

    /// Takes a piece. Returns when few enough are in flight.
    pub(crate) fn offer(&mut self, piece: Piece) -> Result<(), Stop> {
        self.queue.push(piece);
        while self.queue.unsent().is_some() {
            self.step()?;
        }
        if self.acks > 0 && (self.queue.held() > self.route.held || self.is_due()) {
            self.confirm()?;
        }
        Ok(())
    }

    /// Receives what is in flight, and confirms it if the reader waits for that, or if it is time.
    /// Returns whether all is confirmed.
    pub(crate) fn idle(&mut self) -> Result<bool, Stop> {
        self.settle()?;
        if !self.queue.is_empty() && (self.route.ledger.awaits(HELD) || self.is_due()) {
            self.confirm()?;
            if !self.queue.is_empty() {
                self.pause(TOO_OLD)?;
            }
        }
        Ok(self.queue.is_empty())
    }

    /// Whether the reader wants back what is not confirmed.
    pub(crate) fn gives_back(&self) -> bool {
        self.route.give_back.load(Ordering::Relaxed)
    }

    /// The pieces that are not confirmed.
    pub(crate) fn into_pieces(self) -> impl Iterator<Item = Piece> {
        self.queue.into_pieces()
    }

    fn is_due(&self) -> bool {
        self.confirmed_at.elapsed() > CONFIRM_EVERY
    }

    /// What was counted so far: items up to the first that is not confirmed.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = self.totals;
        if let Some(Partly { count, new, confirmed: true }) = self.partly {
            totals.items += count;
            totals.new += new;
        }
        totals
    }

    /// Waits until every piece is confirmed, or until only a newer descriptor is missing. The
    /// reader reads that descriptor.
    pub(crate) fn confirm(&mut self) -> Result<(), Stop> {
        loop {
            self.settle()?;
            if self.queue.is_empty() {
                break;
            }
            match self.acknowledged() {
                Ok(true) => break,
                Ok(false) => {
                    if self.retry.failing() >= Some(SILENCE) {
                        self.remark_failing(LACKING);
                    }
                    self.pause(LACKING)?;
                }
                Err(error) => self.recover(error)?,
            }
        }
        if self.retire() {
            self.retry.succeed();
            self.confirmed_at = Instant::now();
        }
        Ok(())
    }

    /// Waits a moment until enough replicas have what was answered.
    ///
    /// # Errors
    /// Those of the commands. A redirection is not followed: another node may not have the items.
    fn acknowledged(&mut self) -> Result<bool, Error> {
        let server = &mut self.wire.connection;
        Ok(self.acks == 0 || acknowledged(server, self.acks, &mut self.offset, WAIT)?)
    }

    /// Confirms the pieces that are answered, and notes it in the ledger. `false` if the descriptor
    /// is too old: the pieces stay, and are sent where the next descriptor says.
    fn retire(&mut self) -> bool {
        if !self.queue.is_empty() && !self.route.ledger.is_valid() {
            return false;
        }
        let (mut confirmed, mut added) = (Vec::new(), 0);
        for (piece, new) in self.queue.confirm() {
            self.totals.items += piece.batch.count;
            added += new;
            confirmed.push((piece.number, piece.batch.blob.len()));
        }
        if confirmed.is_empty() {
            return true;
        }
        self.totals.new += added;
        if let Some(mark) = &mut self.mark {
            mark.confirm(added, self.offset);
        }
        self.route.ledger.confirm(&confirmed, self.route.place, self.mark.clone());
        true
    }

    /// Sends all pieces, and receives all replies.
    fn settle(&mut self) -> Result<(), Stop> {
        while self.queue.unsent().is_some() || self.queue.awaited().is_some() {
            self.step()?;
        }
        Ok(())
    }

    /// Sends one piece, or receives one reply; tries again what can be tried again.
    fn step(&mut self) -> Result<(), Stop> {
        let (pieces, bytes) = self.queue.in_flight();
        let fits = |next: usize| pieces == 0 || (pieces < WINDOW.1 && bytes + next <= WINDOW.0);
        let done = match self.queue.unsent() {
            Some(batch) if fits(batch.blob.len()) => {
                self.wire.send(batch).map(|()| self.queue.send())
            }
            _ => self.receive(),
        };
        done.or_else(|error| self.recover(error))
    }

    /// Receives the next reply.
    ///
    /// # Errors
    /// An error reply is an error, too. Then nothing is in flight, and all pieces after the refused
    /// one must be sent again.
    fn receive(&mut self) -> Result<(), Error> {
        let Some(items) = self.queue.awaited() else { return Ok(()) };
        let outcome = self.wire.receive(items)?;
        self.loaded |= outcome.count > 0;
        let Some(refusal) = outcome.refusal else {
            self.retry.succeed();
            self.queue.answer(outcome.new);
            self.offset = None;
            if self.acks == 0 {
                self.retire();
            }
            return Ok(());
        };
        if outcome.count > 0 {
            let (count, new) = (outcome.count, outcome.new);
            self.offset = None;
            self.partly = Some(Partly { count, new, confirmed: false });
        }
        let (pieces, _) = self.queue.in_flight();
        // Pieces behind the refused one may have been taken.
        let mut taken = false;
        let drained = (1..pieces).try_for_each(|_| {
            taken |= !matches!(self.wire.connection.receive()?, Value::ServerError(_));
            Ok(())
        });
        let passes = self.passing(&refusal).is_some();
        match drained {
            Err(broken) if passes => Err(broken),
            _ => {
                let items = self.queue.withdraw();
                if taken && passes {
                    self.route.ledger.resend(items);
                }
                Err(Error::refused("load", refusal))
            }
        }
    }

    /// What helps against an error reply; `None` if it is not temporary.
    fn passing(&self, refusal: &Refusal) -> Option<Passing> {
        refusal.passing(self.loaded).filter(|_| self.partly.is_none())
    }

    /// Goes on after an error, when nothing is in flight.
    fn recover(&mut self, error: Error) -> Result<(), Stop> {
        let refusal = match error {
            error @ Error::Connection { .. } => return self.broken(&error),
            Error::Refused { refusal, .. } => refusal,
            other => return Err(other.into()),
        };
        match self.passing(&refusal) {
            None if refusal.kind == Kind::NotFound && self.loaded => {
                Err(self.vanished(Stop::Refused(refusal)))
            }
            None => {
                // What was answered before can still be confirmed.
                let confirmed = matches!(self.acknowledged(), Ok(true)) && self.retire();
                if let Some(partly) = &mut self.partly {
                    partly.confirmed = confirmed;
                }
                Err(Stop::Refused(refusal))
            }
            Some(Passing::Later) => self.pause(&refusal.text),
            Some(Passing::Reconnect) => self.reconnect(refusal.text),
            Some(Passing::Redirected) => self.redirect(refusal),
        }
    }

    /// Goes on at the node that a reply names.
    fn redirect(&mut self, refusal: Refusal) -> Result<(), Stop> {
        let Some(target) = self.wire.connection.target().redirected(&refusal) else {
            return Err(Stop::Refused(refusal));
        };
        self.pause(&refusal.text)?;
        let asking = refusal.kind == Kind::Asked;
        // A primary that gave its slot away gave all items with it. A primary that was replaced by
        // another server did not.
        let own = Replication::of(&mut self.wire.connection);
        let moved = asking || own.is_ok_and(|own| !own.is_replica);
        let connected = target.connect().map(|mut connection| {
            connection.asking = asking;
            connection
        });
        match self.tried(connected, moved)? {
            None => Ok(()),
            Some(why) => self.reconnect(why),
        }
    }

    /// Says that the connection is broken, and connects again.
    fn broken(&mut self, error: &Error) -> Result<(), Stop> {
        let why = error.to_string();
        if self.retry.failing().is_none() {
            self.remark_failing(&why);
        }
        self.reconnect(why)
    }

    /// Connects again, to the same server or to another node of the cluster.
    fn reconnect(&mut self, mut why: String) -> Result<(), Stop> {
        loop {
            self.pause(&why)?;
            for (tried, place) in self.route.targets.places(&self.route.key).enumerate() {
                if let Some(over) = self.retry.over()
                    && (tried > 0 || over == Over::Interrupted)
                {
                    return Err(ended(over, &why));
                }
                let connected = self.route.targets.connect_by(place, &self.route.key);
                match self.tried(connected, false)? {
                    None => return Ok(()),
                    Some(again) => why = again,
                }
            }
        }
    }

    /// Continues on another connection. If that fails, but yet another connection may work, returns
    /// the reason.
    /// `moved`: the filter came to this server with all its items.
    fn tried(
        &mut self,
        connected: Result<Connection, Error>,
        moved: bool,
    ) -> Result<Option<String>, Stop> {
        let arrived = connected.map_err(Stop::from).and_then(|it| self.arrive(it, moved));
        match arrived {
            Ok(()) => Ok(None),
            Err(stop) if stop.passes() => Ok(Some(stop.why())),
            Err(stop) => Err(self.vanished(stop)),
        }
    }

    fn arrive(&mut self, connection: Connection, moved: bool) -> Result<(), Stop> {
        self.wire.connection = connection;
        let seen = self.wire.look()?;
        // A primary that was demoted: another one takes its place, or it is promoted again.
        if seen.process.is_replica() && self.loaded {
            return Err(Stop::Refused("READONLY the server became a replica".into()));
        }
        self.compare(seen, moved)?;
        self.offset = None;
        self.queue.doubt();
        let again = self.queue.withdraw();
        self.route.ledger.resend(again);
        Ok(())
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
        if !mark.is_at(&seen.process) {
            // It may lack what was answered and not confirmed.
            self.queue.doubt();
            self.partly = None;
        }
        match mark.judged(&seen) {
            Verdict::Lost(why) => return Err(Stop::Lost(why)),
            Verdict::Unproved if any => return Err(Stop::Restarted),
            // Nothing is confirmed yet, and all that was sent is sent again.
            Verdict::Unproved => *mark = Mark::of(&seen),
            Verdict::Proved => mark.follow(seen.process),
        }
        Ok(())
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

    /// Sees, however the load ended, whether the filter has what was confirmed.
    pub(crate) fn concluded(&mut self, result: Result<(), Stop>) -> Result<(), Stop> {
        let look = match &result {
            Ok(()) => true,
            Err(Stop::Unreachable(_)) => true,
            Err(stop @ (Stop::Refused(_) | Stop::Interrupted)) => {
                self.loaded_any() && !stop.is_stale() && !self.gives_back()
            }
            Err(_) => {
                self.totals.unknown = true;
                false
            }
        };
        if !look {
            return result;
        }
        // An unreachable server is tried once more: perhaps only a replica is missing.
        let seen = match &result {
            Err(Stop::Unreachable(_)) => self.wire.look().map_err(Stop::from),
            _ => self.patiently(Wire::look),
        };
        let seen = seen.map_err(|stop| self.vanished(stop));
        let looked = seen.and_then(|seen| self.compare(seen, false));
        self.totals.unknown = looked.is_err();
        match (result, looked) {
            (Ok(()), looked) => looked,
            (Err(_), Err(Stop::Lost(why))) => Err(Stop::Lost(why)),
            (Err(Stop::Refused(_)), Err(Stop::Restarted)) => Err(Stop::Restarted),
            (result, _) => result,
        }
    }

    /// Whether items of this load are in, or of an earlier one that it continues.
    fn loaded_any(&self) -> bool {
        self.totals.items > 0 || self.route.loaded || self.partly.is_some()
    }

    /// Waits before another try, unless the user has waited for long enough.
    fn pause(&mut self, why: &str) -> Result<(), Stop> {
        if self.gives_back() {
            return Err(Stop::Interrupted);
        }
        self.retry.pause().map_err(|over| ended(over, why))
    }

    /// Does something while nothing is in flight, and repeats it while the server is busy or gone.
    fn patiently<T>(
        &mut self,
        mut work: impl FnMut(&mut Wire) -> Result<T, Error>,
    ) -> Result<T, Stop> {
        loop {
            match work(&mut self.wire) {
                Err(Error::Refused { refusal, .. }) if refusal.kind == Kind::Later => {
                    self.pause(&refusal.text)?;
                }
                Err(error @ Error::Connection { .. }) => {
                    self.broken(&error)?;
                }
                result => {
                    self.retry.succeed();
                    return Ok(result?);
                }
            }
        }
    }

    /// Reports that something is tried again; for each server at most every 30 seconds.
    fn remark_failing(&self, why: &str) {
        let server = self.wire.connection.target().to_string();
        if self.route.ledger.may_remark(server.clone()) {
            let seconds = self.settings.retry_for.as_secs();
            let why = match why.starts_with(&server) {
                true => why.to_owned(),
                false => format!("{server}: {why}"),
            };
            self.route.output.remark(format_args!("{why}; trying again for {seconds} s"));
        }
    }
}

/// Why a load ended early, if nothing is tried again.
fn ended(over: Over, why: &str) -> Stop {
    match over {
        Over::Late => Stop::Unreachable(why.to_owned()),
        Over::Interrupted => Stop::Interrupted,
    }
}
