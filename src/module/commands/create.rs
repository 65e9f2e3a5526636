//! A new filter: what the command says, and the configuration for what it leaves out.

use super::Call;
use crate::{
    command::{
        options::{Creation, Options},
        refusal::Refusal,
    },
    filter::{Family, Filter, Params, RedisBloom, foreign::redisbloom, paged::Paged},
    module::{api::Context, config, limit, value::Stored},
};

/// Makes an empty filter for a command.
///
/// If no seed is given, it is random bytes of the operating system. Whoever does not know the seed
/// cannot prepare items that collide.
///
/// # Errors
/// `NO_MEMORY` when the memory is not there or not allowed, and those of [`family`].
pub(super) fn filter(call: &Call, options: Options) -> Result<(Stored, Creation), Refusal> {
    let ctx = call.ctx;
    let family = family(ctx, &options)?;
    let error_rate = options.error_rate.unwrap_or_else(config::error_rate);
    let params = Params {
        error_rate: match family {
            Family::RedisBloom(_) if !ctx.is_replayed() => error_rate.min(redisbloom::MAX_RATE),
            _ => error_rate,
        },
        capacity: options.capacity.unwrap_or_else(config::initial_size),
        expansion: options.expansion.unwrap_or_else(config::expansion),
        seed: match options.seed {
            Some(seed) => seed,
            None => getrandom::u64().map_err(|_| Refusal::INTERNAL)?,
        },
        cells: options.cells,
    };
    let ceiling = limit::ceiling_of_new(ctx);
    let made = match family {
        Family::Valkey(valkey) => Filter::of_valkey(valkey, &params, ceiling).map(Stored::Layers),
        Family::RedisBloom(_) => Filter::of_redisbloom(&params, ceiling).map(Stored::Layers),
        _ if params.has_pages(options.window) => Paged::new(&params, options.window, ceiling)
            .map(|paged| Stored::Pages(paged.with_shard(options.shard))),
        _ => Filter::new(&params, ceiling)
            .map(|filter| Stored::Layers(filter.with_shard(options.shard))),
    };
    let made = made.map_err(|error| call.refused(error, Refusal::NO_MEMORY))?;
    let Options { shard, window, .. } = options;
    Ok((made, Creation { params, family, shard, window }))
}

/// The product whose rules a new filter follows.
///
/// This module replicates each native filter with its seed. So a command without one, from a
/// primary or an AOF, is RedisBloom's, or creates a filter in its layout: the setting is for
/// clients.
///
/// # Errors
/// `LAYOUT`.
fn family(ctx: Context, options: &Options) -> Result<Family, Refusal> {
    let (obeyed, layout) = (ctx.is_replayed(), config::layout_of_redisbloom());
    let only_here = options.only_here();
    if only_here && layout && !obeyed {
        return Err(Refusal::LAYOUT);
    }
    Ok(match options.valkey {
        Some(valkey) => Family::Valkey(valkey),
        None if !only_here && (layout || obeyed) => Family::RedisBloom(RedisBloom::PRESENT),
        None => Family::Native,
    })
}
