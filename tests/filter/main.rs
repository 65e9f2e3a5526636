//! Tests of the pure filter: its answers, its false positive rate, its memory, and the values that
//! may never change.

mod adversary;
mod batch;
mod estimate;
mod foreign;
mod golden;
mod limits;
mod memory;
mod merge;
mod mixed;
mod model;
mod paged;
mod pages;
mod prefetch_hint;
mod probe;
mod rate;
mod sizing;
mod steps;
mod support;
mod unwritten;
