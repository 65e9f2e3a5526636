//! `BF.INFO key [field]`: what a filter is, in five fields.
//!
//! The full reply has exactly RedisBloom's five pairs: go-redis fails on a sixth. A single field is an array of one in
//! RESP2 and a map of one pair in RESP3.

use std::ffi::CStr;

use super::{Argument, Call, Command, Row, Uses};
use crate::{
    filter::Filter,
    module::{
        api::{Access, Context, Key},
        data_type::Value,
        reply::Refusal,
    },
};

pub(super) struct Info;

impl Command for Info {
    const ROW: Row = Row {
        name: c"bf.info",
        flags: c"readonly fast",
        arity: -2,
        uses: Uses::Reads,
        categories: "read fast",
        summary: c"Describes a Bloom filter",
        complexity: c"O(L), where L is the number of layers of the filter",
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
            ],
        )],
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let (name, words) = call.key_and_rest(0)?;
        let mut key = Key::open(call.ctx, name, Access::Read);
        let asked = match words {
            [] | [_] => Value::filter_in_key(&mut key)?.ok_or(Refusal::NotFound)?,
            _ => return Err(Refusal::Arity),
        };
        match words.first() {
            None => {
                call.ctx.reply_map(FIELDS.len());
                FIELDS.iter().for_each(|field| field.reply_pair(call.ctx, asked));
            }
            Some(word) => {
                let field = FIELDS
                    .iter()
                    .find(|field| word.bytes().eq_ignore_ascii_case(field.word.as_bytes()));
                let field = field.ok_or(Refusal::UnknownField)?;
                if call.ctx.speaks_resp3() {
                    call.ctx.reply_map(1);
                    field.reply_pair(call.ctx, asked);
                } else {
                    call.ctx.reply_array(1);
                    field.reply_value(call.ctx, asked);
                }
            }
        }
        Ok(())
    }
}

/// A field: the word that asks for it, its name in the reply, its value (`None` is null).
struct Field {
    word: &'static str,
    label: &'static CStr,
    value: fn(&Filter) -> Option<u64>,
}

const FIELDS: [Field; 5] = [
    Field {
        word: "CAPACITY",
        label: c"Capacity",
        value: |filter| Some(filter.capacity()),
    },
    Field {
        word: "SIZE",
        label: c"Size",
        value: |filter| Some(filter.bytes()),
    },
    Field {
        word: "FILTERS",
        label: c"Number of filters",
        value: |filter| Some(filter.layers().len() as u64),
    },
    Field {
        word: "ITEMS",
        label: c"Number of items inserted",
        value: |filter| Some(filter.items()),
    },
    Field {
        word: "EXPANSION",
        label: c"Expansion rate",
        value: |filter| filter.expansion().factor().map(u64::from),
    },
];

impl Field {
    fn reply_pair(&self, ctx: Context, filter: &Filter) {
        ctx.reply_simple(self.label);
        self.reply_value(ctx, filter);
    }

    fn reply_value(&self, ctx: Context, filter: &Filter) {
        match (self.value)(filter) {
            Some(value) => ctx.reply_integer(value),
            None => ctx.reply_null(),
        }
    }
}
