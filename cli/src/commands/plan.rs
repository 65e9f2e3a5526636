//! `redis-bloom plan`: the size of a filter before it is made. Needs a server only for --server.
//!
//! The sizes come from the library of the module (`expected_bytes`). A filter of bits has exactly
//! this size on a server. A filter of pages has it on average.

mod shards;

use std::fmt::Write as _;

use bloom::{
    command::number,
    filter::{Error as Refused, Expansion, Params, Rules, Span, expected_bytes},
    sharding::MAX_SHARDS,
};
use serde::Serialize;

use crate::{
    amount,
    connection::Options,
    error::{Error, Exit},
    memory::{Fit, Need, Room},
    output::{Column, Output, Style, Table},
    window::{self, Window, most_items},
};

/// Shows how much memory a filter takes, and whether a server has it
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Items that the filter holds in the end, such as 1000, 2.5M or 10G
    #[arg(long, value_name = "N", value_parser = amount::items)]
    items: u64,
    /// Highest rate of false positives, such as 0.001 or 0.1%
    #[arg(long, value_name = "P", value_parser = amount::rate)]
    error: f64,
    /// Chooses a filter that is reserved for fewer items, and grows
    #[arg(long, value_name = "N", value_parser = amount::items)]
    #[arg(conflicts_with_all = ["nonscaling", "window"])]
    initial: Option<u64>,
    /// Chooses the filter that does not grow
    #[arg(long)]
    nonscaling: bool,
    /// Chooses the filter with counters: items can be deleted
    #[arg(long, conflicts_with = "window")]
    counting: bool,
    /// Shows how many shards to create in a cluster with M primaries
    #[arg(long, value_name = "M")]
    #[arg(conflicts_with_all = ["initial", "nonscaling", "counting", "window"])]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=u64::from(MAX_SHARDS)))]
    nodes: Option<u64>,
    /// Largest shard: 256mb can move in every way, 512mb by MIGRATE, 2gb in Redis 8.4 and Valkey 9
    #[arg(long, value_name = "SIZE", default_value = "256mb", requires = "nodes")]
    #[arg(value_parser = amount::bytes)]
    max_shard: u64,
    /// Chooses this number of shards instead of the smallest that --max-shard allows
    #[arg(long, value_name = "N", requires = "nodes")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_SHARDS)))]
    shards: Option<u16>,
    /// Compares the filter with the memory of the server; exits with status 1 if it does not fit
    #[arg(long)]
    server: bool,
    #[command(flatten)]
    window: window::Options,
}

/// What is shown of a plan.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    planned: serde_json::Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<Fit>,
    #[serde(skip)]
    text: String,
}

impl Shown {
    fn of(planned: &impl Serialize, text: String) -> Self {
        // It has only numbers and names, so this does not fail.
        let planned = serde_json::to_value(planned).unwrap_or_default();
        Self { planned, server: None, text }
    }
}

/// Everything that is planned.
#[derive(Debug, Serialize)]
struct Planned {
    items: u64,
    filters: Vec<Variant>,
}

/// A filter that could be made.
#[derive(Debug, Serialize)]
struct Variant {
    /// Whether this is the filter of the options.
    chosen: bool,
    counting: bool,
    /// Whether it takes more items than it is reserved for.
    grows: bool,
    /// Items that it is reserved for.
    capacity: u64,
    error_rate: f64,
    /// Bytes with all items in it. For a window of items: bytes with the most items that it
    /// remembers.
    bytes: u64,
    bits_per_item: f64,
    /// Bytes with half of the items in it.
    bytes_at_half: u64,
    /// Bytes with twice as many items in it; null if it refuses them.
    bytes_at_double: Option<u64>,
    #[serde(flatten)]
    forgets: Option<Forgets>,
}

/// When a filter forgets.
#[derive(Debug, Serialize)]
struct Forgets {
    window: Window,
    /// Milliseconds, or items, after which an item is surely forgotten.
    forgotten_after: u64,
}

impl Forgets {
    fn of(rules: Rules, capacity: u64) -> Self {
        let forgotten_after = match rules.span {
            Span::Time(span) => span.saturating_add(span.div_ceil(rules.generations.into())),
            // The next generation starts with the item that fills the last.
            Span::Items => most_items(Some(rules), capacity) - 1,
        };
        Self { window: Window(rules), forgotten_after }
    }

    fn readable(&self) -> String {
        match self.window.0.span {
            Span::Time(_) => amount::readable_time(self.forgotten_after),
            Span::Items => format!("{} items", amount::readable_items(self.forgotten_after)),
        }
    }
}

/// What distinguishes a filter of the table from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    capacity: u64,
    grows: bool,
    counts: bool,
    rules: Option<Rules>,
}

impl Variant {
    /// What distinguishes it from the other filters of the table.
    fn name(&self, items: u64) -> String {
        let mut name = match self.grows {
            true if self.capacity != items => {
                format!("growing from {}", amount::readable_items(self.capacity))
            }
            true => "growing".to_owned(),
            false => "NONSCALING".to_owned(),
        };
        if self.counting {
            name += ", COUNTING";
        }
        if let Some(forgets) = &self.forgets {
            name += &format!(", GENERATIONS {}", forgets.window.0.generations);
        }
        name
    }
}

/// Bits that each item takes.
pub(super) fn bits_per_item(bytes: u64, items: u64) -> f64 {
    bytes as f64 * 8.0 / items.max(1) as f64
}

impl Arguments {
    pub(crate) fn run(&self, connection: &Options, output: &Output) -> Result<Exit, Error> {
        if self.error < LOWEST {
            output.remark("No filter keeps a rate below 1e-30: its hash has 128 bits.");
        } else if self.error < LOWEST_OF_PAGES {
            output.remark(
                "Below 1e-12 only NONSCALING filters of bits keep the rate, and growing ones up to \
                 their capacity.",
            );
        }
        let rules = self.window.rules(None)?;
        let coloured = output.coloured();
        let (shown, need) = match self.nodes {
            Some(nodes) => {
                let planned = self.planned_shards(nodes)?;
                (Shown::of(&planned, planned.text(coloured)), planned.need())
            }
            None => {
                let planned = self.planned(rules)?;
                let chosen = planned.filters.iter().filter(|filter| filter.chosen);
                let need = Need::of(chosen.map(|filter| filter.bytes));
                (Shown::of(&planned, planned.text(coloured)), need)
            }
        };
        self.show(shown, need, connection, output)
    }

    /// Shows what is planned and, with --server, whether it fits there.
    fn show(
        &self,
        mut shown: Shown,
        need: Need,
        connection: &Options,
        output: &Output,
    ) -> Result<Exit, Error> {
        let mut exit = Exit::Done;
        if self.server {
            let mut server = connection.target()?.connect()?;
            let room = Room::of(&mut server)?.ok_or_else(|| {
                Error::refused_partly(
                    format!("{}: its memory is unknown", server.target()),
                    "Give the user the right to INFO: ACL SETUSER ... +info.",
                )
            })?;
            let fit = Fit::of(room, need);
            shown.text += &format!("\n{}", fit.text());
            exit = if fit.fits { Exit::Done } else { Exit::No };
            shown.server = Some(fit);
        }
        output.data(&shown, &shown.text)?;
        Ok(exit)
    }

    fn planned(&self, rules: Option<Rules>) -> Result<Planned, Error> {
        let items = self.items;
        // A window of items does not grow.
        let counts = rules.is_some_and(|rules| rules.span == Span::Items);
        let grows = !self.nonscaling && !counts;
        let chosen =
            Kind { capacity: self.initial.unwrap_or(items), grows, counts: self.counting, rules };
        let plain = Kind { capacity: items, grows: true, counts: false, rules: None };
        let mut kinds = vec![chosen];
        match rules {
            None => kinds.extend([
                plain,
                Kind { grows: false, ..plain },
                Kind { capacity: UNRESERVED.min(items), ..plain },
                Kind { counts: true, ..plain },
            ]),
            Some(rules) => {
                kinds.extend((!counts).then_some(Kind { grows: !grows, ..chosen }));
                kinds.extend(GENERATIONS.map(|generations| Kind {
                    rules: Some(Rules { generations, ..rules }),
                    ..chosen
                }));
            }
        }
        let mut filters: Vec<Variant> = Vec::new();
        for (place, kind) in kinds.iter().enumerate() {
            if kinds[..place].contains(kind) {
                continue;
            }
            let variant = self.variant(*kind)?;
            filters.extend(variant.map(|it| Variant { chosen: place == 0, ..it }));
        }
        Ok(Planned { items, filters })
    }

    /// A filter; `None` if there is none of this kind.
    fn variant(&self, kind: Kind) -> Result<Option<Variant>, Error> {
        let Kind { capacity, grows, counts, rules } = kind;
        // A window of a few milliseconds cannot have that many generations.
        if rules.is_some_and(|rules| rules.check(grows).is_err()) {
            return Ok(None);
        }
        // The factor does not change the memory.
        let expansion = if grows { Expansion::stored(2) } else { Expansion::NONSCALING };
        let params =
            Params { error_rate: self.error, capacity, expansion, seed: 0, counts, shard: None };
        let bytes = |items| expected_bytes(&params, rules, items);
        let of = |items| bytes(items).map_err(|error| refused(&error, &params));
        let full = of(most_items(rules, self.items))?;
        Ok(Some(Variant {
            chosen: false,
            counting: counts,
            grows,
            capacity,
            error_rate: self.error,
            bytes: full,
            bits_per_item: bits_per_item(full, self.items),
            bytes_at_half: of(self.items.div_ceil(2))?,
            bytes_at_double: bytes(self.items.saturating_mul(2)).ok(),
            forgets: rules.map(|rules| Forgets::of(rules, capacity)),
        }))
    }
}

impl Planned {
    fn text(&self, coloured: bool) -> String {
        let forgets = self.filters.iter().any(|filter| filter.forgets.is_some());
        let more: &[_] = if forgets { &["FORGOTTEN AFTER"] } else { &["AT HALF", "AT DOUBLE"] };
        let mut columns = vec![Column::Text(" "), Column::Text("FILTER")];
        let numbers = [&["RATE", "MEMORY", "BITS/ITEM"], more].concat();
        columns.extend(numbers.into_iter().map(Column::Number));
        let mut table = Table::new(&columns);
        for filter in &self.filters {
            let mut cells = vec![
                if filter.chosen { "*" } else { " " }.to_owned(),
                filter.name(self.items),
                // All digits, for the option of `create`.
                number::shortest(filter.error_rate),
                amount::readable_bytes(filter.bytes),
                format!("{:.2}", filter.bits_per_item),
            ];
            match &filter.forgets {
                Some(forgets) => cells.push(forgets.readable()),
                None => {
                    let double = filter.bytes_at_double.map(amount::readable_bytes);
                    cells.push(amount::readable_bytes(filter.bytes_at_half));
                    cells.push(double.unwrap_or_else(|| "refused".to_owned()));
                }
            }
            table.row(cells, Style::Plain);
        }
        let mut text = table.text(coloured);
        let chosen = self.filters.iter().find(|filter| filter.chosen);
        if let Some(chosen) = chosen.filter(|filter| filter.bytes > LARGEST_KEY && !filter.counting)
        {
            let _ = write!(
                text,
                "\nOne key of {} is in one node, and its slot cannot be moved by MIGRATE \
                 (512 MB).\n--nodes M plans shards over the nodes of a cluster.",
                amount::readable_bytes(chosen.bytes),
            );
        }
        text
    }
}

/// The longest string of a server (`proto-max-bulk-len`): MIGRATE sends a key as one.
const LARGEST_KEY: u64 = 512 << 20;
/// The capacity of a filter that BF.ADD makes, unless the server's settings say otherwise.
const UNRESERVED: u64 = 100;
/// Numbers of generations that are shown beside the one of the options.
const GENERATIONS: [u8; 3] = [2, 4, 12];
/// The lowest rate that the module sizes for: a filter for a lower rate has the same size.
const LOWEST: f64 = 1e-30;
/// The lowest rate that the module sizes pages for.
const LOWEST_OF_PAGES: f64 = 1e-12;

/// Why the library makes no such filter.
pub(super) fn refused(error: &Refused, params: &Params) -> Error {
    let hint = match error {
        Refused::Capacity(_) => "Name 1 to 2^62 items.",
        _ => "Lower --items, or raise --error.",
    };
    Error::usage(
        format!("{} items at a rate of {}: {error}", params.capacity, params.error_rate),
        hint,
    )
}
