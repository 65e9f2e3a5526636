//! Sliding-window filters (docs/guide/windows.md): the options of a window, and what a server
//! reports about it.

use std::fmt;

use bloom::filter::{Expansion, MAX_GENERATIONS, Rules, Span};
use redis::Value;
use serde::{Serialize, Serializer, ser::SerializeStruct as _};

use crate::{
    amount,
    error::Error,
    reply::{field, number, text, truth},
};

/// The parts of a window if no number is given, as in `BF.RESERVE`.
const GENERATIONS: u8 = 4;

/// The options of a filter that forgets.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
pub(crate) struct Options {
    /// Makes a sliding-window filter: it forgets items older than a time such as 24h or 7d, or with
    /// `count` all but the last --items items
    #[arg(long, value_name = "TIME|count", value_parser = span)]
    window: Option<Span>,
    /// Parts of the window: items are forgotten at most one part late
    #[arg(long, value_name = "G", default_value_t = GENERATIONS, requires = "window")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_GENERATIONS)))]
    generations: u8,
    /// Remembers an item since it was added first, not since it was added last
    #[arg(long, requires = "window")]
    no_refresh: bool,
}

/// Reads a window: a time, or the word `count`.
fn span(text: &str) -> Result<Span, String> {
    if text.eq_ignore_ascii_case("count") {
        return Ok(Span::Items);
    }
    let wrong = || format!("{text}: neither a time such as 24h or 7d nor the word count");
    if text.parse::<f64>().is_ok() {
        return Err(format!("{text}: name the unit, such as {text}h or {text}s"));
    }
    let time = amount::positive_time(text).map_err(|_| wrong())?;
    u64::try_from(time.as_millis()).map(Span::Time).map_err(|_| wrong())
}

impl Options {
    /// The rules of the window; `None` for a filter that does not forget.
    ///
    /// # Errors
    /// `Error::usage` for a window that no filter has, and for one of items that is to grow.
    pub(crate) fn rules(&self, expansion: Option<u64>) -> Result<Option<Rules>, Error> {
        let Some(span) = self.window else { return Ok(None) };
        let rules = Rules { span, generations: self.generations, refresh: !self.no_refresh };
        // A window of items does not grow, so nothing but an expansion can be wrong with it.
        let hint = match span {
            Span::Items => "A window of items does not grow: leave out --expansion.",
            Span::Time(_) => "It may have from one millisecond for each generation to 3650 days.",
        };
        let scales = span == Span::Items && expansion.is_some();
        rules.check(scales).map(|()| Some(rules)).map_err(|error| {
            Error::usage(format!("{}: {error}", amount::readable_span(span)), hint)
        })
    }
}

/// How a filter grows: by `factor`, but a window of items does not grow.
pub(crate) fn expansion_of(rules: Option<Rules>, factor: u64) -> Result<Expansion, Error> {
    let counts = rules.is_some_and(|rules| rules.span == Span::Items);
    Expansion::new(if counts { 0 } else { factor })
        .map_err(|error| Error::usage(error.to_string(), "Lower --expansion."))
}

/// The most items that are in a filter before it is larger than it was made for.
pub(crate) fn most_items(rules: Option<Rules>, capacity: u64) -> u64 {
    match rules {
        // The oldest generation goes when the newest of G + 1 is full.
        Some(Rules { span: Span::Items, generations, .. }) => {
            let generations = u64::from(generations);
            capacity.div_ceil(generations).saturating_mul(generations + 1)
        }
        _ => capacity,
    }
}

/// The words of `BF.RESERVE` for a window.
pub(crate) fn words(rules: Rules) -> Vec<String> {
    let mut words = vec!["WINDOW".to_owned()];
    match rules.span {
        Span::Items => words.push("COUNT".to_owned()),
        Span::Time(ms) if ms % 1000 == 0 => {
            words.extend(["EX".to_owned(), (ms / 1000).to_string()]);
        }
        Span::Time(ms) => words.extend(["PX".to_owned(), ms.to_string()]),
    }
    if rules.generations != GENERATIONS {
        words.extend(["GENERATIONS".to_owned(), rules.generations.to_string()]);
    }
    if !rules.refresh {
        words.push("NOREFRESH".to_owned());
    }
    words
}

/// How a filter forgets, as a server says: `BF.INFO key WINDOW`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window(pub(crate) Rules);

/// With the kind, as the server says it.
impl Serialize for Window {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (kind, milliseconds) = match self.0.span {
            Span::Time(milliseconds) => ("time", Some(milliseconds)),
            Span::Items => ("count", None),
        };
        let mut fields = serializer.serialize_struct("Window", 4)?;
        fields.serialize_field("kind", kind)?;
        fields.serialize_field("milliseconds", &milliseconds)?;
        fields.serialize_field("generations", &self.0.generations)?;
        fields.serialize_field("refresh", &self.0.refresh)?;
        fields.end()
    }
}

impl fmt::Display for Window {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rules { span, generations, refresh } = self.0;
        match span {
            Span::Time(span) => write!(formatter, "{}", amount::readable_time(span))?,
            Span::Items => formatter.write_str("the last items")?,
        }
        let since = if refresh { "last" } else { "first (NOREFRESH)" };
        write!(formatter, " in {generations} generations, since an item was added {since}")
    }
}

impl Window {
    /// Reads the map in the reply of the server; `None` for anything else.
    pub(crate) fn from_reply(reply: &Value) -> Option<Self> {
        let field = |name: &str| field(reply, name);
        let number = |name: &str| number(field(name)?);
        let span = match field("Kind").and_then(text)? {
            "time" => Span::Time(number("Milliseconds")?),
            "count" => Span::Items,
            _ => return None,
        };
        let generations = u8::try_from(number("Generations")?).ok()?;
        Some(Self(Rules { span, generations, refresh: truth(field("Refresh")?)? }))
    }
}
