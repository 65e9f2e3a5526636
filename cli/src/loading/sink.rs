//! What takes the items of a load: one key, or all shards of a sharded filter.

use super::{Delivery, Failure, Fleet, Goal, Ledger, Now, Piece, Route, Settings, Stop, Totals};
use crate::{connection::Connection, items::Batch, sharded::Filter};

/// What takes the items.
pub(crate) enum Sink {
    Key(Box<Delivery>),
    Shards(Box<Fleet>),
}

impl Sink {
    /// Takes items for a filter that must exist. `server` leads to the server that has `filter`.
    pub(crate) fn open(
        filter: Filter,
        mut settings: Settings,
        route: Route,
        server: Connection,
    ) -> Result<Self, Failure> {
        match filter {
            Filter::Sharded(descriptor) => {
                let fleet = Fleet::start(Goal::Filter(descriptor), settings, route)?;
                Ok(Self::Shards(Box::new(fleet)))
            }
            Filter::Key => {
                settings.acks = Some(settings.acks.unwrap_or(0));
                let (mut delivery, found) = Delivery::open(settings, route, server)?;
                if !found {
                    return Err(Stop::Refused("ERR not found".into()).into());
                }
                delivery.prepare()?;
                Ok(Self::Key(Box::new(delivery)))
            }
        }
    }

    /// The largest number of items in a batch.
    pub(crate) fn most(&self) -> usize {
        match self {
            Self::Key(delivery) => delivery.most(),
            Self::Shards(_) => usize::MAX,
        }
    }

    /// The bytes of a batch, if one command is to have so many.
    pub(crate) fn batch_size(&self, command: u64) -> usize {
        match self {
            Self::Key(_) => usize::try_from(command).unwrap_or(usize::MAX),
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
                let number = ledger.open(file, &batch, 1, batch.blob.len());
                Ok(delivery.offer(Piece { number, batch })?)
            }
            Self::Shards(fleet) => fleet.offer(file, batch),
        }
    }

    /// There is no other batch at the moment: confirms those that were offered.
    pub(crate) fn idle(&mut self) -> Result<(), Failure> {
        match self {
            Self::Key(delivery) => Ok(delivery.confirm(Now::IfPossible)?),
            Self::Shards(fleet) => fleet.follow(),
        }
    }

    /// Confirms all batches. No other one may follow.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        match self {
            Self::Key(delivery) => Ok(delivery.confirm(Now::Surely)?),
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

    pub(crate) fn note(&self) -> String {
        match self {
            Self::Key(_) => String::new(),
            Self::Shards(fleet) => fleet.note(),
        }
    }
}
