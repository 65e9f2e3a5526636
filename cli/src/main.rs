//! `redis-bloom`: plans, creates, loads, checks, watches, saves and restores Bloom filters.
//!
//! ```text
//!   commands/*     one file a subcommand: its arguments, and what it does
//!      │
//!      ├─▶ connection/   options as redis-cli's, TCP, Unix sockets, TLS, one command or many
//!      ├─▶ filter_info   BF.INFO of all modules
//!      ├─▶ items/        items of files, in batches
//!      ├─▶ loading/      batches into filters, until they are confirmed; the journal
//!      ├─▶ membership/   whether a filter has the items of batches
//!      ├─▶ dump_file     the file of dump and restore
//!      ├─▶ part_file     a file that gets its name when it is complete
//!      ├─▶ dump_directory  the directory of dump and restore of a sharded filter
//!      ├─▶ at_once       work on all shards at once
//!      ├─▶ descriptor    changes of the descriptor of a sharded filter
//!      ├─▶ new_shard     more shards for a sharded filter
//!      ├─▶ replication   whether replicas have what was written: WAIT, INFO replication
//!      ├─▶ dump_key      a filter into that file
//!      ├─▶ restore_key   that file into a filter
//!      ├─▶ refusal       the error reply of a server
//!      ├─▶ reply         what is in other replies
//!      ├─▶ retry         trying again
//!      ├─▶ watched       a command that is sent only while its keys are what was seen
//!      ├─▶ statistics    the confidence interval of a measured rate
//!      ├─▶ amount        10G, 256mb, 0.1%
//!      ├─▶ output        stdout for data, stderr for talk, JSON
//!      ├─▶ memory        what filters need, and what a server has
//!      ├─▶ scan          all filters of a server or a cluster
//!      ├─▶ sharded       what a name stands for: a filter in one key, or a sharded filter
//!      ├─▶ glob          patterns of names
//!      ├─▶ screen        a terminal that is redrawn in place
//!      └─▶ progress      a bar, or a line every ten seconds
//! ```
//!
//! Keys, capacity and descriptor of a sharded filter, and the rule for its items, are those of the
//! library for Rust (`sharding`).
//!
//! Each subcommand ends with an exit code of [`error::Exit`].

mod amount;
mod at_once;
mod commands;
mod connection;
mod descriptor;
mod dump_directory;
mod dump_file;
mod dump_key;
mod error;
mod filter_info;
mod glob;
mod interrupt;
mod items;
mod loading;
mod membership;
mod memory;
mod name;
mod new_shard;
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

use redis_bloom_client::sharding;

use clap::Parser as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use commands::Arguments;
use error::Error;

/// Each shard takes a connection, so as many files may be open as the system allows at most.
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
            // After Ctrl-C a reply is waited for only a moment: the server may be well.
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
