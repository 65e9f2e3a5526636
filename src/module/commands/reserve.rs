//! `BF.RESERVE key error_rate capacity [options]`: creates an empty filter. So does an addition to
//! a missing key. The command's options describe the filter, and the settings give the rest.

use super::{Argument, Call, Command, Kind};
use crate::{
    command::{
        args,
        options::{Creation, Options},
        refusal::Refusal,
    },
    filter::{Expansion, Family, Filter, Params, RedisBloom, foreign::redisbloom, paged::Paged},
    module::{
        api::{Access, Context, Key},
        config,
        effects::{self, Growth, Items},
        limit,
        value::Stored,
    },
};

pub(super) const RESERVE: Command = Command {
    name: c"bf.reserve",
    arity: -4,
    categories: c"write fast",
    summary: c"Creates an empty Bloom filter for a capacity and an error rate",
    complexity: c"O(1); with COUNTING or WINDOW O(N), where N is the capacity",
    since: c"1.0.0",
    arguments: &[
        Argument::new(c"error_rate", Kind::Double),
        Argument::new(c"capacity", Kind::Integer),
        Argument::new(c"options", Kind::ReserveOptions),
    ],
    run: bf_reserve,
    ..Command::FILLS
};

fn bf_reserve(call: &Call) -> Result<(), Refusal> {
    let words = call.words.iter().map(|word| word.bytes());
    let options = args::reserve(words, call.ctx.is_replayed())?;
    let mut key = Key::open(call.ctx, call.key, Access::Write);
    if Stored::in_key(&mut key)?.is_some() {
        return Err(Refusal::EXISTS);
    }
    let (value, created) = filter(call, options)?;
    value.put(&mut key)?;
    drop(key);
    effects::announce(call.ctx, call.key, Some(&created), &Items::NONE, Growth::default());
    call.ctx.reply_simple(c"OK");
    Ok(())
}

/// Makes an empty filter for a command. Without SEED, the seed is random: nobody who does not know
/// it can prepare items that raise the error rate (docs/internals/hash.md).
///
/// # Errors
/// `NO_MEMORY` when the memory is not there or not allowed, and those of [`family`].
pub(super) fn filter(call: &Call, options: Options) -> Result<(Stored, Creation), Refusal> {
    let ctx = call.ctx;
    let family = family(ctx, &options)?;
    let error_rate =
        options.error_rate.unwrap_or_else(|| f64::from_bits(config::ERROR_RATE.bits()));
    let params = Params {
        error_rate: match family {
            Family::RedisBloom(_) if !ctx.is_replayed() => error_rate.min(redisbloom::MAX_RATE),
            _ => error_rate,
        },
        capacity: options.capacity.unwrap_or_else(|| config::INITIAL_SIZE.bits()),
        expansion: options.expansion.unwrap_or_else(|| {
            Expansion::new(config::EXPANSION_FACTOR.bits()).unwrap_or(Expansion::NONSCALING)
        }),
        seed: options.seed.map_or_else(getrandom::u64, Ok).map_err(|_| Refusal::INTERNAL)?,
        counts: options.counts,
        shard: options.shard,
    };
    let ceiling = limit::ceiling_of_new(ctx);
    let made = match family {
        Family::Native if params.has_pages(options.window) => {
            Paged::new(&params, options.window, ceiling).map(Stored::Pages)
        }
        _ => Filter::of_family(family, &params, ceiling).map(Stored::Layers),
    };
    let made = made.map_err(|error| call.refused(error, Refusal::NO_MEMORY))?;
    Ok((made, Creation { params, family, window: options.window }))
}

/// The product whose rules a new filter follows.
///
/// This module replicates each native filter with its seed. So a command without a seed, from a
/// primary or an AOF, creates a filter of RedisBloom's. The setting `layout` is for clients only.
///
/// # Errors
/// `LAYOUT`.
fn family(ctx: Context, options: &Options) -> Result<Family, Refusal> {
    let (obeyed, layout) = (ctx.is_replayed(), config::LAYOUT.bits() != 0);
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
