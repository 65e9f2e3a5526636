//! The part of commands that needs no server: options, numbers, error replies.
//!
//! ```text
//!   arguments ─▶ args ──▶ Options, Import, Shift, or Refusal
//!
//!   options   the table of options of a new filter: read, replicated, documented
//!   argument  arguments as COMMAND DOCS shows them
//!   number    how clients and other products write numbers
//!   refusal   every error text
//! ```
//!
//! `module::commands` executes the commands. Fuzzers link this module as it is.

pub mod args;
pub mod argument;
pub mod number;
pub mod options;
pub mod refusal;
