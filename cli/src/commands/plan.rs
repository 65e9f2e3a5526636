//! `redis-bloom plan`: the size of a filter before it is made. Asks no server.
//!
//! The sizes come from the library of the module (`Plan::for_items`), so the filter that a server
//! makes has exactly these bytes.

mod shards;
mod window;

use std::fmt::Write as _;

use bloom::{
    command::number,
    filter::{CellKind, Error as Refused, Expansion, MAX_EXPANSION, Params, Plan},
    sharding::MAX_SHARDS,
};
use serde::Serialize;

use crate::{
    amount,
    error::{Error, Exit},
    output::{Column, Output, Style, Table},
    window as forgetting,
};

/// Shows how much memory a filter takes, without a server
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Items that the filter holds in the end, such as 1000, 2.5M or 10G
    #[arg(long, value_name = "N", value_parser = amount::items)]
    items: u64,
    /// Highest rate of false positives, such as 0.001 or 0.1%
    #[arg(long, value_name = "P", value_parser = amount::rate)]
    #[arg(required_unless_present = "max_memory")]
    error: Option<f64>,
    /// Finds the lowest rate, in three digits, whose filter fits into this memory, such as 256mb
    /// (mb are 1024^2 bytes, as in redis.conf; the MB of the answer are 10^6)
    #[arg(long, value_name = "SIZE", value_parser = amount::bytes, conflicts_with = "error")]
    max_memory: Option<u64>,
    /// Shows also a filter that is reserved for fewer items, and grows
    #[arg(long, value_name = "N", value_parser = amount::items)]
    #[arg(conflicts_with_all = ["nonscaling", "window"])]
    initial: Option<u64>,
    /// Size of each new layer over the size of the one before
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=u64::from(MAX_EXPANSION)))]
    expansion: u64,
    /// Chooses the filter that does not grow
    #[arg(long)]
    nonscaling: bool,
    /// Chooses the filter with counters: items can be deleted
    #[arg(long, conflicts_with = "window")]
    counting: bool,
    /// Shows into how many shards to divide it over so many primaries of a cluster
    #[arg(long, value_name = "M", requires = "error")]
    #[arg(conflicts_with_all = ["max_memory", "initial", "expansion", "nonscaling", "counting"])]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=u64::from(MAX_SHARDS)))]
    nodes: Option<u64>,
    /// Largest shard: 256mb move by every means, 512mb by MIGRATE, 2gb by Redis 8.4 and Valkey 9
    #[arg(long, value_name = "SIZE", default_value = "256mb", requires = "nodes")]
    #[arg(value_parser = amount::bytes)]
    max_shard: u64,
    /// Chooses this number of shards, in place of the smallest that --max-shard allows
    #[arg(long, value_name = "N", requires = "nodes")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_SHARDS)))]
    shards: Option<u16>,
    /// Replicas of each primary
    #[arg(long, value_name = "R", default_value_t = 0, requires = "nodes")]
    #[arg(value_parser = clap::value_parser!(u64).range(..=1000))]
    replicas: u64,
    #[command(flatten)]
    window: forgetting::Options,
}

/// Everything that is planned.
#[derive(Debug, Serialize)]
struct Planned {
    items: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_memory_bytes: Option<u64>,
    filters: Vec<Variant>,
}

/// A filter that could be made.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Variant {
    /// Whether this is the filter of the options.
    chosen: bool,
    pub(super) counting: bool,
    /// Size of each new layer over the size of the one before; null if the filter does not grow.
    expansion: Option<u64>,
    /// Items that it is reserved for.
    capacity: u64,
    error_rate: f64,
    /// Bytes with all items in it.
    pub(super) bytes: u64,
    pub(super) bits_per_item: f64,
    /// Bytes when half of the items are in it.
    bytes_at_half: u64,
    layers: usize,
    /// Bits or counters that an item sets in the first layer.
    probes: u16,
    /// Bytes that the filter adds when it gets more items than its layers are made for; null if it
    /// refuses them.
    next_layer_bytes: Option<u64>,
}

impl Variant {
    /// The filter of `params` with `items` items in it.
    pub(super) fn of(params: &Params, items: u64) -> Result<Self, Error> {
        let plan = Plan::for_items(params, items).map_err(|error| refused(&error, params))?;
        let half = Plan::for_items(params, items.div_ceil(2));
        let half = half.map_err(|error| refused(&error, params))?;
        let full: u64 = plan.layers.iter().map(|layer| layer.capacity).fold(0, u64::saturating_add);
        let next = full.checked_add(1).and_then(|more| Plan::for_items(params, more).ok());
        Ok(Self {
            chosen: false,
            counting: params.cells == CellKind::Counters,
            expansion: params.expansion.factor().map(u64::from),
            capacity: params.capacity,
            error_rate: params.error_rate,
            bytes: plan.bytes(),
            bits_per_item: bits_per_item(plan.bytes(), items),
            bytes_at_half: half.bytes(),
            layers: plan.layers.len(),
            probes: plan.layers.first().map_or(0, |layer| layer.shape.probes()),
            next_layer_bytes: next.map(|next| next.bytes().saturating_sub(plan.bytes())),
        })
    }

    /// What distinguishes it from the other filters of the table.
    fn name(&self, items: u64) -> String {
        let mut name = match self.expansion {
            Some(_) if self.capacity != items => {
                format!("growing from {}", amount::readable_items(self.capacity))
            }
            Some(_) => "growing".to_owned(),
            None => "NONSCALING".to_owned(),
        };
        if self.counting {
            name += ", COUNTING";
        }
        name
    }
}

/// Bits that each item takes.
pub(super) fn bits_per_item(bytes: u64, items: u64) -> f64 {
    bytes as f64 * 8.0 / items.max(1) as f64
}

impl Arguments {
    pub(crate) fn run(&self, output: &Output) -> Result<Exit, Error> {
        if self.error.is_some_and(|rate| rate < rate_of(0)) {
            output.remark("No filter keeps a rate below 1e-30: its hash has 128 bits.");
        }
        // The default of --expansion is for filters that grow.
        let rules = self.window.rules((self.expansion != 2).then_some(self.expansion))?;
        if let Some((nodes, rate)) = self.nodes.zip(self.error) {
            let planned = self.planned_shards(nodes, rate, rules)?;
            output.data(&planned, planned.text(output.coloured()))?;
            return Ok(Exit::Done);
        }
        if let Some(rules) = rules {
            let planned = self.planned_window(rules)?;
            output.data(&planned, planned.text(output.coloured()))?;
            return Ok(Exit::Done);
        }
        let planned = self.planned()?;
        output.data(&planned, planned.text(output.coloured()))?;
        Ok(Exit::Done)
    }

    fn planned(&self) -> Result<Planned, Error> {
        let cells = if self.counting { CellKind::Counters } else { CellKind::Bits };
        let factor = if self.nonscaling { 0 } else { self.expansion };
        let chosen = (self.initial.unwrap_or(self.items), factor, cells);
        let mut choices = vec![
            (self.items, self.expansion, CellKind::Bits),
            (self.items, 0, CellKind::Bits),
            (self.items, self.expansion, CellKind::Counters),
        ];
        if !choices.contains(&chosen) {
            choices.insert(0, chosen);
        }
        let mut filters = Vec::new();
        for choice in choices {
            let (capacity, expansion, cells) = choice;
            let expansion = Expansion::new(expansion)
                .map_err(|error| Error::usage(error.to_string(), "Lower --expansion."))?;
            let mut params = Params { error_rate: 0.5, capacity, expansion, seed: 0, cells };
            let plan = |params: &Params| Plan::for_items(params, self.items);
            match (self.error, self.max_memory) {
                (Some(rate), _) => params.error_rate = rate,
                (None, Some(memory)) => match lowest_rate(params, memory, plan)? {
                    Some(rate) => params.error_rate = rate,
                    // The other filters may fit.
                    None if choice != chosen => continue,
                    None => return Err(too_small(memory, self.items)),
                },
                (None, None) => {}
            }
            let filter = Variant::of(&params, self.items)?;
            filters.push(Variant { chosen: choice == chosen, ..filter });
        }
        Ok(Planned { items: self.items, max_memory_bytes: self.max_memory, filters })
    }
}

impl Planned {
    fn text(&self, coloured: bool) -> String {
        let mut table = Table::new(&[
            Column::Text(" "),
            Column::Text("FILTER"),
            Column::Number("RATE"),
            Column::Number("MEMORY"),
            Column::Number("BITS/ITEM"),
            Column::Number("LAYERS"),
            Column::Number("PROBES"),
            Column::Number("AT HALF"),
            Column::Number("NEXT LAYER"),
        ]);
        for filter in &self.filters {
            let next = filter.next_layer_bytes.map_or_else(
                || "refused".to_owned(),
                |bytes| format!("+{}", amount::readable_bytes(bytes)),
            );
            let cells = vec![
                if filter.chosen { "*" } else { " " }.to_owned(),
                filter.name(self.items),
                // All digits: the rate is what `create` shall be asked for.
                number::shortest(filter.error_rate),
                amount::readable_bytes(filter.bytes),
                format!("{:.2}", filter.bits_per_item),
                filter.layers.to_string(),
                filter.probes.to_string(),
                amount::readable_bytes(filter.bytes_at_half),
                next,
            ];
            table.row(cells, Style::Plain);
        }
        let mut text = table.text(coloured);
        let mut same = self.filters.iter().rev();
        if let Some(grown) = self.filters.iter().find(|filter| filter.layers > 1)
            && let Some(reserved) = same.find(|filter| {
                filter.layers == 1
                    && filter.counting == grown.counting
                    && filter.expansion.is_some()
            })
        {
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "\nGrowing from {}: {:.1} times the memory, and {} layers. A question about an\n\
                 absent item reads each layer.",
                amount::readable_items(grown.capacity),
                grown.bytes as f64 / reserved.bytes as f64,
                grown.layers,
            );
        }
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
/// The number of rates of three digits in a factor of ten.
const RATES_PER_DECADE: u32 = 900;
/// The lowest power of ten that is tried. The module sizes lower rates as 1e-30.
const LOWEST: i32 = -30;
/// The number of rates of three digits from 1e-30 up to 0.999.
const RATES: u32 = RATES_PER_DECADE * LOWEST.unsigned_abs();

/// Steps below a rate that fits where others may fit, too.
const STEPS_BELOW: u32 = 200;

/// Rate number `index`: 1.00e-30, 1.01e-30 ... 0.999.
fn rate_of(index: u32) -> f64 {
    let digits = 100 + index % RATES_PER_DECADE;
    let exponent = LOWEST - 2 + (index / RATES_PER_DECADE).cast_signed();
    // The double next to the decimal number, as the server reads it.
    format!("{digits}e{exponent}").parse().unwrap_or(1.0)
}

/// The lowest rate, in three digits, whose filter takes at most `memory` bytes; `None` if there is
/// none. `plan` is the filter of some parameters.
fn lowest_rate(
    params: Params,
    memory: u64,
    plan: impl Fn(&Params) -> Result<Plan, Refused>,
) -> Result<Option<f64>, Error> {
    let fits = |index| {
        let params = Params { error_rate: rate_of(index), ..params };
        match plan(&params) {
            Ok(plan) => Ok(plan.bytes() <= memory),
            Err(Refused::Ceiling { .. }) => Ok(false),
            Err(error) => Err(refused(&error, &params)),
        }
    };
    let (mut low, mut high) = (0, RATES);
    while low < high {
        let middle = low.midpoint(high);
        if fits(middle)? {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    if low == RATES {
        return Ok(None);
    }
    // A lower rate nearly always takes more memory. At 1e-3 and 1e-4 it may take 2 % less, because
    // the sizing allows less for blocks there. At 15 bits an item, 2 % is what a rate lower by a
    // seventh takes, which is at most 143 of these steps.
    for index in low.saturating_sub(STEPS_BELOW)..low {
        if fits(index)? {
            return Ok(Some(rate_of(index)));
        }
    }
    Ok(Some(rate_of(low)))
}

fn too_small(memory: u64, items: u64) -> Error {
    Error::usage(
        format!(
            "no filter for {} items fits into {}",
            amount::readable_items(items),
            amount::readable_bytes(memory)
        ),
        "Raise --max-memory, or lower --items.",
    )
}

/// Why the library makes no such filter.
pub(super) fn refused(error: &Refused, params: &Params) -> Error {
    let hint = match error {
        Refused::Capacity(_) => "Name 1 to 2^62 items.",
        Refused::Layers => "Raise --initial or --expansion.",
        Refused::Full => "Leave out --nonscaling, or reserve for all items.",
        _ => "Lower --items, or raise --error.",
    };
    Error::usage(
        format!("{} items at a rate of {}: {error}", params.capacity, params.error_rate),
        hint,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(cells: CellKind, expansion: u64, capacity: u64) -> Params {
        let expansion = Expansion::new(expansion).unwrap();
        Params { error_rate: 0.5, capacity, expansion, seed: 0, cells }
    }

    #[test]
    fn rates_have_three_digits() {
        for (index, expected) in
            [(0, 1e-30), (1, 1.01e-30), (900, 1e-29), (RATES - 900, 0.1), (RATES - 1, 0.999)]
        {
            assert_eq!(rate_of(index), expected);
        }
    }

    #[test]
    fn the_lowest_rate_that_fits_is_found() {
        for (params, items, memory) in [
            (params(CellKind::Bits, 2, 1_000), 1_000, 1_360),
            (params(CellKind::Bits, 2, 1_000), 1_000, 1_959),
            (params(CellKind::Bits, 0, 1_000_000), 1_000_000, 1_900_000),
            (params(CellKind::Bits, 2, 1_000_000), 1_000_000, 1_950_000),
            (params(CellKind::Bits, 0, 1_000_000), 1_000_000, 2_480_000),
            (params(CellKind::Counters, 2, 1_000), 10_000, 100_000),
            (params(CellKind::Bits, 2, 1_000), 1_000, 87),
            (params(CellKind::Bits, 2, 1_000), 1_000, 1 << 30),
        ] {
            let fits = |&index: &u32| {
                let params = Params { error_rate: rate_of(index), ..params };
                Plan::for_items(&params, items).unwrap().bytes() <= memory
            };
            let case = format!("{params:?}, {items} items, {memory} bytes");
            let plan = |params: &Params| Plan::for_items(params, items);
            let found = lowest_rate(params, memory, plan).unwrap();
            let Some(found) = (0..RATES).find(|&index| Some(rate_of(index)) == found) else {
                assert_eq!(found, None, "{case}");
                assert!(!(0..RATES).step_by(997).any(|index| fits(&index)), "{case}");
                continue;
            };
            assert!(fits(&found), "{case}");
            // Each rate that is a little lower, and some of the others.
            let mut lower = (found.saturating_sub(1000)..found).chain((0..found).step_by(997));
            assert_eq!(lower.find(fits).map(rate_of), None, "{case}");
        }
    }
}
