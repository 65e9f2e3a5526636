//! `BF.INFO key [field]`: the properties of a filter. `BF.CARD key`: the number of items that
//! changed it. `BF.DEBUG key`: a line for the filter, each layer, oldest first, and the pages.
//!
//! The full reply of BF.INFO has exactly RedisBloom's five pairs: go-redis fails on a sixth.
//! A client must request each other field by its name. The reply for a single field is an array of
//! one element in RESP2 and a map of one pair in RESP3.

use std::ffi::CStr;

use Shown::{Double, Int, Null};

use super::{Argument, Call, Command};
use crate::{
    command::{number, refusal::Refusal},
    filter::{
        Estimate, Expansion, Family, Filter, Layer, NEVER, Plan, RedisBloom, Rules, Shape, Span,
        paged::{Generation, Paged},
    },
    module::{
        api::{Access, Context, Key, clock},
        stats::BEFORE_ALL,
        value::{Stored, now},
    },
    sharding::Shard,
};

pub(super) const INFO: Command = Command {
    name: c"bf.info",
    arity: -2,
    categories: c"read fast",
    summary: c"Describes a Bloom filter",
    complexity: c"O(L), where L is the number of layers of the filter; FPR, FILL, LAYERS and \
                  SATURATED also read a sample, LAYERS has L maps",
    since: c"1.0.0",
    tips: Some(c"dont_cache"),
    arguments: &[Argument { optional: true, ..Argument::one_of(c"single_value", &WORDS) }],
    run: bf_info,
    ..Command::READS
};

fn bf_info(call: &Call) -> Result<(), Refusal> {
    if call.words.len() > 1 {
        return Err(Refusal::ARITY);
    }
    let mut key = Key::open(call.ctx, call.key, Access::Read);
    let filter = Stored::complete_in_key(&mut key)?.ok_or(Refusal::NOT_FOUND)?;
    let shown = match call.words.first() {
        None => {
            Shown::Map(FIELDS.iter().take(FULL).map(|field| named_value(field, filter)).collect())
        }
        Some(word) => {
            let is = |token: &CStr| word.bytes().eq_ignore_ascii_case(token.to_bytes());
            let field = FIELDS.iter().find(|field| is(field.0));
            let named = named_value(field.ok_or(Refusal::UNKNOWN_FIELD)?, filter);
            if call.ctx.speaks_resp3() {
                Shown::Map(vec![named])
            } else {
                Shown::List(vec![named.1])
            }
        }
    };
    shown.reply(call.ctx);
    Ok(())
}

/// A field: the word that requests it, its name in the reply, and its value for a filter of layers
/// and for one of pages.
type Field = (&'static CStr, &'static CStr, fn(&Filter) -> Shown, fn(&Paged) -> Shown);

/// The value of a field. All are computed before the reply begins: a map that stops in the middle
/// leaves the client out of step.
enum Shown {
    Int(u64),
    Double(f64),
    Bool(bool),
    Null,
    Word(&'static CStr),
    Text(String),
    List(Vec<Self>),
    Map(Vec<(&'static CStr, Self)>),
}

/// The full reply has the first fields, this many. New ones come behind them.
const FULL: usize = 5;

/// Every field: `docs/reference/metrics.md` says what each is.
const FIELDS: [Field; 16] = [
    (c"CAPACITY", c"Capacity", |f| Int(f.capacity()), |p| Int(p.stack(p.items(BEFORE_ALL)).1)),
    (c"SIZE", c"Size", |f| Int(f.bytes()), |p| Int(p.bytes())),
    (c"FILTERS", c"Number of filters", layer_count, |p| Int(p.stack(p.items(BEFORE_ALL)).0)),
    (c"ITEMS", c"Number of items inserted", |f| Int(f.items()), |p| Int(p.items(now(p)))),
    (c"EXPANSION", c"Expansion rate", |f| factor(f.expansion()), |p| factor(p.expansion())),
    (c"ERROR", c"Error rate", |f| Double(f.error_rate()), |p| Double(p.error_rate())),
    (c"FPR", c"False positive rate", |f| rate(f.estimate()), |p| rate(p.estimate())),
    (c"FILL", c"Fill", |f| Double(f.estimate().fill), |p| Double(p.estimate().fill)),
    (c"LAYERS", c"Layers", layers, parts),
    (c"SATURATED", c"Saturated counters", |_| Null, |p| int_or_null(p.saturated())),
    (
        c"UNDELETED",
        c"Refused deletions",
        |_| Null,
        |p| int_or_null(p.counts().then(|| p.refused_deletions())),
    ),
    (c"SHARD", c"Shard", |f| shard(f.shard()), |p| shard(p.shard())),
    (c"WINDOW", c"Window", |_| Null, window),
    (c"GENERATIONS", c"Generations", |_| Null, generations),
    (c"IDENTITY", c"Identity", |f| identity(Plan::of(f)), |p| identity(Plan::of_pages(p))),
    (c"LAYOUT", c"Layout", product, |_| Shown::Word(c"native")),
];

/// The words of all fields, for COMMAND DOCS.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler alone")]
const WORDS: [Argument; FIELDS.len()] = {
    let (mut words, mut i) = ([Argument::token(c""); FIELDS.len()], 0);
    while i < FIELDS.len() {
        words[i] = Argument::token(FIELDS[i].0);
        i += 1;
    }
    words
};

fn int_or_null(number: Option<impl Into<u64>>) -> Shown {
    number.map_or(Null, |number| Int(number.into()))
}

fn rate(estimate: Estimate) -> Shown {
    Double(estimate.error_rate)
}

fn identity(plan: Plan) -> Shown {
    Shown::Text(format!("{:016x}", plan.identity()))
}

fn factor(expansion: Expansion) -> Shown {
    int_or_null(expansion.factor())
}

fn layer_count(filter: &Filter) -> Shown {
    Int(filter.layers().len() as u64)
}

fn product(filter: &Filter) -> Shown {
    Shown::Word(match filter.family() {
        Family::Native => c"native",
        Family::RedisBloom(_) => c"redisbloom",
        Family::Valkey(_) => c"valkey-bloom",
        Family::Guava => c"guava",
    })
}

fn shard(shard: Option<Shard>) -> Shown {
    let numbers = |shard: Shard| [shard.index(), shard.count()].map(|number| Int(number.into()));
    shard.map_or(Null, |shard| Shown::List(numbers(shard).into()))
}

fn window(paged: &Paged) -> Shown {
    let Some(window) = paged.window() else { return Null };
    let Rules { span, generations, refresh } = window.rules;
    let (kind, milliseconds) = match span {
        Span::Time(span) => (c"time", Int(span)),
        Span::Items => (c"count", Null),
    };
    Shown::Map(vec![
        (c"Kind", Shown::Word(kind)),
        (c"Milliseconds", milliseconds),
        (c"Generations", Int(generations.into())),
        (c"Refresh", Shown::Bool(refresh)),
        (c"Capacity", Int(paged.capacity())),
    ])
}

fn generations(paged: &Paged) -> Shown {
    let Some(window) = paged.window() else { return Null };
    let (now, rules) = (clock(), window.rules);
    let generations = window.generations.iter().map(|&Generation { start, items }| {
        // A generation has a start only in a window of time, and only once it has an item.
        let has_start = rules.span != Span::Items && start != NEVER;
        let started = u64::try_from(start).ok().filter(|_| has_start);
        Shown::Map(vec![
            (c"Started", int_or_null(started)),
            (c"Items", Int(items)),
            (c"Alive", Shown::Bool(rules.is_alive(start, now))),
        ])
    });
    Shown::List(generations.collect())
}

fn part(layer: &Layer, now: Estimate) -> Shown {
    let bytes = size_of_val(layer.bits().words()) as u64;
    described(layer.capacity, layer.counted, bytes, layer.error_rate, now)
}

fn layers(filter: &Filter) -> Shown {
    Shown::List(filter.estimate_layers().map(|(layer, own)| part(layer, own)).collect())
}

/// The layer below the pages, if there is one, and all pages.
fn parts(paged: &Paged) -> Shown {
    let ((capacity, items), bytes) = (of_pages(paged), paged.pages().bytes());
    let (rate, now) = (paged.error_rate_of_pages(), paged.estimate_pages());
    let below = paged.base().map(|layer| part(layer, layer.estimate()));
    Shown::List(below.into_iter().chain([described(capacity, items, bytes, rate, now)]).collect())
}

/// Capacity and items of the pages, without the layer below them.
fn of_pages(paged: &Paged) -> (u64, u64) {
    let items = paged.items(BEFORE_ALL);
    let (_, capacity) = paged.stack(items);
    let (below, held) = paged.base().map_or((0, 0), |base| (base.capacity, base.counted));
    (capacity.saturating_sub(below), items.saturating_sub(held))
}

/// A layer, or all pages, made for `error_rate`.
fn described(capacity: u64, items: u64, bytes: u64, error_rate: f64, now: Estimate) -> Shown {
    Shown::Map(vec![
        (c"Capacity", Int(capacity)),
        (c"Items", Int(items)),
        (c"Size", Int(bytes)),
        (c"Error rate", Double(error_rate)),
        (c"False positive rate", Double(now.error_rate)),
        (c"Fill", Double(now.fill)),
    ])
}

/// The name and the value of a field for a filter.
fn named_value(&(_, label, layers, pages): &Field, filter: &Stored) -> (&'static CStr, Shown) {
    let value = match filter {
        Stored::Layers(filter) => layers(filter),
        Stored::Pages(paged) => pages(paged),
        Stored::Partial(_) => Null,
    };
    (label, value)
}

impl Shown {
    fn reply(&self, ctx: Context) {
        match self {
            Self::Int(number) => ctx.reply_integer(*number),
            Self::Double(number) => ctx.reply_double(*number),
            Self::Bool(yes) => ctx.reply_bool(*yes),
            Self::Null => ctx.reply_null(),
            Self::Word(word) => ctx.reply_simple(word),
            Self::Text(text) => ctx.reply_bulk(text.as_bytes()),
            Self::List(list) => {
                ctx.reply_array(list.len());
                list.iter().for_each(|shown| shown.reply(ctx));
            }
            Self::Map(map) => {
                ctx.reply_map(map.len());
                for (label, shown) in map {
                    ctx.reply_simple(label);
                    shown.reply(ctx);
                }
            }
        }
    }
}

pub(super) const CARD: Command = Command {
    name: c"bf.card",
    categories: c"read fast",
    summary: c"Returns the number of distinct items added to a Bloom filter (approximate)",
    complexity: c"O(L), where L is the number of layers of the filter",
    since: c"2.4.4",
    run: bf_card,
    ..Command::READS
};

fn bf_card(call: &Call) -> Result<(), Refusal> {
    let mut key = Key::open(call.ctx, call.key, Access::Read);
    let items = Stored::complete_in_key(&mut key)?.map_or(0, |filter| filter.items());
    call.ctx.reply_integer(items);
    Ok(())
}

pub(super) const DEBUG: Command = Command {
    name: c"bf.debug",
    summary: c"Describes each layer of a Bloom filter",
    complexity: c"O(L), where L is the number of layers of the filter",
    since: c"1.0.0",
    tips: Some(c"dont_cache"),
    run: bf_debug,
    ..Command::READS
};

fn bf_debug(call: &Call) -> Result<(), Refusal> {
    let mut key = Key::open(call.ctx, call.key, Access::Read);
    let filter = &*Stored::complete_in_key(&mut key)?.ok_or(Refusal::NOT_FOUND)?;
    let items = match filter {
        Stored::Pages(paged) => paged.items(BEFORE_ALL),
        filter => filter.items(),
    };
    let mut lines = vec![format!("size:{items}")];
    match filter {
        Stored::Layers(filter) => {
            lines.extend(filter.layers().map(|layer| describe(layer, filter.family())));
        }
        Stored::Pages(paged) => {
            lines.extend(paged.base().map(|layer| describe(layer, Family::Native)));
            lines.push(describe_pages(paged));
        }
        Stored::Partial(_) => {}
    }
    call.ctx.reply_array(lines.len());
    lines.iter().for_each(|line| call.ctx.reply_bulk(line.as_bytes()));
    Ok(())
}

/// The line for the pages: RedisBloom's fields, then their own. `hashes` is 1: one hash finds
/// the place of a slot.
fn describe_pages(paged: &Paged) -> String {
    let (pages, plan) = (paged.pages(), paged.pages().plan());
    let ((capacity, items), bytes) = (of_pages(paged), pages.bytes());
    format!(
        "bytes:{bytes} bits:{} hashes:1 hashwidth:64 capacity:{capacity} size:{items} ratio:{} \
         pages:{} slots:{} tagbits:{} payloadbits:{}",
        bytes.saturating_mul(8),
        number::six_digits(paged.error_rate_of_pages()),
        pages.pages().len(),
        pages.slot_count(),
        plan.tag_bits,
        plan.payload.bits(),
    )
}

/// The line for a layer: RedisBloom's fields, then the fields of this kind of layer.
fn describe(layer: &Layer, family: Family) -> String {
    let shape = layer.shape();
    let (bytes, bits, own) = match shape {
        Shape::Blocked(blocked) => {
            let own = format!(
                " blocks:{} blockbits:{}",
                blocked.blocks,
                u32::from(blocked.block_words) * 64
            );
            (blocked.words() * 8, blocked.words() * 64, own)
        }
        Shape::Classic(classic) => (classic.bytes, classic.bits, String::new()),
    };
    let width = match family {
        Family::RedisBloom(RedisBloom { hash64: false, .. }) => 32,
        Family::Native | Family::RedisBloom(_) | Family::Valkey(_) | Family::Guava => 64,
    };
    format!(
        "bytes:{bytes} bits:{bits} hashes:{} hashwidth:{width} capacity:{} size:{} ratio:{}{own}",
        shape.probes(),
        layer.capacity,
        layer.counted,
        number::six_digits(layer.error_rate),
    )
}
