//! Commands as far as they need no server: options, numbers, refusals.
//!
//! ```text
//!   words ─▶ args (a client's) ────▶ Options, Insert, Import        number   how clients and other products write numbers
//!       └──▶ replayed (a primary's) ─▶      or Refusal              refusal  every error text
//! ```
//!
//! `module::commands` runs them. Fuzzers link this room as it is.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a panic takes the database down"
)]

pub mod args;
pub mod number;
pub mod refusal;
pub mod replayed;
