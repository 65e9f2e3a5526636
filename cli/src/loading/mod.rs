//! Adds the items of files to filters: to one key, or to all shards of a sharded filter at the same
//! time.
//!
//! ```text
//!   Input ──batch──▶ Fleet ──piece──▶ Delivery ─▶ server    a shard, or the one key: a thread
//!                          ──piece──▶ Delivery ─▶ server    ...
//!                    Ledger ◀──confirmed── all of them
//!                       └──▶ Journal of each file
//! ```

mod delivery;
mod failure;
mod files;
mod fleet;
mod goal;
mod input;
pub(crate) mod journal;
mod ledger;
mod proof;
mod queue;
mod route;
mod wire;
mod worker;

pub(crate) use failure::{Failure, Items, Stop};
pub(crate) use files::{Files, concluded, load_files, read_all};
pub(crate) use fleet::Fleet;
pub(crate) use goal::{Goal, batch_bytes};
pub(crate) use input::{Input, Regular, begin_again, resumed};
pub(crate) use ledger::Ledger;
pub(crate) use proof::{Seen, Verdict};
pub(crate) use route::{Options, Route, Totals};
pub(crate) use wire::not_shard;
