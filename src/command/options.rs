//! The options of a filter that a command creates: one table. Each entry decides how the option
//! is read, how it is replicated, and how COMMAND DOCS shows it.
//!
//! Options are whole words in any case. TIGHTENING, VALIDATESCALETO and a SEED of 32 bytes are
//! valkey-bloom's. A valkey-bloom primary that created a filter sends the SEED, and the same filter
//! is created here, with that TIGHTENING. Otherwise TIGHTENING is checked and ignored, because
//! native filters have no such ratio. VALIDATESCALETO is always checked and ignored: memory is
//! requested when the filter grows.

use std::ffi::CStr;

use super::{
    argument::{Argument, Kind},
    number,
    refusal::Refusal,
};
use crate::{
    filter::{
        Expansion, Family, MAX_CAPACITY, MAX_EXPANSION, MAX_GENERATIONS, Params, Rules, Span,
        Valkey,
    },
    sharding::Shard,
};

/// How a command describes a new filter. The configuration gives the values that are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// False positive rate, in (0, 1).
    pub error_rate: Option<f64>,
    /// Capacity of the first layer in items, in [1, `MAX_CAPACITY`].
    pub capacity: Option<u64>,
    /// How the filter grows.
    pub expansion: Option<Expansion>,
    /// The seed of the hash.
    pub seed: Option<u64>,
    /// Whether items are counted.
    pub counts: bool,
    /// The shard of a sharded filter that the filter is; `None` for a filter that takes all items.
    pub shard: Option<Shard>,
    /// How the filter forgets; `None` for one that does not.
    pub window: Option<Rules>,
    /// Seed and tightening ratio of a filter as valkey-bloom creates it; `None` for a native
    /// filter.
    pub valkey: Option<Valkey>,
    /// Whether a missing key is an error, and no filter is created.
    pub no_create: bool,
}

impl Options {
    /// Whether RedisBloom has no such filter: a word names a seed, counters, a window or a shard.
    pub fn only_here(&self) -> bool {
        let Self { seed, counts, shard, window, valkey, .. } = *self;
        (seed, counts, shard, window, valkey) != (None, false, None, None, None)
    }
}

/// All parameters of a new filter that determine its bits, and which items it takes.
#[derive(Clone, Copy, Debug)]
pub struct Creation {
    /// The options with the values of the configuration.
    pub params: Params,
    /// The product whose rules the filter follows.
    pub family: Family,
    /// [`Options::window`].
    pub window: Option<Rules>,
}

impl Creation {
    /// The options by which a server with other settings creates the same filter, without error
    /// rate and capacity.
    pub fn words(&self) -> Vec<Vec<u8>> {
        let written = OPTIONS.iter().filter_map(|option| {
            let token = option.argument.token?.to_bytes().to_vec();
            Some(std::iter::once(token).chain((option.write)(self)?))
        });
        written.flatten().collect()
    }
}

/// An option.
pub struct FilterOption {
    /// Its word and its values; the word may be left out.
    pub argument: Argument,
    /// The commands that take it.
    pub place: Place,
    read: Read,
    /// Its values for a new filter; `None` if the filter is created without the option.
    write: fn(&Creation) -> Option<Vec<Vec<u8>>>,
}

/// Reads the words after an option's own, in a BF.RESERVE if `reserve`.
type Read = fn(&mut Draft, &mut dyn Iterator<Item = &[u8]>, reserve: bool) -> Result<(), Refusal>;

/// The commands that take an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// RESERVE, INSERT and BULKADD.
    All,
    /// INSERT and BULKADD.
    Insert,
    /// INSERT and BULKADD. Servers with valkey-bloom send it, and COMMAND DOCS does not show it.
    Valkeys,
    /// RESERVE, INSERT and BULKADD. RedisBloom lacks it.
    Own,
}

/// Every option. They are replicated in this order.
pub const OPTIONS: [FilterOption; 13] = [
    FilterOption {
        argument: Argument::valued(c"CAPACITY", Kind::Integer),
        place: Place::Insert,
        read: |draft, words, _| put(&mut draft.options.capacity, capacity(words.next())),
        write: |_| None,
    },
    FilterOption {
        argument: Argument::valued(c"ERROR", Kind::Double),
        place: Place::Insert,
        read: |draft, words, _| {
            put(&mut draft.options.error_rate, rate(words.next(), Refusal::INSERT_ERROR_RATE))
        },
        write: |_| None,
    },
    FilterOption {
        argument: Argument::valued(c"EXPANSION", Kind::Integer),
        place: Place::All,
        read: |draft, words, reserve| {
            draft.expands_last = true;
            put(&mut draft.factor, factor(words.next(), reserve))
        },
        write: |new| Some(vec![text(new.params.expansion.factor()?)]),
    },
    FilterOption {
        argument: Argument::token(c"NOCREATE"),
        place: Place::Insert,
        read: |draft, _, _| set(&mut draft.options.no_create),
        write: |_| None,
    },
    FilterOption {
        argument: Argument::token(c"NONSCALING"),
        place: Place::All,
        read: |draft, _, _| {
            draft.expands_last = false;
            set(&mut draft.nonscaling)
        },
        write: |new| new.params.expansion.factor().is_none().then(Vec::new),
    },
    FilterOption {
        argument: Argument::valued(c"TIGHTENING", Kind::Double),
        place: Place::Valkeys,
        read: |draft, words, _| put(&mut draft.tightening, rate(words.next(), Refusal::TIGHTENING)),
        write: |new| match new.family {
            Family::Valkey(valkey) => Some(vec![number::shortest(valkey.tightening).into()]),
            _ => None,
        },
    },
    FilterOption {
        argument: Argument::valued(c"SEED", Kind::Integer),
        place: Place::Own,
        read: |draft, words, reserve| {
            let word = words.next().ok_or(Refusal::ARITY)?;
            match <[u8; 32]>::try_from(word) {
                Ok(seed) if !reserve => put(&mut draft.valkeys_seed, Ok(seed)),
                _ => put(&mut draft.options.seed, number::integer(word).ok_or(Refusal::BAD_SEED)),
            }
        },
        // RedisBloom's filters have no seed, and RedisBloom refuses the word.
        write: |new| match new.family {
            Family::Valkey(valkey) => Some(vec![valkey.seed.to_vec()]),
            Family::Native => Some(vec![text(new.params.seed)]),
            Family::RedisBloom(_) | Family::Guava => None,
        },
    },
    FilterOption {
        argument: Argument::token(c"COUNTING"),
        place: Place::Own,
        read: |draft, _, _| {
            draft.options.counts = true;
            Ok(())
        },
        write: |new| new.params.counts.then(Vec::new),
    },
    FilterOption {
        argument: Argument::block(
            c"SHARD",
            &[Argument::new(c"index", Kind::Integer), Argument::new(c"shards", Kind::Integer)],
        ),
        place: Place::Own,
        read: |draft, words, _| {
            let mut number = || number::integer(words.next()?);
            let shard = number().zip(number()).and_then(|(index, count)| Shard::new(index, count));
            put(&mut draft.options.shard, shard.ok_or(Refusal::BAD_SHARD))
        },
        write: |new| new.params.shard.map(|shard| vec![text(shard.index()), text(shard.count())]),
    },
    FilterOption {
        argument: Argument::block(c"WINDOW", &[SPAN]),
        place: Place::Own,
        read: |draft, words, _| put(&mut draft.span, span(words).ok_or(Refusal::WINDOW_SPAN)),
        write: |new| match new.window?.span {
            Span::Time(span) => Some(vec![b"PX".to_vec(), text(span)]),
            Span::Items => Some(vec![b"COUNT".to_vec()]),
        },
    },
    FilterOption {
        argument: Argument::valued(c"GENERATIONS", Kind::Integer),
        place: Place::Own,
        read: |draft, words, _| {
            let number = words.next().and_then(number::integer);
            let number = number.filter(|number| (1..=MAX_GENERATIONS).contains(number));
            put(&mut draft.generations, number.ok_or(Refusal::WINDOW_GENERATIONS))
        },
        write: |new| Some(vec![text(new.window?.generations)]),
    },
    FilterOption {
        argument: Argument::token(c"NOREFRESH"),
        place: Place::Own,
        read: |draft, _, _| set(&mut draft.no_refresh),
        write: |new| (!new.window?.refresh).then(Vec::new),
    },
    FilterOption {
        argument: Argument::valued(c"VALIDATESCALETO", Kind::Integer),
        place: Place::Valkeys,
        read: |_, words, _| capacity(words.next()).map(drop),
        write: |_| None,
    },
];

/// What a window remembers.
const SPAN: Argument = Argument::one_of(
    c"span",
    &[
        Argument::block(c"EX", &[Argument::new(c"seconds", Kind::Integer)]),
        Argument::block(c"PX", &[Argument::new(c"milliseconds", Kind::Integer)]),
        Argument::token(c"COUNT"),
    ],
);

fn put<T>(place: &mut Option<T>, value: Result<T, Refusal>) -> Result<(), Refusal> {
    *place = Some(value?);
    Ok(())
}

fn set(place: &mut bool) -> Result<(), Refusal> {
    *place = true;
    Ok(())
}

fn text(number: impl ToString) -> Vec<u8> {
    number.to_string().into()
}

/// Options while they are read.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) options: Options,
    pub(super) factor: Option<u64>,
    pub(super) nonscaling: bool,
    /// Whether EXPANSION came after NONSCALING.
    pub(super) expands_last: bool,
    pub(super) valkeys_seed: Option<[u8; 32]>,
    pub(super) tightening: Option<f64>,
    span: Option<Span>,
    generations: Option<u8>,
    no_refresh: bool,
}

/// Generations of a window that does not say how many.
const GENERATIONS: u8 = 4;

impl Draft {
    /// Takes `word` and its values if it is an option. Returns whether it is.
    pub(super) fn take(
        &mut self,
        word: &[u8],
        words: &mut dyn Iterator<Item = &[u8]>,
        reserve: bool,
    ) -> Result<bool, Refusal> {
        let is = |token: &CStr| word.eq_ignore_ascii_case(token.to_bytes());
        match taken(reserve).find(|option| option.argument.token.is_some_and(is)) {
            Some(option) => (option.read)(self, words, reserve).map(|()| true),
            None => Ok(false),
        }
    }

    /// The options, with the window. A window of items has no expansion, whatever the configuration
    /// says.
    pub(super) fn finish(self) -> Result<Options, Refusal> {
        let mut options = self.options;
        let Some(span) = self.span else {
            let stray = self.no_refresh || self.generations.is_some();
            return if stray { Err(Refusal::WINDOW_MISSING) } else { Ok(options) };
        };
        if span == Span::Items {
            options.expansion.get_or_insert(Expansion::NONSCALING);
        }
        let scales = options.expansion.is_some_and(|expansion| expansion.factor().is_some());
        if options.counts || options.valkey.is_some() {
            return Err(Refusal::WINDOW_KIND);
        }
        if span == Span::Items && scales {
            return Err(Refusal::WINDOW_SCALES);
        }
        let generations = self.generations.unwrap_or(GENERATIONS);
        let rules = Rules { span, generations, refresh: !self.no_refresh };
        rules.check(scales).map_err(|_| Refusal::WINDOW_SPAN)?;
        Ok(Options { window: Some(rules), ..options })
    }
}

/// The options that BF.RESERVE takes, or BF.INSERT and BF.BULKADD.
pub fn taken(reserve: bool) -> impl Iterator<Item = &'static FilterOption> {
    const ALL: &[FilterOption] = &OPTIONS;
    ALL.iter().filter(move |option| !reserve || matches!(option.place, Place::All | Place::Own))
}

/// The span of a window: a time in seconds or milliseconds, or as many items as the capacity.
fn span(words: &mut dyn Iterator<Item = &[u8]>) -> Option<Span> {
    let word = words.next()?;
    let unit = match word {
        word if is(word, "COUNT") => return Some(Span::Items),
        word if is(word, "EX") => 1_000,
        word if is(word, "PX") => 1,
        _ => return None,
    };
    number::integer::<u64>(words.next()?)?.checked_mul(unit).map(Span::Time)
}

/// A factor of EXPANSION. valkey-bloom has no upper limit, and its seed may follow in a BF.INSERT.
fn factor(word: Option<&[u8]>, reserve: bool) -> Result<u64, Refusal> {
    let (most, [none, bad, range]) = if reserve {
        let bad = [Refusal::NO_EXPANSION, Refusal::BAD_EXPANSION, Refusal::EXPANSION_RANGE];
        (MAX_EXPANSION.into(), bad)
    } else {
        (u32::MAX, [Refusal::ARITY, Refusal::INSERT_EXPANSION, Refusal::INSERT_EXPANSION])
    };
    let number = number::integer(word.ok_or(none)?).ok_or(bad)?;
    in_range(number, most.into()).ok_or(range)
}

/// A number in (0, 1); `bad` for anything else.
fn rate(word: Option<&[u8]>, bad: Refusal) -> Result<f64, Refusal> {
    number::float(word.ok_or(Refusal::ARITY)?).filter(|&rate| is_rate(rate)).ok_or(bad)
}

/// A capacity in items, in [1, `MAX_CAPACITY`].
fn capacity(word: Option<&[u8]>) -> Result<u64, Refusal> {
    let number = number::integer(word.ok_or(Refusal::ARITY)?);
    let capacity = number.and_then(|n| in_range(n, MAX_CAPACITY)).filter(|&n| n > 0);
    capacity.ok_or(Refusal::INSERT_CAPACITY)
}

pub(super) fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

pub(super) fn is_rate(rate: f64) -> bool {
    rate > 0.0 && rate < 1.0
}

pub(super) fn in_range(number: i64, most: u64) -> Option<u64> {
    u64::try_from(number).ok().filter(|&number| number <= most)
}
