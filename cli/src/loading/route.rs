//! The options of a load, where it goes, and what it has counted.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use bloom::sharding::Shard;

use super::ledger::Ledger;
use crate::{amount, connection::Targets, output::Output};

/// Bytes of items that wait for their confirmation, over all deliveries of a load.
pub(crate) const HELD: usize = 48 << 20;

/// How items count as loaded.
#[derive(clap::Args, Clone, Copy, Debug)]
#[group(skip)]
pub(crate) struct Options {
    /// Counts an item as loaded when this number of replicas has it (WAIT). Without it: 1 for
    /// shards on servers with replicas, otherwise 0
    #[arg(long, value_name = "REPLICAS")]
    pub(crate) acks: Option<u64>,
    /// How long to try again when a server cannot be reached
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = amount::time)]
    pub(crate) retry_for: Duration,
}

/// What is counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// Items before the first that is not confirmed.
    pub(crate) items: u64,
    /// Those of them that were new.
    pub(crate) new: u64,
    /// Nothing proves that the filter has these items.
    pub(crate) unknown: bool,
    /// Items that were sent again.
    pub(crate) resent: u64,
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
    /// The reader wants back what is not confirmed, because it has to go to other shards, too.
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
