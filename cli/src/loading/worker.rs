//! The thread of a shard: takes pieces until there are no more, and reports what is left.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    },
    thread,
    time::Duration,
};

use super::{
    delivery::Delivery,
    failure::Stop,
    ledger::Piece,
    proof::{Mark, Seen},
    route::{Options, Route, Totals},
};
use crate::{error::Error, retry::retry};

/// How long a thread without work waits before it looks whether to confirm.
const IDLE: Duration = Duration::from_millis(10);
/// What a thread leaves.
pub(super) struct Ended {
    pub(super) result: Result<(), Stop>,
    pub(super) totals: Totals,
    /// What the shard has at least.
    pub(super) mark: Option<Mark>,
    /// Pieces that are not confirmed.
    pub(super) pieces: Vec<Piece>,
    /// Pieces that came after the thread had ended.
    pub(super) later: Receiver<Piece>,
}

/// What a thread finds when it begins.
pub(super) struct Ready {
    pub(super) seen: Seen,
    /// The largest number of bytes in a command.
    pub(super) most: u64,
    pub(super) acks: u64,
    /// Whether the filter counts additions.
    pub(super) counting: bool,
}

/// Tells the reader that a thread panicked. Otherwise the reader would wait for ever.
struct Alarm<'f>(&'f AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// The thread of a shard.
pub(super) fn work(
    settings: Options,
    route: Route,
    pieces: Receiver<Piece>,
    failed: &AtomicBool,
    ready: impl FnOnce(Result<Ready, Stop>),
) -> Ended {
    let _alarm = Alarm(failed);
    let mut delivery = match opened(settings, route) {
        Ok((delivery, seen)) => {
            let (wire, acks) = (&delivery.wire, delivery.acks);
            let (most, counting) = (wire.batch_size(u64::MAX), wire.counting);
            ready(Ok(Ready { seen, most, acks, counting }));
            delivery
        }
        Err(stop) => {
            ready(Err(stop));
            let (totals, nothing) = (Totals::default(), Vec::new());
            return Ended { result: Ok(()), totals, mark: None, pieces: nothing, later: pieces };
        }
    };
    let result = deliver(&mut delivery, &pieces);
    let result = match delivery.concluded(result) {
        Err(Stop::Interrupted) if delivery.gives_back() => Ok(()),
        result => result,
    };
    if result.is_err() {
        failed.store(true, Ordering::Relaxed);
    }
    let totals = delivery.totals();
    let mark = delivery.mark.clone();
    Ended { result, totals, mark, pieces: delivery.into_pieces().collect(), later: pieces }
}

/// Does something until it succeeds, for at most `most`.
pub(super) fn patient<T>(
    most: Duration,
    mut work: impl FnMut() -> Result<T, Error>,
) -> Result<T, Stop> {
    retry(most, |_| work()).map_err(|error| match error.passes() {
        true => Stop::Unreachable(error.to_string()),
        false => error.into(),
    })
}

/// Connects to the node of the shard. Waits for a node that fails at the moment.
fn opened(settings: Options, route: Route) -> Result<(Delivery, Seen), Stop> {
    let connect = || route.targets.connect_for(&route.key);
    let connection = patient(settings.retry_for, connect)?;
    Delivery::open(settings, route, connection)
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
    delivery.confirm()
}
