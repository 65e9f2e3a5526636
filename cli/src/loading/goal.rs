//! Where the items of a load go.

use std::time::{Duration, Instant};

use crate::{
    error::Error,
    sharded,
    sharding::{Descriptor, Generation},
};

/// Bytes of a piece, where the input has as many.
const PIECE: u64 = 64 << 10;
/// The most bytes of a batch, for any number of shards.
const BATCH: u64 = 8 << 20;

/// The bytes of a batch for all shards, if one command is to have `command` bytes.
pub(crate) fn batch_bytes(command: u64, shards: usize) -> u64 {
    command.min(PIECE).saturating_mul(shards as u64).min(BATCH)
}

/// Where items go.
#[derive(Clone, Debug)]
pub(crate) enum Goal {
    /// A filter in one key.
    Key,
    /// A sharded filter: items go to the generation that answers and to the next one. Has the
    /// descriptor, which is read every `poll` seconds, and the time just before its last read.
    Filter(Descriptor, Instant),
    /// The shards of one generation, whatever the descriptor says.
    Generation(Generation),
}

impl Goal {
    /// Whether the keys are shards, each of which takes its own items.
    pub(super) fn has_shards(&self) -> bool {
        !matches!(self, Self::Key)
    }

    /// Items that are added later than this do not count: a rebuild waits for every client only
    /// until then. `None`: there is no limit.
    pub(super) fn valid_until(&self) -> Option<Instant> {
        let Self::Filter(descriptor, read) = self else { return None };
        read.checked_add(Duration::from_secs(descriptor.poll.saturating_mul(2)))
    }

    /// The generations that take the items of the filter `name`, but for one that is `ending`. A
    /// filter in one key is generation 0.
    ///
    /// # Errors
    /// Those of [`sharded::filled`].
    pub(super) fn plans(&self, name: &[u8], ending: Option<u64>) -> Result<Vec<Generation>, Error> {
        Ok(match self {
            Self::Key => {
                let keys = vec![name.to_vec()];
                vec![Generation { number: 0, error_rate: 0.0, capacity: 0, keys }]
            }
            Self::Filter(filter, _) => sharded::filled(name, filter)?
                .into_iter()
                .filter(|generation| Some(generation.number) != ending)
                .cloned()
                .collect(),
            Self::Generation(generation) => vec![generation.clone()],
        })
    }
}
