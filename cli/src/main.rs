//! `redis-bloom`: plans, creates, loads, checks, watches, saves and restores Bloom filters.
//!
//! ```text
//!   commands/*     one file a subcommand: its arguments, and what it does
//!      ├─▶ items/        items of files, in batches
//!      ├─▶ loading/      batches into filters, until they are confirmed; the journal
//!      ├─▶ membership/   whether a filter has the items of batches
//!      ├─▶ dump_*, restore_key, part_file   filters in files
//!      ├─▶ sharded, descriptor, stamp, at_once   filters in many keys
//!      ├─▶ filter_info, scan, memory   what servers say about filters
//!      ├─▶ output, progress, screen, amount, name   what the user reads and writes
//!      └─▶ connection/, refusal, reply, retry, watched, replication   servers
//! ```
//!
//! Keys, capacity and descriptor of a sharded filter, and the rule for its items, are those of the
//! crate redis-bloom-sharding (`sharding`).
//!
//! Each subcommand ends with an exit code of [`error::Exit`].

mod amount;
mod at_once;
mod commands;
mod connection;
mod descriptor;
mod dump_file;
mod dump_key;
mod error;
mod filter_info;
mod interrupt;
mod items;
mod loading;
mod membership;
mod memory;
mod name;
mod output;
mod part_file;
mod progress;
mod refusal;
mod replication;
mod reply;
mod restore_key;
mod retry;
mod scan;
mod screen;
mod sharded;
mod stamp;
mod statistics;
mod watched;
mod window;

use std::process::ExitCode;

use redis_bloom_sharding as sharding;

use clap::Parser as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use commands::Arguments;
use error::Error;

/// Raises the limit of open files to the highest that the system allows: each shard takes a
/// connection.
fn raise_limit_of_files() {
    let limit = getrlimit(Resource::Nofile);
    // If that fails, the limit stays as it is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

fn main() -> ExitCode {
    interrupt::end_at_once_by_sigterm();
    raise_limit_of_files();
    let arguments = Arguments::parse();
    let output = arguments.output();
    match arguments.run(&output) {
        Ok(exit) => exit.into(),
        Err(error) => {
            // After Ctrl-C the CLI waits only a moment for a reply, so the server may not have
            // failed.
            let error = match error {
                Error::Connection { .. } if interrupt::requested() => {
                    Error::Interrupted { hint: String::new() }
                }
                error => error,
            };
            output.error(&error);
            error.exit().into()
        }
    }
}
