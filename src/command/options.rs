//! The options of a filter that a command creates: how they are read, replicated, and shown by
//! COMMAND DOCS.
//!
//! Options are whole words in any case. TIGHTENING, VALIDATESCALETO and a SEED of 32 bytes are
//! valkey-bloom's. A valkey-bloom primary that created a filter sends the SEED, and the same filter
//! is created here, with that TIGHTENING. Without such a SEED, TIGHTENING is checked and ignored.
//! VALIDATESCALETO always is: memory is requested when the filter grows.

use std::{ffi::CStr, ops::RangeInclusive};

use super::{number, refusal::Refusal};
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
    /// The shard of a sharded filter that the filter is.
    pub shard: Option<Shard>,
    /// How the filter forgets.
    pub window: Option<Rules>,
    /// Seed and tightening ratio of a filter as valkey-bloom creates it.
    pub valkey: Option<Valkey>,
    /// Whether a missing key is an error, and no filter is created.
    pub no_create: bool,
}

impl Options {
    /// Whether RedisBloom has no such filter: a word names a seed, counters, a window or a shard.
    pub fn only_here(&self) -> bool {
        let Self { error_rate, capacity, expansion, no_create, .. } = *self;
        *self != Self { error_rate, capacity, expansion, no_create, ..Self::default() }
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
    /// rate and capacity. RedisBloom's filters have no seed, and RedisBloom refuses the word.
    pub fn words(&self) -> Vec<Vec<u8>> {
        let Self { params, family, window } = self;
        let mut words = match params.expansion.factor() {
            Some(factor) => vec![text("EXPANSION"), text(factor)],
            None => vec![text("NONSCALING")],
        };
        match family {
            Family::Native => words.extend([text("SEED"), text(params.seed)]),
            Family::Valkey(Valkey { seed, tightening }) => {
                words.extend([text("TIGHTENING"), text(number::shortest(*tightening))]);
                words.extend([text("SEED"), seed.to_vec()]);
            }
            Family::RedisBloom(_) | Family::Guava => {}
        }
        if params.counts {
            words.push(text("COUNTING"));
        }
        if let Some(shard) = params.shard {
            words.extend([text("SHARD"), text(shard.index()), text(shard.count())]);
        }
        if let Some(Rules { span, generations, refresh }) = window {
            words.push(text("WINDOW"));
            match span {
                Span::Time(span) => words.extend([text("PX"), text(span)]),
                Span::Items => words.push(text("COUNT")),
            }
            words.extend([text("GENERATIONS"), text(generations)]);
            if !refresh {
                words.push(text("NOREFRESH"));
            }
        }
        words
    }
}

fn text(word: impl ToString) -> Vec<u8> {
    word.to_string().into()
}

/// An argument of a command, as COMMAND DOCS and the hints of `redis-cli` show it.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// Its name in the documentation, if that is not the token in small letters.
    pub name: Option<&'static CStr>,
    /// What it is, or the value behind the token.
    pub kind: Kind,
    /// The word that it is, or begins with.
    pub token: Option<&'static CStr>,
    /// Whether it may be left out.
    pub optional: bool,
    /// Whether it may be repeated, up to the last word.
    pub multiple: bool,
    /// The arguments of a block, or those to choose from.
    pub parts: &'static [Self],
}

/// What an argument is, with the number that the server has for it (`RedisModuleCommandArgType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of COMMAND DOCS")]
pub enum Kind {
    String = 0,
    Integer = 1,
    Double = 2,
    /// A key after the first one, which is only read.
    Key = 3,
    Token = 6,
    OneOf = 7,
    /// All parts, after the token.
    Block = 8,
    /// Not one argument, but the options of a new filter ([`taken`]).
    Options,
    /// Those that BF.RESERVE takes.
    ReserveOptions,
}

impl Argument {
    /// An argument that must be there once.
    pub const fn new(name: &'static CStr, kind: Kind) -> Self {
        let name = Some(name);
        Self { name, kind, token: None, optional: false, multiple: false, parts: &[] }
    }

    /// A word.
    pub const fn token(token: &'static CStr) -> Self {
        Self { name: None, token: Some(token), ..Self::new(token, Kind::Token) }
    }

    /// A word with a value of the same name.
    pub const fn valued(token: &'static CStr, kind: Kind) -> Self {
        Self { kind, ..Self::token(token) }
    }

    /// A word with values.
    pub const fn block(token: &'static CStr, parts: &'static [Self]) -> Self {
        Self { kind: Kind::Block, parts, ..Self::token(token) }
    }

    /// One of several arguments.
    pub const fn one_of(name: &'static CStr, parts: &'static [Self]) -> Self {
        Self { parts, ..Self::new(name, Kind::OneOf) }
    }
}

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

/// Every option: no other word is one, and COMMAND DOCS shows them. Each has an arm in
/// [`Draft::take`], a field of [`Options`], and words in [`Creation::words`].
const OPTIONS: &[(Place, Argument)] = &[
    (Place::Insert, Argument::valued(c"CAPACITY", Kind::Integer)),
    (Place::Insert, Argument::valued(c"ERROR", Kind::Double)),
    (Place::All, Argument::valued(c"EXPANSION", Kind::Integer)),
    (Place::Insert, Argument::token(c"NOCREATE")),
    (Place::All, Argument::token(c"NONSCALING")),
    (Place::Valkeys, Argument::valued(c"TIGHTENING", Kind::Double)),
    (Place::Own, Argument::valued(c"SEED", Kind::Integer)),
    (Place::Own, Argument::token(c"COUNTING")),
    (Place::Own, Argument::block(c"SHARD", &[INDEX, SHARDS])),
    (Place::Own, Argument::block(c"WINDOW", &[SPAN])),
    (Place::Own, Argument::valued(c"GENERATIONS", Kind::Integer)),
    (Place::Own, Argument::token(c"NOREFRESH")),
    (Place::Valkeys, Argument::valued(c"VALIDATESCALETO", Kind::Integer)),
];

const INDEX: Argument = Argument::new(c"index", Kind::Integer);
const SHARDS: Argument = Argument::new(c"shards", Kind::Integer);
const SPAN: Argument = Argument::one_of(
    c"span",
    &[
        Argument::block(c"EX", &[Argument::new(c"seconds", Kind::Integer)]),
        Argument::block(c"PX", &[Argument::new(c"milliseconds", Kind::Integer)]),
        Argument::token(c"COUNT"),
    ],
);

/// The options that BF.RESERVE takes, or BF.INSERT and BF.BULKADD.
pub fn taken(reserve: bool) -> impl Iterator<Item = &'static (Place, Argument)> {
    OPTIONS.iter().filter(move |(place, _)| !reserve || matches!(place, Place::All | Place::Own))
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
    /// Takes `word` and its values if it is an option, of BF.RESERVE if `reserve`. Returns whether
    /// it is.
    pub(super) fn take(
        &mut self,
        word: &[u8],
        words: &mut dyn Iterator<Item = &[u8]>,
        reserve: bool,
    ) -> Result<bool, Refusal> {
        let mut tokens = taken(reserve).filter_map(|(_, option)| option.token);
        let Some(token) = tokens.find(|token| word.eq_ignore_ascii_case(token.to_bytes())) else {
            return Ok(false);
        };
        let options = &mut self.options;
        match token.to_bytes() {
            b"CAPACITY" => options.capacity = Some(capacity(words)?),
            b"ERROR" => {
                options.error_rate = Some(rate(words.next(), [Refusal::INSERT_ERROR_RATE; 2])?);
            }
            b"EXPANSION" => {
                self.expands_last = true;
                self.factor = Some(factor(words.next(), reserve)?);
            }
            b"NOCREATE" => options.no_create = true,
            b"NONSCALING" => {
                self.expands_last = false;
                self.nonscaling = true;
            }
            b"TIGHTENING" => {
                self.tightening = Some(rate(words.next(), [Refusal::TIGHTENING; 2])?);
            }
            b"SEED" => {
                let word = words.next().ok_or(Refusal::ARITY)?;
                match <[u8; 32]>::try_from(word) {
                    Ok(seed) if !reserve => self.valkeys_seed = Some(seed),
                    _ => options.seed = Some(number::integer(word).ok_or(Refusal::BAD_SEED)?),
                }
            }
            b"COUNTING" => options.counts = true,
            b"SHARD" => {
                let mut number = || number::integer(words.next()?);
                let numbers = number().zip(number());
                let shard = numbers.and_then(|(index, count)| Shard::new(index, count));
                options.shard = Some(shard.ok_or(Refusal::BAD_SHARD)?);
            }
            b"WINDOW" => self.span = Some(span(words).ok_or(Refusal::WINDOW_SPAN)?),
            b"GENERATIONS" => {
                let number = words.next().and_then(number::integer);
                let number = number.filter(|number| (1..=MAX_GENERATIONS).contains(number));
                self.generations = Some(number.ok_or(Refusal::WINDOW_GENERATIONS)?);
            }
            b"NOREFRESH" => self.no_refresh = true,
            b"VALIDATESCALETO" => drop(capacity(words)?),
            _ => return Ok(false),
        }
        Ok(true)
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
    if !reserve {
        return integer(word, 0..=u32::MAX.into(), [Refusal::INSERT_EXPANSION; 2]);
    }
    let refusals = [Refusal::BAD_EXPANSION, Refusal::EXPANSION_RANGE];
    integer(Some(word.ok_or(Refusal::NO_EXPANSION)?), 0..=MAX_EXPANSION.into(), refusals)
}

fn capacity(words: &mut dyn Iterator<Item = &[u8]>) -> Result<u64, Refusal> {
    integer(words.next(), CAPACITIES, [Refusal::INSERT_CAPACITY; 2])
}

/// The range of capacities, in items.
pub(super) const CAPACITIES: RangeInclusive<u64> = 1..=MAX_CAPACITY;

/// An integer in the range; `bad` if it is not a 64-bit number, `outside` if it is another one.
pub(super) fn integer(
    word: Option<&[u8]>,
    range: RangeInclusive<u64>,
    [bad, outside]: [Refusal; 2],
) -> Result<u64, Refusal> {
    let number: i64 = number::integer(word.ok_or(Refusal::ARITY)?).ok_or(bad)?;
    u64::try_from(number).ok().filter(|number| range.contains(number)).ok_or(outside)
}

/// A number in (0, 1); `bad` if it is no number, `outside` if it is another one.
pub(super) fn rate(word: Option<&[u8]>, [bad, outside]: [Refusal; 2]) -> Result<f64, Refusal> {
    let rate = number::float(word.ok_or(Refusal::ARITY)?).ok_or(bad)?;
    if rate > 0.0 && rate < 1.0 { Ok(rate) } else { Err(outside) }
}

pub(super) fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}
