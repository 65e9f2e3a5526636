//! A shard, or a filter in one key, with its connection. If that breaks, or the slot moves, a piece
//! is asked again, alone.

use super::question::Question;
use crate::{
    connection::{Connection, Targets},
    error::Error,
    filter_info::{Detail, FilterInfo, Reader},
    items::Batch,
    refusal::Refusal,
    retry::{RETRY_FOR, retry},
};

/// A shard, or a filter in one key.
pub(super) struct Shard {
    pub(super) question: Question,
    connection: Option<Connection>,
    /// Pieces under way on this connection.
    under_way: usize,
    /// The key is not this shard: it is lost, or a rebuild replaced it. Whoever is told so reads
    /// the descriptor before it asks again.
    suspected: bool,
    /// It was suspected, and is still not there.
    pub(super) lost: bool,
}

/// What a shard says about its items; `None` if it is lost.
pub(super) type Bits = Option<Vec<u8>>;

impl Shard {
    pub(super) fn of(key: &[u8], shard: Option<bloom::sharding::Shard>) -> Self {
        let question = Question { key: key.to_vec(), shard, packed: true };
        Self { question, connection: None, under_way: 0, suspected: false, lost: false }
    }

    /// Sends a piece; returns the number of the connection, 0 if there is none.
    pub(super) fn send(&mut self, piece: &Batch) -> u64 {
        if piece.count == 0 {
            return 0;
        }
        let Some(connection) = &mut self.connection else { return 0 };
        let number = connection.number();
        if self.question.send(connection, piece).is_err() {
            self.disconnect();
            return 0;
        }
        self.under_way += 1;
        number
    }

    pub(super) fn disconnect(&mut self) {
        self.connection = None;
        self.under_way = 0;
    }

    /// The answers for a piece that was sent on this connection, or was not sent.
    ///
    /// # Errors
    /// One that [`is_gone`] the first time that the shard is not there.
    pub(super) fn receive(
        &mut self,
        targets: &Targets,
        piece: &Batch,
        sent_on: u64,
    ) -> Result<Bits, Error> {
        if piece.count == 0 {
            return Ok(Some(Vec::new()));
        }
        let received = match &mut self.connection {
            Some(connection) if sent_on == connection.number() => {
                self.under_way = self.under_way.saturating_sub(1);
                Some(self.question.receive(connection, piece))
            }
            _ => None,
        };
        let bits = match received {
            Some(Ok(bits)) => Ok(bits),
            _ => {
                // Replies of other pieces may be under way, or what is left of this one's.
                if received.is_some() || self.under_way > 0 {
                    self.disconnect();
                }
                self.patiently(targets, |question, connection| {
                    question.ask_alone(connection, piece)
                })
            }
        };
        let gone = bits.as_ref().is_err_and(is_gone);
        // One that was suspected and answers now was restored, or its slot moved.
        if std::mem::replace(&mut self.suspected, gone) && gone {
            self.lost = true;
            return Ok(None);
        }
        bits.map(Some)
    }

    /// Reads what BF.INFO says.
    pub(super) fn info(&mut self, targets: &Targets) -> Result<FilterInfo, Error> {
        self.patiently(targets, |question, server| {
            Reader::default().read_one(server, &question.key, Detail::Filter)
        })
    }

    /// Does something on a connection without commands under way; again, while the server fails or
    /// slots move.
    pub(super) fn patiently<T>(
        &mut self,
        targets: &Targets,
        mut work: impl FnMut(&mut Question, &mut Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        retry(RETRY_FOR, |_| {
            if let Some(connection) = &mut self.connection {
                match work(&mut self.question, connection) {
                    Err(error) if error.passes() => self.disconnect(),
                    result => return result,
                }
            }
            let key = self.question.key.clone();
            targets.on_node(&key, |mut connection| {
                let result = work(&mut self.question, &mut connection);
                self.connection = Some(connection).filter(|_| !passes(&result));
                result
            })
        })
    }
}

fn passes<T>(result: &Result<T, Error>) -> bool {
    result.as_ref().is_err_and(Error::passes)
}

/// Whether an error means that the key is not this shard: it is lost, or the filter was rebuilt.
pub(super) fn is_gone(error: &Error) -> bool {
    error.refusal().is_some_and(Refusal::is_gone)
}
