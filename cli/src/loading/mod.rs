//! Brings the items of files into filters: into one key, or into all shards of a sharded filter at
//! once.
//!
//! ```text
//!   items::Batches ──batch──▶ Delivery ──────────────────▶ server        one key
//!                  ──batch──▶ Fleet ──piece──▶ Delivery ─▶ server        a shard, a thread
//!                                   ──piece──▶ Delivery ─▶ server        ...
//!                             Ledger ◀──confirmed── all of them
//!                                └──▶ Journal of each file
//! ```

mod delivery;
mod failure;
mod files;
mod fleet;
mod goal;
pub(crate) mod journal;
mod ledger;
mod proof;
mod queue;
mod route;
mod sink;
mod wire;
mod worker;

pub(crate) use delivery::Delivery;
pub(crate) use failure::{Failure, Items, Stop};
pub(crate) use files::{Files, load_files};
pub(crate) use fleet::Fleet;
pub(crate) use goal::{Goal, batch_bytes};
pub(crate) use ledger::Ledger;
pub(crate) use proof::{Seen, Verdict};
pub(crate) use route::{Options, Route, Totals};
pub(crate) use sink::Sink;
pub(crate) use wire::not_shard;
