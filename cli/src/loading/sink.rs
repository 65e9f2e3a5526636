//! What takes the items of a load: one key, or all shards of a sharded filter.

use std::num::NonZeroUsize;

use super::{
    delivery::Delivery,
    failure::Failure,
    fleet::Fleet,
    ledger::{Ledger, Piece},
    route::Totals,
};
use crate::items::Batch;

/// What takes the items.
pub(crate) enum Sink {
    Key(Box<Delivery>),
    Shards(Box<Fleet>),
}

impl Sink {
    /// The bytes of a batch, if one command is to have so many.
    pub(crate) fn batch_size(&self, command: u64) -> usize {
        match self {
            Self::Key(delivery) => {
                usize::try_from(delivery.batch_size(command)).unwrap_or(usize::MAX)
            }
            Self::Shards(fleet) => fleet.batch_size(command),
        }
    }

    pub(crate) fn offer(
        &mut self,
        ledger: &Ledger,
        file: usize,
        batch: Batch,
    ) -> Result<(), Failure> {
        match self {
            Self::Key(delivery) => {
                let number = ledger.open(file, &batch, NonZeroUsize::MIN, batch.blob.len());
                Ok(delivery.offer(Piece { number, batch })?)
            }
            Self::Shards(fleet) => fleet.offer(file, batch),
        }
    }

    /// There is no other batch at the moment: confirms those that were offered.
    pub(crate) fn idle(&mut self) -> Result<(), Failure> {
        match self {
            Self::Key(delivery) => Ok(delivery.confirm()?),
            Self::Shards(fleet) => fleet.follow(),
        }
    }

    /// Confirms all batches. No other one may follow.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        match self {
            Self::Key(delivery) => Ok(delivery.confirm()?),
            Self::Shards(fleet) => fleet.finish(),
        }
    }

    /// Sees, however the load ended, whether the filter has what was confirmed.
    pub(crate) fn concluded(&mut self, loaded: Result<(), Failure>) -> Result<(), Failure> {
        match self {
            Self::Key(delivery) => {
                let loaded = loaded.map_err(|failure| failure.stop);
                Ok(delivery.concluded(loaded)?)
            }
            // The other threads confirm what they have; one that lost items matters most.
            Self::Shards(fleet) => {
                let ended = match (loaded, fleet.finish()) {
                    (Err(_), Err(ended)) if ended.is_loss() => Err(ended),
                    (loaded, ended) => loaded.and(ended),
                };
                ended.map_err(|failure| fleet.concluded(failure))
            }
        }
    }

    pub(crate) fn counting(&self) -> bool {
        matches!(self, Self::Key(delivery) if delivery.counting())
    }

    pub(crate) fn totals(&self) -> Totals {
        match self {
            Self::Key(delivery) => delivery.totals(),
            Self::Shards(fleet) => fleet.totals(),
        }
    }
}
