//! `BF.ADD key item` and `BF.MADD key item [item ...]`: add to a filter, which they make if there is none.
//!
//! Both, and BF.INSERT, end in this file. Mutation comes first and is finished before the reply begins, because the
//! length of the reply depends on it: an error is an element of the array, and always the last (clients stop reading at
//! the first).

use super::{Argument, Call, Command, Row, Uses};
use crate::{
    filter::{Error, Filter},
    module::{
        api::{Access, Context, Key, Str},
        create::{self, Options},
        data_type::Value,
        effects, limit,
        reply::Refusal,
        stats,
    },
};

pub(super) struct Add;

impl Command for Add {
    const ROW: Row = Row {
        name: c"bf.add",
        flags: c"write deny-oom",
        arity: 3,
        uses: Uses::Adds,
        categories: "write",
        summary: c"Adds an item to a Bloom filter, which is created if it does not exist",
        complexity: c"O(L), where L is the number of layers of the filter (1 unless it grew)",
        since: c"1.0.0",
        tips: None,
        arguments: &[Argument::String(c"item")],
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let ctx = call.ctx;
        let (name, [item]) = call.key_and()?;
        let mut key = Key::open(ctx, name, Access::Write);
        let added = match Value::filter_in_key(&mut key)? {
            Some(filter) => add_one(ctx, name, filter, item)?,
            None => create_with(ctx, &mut key, name, Options::default(), &[item])?.new == 1,
        };
        ctx.reply_bool(added);
        Ok(())
    }
}

pub(super) struct MultiAdd;

impl Command for MultiAdd {
    const ROW: Row = Row {
        name: c"bf.madd",
        flags: c"write deny-oom",
        arity: -3,
        uses: Uses::Adds,
        categories: "write",
        summary: c"Adds items to a Bloom filter, which is created if it does not exist",
        complexity: c"O(N * L), where N is the number of items and L the number of layers of the filter",
        since: c"1.0.0",
        tips: None,
        arguments: &[Argument::Items],
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let (name, items) = call.key_and_rest(1)?;
        let mut key = Key::open(call.ctx, name, Access::Write);
        let answers = match Value::filter_in_key(&mut key)? {
            Some(filter) => {
                let answers = add(call.ctx, name, filter, items);
                if answers.new == items.len() {
                    effects::added_every_item(call.ctx, name);
                } else {
                    effects::added(call.ctx, name, &answers.new_of(items));
                }
                answers
            }
            None => create_with(call.ctx, &mut key, name, Options::default(), items)?,
        };
        answers.reply(call.ctx);
        Ok(())
    }
}

/// Adds an item to a filter that exists; whether it was new.
#[inline]
fn add_one(ctx: Context, name: Str, filter: &mut Filter, item: Str) -> Result<bool, Refusal> {
    stats::ADDS.add(1);
    let before = filter.layers().len();
    let added = filter.add(filter.hash(item.bytes()), |present| limit::ceiling(ctx, present));
    match added {
        Ok(true) => {
            notice(ctx, name, filter, before, 1);
            effects::added_every_item(ctx, name);
            Ok(true)
        }
        Ok(false) => Ok(false),
        Err(error) => {
            stats::REFUSED.add(1);
            Err(Refusal::of_addition(error))
        }
    }
}

/// Makes a filter, adds `items` (at least one) and puts it into `key`.
///
/// # Errors
/// `NoMemory`; nothing has changed then.
pub(super) fn create_with(
    ctx: Context,
    key: &mut Key,
    name: Str,
    options: Options,
    items: &[Str],
) -> Result<Answers, Refusal> {
    let filter = create::filter(ctx, options)?;
    let params = filter.params();
    Value::Ready(filter).put(key)?;
    let filter = Value::filter_in_key(key)?.ok_or(Refusal::Internal)?;
    let answers = add(ctx, name, filter, items);
    effects::created(ctx, name, &params, &answers.new_of(items));
    Ok(answers)
}

/// Adds `items` to a filter of the server, in order, up to the first that cannot be added.
pub(super) fn add(ctx: Context, name: Str, filter: &mut Filter, items: &[Str]) -> Answers {
    stats::ADDS.add(items.len() as u64);
    let before = filter.layers().len();
    let mut answers = Answers::for_items(items.len());
    let ceiling = |present| limit::ceiling(ctx, present);
    filter.add_each(items.iter().map(|item| item.bytes()), ceiling, |answer| {
        answers.push(answer);
    });
    if answers.error.is_some() {
        stats::REFUSED.add(1);
    }
    notice(ctx, name, filter, before, answers.new);
    answers
}

/// Notes additions to a filter that had `before` layers. Nobody may use the filter afterwards: subscribers of keyspace
/// events run within.
#[inline]
fn notice(ctx: Context, name: Str, filter: &Filter, before: usize, new: usize) {
    stats::added(new as u64);
    let layers = filter.layers().len().saturating_sub(before);
    let filled = new > 0 && filter.newest().is_full() && filter.expansion().factor().is_none();
    if layers > 0 || filled {
        effects::reshaped(ctx, name, filter, layers);
    }
}

/// What became of each item: one bit, and the error that ended it.
pub(super) struct Answers {
    /// Bit i % 64 of word i / 64: whether item i was new.
    bits: Vec<u64>,
    /// Items answered, the error not counted.
    count: usize,
    /// How many of them were new.
    pub(super) new: usize,
    error: Option<Error>,
}

impl Answers {
    fn for_items(count: usize) -> Self {
        Self {
            bits: Vec::with_capacity(count.div_ceil(64)),
            count: 0,
            new: 0,
            error: None,
        }
    }

    #[inline]
    fn push(&mut self, answer: Result<bool, Error>) {
        match answer {
            Ok(new) => {
                let at = self.count % 64;
                if at == 0 {
                    self.bits.push(0);
                }
                if let Some(word) = self.bits.last_mut() {
                    *word |= u64::from(new) << at;
                }
                self.count += 1;
                self.new += usize::from(new);
            }
            Err(error) => self.error = Some(error),
        }
    }

    fn each(&self) -> impl Iterator<Item = bool> {
        self.bits
            .iter()
            .flat_map(|word| (0..64).map(move |i| word >> i & 1 == 1))
            .take(self.count)
    }

    /// Those of `items` that were new.
    pub(super) fn new_of<'a>(&self, items: &[Str<'a>]) -> Vec<Str<'a>> {
        self.each()
            .zip(items)
            .filter(|(new, _)| *new)
            .map(|(_, item)| *item)
            .collect()
    }

    /// An array of booleans; the error, if there is one, is its last element.
    pub(super) fn reply(&self, ctx: Context) {
        ctx.reply_array(self.count + usize::from(self.error.is_some()));
        for new in self.each() {
            ctx.reply_bool(new);
        }
        if let Some(error) = self.error {
            ctx.reply_error(Refusal::of_addition(error).text());
        }
    }
}
