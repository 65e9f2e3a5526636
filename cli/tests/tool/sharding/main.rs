//! Tests of the keys, the capacity and the descriptor of sharded filters. Clients in other
//! languages compute the same, so no value here may ever change.

mod capacity;
mod descriptor;
mod keys;
mod specification;
