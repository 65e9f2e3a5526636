//! `BF.INFO key [field]`: the properties of a filter.
//!
//! The full reply has exactly RedisBloom's five pairs, because go-redis fails on a sixth. A client
//! must request each other field by its name. The reply for a single field is an array of one
//! element in RESP2 and a map of one pair in RESP3.

use std::ffi::CStr;

use super::{Argument, Call, Command, CommandSpec};
use crate::{
    command::refusal::Refusal,
    filter::{
        Estimate, Family, Filter, Layer, NEVER, Rules, Span,
        paged::{Generation, Paged},
    },
    module::{
        api::{Access, Context, Key, clock},
        value::{Value, items_of, stored_items},
    },
    sharding::Shard,
};

pub(super) struct Info;

impl Command for Info {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.info",
        arity: -2,
        categories: "read fast",
        summary: c"Describes a Bloom filter",
        complexity: c"O(L), where L is the number of layers of the filter; FPR, FILL and LAYERS \
                      read up to 65,536 words, LAYERS has L maps",
        since: c"1.0.0",
        tips: Some(c"dont_cache"),
        arguments: &[Argument::one_of(c"single_value", &WORDS).optional()],
        ..CommandSpec::READS
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let (name, words) = call.key_and_rest(0)?;
        let mut key = Key::open(call.ctx, name, Access::Read);
        let filter = match words {
            [] | [_] => Value::complete_in_key(&mut key)?.ok_or(Refusal::NOT_FOUND)?,
            _ => return Err(Refusal::ARITY),
        };
        let shown = match words.first() {
            None => Shown::Map(FIELDS.iter().take(FULL).map(|field| field.of(filter)).collect()),
            Some(word) => {
                let is = |token: &CStr| word.bytes().eq_ignore_ascii_case(token.to_bytes());
                let field = FIELDS.iter().find(|field| field.word.token.is_some_and(is));
                let (label, shown) = field.ok_or(Refusal::UNKNOWN_FIELD)?.of(filter);
                if call.ctx.speaks_resp3() {
                    Shown::Map(vec![(label, shown)])
                } else {
                    Shown::List(vec![shown])
                }
            }
        };
        shown.reply(call.ctx);
        Ok(())
    }
}

/// A field: the argument that requests it, its name in the reply, and its value for a filter of
/// layers and for one of pages.
struct Field {
    word: Argument,
    label: &'static CStr,
    layers: fn(&Filter) -> Shown,
    pages: fn(&Paged) -> Shown,
}

/// The value of a field. All values are computed before the reply begins, because a map that stops
/// in the middle leaves the client out of step.
enum Shown {
    Integer(u64),
    Double(f64),
    Bool(bool),
    Null,
    Word(&'static CStr),
    Text(String),
    List(Vec<Self>),
    Map(Vec<(&'static CStr, Self)>),
}

/// The number of fields in the full reply: the first five of `FIELDS`.
const FULL: usize = 5;

const FIELDS: [Field; 16] = [
    Field {
        word: Argument::token(c"capacity", c"CAPACITY"),
        label: c"Capacity",
        layers: |filter| Shown::Integer(filter.capacity()),
        pages: |paged| Shown::Integer(paged.stack(stored_items(paged)).1),
    },
    Field {
        word: Argument::token(c"size", c"SIZE"),
        label: c"Size",
        layers: |filter| Shown::Integer(filter.bytes()),
        pages: |paged| Shown::Integer(paged.bytes()),
    },
    // Of pages, the layers that a stack would have.
    Field {
        word: Argument::token(c"filters", c"FILTERS"),
        label: c"Number of filters",
        layers: |filter| Shown::Integer(filter.layers().len() as u64),
        pages: |paged| Shown::Integer(paged.stack(stored_items(paged)).0),
    },
    Field {
        word: Argument::token(c"items", c"ITEMS"),
        label: c"Number of items inserted",
        layers: |filter| Shown::Integer(filter.items()),
        pages: |paged| Shown::Integer(items_of(paged)),
    },
    Field {
        word: Argument::token(c"expansion", c"EXPANSION"),
        label: c"Expansion rate",
        layers: |filter| count(filter.expansion().factor().map(u64::from)),
        pages: |paged| count(paged.expansion().factor().map(u64::from)),
    },
    // The requested rate, which the filter does not exceed on average.
    Field {
        word: Argument::token(c"error", c"ERROR"),
        label: c"Error rate",
        layers: |filter| Shown::Double(filter.error_rate()),
        pages: |paged| Shown::Double(paged.error_rate()),
    },
    // The current rate: of layers estimated from the bits that are set, of pages exact.
    Field {
        word: Argument::token(c"fpr", c"FPR"),
        label: c"False positive rate",
        layers: |filter| Shown::Double(filter.estimate().error_rate),
        pages: |paged| Shown::Double(paged.estimate().error_rate),
    },
    // The share of bits that are set, about one half at capacity; of pages, the share of slots.
    Field {
        word: Argument::token(c"fill", c"FILL"),
        label: c"Fill",
        layers: |filter| Shown::Double(filter.estimate().fill),
        pages: |paged| Shown::Double(paged.estimate().fill),
    },
    Field {
        word: Argument::token(c"layers", c"LAYERS"),
        label: c"Layers",
        layers: |filter| {
            Shown::List(filter.estimate_layers().map(|(layer, own)| part(layer, own)).collect())
        },
        pages: |paged| Shown::List(parts(paged)),
    },
    // Slots whose count is the highest, which stay; null for a filter without counts.
    Field {
        word: Argument::token(c"saturated", c"SATURATED"),
        label: c"Saturated counters",
        layers: |_| Shown::Null,
        pages: |paged| count(paged.saturated()),
    },
    // Refused deletions of items that tested present, since the filter was created, loaded or
    // copied on this server; null for a filter without counts.
    Field {
        word: Argument::token(c"undeleted", c"UNDELETED"),
        label: c"Refused deletions",
        layers: |_| Shown::Null,
        pages: |paged| count(paged.counts().then(|| paged.refused_deletions())),
    },
    // The number of the shard and the number of shards; null for a filter that is no shard.
    Field {
        word: Argument::token(c"shard", c"SHARD"),
        label: c"Shard",
        layers: |filter| shard(filter.shard()),
        pages: |paged| shard(paged.shard()),
    },
    // How the filter forgets; null for one that does not.
    Field {
        word: Argument::token(c"window", c"WINDOW"),
        label: c"Window",
        layers: |_| Shown::Null,
        pages: |paged| {
            let rules = paged.window().map(|window| window.rules);
            rules.map_or(Shown::Null, |rules| window(rules, paged.capacity()))
        },
    },
    // The generations of such a filter, oldest first.
    Field {
        word: Argument::token(c"generations", c"GENERATIONS"),
        label: c"Generations",
        layers: |_| Shown::Null,
        pages: generations,
    },
    // Which filter it is. No addition changes it, and a filter with another seed has another one.
    Field {
        word: Argument::token(c"identity", c"IDENTITY"),
        label: c"Identity",
        layers: |filter| Shown::Text(format!("{:016x}", filter.identity())),
        pages: |paged| Shown::Text(format!("{:016x}", paged.identity())),
    },
    // The product that makes such filters. One of RedisBloom's can go back there.
    Field {
        word: Argument::token(c"layout", c"LAYOUT"),
        label: c"Layout",
        layers: |filter| {
            Shown::Word(match filter.family() {
                Family::Native => c"native",
                Family::RedisBloom(_) => c"redisbloom",
                Family::Valkey(_) => c"valkey-bloom",
                Family::Guava => c"guava",
            })
        },
        pages: |_| Shown::Word(c"native"),
    },
];

/// The words of all fields, for COMMAND DOCS.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler alone")]
const WORDS: [Argument; FIELDS.len()] = {
    let (mut words, mut i) = ([FIELDS[0].word; FIELDS.len()], 0);
    while i < FIELDS.len() {
        words[i] = FIELDS[i].word;
        i += 1;
    }
    words
};

fn shard(shard: Option<Shard>) -> Shown {
    let number = |number: u16| Shown::Integer(number.into());
    let numbers = |shard: Shard| Shown::List(vec![number(shard.index()), number(shard.count())]);
    shard.map_or(Shown::Null, numbers)
}

/// How a filter forgets. `capacity` is that of the whole window.
fn window(Rules { span, generations, refresh }: Rules, capacity: u64) -> Shown {
    let (kind, milliseconds) = match span {
        Span::Time(span) => (c"time", Shown::Integer(span)),
        Span::Items => (c"count", Shown::Null),
    };
    Shown::Map(vec![
        (c"Kind", Shown::Word(kind)),
        (c"Milliseconds", milliseconds),
        (c"Generations", Shown::Integer(generations.into())),
        (c"Refresh", Shown::Bool(refresh)),
        (c"Capacity", Shown::Integer(capacity)),
    ])
}

fn generations(paged: &Paged) -> Shown {
    let Some(window) = paged.window() else {
        return Shown::Null;
    };
    let (now, rules) = (clock(), window.rules);
    // Items of the window for each part of it.
    let capacity = paged.capacity().div_ceil(u64::from(rules.generations).max(1));
    let (bytes, slots) = (paged.pages().bytes(), paged.pages().slot_count());
    // Bytes of the pages, by the share of their slots.
    let share = |items: u64| u128::from(bytes) * u128::from(items) / u128::from(slots.max(1));
    let generations = window.generations.iter().map(|&Generation { start, items }| {
        let started = match rules.span {
            // Only one of a window of time has a start, and only once it has an item.
            Span::Time(_) if start != NEVER => u64::try_from(start).ok(),
            Span::Time(_) | Span::Items => None,
        };
        Shown::Map(vec![
            (c"Started", count(started)),
            (c"Items", Shown::Integer(items)),
            (c"Capacity", Shown::Integer(capacity)),
            (c"Layers", Shown::Integer(1)),
            (c"Size", Shown::Integer(share(items).try_into().unwrap_or(bytes))),
            (c"Alive", Shown::Bool(rules.is_alive(start, now))),
        ])
    });
    Shown::List(generations.collect())
}

/// A layer.
fn part(layer: &Layer, now: Estimate) -> Shown {
    let bytes = size_of_val(layer.bits().words()) as u64;
    described(layer.capacity(), layer.counted(), bytes, layer.error_rate(), now)
}

/// The layer below the pages, if there is one, and all pages.
fn parts(paged: &Paged) -> Vec<Shown> {
    let base = paged.base();
    let items = stored_items(paged);
    let (_, capacity) = paged.stack(items);
    let (below, held) = base.map_or((0, 0), |base| (base.capacity(), base.counted()));
    let pages = described(
        capacity.saturating_sub(below),
        items.saturating_sub(held),
        paged.pages().bytes(),
        paged.error_rate_of_pages(),
        paged.estimate_pages(),
    );
    base.map(|layer| part(layer, layer.estimate())).into_iter().chain([pages]).collect()
}

/// A layer, or all pages, made for `error_rate`.
fn described(capacity: u64, items: u64, bytes: u64, error_rate: f64, now: Estimate) -> Shown {
    Shown::Map(vec![
        (c"Capacity", Shown::Integer(capacity)),
        (c"Items", Shown::Integer(items)),
        (c"Size", Shown::Integer(bytes)),
        (c"Error rate", Shown::Double(error_rate)),
        (c"False positive rate", Shown::Double(now.error_rate)),
        (c"Fill", Shown::Double(now.fill)),
    ])
}

impl Field {
    /// The name and the value of this field for a filter.
    fn of(&self, filter: &Value) -> (&'static CStr, Shown) {
        let shown = match filter {
            Value::Ready(filter) => (self.layers)(filter),
            Value::Paged(paged) => (self.pages)(paged),
            Value::Loading(_) => Shown::Null,
        };
        (self.label, shown)
    }
}

fn count(count: Option<u64>) -> Shown {
    count.map_or(Shown::Null, Shown::Integer)
}

impl Shown {
    fn reply(&self, ctx: Context) {
        match self {
            Self::Integer(number) => ctx.reply_integer(*number),
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
