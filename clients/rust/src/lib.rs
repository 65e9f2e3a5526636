//! Bloom filters of redis-bloom in applications, with redis-rs.
//!
//! [`Guard`]: a filter of all keys in front of a database. [`Seen`]: what was seen in the last
//! days, and doing things once. [`ShardedFilter`]: one filter over the nodes of a cluster.
//! [`bulk`]: millions of items in packed batches. With the feature `tokio` each has a twin, which
//! begins with Async.
//!
//! The guard has the protocol and the scripts of the libraries for Python and JavaScript, so
//! processes in all three languages may share a filter. README.md of the Python library describes
//! the protocol.

pub mod bulk;
mod guard;
mod link;
mod scripts;
mod seen;
mod sharded;
mod twins;

#[cfg(feature = "tokio")]
pub use guard::AsyncGuard;
pub use guard::{Guard, Keys, OnUnavailable, Options, Stats};
pub use link::{Error, Servers};
#[doc(hidden)]
pub use scripts::all as scripts;
#[cfg(feature = "tokio")]
pub use seen::AsyncSeen;
pub use seen::{Seen, SeenOptions};
#[cfg(feature = "tokio")]
pub use sharded::AsyncShardedFilter;
pub use sharded::{ShardedFilter, marks, shard_of};
