//! A new filter: what the command says, and the configuration for what it leaves out.

use super::{
    api::{Context, logged},
    config, limit, stats,
    value::Value,
};
use crate::{
    command::{
        number,
        options::{Creation, Options},
        refusal::Refusal,
    },
    filter::{Filter, Params, paged::Paged},
};

/// Makes an empty filter for `key`, which the log names if the filter is refused.
///
/// If no seed is given, it is random bytes of the operating system. Whoever does not know the seed
/// cannot prepare items that collide.
pub(crate) fn filter(
    ctx: Context,
    key: &[u8],
    options: Options,
) -> Result<(Value, Creation), Refusal> {
    let params = Params {
        error_rate: options.error_rate.unwrap_or_else(config::error_rate),
        capacity: options.capacity.unwrap_or_else(config::initial_size),
        expansion: options.expansion.unwrap_or_else(config::expansion),
        seed: match options.seed {
            Some(seed) => seed,
            None => getrandom::u64().map_err(|_| Refusal::INTERNAL)?,
        },
        cells: options.cells,
    };
    let make = |ceiling| {
        if let Some(valkey) = options.valkey {
            Filter::of_valkey(valkey, &params, ceiling).map(Value::Ready)
        } else if params.has_pages(options.window) {
            let paged = Paged::new(&params, options.window, ceiling)?;
            Ok(Value::Paged(paged.with_shard(options.shard)))
        } else {
            let filter = Filter::new(&params, ceiling)?;
            Ok(Value::Ready(filter.with_shard(options.shard)))
        }
    };
    let made = limit::within(ctx, make).map_err(|error| {
        stats::REFUSED.add(1);
        ctx.warn_rate_limited(|| {
            format!(
                "key '{}': a new filter for {} items at rate {} refused: {}",
                logged(key),
                params.capacity,
                number::shortest(params.error_rate),
                limit::explained(ctx, error)
            )
        });
        Refusal::NO_MEMORY
    })?;
    let Options { valkey, shard, window, .. } = options;
    Ok((made, Creation { params, valkey, shard, window }))
}
