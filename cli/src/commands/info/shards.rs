//! `info` of a sharded filter: all shards, their totals, and those that are lost.

use std::{collections::BTreeSet, fmt::Write as _};

use crate::sharding::{Descriptor, Generation};
use serde::Serialize;

use super::titled;
use crate::{
    amount,
    at_once::{Servers, on_each},
    connection::{Connection, Nodes},
    error::{Error, Exit},
    filter_info::{FilterInfo, Reader},
    memory::Need,
    name::{self, Named},
    output::{Column, Output, Style, Table},
    refusal::Kind,
    sharded::{self, Summary, Worst},
};

/// A sharded filter in JSON.
#[derive(Debug, Serialize)]
struct Shown<'s> {
    #[serde(flatten)]
    name: Named<'s>,
    poll: u64,
    /// The filter in one key that has older items.
    base: Option<Named<'s>>,
    #[serde(flatten)]
    current: ShownGeneration<'s>,
    /// The generation that is being filled.
    next: Option<ShownGeneration<'s>>,
}

/// One generation: the sums over its shards, and each shard.
#[derive(Debug, Serialize)]
struct ShownGeneration<'s> {
    /// Null if no shard could be read.
    #[serde(flatten)]
    summary: Option<&'s Summary>,
    generation: u64,
    /// Items that it was made for.
    made_for: u64,
    /// How many shards are lost.
    lost: usize,
    shards: Vec<ShownShard<'s>>,
}

#[derive(Debug, Serialize)]
struct ShownShard<'s> {
    shard: usize,
    #[serde(flatten)]
    key: Named<'s>,
    /// The primary that has its slot; null if no node has it.
    node: Option<&'s str>,
    /// Why it is lost or could not be read; null if it is as it should be.
    problem: Option<String>,
    #[serde(flatten)]
    info: Option<&'s FilterInfo>,
}

/// What a shard answered, and the primary that has its slot.
struct Read {
    node: Option<String>,
    /// `Error::incomplete` if it is lost: there is no such filter at its key. With another error
    /// the shard may be intact.
    result: Result<FilterInfo, Error>,
}

impl Read {
    fn info(&self) -> Option<&FilterInfo> {
        self.result.as_ref().ok()
    }

    fn is_lost(&self) -> bool {
        matches!(self.result, Err(Error::Told { exit: Exit::Incomplete, .. }))
    }
}

/// A generation and what its shards answered.
struct Seen<'d> {
    generation: &'d Generation,
    shards: Vec<Read>,
    summary: Option<Summary>,
}

/// A filter to show.
pub(super) struct Request<'a> {
    pub(super) name: &'a [u8],
    /// What separates it from the filter that was shown before.
    pub(super) before: &'a str,
    pub(super) output: &'a Output,
}

/// Shows a sharded filter.
///
/// # Errors
/// `Error::incomplete` if a shard is lost, after all is shown.
pub(super) fn show(
    request: &Request<'_>,
    descriptor: &Descriptor,
    servers: &Servers,
    nodes: &Nodes,
) -> Result<(), Error> {
    let Request { name, before, output } = *request;
    let current = Seen::of(&descriptor.current, servers, nodes)?;
    let next = descriptor.next.as_ref().ok().and_then(Option::as_ref);
    let next = next.map(|next| Seen::of(next, servers, nodes)).transpose()?;
    let shown = Shown {
        name: Named::of(name),
        poll: descriptor.poll,
        base: descriptor.base.as_deref().map(|key| Named::in_field("key", key)),
        current: current.shown(),
        next: next.as_ref().map(Seen::shown),
    };
    let lines = current.lines(descriptor, next.as_ref());
    let text = current.text(&name::readable(name), &lines, output.coloured());
    output.data(&shown, format_args!("{before}{text}"))?;
    let number = |next: &Seen<'_>| next.generation.number;
    let is_old = next.as_ref().is_some_and(|next| number(next) < descriptor.current.number);
    current.verdict(name, |name| match is_old {
        // The old generation cannot answer again: clients may have forgotten it.
        true => format!(
            "Export the items, load them into another filter, let the clients use that one, and \
             `drop {name}`."
        ),
        false => sharded::recreate(name),
    })?;
    sharded::filled(name, descriptor)?;
    let Some(next) = next else { return Ok(()) };
    next.verdict(name, |name| {
        if is_old {
            format!("The rebuild is not finished: `rebuild {name} --commit`.")
        } else {
            format!("Give up the next generation by `rebuild {name} --abort`, and begin it again.")
        }
    })
}

impl<'d> Seen<'d> {
    fn of(generation: &'d Generation, servers: &Servers, nodes: &Nodes) -> Result<Self, Error> {
        let count = u64::from(generation.shards());
        let results = on_each(servers, &generation.keys, |server, place| {
            read(server, &generation.keys[place], (place as u64, count))
        })?;
        let read = |(result, key): (_, &Vec<u8>)| Read {
            node: nodes.node_of(key).map(ToString::to_string),
            result,
        };
        let shards: Vec<_> = results.into_iter().zip(&generation.keys).map(read).collect();
        let all = shards.iter().enumerate();
        let summary =
            Summary::of(all.filter_map(|(place, shard)| Some((place as u64, shard.info()?))));
        Ok(Self { generation, shards, summary })
    }

    fn lost(&self) -> usize {
        self.shards.iter().filter(|shard| shard.is_lost()).count()
    }

    fn readable_lost(&self) -> String {
        match self.lost() {
            0 => String::new(),
            lost => format!(", {lost} LOST"),
        }
    }

    fn shown(&self) -> ShownGeneration<'_> {
        let all = self.shards.iter().zip(&self.generation.keys).enumerate();
        let shards = all.map(|(place, (shard, key))| ShownShard {
            shard: place,
            key: Named::in_field("key", key),
            node: shard.node.as_deref(),
            problem: shard.result.as_ref().err().map(ToString::to_string),
            info: shard.info(),
        });
        ShownGeneration {
            summary: self.summary.as_ref(),
            generation: self.generation.number,
            made_for: self.generation.capacity,
            lost: self.lost(),
            shards: shards.collect(),
        }
    }

    /// The first shard that is lost, or that could not be read. `hint` gets the name as
    /// a user types it, and says what to do.
    fn verdict(self, name: &[u8], hint: impl FnOnce(&str) -> String) -> Result<(), Error> {
        let (count, lost) = (self.shards.len(), self.lost());
        let mut unread = None;
        for (place, (shard, key)) in self.shards.into_iter().zip(&self.generation.keys).enumerate()
        {
            match shard.result {
                Err(Error::Told { exit: Exit::Incomplete, what, .. }) => {
                    let others = match lost {
                        1 => String::new(),
                        all => format!(", and {} more", all - 1),
                    };
                    let hint = hint(&name::typed(name));
                    let (name, key) = (name::readable(name), name::readable(key));
                    return Err(Error::incomplete(
                        format!("{name}: shard {place} of {count} is LOST: {key} {what}{others}"),
                        hint,
                    ));
                }
                Err(error) => unread = unread.or(Some(error)),
                Ok(_) => {}
            }
        }
        unread.map_or(Ok(()), Err)
    }

    fn text(&self, name: &str, lines: &[(&str, String)], coloured: bool) -> String {
        let mut text = titled(name, lines, coloured) + "\n";
        for line in self.table().lines(coloured) {
            let _ = write!(text, "\n  {line}");
        }
        text
    }

    fn lines(
        &self,
        descriptor: &Descriptor,
        next: Option<&Seen<'_>>,
    ) -> Vec<(&'static str, String)> {
        let nodes: BTreeSet<_> =
            self.shards.iter().filter_map(|shard| shard.node.as_ref()).collect();
        let shards = format!(
            "{} on {}, generation {}{}",
            self.shards.len(),
            amount::counted(nodes.len() as u64, "node"),
            self.generation.number,
            self.readable_lost()
        );
        let error_rate = ("error rate", amount::readable_rate(self.generation.error_rate));
        let mut lines = vec![("shards", shards)];
        if let Some(Summary { whole, worst_fill, worst_rate, .. }) = &self.summary {
            let worst = |mean: Option<f64>, worst: &Option<Worst>, word: &str| match worst {
                Some(Worst { shard, value }) => {
                    let value = amount::readable_rate(*value);
                    format!("{}, the {word} shard {value} (#{shard})", amount::known_rate(mean))
                }
                None => amount::known_rate(mean),
            };
            let made_for = self.generation.capacity;
            let share = amount::readable_rate(whole.items as f64 / made_for.max(1) as f64);
            let [items, of] = [whole.items, made_for].map(amount::readable_items);
            lines.insert(0, ("module", whole.module.name().to_owned()));
            lines.push(("items", format!("{items} of {of} ({share})")));
            lines.push(("fill", worst(whole.fill, worst_fill, "fullest")));
            lines.push(("rate now", worst(whole.rate_now, worst_rate, "worst")));
            lines.push(error_rate);
            lines.push(("memory", amount::readable_bytes(whole.bytes)));
            let bytes = self.shards.iter().filter_map(|shard| Some(shard.info()?.bytes));
            let allocated = Need::of(bytes).allocated;
            // A rebuild makes all shards once more.
            lines.push(("needs", Need { allocated, largest: allocated }.text()));
            lines.push(("expansion", whole.readable_expansion()));
            if let Some(window) = whole.window {
                lines.push(("window", format!("{window}, each shard by itself")));
            }
            lines.push(("layers", format!("{} at most", whole.layer_count)));
        } else {
            lines.push(error_rate);
        }
        if let Some(base) = &descriptor.base {
            lines.push(("base", name::readable(base)));
        }
        if let Some(next) = next {
            let items = next.summary.as_ref().map_or(0, |summary| summary.whole.items);
            let value = format!(
                "{}: {} shards, {} of {} items{}",
                next.generation.number,
                next.shards.len(),
                amount::readable_items(items),
                amount::readable_items(next.generation.capacity),
                next.readable_lost()
            );
            lines.push(("next generation", value));
        }
        lines
    }

    fn table(&self) -> Table {
        let numbers = ["SHARD", "ITEMS", "OF", "FILL", "RATE NOW", "MEMORY", "LAYERS"];
        let mut columns = numbers.map(Column::Number).to_vec();
        columns.extend([Column::Text("NODE"), Column::Text("KEY")]);
        let mut table = Table::new(&columns);
        for (place, (shard, key)) in self.shards.iter().zip(&self.generation.keys).enumerate() {
            let node = shard.node.as_deref().unwrap_or("-").to_owned();
            let numbers = match &shard.result {
                Ok(info) => [
                    amount::readable_items(info.items),
                    amount::readable_items(info.capacity),
                    amount::known_rate(info.fill),
                    amount::known_rate(info.rate_now),
                    amount::readable_bytes(info.bytes),
                    info.layer_count.to_string(),
                ],
                Err(_) => {
                    let word = if shard.is_lost() { "LOST" } else { "?" };
                    [word, "-", "-", "-", "-", "-"].map(str::to_owned)
                }
            };
            let mut cells = vec![place.to_string()];
            cells.extend(numbers);
            cells.extend([node, name::readable(key)]);
            let style = if shard.result.is_err() { Style::Red } else { Style::Plain };
            table.row(cells, style);
        }
        table
    }
}

/// Reads a shard.
fn read(server: &mut Connection, key: &[u8], shard: (u64, u64)) -> Result<FilterInfo, Error> {
    let lost = |what: String| Err(Error::incomplete(what, ""));
    match Reader::default().read_one(server, key) {
        Ok(info) => match info.shard {
            // The line already has the number of the shard.
            Some(own) if own == shard => Ok(FilterInfo { shard: None, ..info }),
            Some((index, count)) => lost(format!("is shard {index} of {count}")),
            // Perhaps BF.ADD recreated it, or the server has another module.
            None => lost("is a filter that is no shard".to_owned()),
        },
        Err(error) if error.is(Kind::NotFound) => lost("does not exist".to_owned()),
        Err(error) if error.is(Kind::WrongType) => lost("holds another type".to_owned()),
        Err(error) => Err(error),
    }
}
