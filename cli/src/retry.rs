//! Trying again: for how long, after which pauses, and until the user asks to stop.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::{error::Error, interrupt};

/// How long work on a key is tried again while its node fails or its slot moves. A failover takes a
/// few times `cluster-node-timeout`, 15 seconds by default.
pub(crate) const RETRY_FOR: Duration = Duration::from_secs(60);
/// Pauses between two tries: at first, and later.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(500)];

/// Why nothing is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// It failed for long enough.
    Late,
    Interrupted,
}

/// What is tried again, for a time that begins with the first failure.
#[derive(Debug)]
pub(crate) struct Retry {
    most: Duration,
    failing: Option<Instant>,
}

impl Retry {
    pub(crate) fn within(most: Duration) -> Self {
        Self { most, failing: None }
    }

    /// Work that counts as failing from now on.
    pub(crate) fn failing_within(most: Duration) -> Self {
        Self { most, failing: Some(Instant::now()) }
    }

    /// How long it has failed; `None` if it does not fail.
    pub(crate) fn failing(&self) -> Option<Duration> {
        self.failing.map(|failing| failing.elapsed())
    }

    /// Whether it has failed for long enough, or the user asks to stop.
    pub(crate) fn over(&self) -> Option<Over> {
        let late = self.failing().is_some_and(|failing| failing >= self.most);
        interrupt::requested().then_some(Over::Interrupted).or(late.then_some(Over::Late))
    }

    /// Notes that the work did not fail.
    pub(crate) fn succeed(&mut self) {
        self.failing = None;
    }

    /// Waits before another try.
    pub(crate) fn pause(&mut self) -> Result<(), Over> {
        let failing = self.failing.get_or_insert_with(Instant::now).elapsed();
        match self.over() {
            Some(over) => Err(over),
            None => {
                thread::sleep(if failing < PAUSES[1] { PAUSES[0] } else { PAUSES[1] });
                Ok(())
            }
        }
    }
}

/// Does `work`, which is told whether it is done again, until it succeeds, for at most `most`.
pub(crate) fn retry<T>(
    most: Duration,
    mut work: impl FnMut(bool) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut retry = Retry::within(most);
    loop {
        match work(retry.failing.is_some()) {
            Err(error) if error.passes() => retry.pause().map_err(|over| match over {
                Over::Late => error,
                Over::Interrupted => Error::Interrupted { hint: String::new() },
            })?,
            done => return done,
        }
    }
}
