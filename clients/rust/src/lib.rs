//! Bloom filters of redis-bloom in applications, with redis-rs.
//!
//! [`Guard`]: a filter of all keys in front of a database. [`bulk`]: millions of items in packed
//! batches. The guard has the protocol and the scripts of the libraries for Python and JavaScript, so
//! processes in all three languages may share a filter. README.md of the Python library describes
//! the protocol.

pub mod bulk;
mod guard;
mod scripts;

pub use guard::{Error, Guard, Keys, OnUnavailable, Options, Stats};
#[doc(hidden)]
pub use scripts::all as scripts;
