//! Asks a filter in one key. If the connection breaks, or the slot of the key moves, what was under
//! way is asked again, as of a shard.

use std::collections::VecDeque;

use super::{Answers, Input, Question, shards::Shard};
use crate::{
    connection::{Connection, Target, Targets},
    error::Error,
    items::Batch,
};

/// Batches under way. While the server answers one, it has the next, and the tool reads a third.
const UNDER_WAY: usize = 3;

/// A filter in one key.
pub(crate) struct Key {
    /// Nodes of the cluster.
    targets: Targets,
    shard: Shard,
}

impl Key {
    pub(super) fn connect(target: &Target, name: &[u8]) -> Result<Self, Error> {
        let targets = Targets::of(target.clone(), &mut target.connect()?)?;
        Ok(Self { targets, shard: Shard::of(name, None) })
    }

    pub(super) fn name(&self) -> &Vec<u8> {
        &self.shard.question.key
    }

    /// Does something on a connection without commands under way; again, while the server fails or
    /// the slot moves.
    pub(super) fn patiently<T>(
        &mut self,
        work: impl FnMut(&mut Question, &mut Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.shard.patiently(&self.targets, work)
    }

    pub(super) fn ask(
        &mut self,
        mut batches: impl FnMut() -> Result<Option<Batch>, Error>,
        mut answered: impl FnMut(&Batch, &Answers) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut under_way = VecDeque::new();
        loop {
            let mut ended = true;
            while under_way.len() < UNDER_WAY {
                let input = Input::of(batches())?;
                ended = !matches!(input, Input::Idle);
                let Input::Batch(batch) = input else { break };
                let connection = self.shard.send(&batch);
                under_way.push_back((batch, connection));
            }
            let Some((batch, connection)) = under_way.pop_front() else {
                if ended {
                    return Ok(());
                }
                continue;
            };
            // A filter in one key is never lost: that it is gone is an error.
            let bits = self.shard.receive(&self.targets, &batch, connection)?.unwrap_or_default();
            answered(&batch, &Answers::of(bits, Vec::new(), batch.count))?;
        }
    }
}
