//! `BF.INFO key [field]`: the properties of a filter.
//!
//! The full reply has exactly RedisBloom's five pairs, because go-redis fails on a sixth. A client
//! must request each other field by its name. The reply for a single field is an array of one
//! element in RESP2 and a map of one pair in RESP3.

use std::ffi::CStr;

use super::{Argument, Call, Command, CommandSpec, Uses};
use crate::{
    command::refusal::Refusal,
    filter::{
        Estimate, Filter, Layer, NEVER, Rules, Span,
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
        let filter = match words {
            [] | [_] => Value::complete_in_key(&mut key)?.ok_or(Refusal::NotFound)?,
            _ => return Err(Refusal::Arity),
        };
        let ctx = call.ctx;
        match words.first() {
            None => {
                let full: Vec<_> = FIELDS.iter().take(FULL).map(|field| field.of(filter)).collect();
                ctx.reply_map(full.len());
                full.iter().for_each(|(label, shown)| shown.reply_under(ctx, label));
            }
            Some(word) => {
                let field = FIELDS
                    .iter()
                    .find(|field| word.bytes().eq_ignore_ascii_case(field.word.as_bytes()));
                let (label, shown) = field.ok_or(Refusal::UnknownField)?.of(filter);
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

/// A field: the argument that requests it, its name in the reply, and its value for a filter of
/// layers and for one of pages.
struct Field {
    word: &'static str,
    label: &'static CStr,
    layers: fn(&Filter) -> Shown,
    pages: fn(&Paged) -> Shown,
}

/// The value of a field. All values are computed before the reply begins, because a map that stops
/// in the middle leaves the client out of step.
enum Shown {
    Integer(u64),
    Double(f64),
    Null,
    Identity(u64),
    Shard(Shard),
    /// The rules, and the capacity of the whole window.
    Window(Rules, u64),
    Generations(Vec<Started>),
    Layers(Vec<Part>),
}

/// A layer, or all pages.
struct Part {
    capacity: u64,
    items: u64,
    bytes: u64,
    /// The rate for which it was made.
    error_rate: f64,
    now: Estimate,
}

/// A generation.
struct Started {
    /// Only one of a window of time has a start, and only once it has an item.
    started: Option<u64>,
    items: u64,
    /// Items of the window for each part of it.
    capacity: u64,
    /// Bytes of the pages, by its share of their slots.
    bytes: u64,
    alive: bool,
}

/// The number of fields in the full reply: the first five of `FIELDS`.
const FULL: usize = 5;

const FIELDS: [Field; 15] = [
    Field {
        word: "CAPACITY",
        label: c"Capacity",
        layers: |filter| Shown::Integer(filter.capacity()),
        pages: |paged| Shown::Integer(paged.stack(stored_items(paged)).1),
    },
    Field {
        word: "SIZE",
        label: c"Size",
        layers: |filter| Shown::Integer(filter.bytes()),
        pages: |paged| Shown::Integer(paged.bytes()),
    },
    // Of pages, the layers that a stack would have.
    Field {
        word: "FILTERS",
        label: c"Number of filters",
        layers: |filter| Shown::Integer(filter.layers().len() as u64),
        pages: |paged| Shown::Integer(paged.stack(stored_items(paged)).0),
    },
    Field {
        word: "ITEMS",
        label: c"Number of items inserted",
        layers: |filter| Shown::Integer(filter.items()),
        pages: |paged| Shown::Integer(items_of(paged)),
    },
    Field {
        word: "EXPANSION",
        label: c"Expansion rate",
        layers: |filter| count(filter.expansion().factor().map(u64::from)),
        pages: |paged| count(paged.expansion().factor().map(u64::from)),
    },
    // The requested rate, which the filter does not exceed on average.
    Field {
        word: "ERROR",
        label: c"Error rate",
        layers: |filter| Shown::Double(filter.error_rate()),
        pages: |paged| Shown::Double(paged.error_rate()),
    },
    // The current rate: of layers estimated from the bits that are set, of pages exact.
    Field {
        word: "FPR",
        label: c"False positive rate",
        layers: |filter| Shown::Double(filter.estimate().error_rate),
        pages: |paged| Shown::Double(paged.estimate().error_rate),
    },
    // The share of bits that are set, about one half at capacity; of pages, the share of slots.
    Field {
        word: "FILL",
        label: c"Fill",
        layers: |filter| Shown::Double(filter.estimate().fill),
        pages: |paged| Shown::Double(paged.estimate().fill),
    },
    Field {
        word: "LAYERS",
        label: c"Layers",
        layers: |filter| {
            Shown::Layers(
                filter.estimate_layers().map(|(layer, own)| Part::of(layer, own)).collect(),
            )
        },
        pages: |paged| Shown::Layers(Part::all(paged)),
    },
    // Slots whose count is the highest, which stay; null for a filter without counts.
    Field {
        word: "SATURATED",
        label: c"Saturated counters",
        layers: |_| Shown::Null,
        pages: |paged| count(paged.saturated()),
    },
    // Refused deletions of items that tested present, since the filter was created, loaded or
    // copied on this server; null for a filter without counts.
    Field {
        word: "UNDELETED",
        label: c"Refused deletions",
        layers: |_| Shown::Null,
        pages: |paged| count(paged.counts().then(|| paged.refused_deletions())),
    },
    // The number of the shard and the number of shards; null for a filter that is no shard.
    Field {
        word: "SHARD",
        label: c"Shard",
        layers: |filter| filter.shard().map_or(Shown::Null, Shown::Shard),
        pages: |paged| paged.shard().map_or(Shown::Null, Shown::Shard),
    },
    // How the filter forgets; null for one that does not.
    Field {
        word: "WINDOW",
        label: c"Window",
        layers: |_| Shown::Null,
        pages: |paged| match paged.window() {
            Some(window) => Shown::Window(window.rules, paged.capacity()),
            None => Shown::Null,
        },
    },
    // The generations of such a filter, oldest first.
    Field {
        word: "GENERATIONS",
        label: c"Generations",
        layers: |_| Shown::Null,
        pages: generations,
    },
    // Which filter it is. No addition changes it, and a filter with another seed has another one.
    Field {
        word: "IDENTITY",
        label: c"Identity",
        layers: |filter| Shown::Identity(filter.identity()),
        pages: |paged| Shown::Identity(paged.identity()),
    },
];

fn generations(paged: &Paged) -> Shown {
    let Some(window) = paged.window() else {
        return Shown::Null;
    };
    let (now, rules) = (clock(), window.rules);
    let capacity = paged.capacity().div_ceil(u64::from(rules.generations).max(1));
    let (bytes, slots) = (paged.pages().bytes(), paged.pages().slot_count());
    let share = |items: u64| u128::from(bytes) * u128::from(items) / u128::from(slots.max(1));
    let generations = window.generations.iter().map(|&Generation { start, items }| Started {
        started: match rules.span {
            Span::Time(_) if start != NEVER => u64::try_from(start).ok(),
            Span::Time(_) | Span::Items => None,
        },
        items,
        capacity,
        bytes: share(items).try_into().unwrap_or(bytes),
        alive: rules.is_alive(start, now),
    });
    Shown::Generations(generations.collect())
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

impl Part {
    /// A layer.
    fn of(layer: &Layer, now: Estimate) -> Self {
        Self {
            capacity: layer.capacity(),
            items: layer.counted(),
            bytes: size_of_val(layer.bits().words()) as u64,
            error_rate: layer.error_rate(),
            now,
        }
    }

    /// The layer below the pages, if there is one, and all pages.
    fn all(paged: &Paged) -> Vec<Self> {
        let base = paged.base().map(|layer| Self::of(layer, layer.estimate()));
        let items = stored_items(paged);
        let (_, capacity) = paged.stack(items);
        let (below, held) = base.as_ref().map_or((0, 0), |base| (base.capacity, base.items));
        let pages = Self {
            capacity: capacity.saturating_sub(below),
            items: items.saturating_sub(held),
            bytes: paged.pages().bytes(),
            error_rate: paged.error_rate_of_pages(),
            now: paged.estimate_pages(),
        };
        base.into_iter().chain([pages]).collect()
    }
}

fn count(count: Option<u64>) -> Shown {
    count.map_or(Shown::Null, Shown::Integer)
}

impl Shown {
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
            Self::Window(rules, capacity) => reply_window(ctx, *rules, *capacity),
            Self::Generations(generations) => {
                ctx.reply_array(generations.len());
                generations.iter().for_each(|generation| reply_generation(ctx, generation));
            }
            Self::Layers(parts) => {
                ctx.reply_array(parts.len());
                parts.iter().for_each(|part| reply_part(ctx, part));
            }
        }
    }
}

/// Replies a map that describes how a filter forgets.
fn reply_window(ctx: Context, rules: Rules, capacity: u64) {
    let Rules { span, generations, refresh } = rules;
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
    Shown::Integer(capacity).reply_under(ctx, c"Capacity");
}

/// Replies a map that describes a generation.
fn reply_generation(ctx: Context, generation: &Started) {
    ctx.reply_map(6);
    count(generation.started).reply_under(ctx, c"Started");
    Shown::Integer(generation.items).reply_under(ctx, c"Items");
    Shown::Integer(generation.capacity).reply_under(ctx, c"Capacity");
    Shown::Integer(1).reply_under(ctx, c"Layers");
    Shown::Integer(generation.bytes).reply_under(ctx, c"Size");
    ctx.reply_simple(c"Alive");
    ctx.reply_bool(generation.alive);
}

/// Replies a map that describes a layer, or all pages.
fn reply_part(ctx: Context, part: &Part) {
    let fields = [
        (c"Capacity", Shown::Integer(part.capacity)),
        (c"Items", Shown::Integer(part.items)),
        (c"Size", Shown::Integer(part.bytes)),
        (c"Error rate", Shown::Double(part.error_rate)),
        (c"False positive rate", Shown::Double(part.now.error_rate)),
        (c"Fill", Shown::Double(part.now.fill)),
    ];
    ctx.reply_map(fields.len());
    fields.iter().for_each(|(label, shown)| shown.reply_under(ctx, label));
}
