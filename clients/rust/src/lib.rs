//! Bloom filters of redis-bloom in applications, with redis-rs.
//!
//! [`Guard`]: a filter of all keys in front of a database. [`Seen`]: what was seen in the last
//! days, and doing things once. [`ShardedFilter`]: one filter over the nodes of a cluster.
//! [`bulk`]: millions of items in packed batches. Each of the three types has a twin for tokio, and
//! its name begins with Async. The others block: do not use them in a task of tokio, and do not
//! drop a `Guard` there.

pub mod bulk;
mod guard;
mod link;
mod seen;
mod sharded;
mod twins;

pub use {
    guard::{AsyncGuard, Guard, Keys, OnUnavailable, Options, Stats},
    link::{Error, Result, Servers},
    seen::{AsyncSeen, Seen, SeenOptions},
    sharded::{AsyncShardedFilter, ShardedFilter},
};
