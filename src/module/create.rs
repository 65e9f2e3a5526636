//! A new filter: what the command says, and the configuration for what it leaves out.

use super::{api::Context, config, limit, stats};
use crate::{
    command::{args::Options, refusal::Refusal},
    filter::{Filter, Params},
};

/// Makes an empty filter.
///
/// The seed, unless given, comes from the operating system: who does not know it cannot prepare
/// items that collide.
///
/// # Errors
/// `NoMemory` when the memory is not there or not allowed.
pub(crate) fn filter(ctx: Context, options: Options) -> Result<Filter, Refusal> {
    let params = Params {
        error_rate: options.error_rate.unwrap_or_else(config::error_rate),
        capacity: options.capacity.unwrap_or_else(config::initial_size),
        expansion: options.expansion.unwrap_or_else(config::expansion),
        seed: match options.seed {
            Some(seed) => seed,
            None => getrandom::u64().map_err(|_| Refusal::Internal)?,
        },
        cells: options.cells,
    };
    let make = |ceiling| match options.valkey {
        None => Filter::new(&params, ceiling),
        Some(valkey) => Filter::of_valkey(valkey, &params, ceiling),
    };
    limit::within(ctx, make).map_err(|error| {
        stats::REFUSED.add(1);
        ctx.warn_rate_limited(|| format!("a new filter refused: {error}"));
        Refusal::of_creation(error)
    })
}
