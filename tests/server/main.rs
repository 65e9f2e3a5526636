//! Black-box tests of the module inside a real server: they check only what a client sees.
//!
//! Run them with `make test-server`, which builds the module in release mode and passes its path.
//! Each file covers one behaviour. Each test starts its own server, so tests run in parallel and in
//! any order.

use redis_bloom_harness as harness;

mod acl;
mod add;
mod any_arguments;
mod arity;
mod as_there;
mod bounded_time;
mod broken_file;
mod broken_sync;
mod bulk;
mod card_info_debug;
mod chaos;
mod client_wire;
mod cluster;
mod cluster_writers;
mod command_docs;
mod commands;
mod concurrency;
mod config;
mod container;
mod copy;
mod corruption;
mod counting;
mod defrag;
mod deployment;
mod differences;
mod documentation;
mod dump;
mod dump_errors;
mod every_way;
mod example_config;
mod exists;
mod forged;
mod forged_chunks;
mod forged_pages;
mod full;
mod full_sync;
mod guava;
mod huge;
mod identity;
mod insert;
mod insert_options;
mod items;
mod large;
mod layout;
mod life;
mod limits;
mod load_arguments;
mod loaded_twice;
mod log_lines;
mod memory;
mod merge;
mod moving_model;
mod no_memory;
mod notifications;
mod obeyed;
mod observe;
mod one_name;
mod other_platform;
mod paged_failures;
mod paged_model;
mod paged_promises;
mod persistence;
mod placeholders;
#[path = "../fixtures/products.rs"]
mod products;
mod real_input;
mod redisbloom;
mod redisbloom_live;
mod reference;
mod replayed;
mod replicas;
mod replication;
mod reserve;
mod reserve_errors;
mod seed;
mod sentinel;
mod shard;
mod torture;
mod unlink;
mod valkey;
#[path = "../codec/valkey/model.rs"]
mod valkey_bloom;
mod valkey_files;
mod valkey_live;
mod windows;
mod windows_clock;
mod windows_faults;
mod wrong_type;
