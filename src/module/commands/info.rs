//! `BF.INFO key [field]`: the properties of a filter.
//!
//! The full reply has exactly RedisBloom's five pairs, because go-redis fails on a sixth. A client
//! must request each other field by its name. The reply for a single field is an array of one
//! element in RESP2 and a map of one pair in RESP3.

use std::ffi::CStr;

use super::{Argument, Call, Command, CommandSpec, Uses};
use crate::{
    command::refusal::Refusal,
    filter::{Estimate, Generation, Layer, NEVER, Ring, Rules, Span},
    module::{
        api::{Access, Context, Key, clock},
        value::Value,
    },
    sharding::Shard,
};

pub(super) struct Info;

impl Command for Info {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.info",
        flags: c"readonly fast",
        arity: -2,
        uses: Uses::Reads,
        categories: "read fast",
        summary: c"Describes a Bloom filter",
        complexity: c"O(L), where L is the number of layers of the filter; FPR, FILL and LAYERS \
                      read up to 65,536 words, LAYERS has L maps",
        since: c"1.0.0",
        tips: Some(c"dont_cache"),
        arguments: &[Argument::OneOf(
            c"single_value",
            &[
                (c"capacity", c"CAPACITY"),
                (c"size", c"SIZE"),
                (c"filters", c"FILTERS"),
                (c"items", c"ITEMS"),
                (c"expansion", c"EXPANSION"),
                (c"error", c"ERROR"),
                (c"fpr", c"FPR"),
                (c"fill", c"FILL"),
                (c"layers", c"LAYERS"),
                (c"saturated", c"SATURATED"),
                (c"undeleted", c"UNDELETED"),
                (c"shard", c"SHARD"),
                (c"window", c"WINDOW"),
                (c"generations", c"GENERATIONS"),
                (c"identity", c"IDENTITY"),
            ],
        )],
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let (name, words) = call.key_and_rest(0)?;
        let mut key = Key::open(call.ctx, name, Access::Read);
        let value = match words {
            [] | [_] => &*Value::complete_in_key(&mut key)?.ok_or(Refusal::NotFound)?,
            _ => return Err(Refusal::Arity),
        };
        let ctx = call.ctx;
        match words.first() {
            None => {
                let full: Vec<_> = FIELDS.iter().take(FULL).map(|field| field.of(value)).collect();
                ctx.reply_map(full.len());
                full.iter().for_each(|(label, shown)| shown.reply_under(ctx, label));
            }
            Some(word) => {
                let field = FIELDS
                    .iter()
                    .find(|field| word.bytes().eq_ignore_ascii_case(field.word.as_bytes()));
                let (label, shown) = field.ok_or(Refusal::UnknownField)?.of(value);
                if ctx.speaks_resp3() {
                    ctx.reply_map(1);
                    shown.reply_under(ctx, label);
                } else {
                    ctx.reply_array(1);
                    shown.reply(ctx);
                }
            }
        }
        Ok(())
    }
}

/// A field: the argument that requests it, its name in the reply, and its value.
struct Field {
    word: &'static str,
    label: &'static CStr,
    value: fn(&Value) -> Shown,
}

/// The value of a field. All values are computed before the reply begins, because a map that stops
/// in the middle leaves the client out of step.
enum Shown<'f> {
    Integer(u64),
    Double(f64),
    Null,
    Identity(u64),
    Shard(Shard),
    Window(&'f Ring),
    /// The generations, their layers, and whether they are alive.
    Generations(Vec<(Option<u64>, Vec<&'f Layer>, bool)>),
    Layers(Vec<(&'f Layer, Estimate)>),
}

/// The number of fields in the full reply: the first five of `FIELDS`.
const FULL: usize = 5;

const FIELDS: [Field; 15] = [
    Field {
        word: "CAPACITY",
        label: c"Capacity",
        value: |value| Shown::Integer(value.filter().capacity()),
    },
    Field { word: "SIZE", label: c"Size", value: |value| Shown::Integer(value.filter().bytes()) },
    Field {
        word: "FILTERS",
        label: c"Number of filters",
        value: |value| Shown::Integer(value.filter().layers().len() as u64),
    },
    Field {
        word: "ITEMS",
        label: c"Number of items inserted",
        value: |value| Shown::Integer(value.items()),
    },
    Field {
        word: "EXPANSION",
        label: c"Expansion rate",
        value: |value| count(value.filter().expansion().factor().map(u64::from)),
    },
    // The requested rate, which the filter does not exceed on average.
    Field {
        word: "ERROR",
        label: c"Error rate",
        value: |value| Shown::Double(value.filter().error_rate()),
    },
    // The current rate, estimated from the bits that are set.
    Field {
        word: "FPR",
        label: c"False positive rate",
        value: |value| Shown::Double(value.filter().estimate().error_rate),
    },
    // The share of bits that are set, or of counters above 0; about one half at capacity.
    Field {
        word: "FILL",
        label: c"Fill",
        value: |value| Shown::Double(value.filter().estimate().fill),
    },
    Field {
        word: "LAYERS",
        label: c"Layers",
        value: |value| Shown::Layers(value.filter().estimate_layers().collect()),
    },
    // Counters that reached 15 and stay there; null for a filter without counters.
    Field {
        word: "SATURATED",
        label: c"Saturated counters",
        value: |value| count(value.filter().saturated()),
    },
    // Refused deletions of items that tested present, since the filter was created, loaded or
    // copied on this server; null for a filter without counters.
    Field {
        word: "UNDELETED",
        label: c"Refused deletions",
        value: |value| count(value.filter().counts().then(|| value.filter().refused_deletions())),
    },
    // The number of the shard and the number of shards; null for a filter that is no shard.
    Field {
        word: "SHARD",
        label: c"Shard",
        value: |value| value.filter().shard().map_or(Shown::Null, Shown::Shard),
    },
    // How the filter forgets; null for one that does not.
    Field {
        word: "WINDOW",
        label: c"Window",
        value: |value| value.filter().window().map_or(Shown::Null, Shown::Window),
    },
    // The generations of such a filter, oldest first.
    Field { word: "GENERATIONS", label: c"Generations", value: generations },
    // Which filter it is. No addition changes it, and a filter with another seed has another one.
    Field {
        word: "IDENTITY",
        label: c"Identity",
        value: |value| Shown::Identity(value.filter().identity()),
    },
];

fn generations(value: &Value) -> Shown<'_> {
    let Some(window) = value.window() else {
        return Shown::Null;
    };
    let (now, rules) = (clock(), window.ring().rules);
    let generations = window.generations().map(|(Generation { start, .. }, layers)| {
        let started = match rules.span {
            Span::Time(_) if start != NEVER => u64::try_from(start).ok(),
            Span::Time(_) | Span::Items => None,
        };
        (started, layers, rules.is_alive(start, now))
    });
    Shown::Generations(generations.collect())
}

impl Field {
    /// The name and the value of this field for a filter.
    fn of<'f>(&self, value: &'f Value) -> (&'static CStr, Shown<'f>) {
        (self.label, (self.value)(value))
    }
}

fn count(count: Option<u64>) -> Shown<'static> {
    count.map_or(Shown::Null, Shown::Integer)
}

impl Shown<'_> {
    fn reply_under(&self, ctx: Context, label: &CStr) {
        ctx.reply_simple(label);
        self.reply(ctx);
    }

    fn reply(&self, ctx: Context) {
        match self {
            Self::Integer(number) => ctx.reply_integer(*number),
            Self::Double(number) => ctx.reply_double(*number),
            Self::Null => ctx.reply_null(),
            Self::Identity(identity) => ctx.reply_bulk(format!("{identity:016x}").as_bytes()),
            Self::Shard(shard) => {
                ctx.reply_array(2);
                ctx.reply_integer(shard.index().into());
                ctx.reply_integer(shard.count().into());
            }
            Self::Window(ring) => reply_window(ctx, ring),
            Self::Generations(generations) => {
                ctx.reply_array(generations.len());
                generations.iter().for_each(|(started, layers, alive)| {
                    reply_generation(ctx, *started, layers, *alive);
                });
            }
            Self::Layers(layers) => {
                ctx.reply_array(layers.len());
                layers.iter().for_each(|(layer, estimate)| reply_layer(ctx, layer, *estimate));
            }
        }
    }
}

/// Replies a map that describes how a filter forgets. The capacity is that of the whole window.
fn reply_window(ctx: Context, ring: &Ring) {
    let Rules { span, generations, refresh } = ring.rules;
    let (kind, milliseconds) = match span {
        Span::Time(span) => (c"time", Shown::Integer(span)),
        Span::Items => (c"count", Shown::Null),
    };
    ctx.reply_map(5);
    ctx.reply_simple(c"Kind");
    ctx.reply_simple(kind);
    milliseconds.reply_under(ctx, c"Milliseconds");
    Shown::Integer(generations.into()).reply_under(ctx, c"Generations");
    ctx.reply_simple(c"Refresh");
    ctx.reply_bool(refresh);
    Shown::Integer(ring.capacity).reply_under(ctx, c"Capacity");
}

/// Replies a map that describes a generation. Only one of a window of time has a start, and only
/// once it has an item.
fn reply_generation(ctx: Context, started: Option<u64>, layers: &[&Layer], alive: bool) {
    let sum = |number: fn(&Layer) -> u64| {
        let numbers = layers.iter().map(|layer| number(layer));
        Shown::Integer(numbers.fold(0, u64::saturating_add))
    };
    let fields = [
        (c"Started", started.map_or(Shown::Null, Shown::Integer)),
        (c"Items", sum(Layer::items)),
        (c"Capacity", sum(Layer::capacity)),
        (c"Layers", Shown::Integer(layers.len() as u64)),
        (c"Size", sum(|layer| size_of_val(layer.bits().words()) as u64)),
    ];
    ctx.reply_map(fields.len() + 1);
    fields.iter().for_each(|(label, shown)| shown.reply_under(ctx, label));
    ctx.reply_simple(c"Alive");
    ctx.reply_bool(alive);
}

/// Replies a map that describes a layer.
fn reply_layer(ctx: Context, layer: &Layer, estimate: Estimate) {
    let fields = [
        (c"Capacity", Shown::Integer(layer.capacity())),
        (c"Items", Shown::Integer(layer.items())),
        (c"Size", Shown::Integer(size_of_val(layer.bits().words()) as u64)),
        (c"Error rate", Shown::Double(layer.error_rate())),
        (c"False positive rate", Shown::Double(estimate.error_rate)),
        (c"Fill", Shown::Double(estimate.fill)),
    ];
    ctx.reply_map(fields.len());
    fields.iter().for_each(|(label, shown)| shown.reply_under(ctx, label));
}
