//! The part of commands that needs no server: options, numbers, error replies.
//!
//! `module::commands` executes the commands. Fuzzers link this module as it is.

pub mod args;
pub mod number;
pub mod options;
pub mod refusal;
