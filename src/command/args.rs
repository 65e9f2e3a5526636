//! The options of BF.RESERVE, BF.INSERT, BF.BULKADD, BF.IMPORT and BF.SHIFT: from arguments to a
//! typed value or a refusal. Needs no server.
//!
//! ```text
//!   RESERVE  key error capacity  [n] [COUNTING] [EXPANSION n] [NONSCALING] [SEED s] [SHARD i n]
//!            [WINDOW EX s | PX ms | COUNT] [GENERATIONS g] [NOREFRESH]
//!   INSERT   key  [ERROR e] [CAPACITY n] [COUNTING] [EXPANSION n] [NONSCALING] [SEED s] [NOCREATE]
//!            [SHARD i n] [TIGHTENING t] [VALIDATESCALETO n] [as RESERVE: a window]  ITEMS item ...
//!   BULKADD  key  [the options of INSERT]  LINES | LENGTHS | WIDTH n  blob
//!   BULKEXISTS key                         LINES | LENGTHS | WIDTH n  blob
//!   IMPORT   key  GUAVA bytes [CAPACITY n] [ERROR e]
//!            key  BITMAP source [GUAVA32 | GUAVA64] CAPACITY n ERROR e
//!   SHIFT    key  OPEN ms | FORGET ms | SWEEP pages
//! ```
//!
//! Options are whole words in any case. An unknown word is refused. NRedisStack sends the expansion
//! of RESERVE as a bare number after the capacity; it is accepted as EXPANSION.
//!
//! TIGHTENING and VALIDATESCALETO are valkey-bloom's options. The SEED of INSERT is a number, or 32
//! bytes. 32 bytes come from a valkey-bloom primary that created a filter: the same filter is
//! created here, with that TIGHTENING, and ITEMS may be missing. In all other cases TIGHTENING is
//! checked and ignored, because native filters have no such ratio. VALIDATESCALETO is always
//! checked and ignored: memory is requested when the filter grows.
//!
//! This file reads what clients may write. `replayed.rs` reads commands from a primary or an AOF,
//! and accepts more.

use std::num::NonZeroUsize;

use crate::{
    codec::{
        guava::{Purpose, Strategy},
        packed::{Format, MAX_WIDTH},
    },
    filter::{
        CellKind, Expansion, MAX_CAPACITY, MAX_GENERATIONS, Rules, Span, TIGHTENING, Valkey,
        paged::Shift,
    },
    sharding::Shard,
};

use super::{number, refusal::Refusal};

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
    /// Whether the filter has bits or counters.
    pub cells: CellKind,
    /// The shard of a sharded filter that the filter is; `None` for a filter that takes all items.
    pub shard: Option<Shard>,
    /// How the filter forgets; `None` for one that does not.
    pub window: Option<Rules>,
    /// Seed and tightening ratio of a filter as valkey-bloom creates it; `None` for a native
    /// filter.
    pub valkey: Option<Valkey>,
}

/// The arguments of BF.INSERT before its items.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Insert {
    /// How to create the filter if the key does not exist.
    pub options: Options,
    /// Whether a missing key is an error.
    pub no_create: bool,
    /// Whether the word ITEMS is present.
    pub has_items: bool,
}

/// The arguments of BF.BULKADD before its blob.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BulkAdd {
    /// How to create the filter if the key does not exist.
    pub options: Options,
    /// Whether a missing key is an error.
    pub no_create: bool,
    /// How the items are packed.
    pub format: Format,
}

/// Parses the arguments of BF.RESERVE after the key.
pub fn reserve<'a>(mut words: impl Iterator<Item = &'a [u8]> + Clone) -> Result<Options, Refusal> {
    let error_rate =
        number::float(words.next().ok_or(Refusal::Arity)?).ok_or(Refusal::BadErrorRate)?;
    if !is_rate(error_rate) {
        return Err(Refusal::ErrorRateRange);
    }
    let capacity =
        number::integer(words.next().ok_or(Refusal::Arity)?).ok_or(Refusal::BadCapacity)?;
    let capacity =
        in_range(capacity, MAX_CAPACITY).filter(|&n| n > 0).ok_or(Refusal::CapacityRange)?;
    let mut options =
        Options { error_rate: Some(error_rate), capacity: Some(capacity), ..Options::default() };
    let (mut expansion, mut nonscaling, mut window) = (None, false, WindowWords::default());
    // NRedisStack may send the bare number together with NONSCALING; NONSCALING wins.
    let bare = words.clone().next().and_then(|word| factor(number::integer(word)?));
    if bare.is_some() {
        words.next();
    }
    while let Some(word) = words.next() {
        if is(word, "EXPANSION") {
            let number = number::integer(words.next().ok_or(Refusal::NoExpansion)?);
            expansion =
                Some(factor(number.ok_or(Refusal::BadExpansion)?).ok_or(Refusal::ExpansionRange)?);
        } else if is(word, "NONSCALING") {
            nonscaling = true;
        } else if is(word, "COUNTING") {
            options.cells = CellKind::Counters;
        } else if is(word, "SEED") {
            options.seed = Some(
                number::unsigned(words.next().ok_or(Refusal::NoSeed)?).ok_or(Refusal::BadSeed)?,
            );
        } else if is(word, "SHARD") {
            options.shard = Some(shard(&mut words)?);
        } else if !window.take(word, &mut words)? {
            let behind = u8::try_from(words.count()).unwrap_or(u8::MAX);
            return Err(Refusal::UnknownOption { behind });
        }
    }
    options.expansion = match expansion {
        Some(stated) if nonscaling && stated.factor().is_some() => {
            return Err(Refusal::NonscalingExpands);
        }
        _ if nonscaling => Some(Expansion::NONSCALING),
        stated => stated.or(bare),
    };
    window.complete(&mut options)?;
    Ok(options)
}

/// Parses the arguments of BF.INSERT after the key, up to and including ITEMS. Leaves the items in
/// `words`. With a seed of 32 bytes, ITEMS may be missing.
pub fn insert<'a>(words: &mut impl Iterator<Item = &'a [u8]>) -> Result<Insert, Refusal> {
    let (options, no_create, items) =
        creation(words, |word, _| Ok(is(word, "ITEMS").then_some(())))?;
    Ok(Insert { options, no_create, has_items: items.is_some() })
}

/// Parses the arguments of BF.BULKADD after the key, up to and including the format. Leaves the
/// blob in `words`.
pub fn bulk_add<'a>(words: &mut impl Iterator<Item = &'a [u8]>) -> Result<BulkAdd, Refusal> {
    let (options, no_create, format) = creation(words, packed_format)?;
    Ok(BulkAdd { options, no_create, format: format.ok_or(Refusal::Arity)? })
}

/// Parses the arguments of BF.BULKEXISTS after the key, up to and including the format. Leaves the
/// blob in `words`.
pub fn bulk_exists<'a>(words: &mut impl Iterator<Item = &'a [u8]>) -> Result<Format, Refusal> {
    let word = words.next().ok_or(Refusal::Arity)?;
    packed_format(word, words)?.ok_or(Refusal::UnknownArgument)
}

/// Reads the format of a packed batch if `word` begins it, else `None`.
fn packed_format<'a>(
    word: &[u8],
    words: &mut impl Iterator<Item = &'a [u8]>,
) -> Result<Option<Format>, Refusal> {
    Ok(if is(word, "LINES") {
        Some(Format::Lines)
    } else if is(word, "LENGTHS") {
        Some(Format::Lengths)
    } else if is(word, "WIDTH") {
        let width = number::unsigned(words.next().ok_or(Refusal::Arity)?);
        let width = width.and_then(|width| usize::try_from(width).ok());
        let width = width.filter(|&width| width <= MAX_WIDTH).and_then(NonZeroUsize::new);
        Some(Format::Width(width.ok_or(Refusal::BadWidth)?))
    } else {
        None
    })
}

/// Parses the options of a filter that a command creates, and NOCREATE, up to the word for which
/// `end` returns a value. `end` may take further words. With a seed of 32 bytes, that word may be
/// missing.
fn creation<'a, I: Iterator<Item = &'a [u8]>, T>(
    words: &mut I,
    end: impl Fn(&'a [u8], &mut I) -> Result<Option<T>, Refusal>,
) -> Result<(Options, bool, Option<T>), Refusal> {
    let (mut options, mut no_create, mut last) = (Options::default(), false, None);
    let (mut factor, mut nonscaling, mut expands_last) = (None, false, false);
    let (mut keys, mut tightening, mut scale_to) = (None, None, false);
    let mut window = WindowWords::default();
    while let Some(word) = words.next() {
        last = end(word, words)?;
        if last.is_some() {
            break;
        } else if is(word, "NOCREATE") {
            no_create = true;
        } else if is(word, "NONSCALING") {
            (nonscaling, expands_last) = (true, false);
        } else if is(word, "COUNTING") {
            options.cells = CellKind::Counters;
        } else if is(word, "ERROR") {
            options.error_rate = Some(rate(words.next())?.ok_or(Refusal::InsertErrorRate)?);
        } else if is(word, "CAPACITY") {
            options.capacity = Some(capacity(words.next())?);
        } else if is(word, "EXPANSION") {
            let number = number::integer(words.next().ok_or(Refusal::Arity)?);
            let number = number.and_then(|n| in_range(n, u32::MAX.into()));
            (factor, expands_last) = (Some(number.ok_or(Refusal::InsertExpansion)?), true);
        } else if is(word, "SEED") {
            let word = words.next().ok_or(Refusal::Arity)?;
            match <[u8; 32]>::try_from(word) {
                Ok(seed) => keys = Some(seed),
                Err(_) => options.seed = Some(number::unsigned(word).ok_or(Refusal::InsertSeed)?),
            }
        } else if is(word, "SHARD") {
            options.shard = Some(shard(words)?);
        } else if is(word, "TIGHTENING") {
            tightening = Some(rate(words.next())?.ok_or(Refusal::Tightening)?);
        } else if is(word, "VALIDATESCALETO") {
            capacity(words.next())?;
            scale_to = true;
        } else if !window.take(word, words)? {
            return Err(Refusal::UnknownArgument);
        }
    }
    if last.is_none() && keys.is_none() {
        return Err(Refusal::Arity);
    }
    if scale_to && nonscaling {
        return Err(Refusal::ScalesNot);
    }
    // valkey-bloom never writes these together with its seed.
    let own = options.seed.is_some() || options.shard.is_some();
    if keys.is_some() && (own || options.cells == CellKind::Counters) {
        return Err(Refusal::InsertSeed);
    }
    options.valkey = keys.map(|seed| Valkey { seed, tightening: tightening.unwrap_or(TIGHTENING) });
    let expansion = match factor {
        None => None,
        // valkey-bloom has no upper limit.
        Some(factor) if keys.is_some() => u32::try_from(factor).ok().map(Expansion::stored),
        Some(factor) => Some(Expansion::new(factor).map_err(|_| Refusal::InsertExpansion)?),
    };
    // redis-py sends both options. In RedisBloom NONSCALING wins, in valkey-bloom the last one.
    options.expansion = if nonscaling && !(keys.is_some() && expands_last) {
        Some(Expansion::NONSCALING)
    } else {
        expansion
    };
    window.complete(&mut options)?;
    Ok((options, no_create, last))
}

/// Generations of a window that does not say how many.
const GENERATIONS: u8 = 4;

/// The words of a window that a command has.
#[derive(Default)]
struct WindowWords {
    span: Option<Span>,
    generations: Option<u8>,
    no_refresh: bool,
}

impl WindowWords {
    /// Takes `word` and its value if it belongs to a window. Returns whether it does.
    fn take<'a>(
        &mut self,
        word: &[u8],
        words: &mut impl Iterator<Item = &'a [u8]>,
    ) -> Result<bool, Refusal> {
        if is(word, "WINDOW") {
            self.span = Some(span(words).ok_or(Refusal::WindowSpan)?);
        } else if is(word, "GENERATIONS") {
            let number = words.next().and_then(number::unsigned);
            let number = number.and_then(|number| u8::try_from(number).ok());
            let number = number.filter(|number| (1..=MAX_GENERATIONS).contains(number));
            self.generations = Some(number.ok_or(Refusal::WindowGenerations)?);
        } else if is(word, "NOREFRESH") {
            self.no_refresh = true;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Adds the window to the options, whose other words were read. A window of items has no
    /// expansion, whatever the configuration says.
    fn complete(self, options: &mut Options) -> Result<(), Refusal> {
        let Some(span) = self.span else {
            return if self.no_refresh || self.generations.is_some() {
                Err(Refusal::WindowMissing)
            } else {
                Ok(())
            };
        };
        if span == Span::Items {
            options.expansion.get_or_insert(Expansion::NONSCALING);
        }
        let scales = options.expansion.is_some_and(|expansion| expansion.factor().is_some());
        let generations = self.generations.unwrap_or(GENERATIONS);
        let rules = Rules { span, generations, refresh: !self.no_refresh };
        if options.cells == CellKind::Counters || options.valkey.is_some() {
            return Err(Refusal::WindowKind);
        }
        if span == Span::Items && scales {
            return Err(Refusal::WindowScales);
        }
        rules.check(scales).map_err(|_| Refusal::WindowSpan)?;
        options.window = Some(rules);
        Ok(())
    }
}

/// What a window remembers: a time in seconds or milliseconds, or as many items as the capacity.
fn span<'a>(words: &mut impl Iterator<Item = &'a [u8]>) -> Option<Span> {
    let word = words.next()?;
    if is(word, "COUNT") {
        return Some(Span::Items);
    }
    let unit = if is(word, "EX") {
        1_000
    } else if is(word, "PX") {
        1
    } else {
        return None;
    };
    number::unsigned(words.next()?)?.checked_mul(unit).map(Span::Time)
}

/// The source of a BF.IMPORT.
#[derive(Clone, Copy)]
pub enum Import {
    /// The bytes of a Guava filter, and the purpose if the client gives it.
    Guava(Option<Purpose>),
    /// A bitmap in another key.
    Bitmap(Strategy, Purpose),
}

/// Parses BF.IMPORT: `form` is GUAVA or BITMAP, `words` are the arguments after the bytes or the
/// source key.
pub fn import<'a>(
    form: &[u8],
    mut words: impl Iterator<Item = &'a [u8]>,
) -> Result<Import, Refusal> {
    let bitmap = is(form, "BITMAP");
    if !bitmap && !is(form, "GUAVA") {
        return Err(Refusal::UnknownArgument);
    }
    let (mut strategy, mut items, mut error_rate) = (Strategy::Mitz32, None, None);
    while let Some(word) = words.next() {
        if is(word, "CAPACITY") {
            items = Some(capacity(words.next())?);
        } else if is(word, "ERROR") {
            error_rate = Some(rate(words.next())?.ok_or(Refusal::InsertErrorRate)?);
        } else if bitmap && is(word, "GUAVA32") {
            strategy = Strategy::Mitz32;
        } else if bitmap && is(word, "GUAVA64") {
            strategy = Strategy::Mitz64;
        } else {
            return Err(Refusal::UnknownArgument);
        }
    }
    let purpose = match (items, error_rate) {
        (Some(capacity), Some(error_rate)) => Some(Purpose { capacity, error_rate }),
        (None, None) => None,
        // CAPACITY and ERROR are useful only together.
        _ => return Err(Refusal::Arity),
    };
    if bitmap {
        Ok(Import::Bitmap(strategy, purpose.ok_or(Refusal::Arity)?))
    } else {
        Ok(Import::Guava(purpose))
    }
}

/// A shard: its number, and the number of shards.
fn shard<'a>(words: &mut impl Iterator<Item = &'a [u8]>) -> Result<Shard, Refusal> {
    let mut number =
        || number::unsigned(words.next()?).and_then(|number| u16::try_from(number).ok());
    let numbers = number().zip(number());
    numbers.and_then(|(index, count)| Shard::new(index, count)).ok_or(Refusal::BadShard)
}

/// A number in (0, 1); `None` for anything else.
fn rate(word: Option<&[u8]>) -> Result<Option<f64>, Refusal> {
    let word = word.ok_or(Refusal::Arity)?;
    Ok(number::float(word).filter(|&rate| is_rate(rate)))
}

/// A capacity in items, in [1, `MAX_CAPACITY`].
fn capacity(word: Option<&[u8]>) -> Result<u64, Refusal> {
    let number = number::integer(word.ok_or(Refusal::Arity)?);
    let capacity = number.and_then(|n| in_range(n, MAX_CAPACITY)).filter(|&n| n > 0);
    capacity.ok_or(Refusal::InsertCapacity)
}

pub(super) fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

pub(super) fn is_rate(rate: f64) -> bool {
    rate > 0.0 && rate < 1.0
}

fn in_range(number: i64, most: u64) -> Option<u64> {
    u64::try_from(number).ok().filter(|&number| number <= most)
}

fn factor(number: i64) -> Option<Expansion> {
    Expansion::new(u64::try_from(number).ok()?).ok()
}

/// Parses the arguments of BF.SHIFT after the key.
pub fn shift(word: &[u8], number: &[u8]) -> Result<Shift, Refusal> {
    let time = || number::integer(number).ok_or(Refusal::BadShift);
    let pages = || number::unsigned(number).ok_or(Refusal::BadShift);
    match word {
        word if is(word, OPEN) => Ok(Shift::Open { start: time()? }),
        word if is(word, FORGET) => Ok(Shift::Forget { start: time()? }),
        word if is(word, SWEEP) => Ok(Shift::Sweep { pages: pages()? }),
        _ => Err(Refusal::BadShift),
    }
}

/// The arguments of BF.SHIFT for a shift.
pub fn shift_words(shift: Shift) -> (&'static str, String) {
    match shift {
        Shift::Open { start } => (OPEN, start.to_string()),
        Shift::Forget { start } => (FORGET, start.to_string()),
        Shift::Sweep { pages } => (SWEEP, pages.to_string()),
    }
}

/// The words of BF.SHIFT.
const OPEN: &str = "OPEN";
const FORGET: &str = "FORGET";
const SWEEP: &str = "SWEEP";
