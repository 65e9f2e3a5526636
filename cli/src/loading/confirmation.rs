//! When items count as loaded: when the server replied to them, when replicas have them (WAIT), or
//! when its append-only file is synced (WAITAOF).
//!
//! WAIT and WAITAOF wait for what their connection wrote last, and for all before that. An item
//! that was known already wrote nothing: another connection may have added it a moment ago. So
//! after known items the offsets of the replicas are compared, and for WAITAOF a key is written
//! beside the filter.

use std::time::{Duration, Instant};

use redis::Value;

use super::wire::Wire;
use crate::{
    error::Error,
    name,
    refusal::Kind,
    replication::{Acknowledged, LastWrite},
};

/// The longest time between two confirmations by WAIT, and by WAITAOF: a server that syncs its AOF
/// once a second needs up to a second for each.
const CONFIRM_EVERY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// The longest time of one WAIT.
const WAIT: Duration = Duration::from_millis(500);
/// Seconds for which the key that is written before WAITAOF stays.
const WRITTEN_FOR: u64 = 60;

/// Whether all items that were answered are confirmed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum State {
    Confirmed,
    NotYet,
    /// This user cannot find out at the moment: why. The next item that is new helps.
    Unproved(String),
}

pub(super) struct Confirmation {
    /// Replicas that must acknowledge.
    pub(super) acks: u64,
    /// Whether the AOF must be synced.
    durable: bool,
    /// Whether the connection wrote after, or with, all that was answered.
    covered: bool,
    /// The end of what the server had written when replicas were asked for first after the last
    /// reply.
    pub(super) offset: Option<u64>,
    /// When items were confirmed last.
    at: Instant,
}

impl Confirmation {
    pub(super) fn new(acks: u64, durable: bool) -> Self {
        Self { acks, durable, covered: false, offset: None, at: Instant::now() }
    }

    /// Whether a reply alone does not confirm.
    pub(super) fn waits(&self) -> bool {
        self.acks > 0 || self.durable
    }

    /// What it waits for, for the user.
    pub(super) fn lacking(&self) -> &'static str {
        match (self.acks > 0, self.durable) {
            (false, _) => "the AOF is not synced",
            (true, false) => "too few replicas acknowledged (--acks 0 waits for none)",
            (true, true) => {
                "too few replicas acknowledged (--acks 0 waits for none), or the AOF is not synced"
            }
        }
    }

    pub(super) fn is_due(&self) -> bool {
        self.at.elapsed() > CONFIRM_EVERY[usize::from(self.durable)]
    }

    /// Notes that items were confirmed, or could not be.
    pub(super) fn done(&mut self) {
        self.at = Instant::now();
    }

    /// Notes a reply, or, with `new: 0`, a new connection.
    pub(super) fn answered(&mut self, new: u64) {
        (self.covered, self.offset) = (new > 0, None);
    }

    /// Waits a moment for replicas and the AOF.
    ///
    /// # Errors
    /// Those of the commands. A redirection is not followed: another node may not have the items.
    pub(super) fn state(&mut self, wire: &mut Wire, key: &[u8]) -> Result<State, Error> {
        if self.durable && !self.covered {
            let beside = name::beside(key, "wait");
            let mut command = redis::cmd("SET");
            match wire.connection.call(command.arg(&beside).arg(1).arg("EX").arg(WRITTEN_FOR)) {
                Ok(_) => self.covered = true,
                Err(Error::Refused { refusal, .. })
                    if refusal.is_forbidden() || refusal.kind == Kind::OutOfMemory =>
                {
                    return Ok(State::Unproved(format!(
                        "the last items were known already, and whether those are synced to the \
                         append-only file cannot be told without SET {}: {refusal}",
                        name::readable(&beside)
                    )));
                }
                Err(error) => return Err(error),
            }
        }
        if self.acks > 0 {
            // What replicas have up to an offset proves later that one of them has all items.
            let mut by = |last| {
                Acknowledged::by(&mut wire.connection, self.acks, last, &mut self.offset, WAIT)
            };
            let acknowledged = match by(LastWrite::Elsewhere)? {
                Acknowledged::Unknown if self.covered => by(LastWrite::Here)?,
                acknowledged => acknowledged,
            };
            match acknowledged {
                Acknowledged::Yes => {}
                Acknowledged::NotYet => return Ok(State::NotYet),
                Acknowledged::Unknown => {
                    return Ok(State::Unproved(
                        "items were known already, and without the right to INFO nobody can tell \
                         whether replicas have them"
                            .to_owned(),
                    ));
                }
            }
        }
        if self.durable {
            let reply = wire.ask(&["WAITAOF", "1", "0", &WAIT.as_millis().to_string()])?;
            if !matches!(&reply, Value::Array(parts) if matches!(parts[..], [Value::Int(1..), ..]))
            {
                return Ok(State::NotYet);
            }
        }
        Ok(State::Confirmed)
    }
}
