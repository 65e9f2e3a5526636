//! `redis-bloom info [NAME...]`: everything about some filters, or a line about each filter.

mod shards;

use std::{ffi::OsString, fmt::Write as _};

use serde::Serialize;

use super::top;
use crate::{
    amount,
    at_once::Servers,
    connection::{Nodes, Options},
    error::{Error, Exit},
    filter_info::{FilterInfo, Reader},
    memory::Need,
    name::{self, Named},
    output::{Output, Style},
    refusal::Kind,
    sharded::{self, Filter},
};

/// Shows everything about some filters; without a name, a line about each filter
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Names of filters
    #[arg(value_name = "NAME")]
    names: Vec<OsString>,
}

/// A filter in JSON.
#[derive(Debug, Serialize)]
struct Shown<'n> {
    #[serde(flatten)]
    name: Named<'n>,
    #[serde(flatten)]
    info: FilterInfo,
}

impl Arguments {
    pub(crate) fn run(&self, connection: &Options, output: &Output) -> Result<Exit, Error> {
        if self.names.is_empty() {
            return top::Arguments::once().run(connection, output);
        }
        let target = connection.target()?;
        let mut server = target.connect()?;
        let mut reader = Reader::default();
        let mut failed = None;
        let mut shown = false;
        for name in &self.names {
            let key = name::bytes(name);
            let before = if shown { "\n" } else { "" };
            let result = match reader.read_one(&mut server, key) {
                Ok(info) => {
                    let text = text_of(&name::readable(key), &info, output.coloured());
                    shown = true;
                    let line = Shown { name: Named::of(key), info };
                    output.data(&line, format_args!("{before}{text}"))
                }
                // A hash may be the descriptor of a sharded filter.
                Err(Error::Refused { command, refusal }) if refusal.kind == Kind::WrongType => {
                    match sharded::find(&mut server, key) {
                        Ok(Filter::Sharded(descriptor)) => {
                            shown = true;
                            let servers = Servers::of(target.clone(), output)?;
                            let nodes = Nodes::of_if_allowed(&mut server)?;
                            let shown = shards::Request { name: key, before, output };
                            shards::show(&shown, &descriptor, &servers, &nodes)
                        }
                        Ok(Filter::Key) => Err(Error::refused(command, refusal)),
                        Err(error) => Err(error),
                    }
                }
                Err(error) => Err(error),
            };
            let error = match result {
                Ok(()) => continue,
                Err(Error::Refused { command, refusal }) => {
                    Error::refused(format!("{command} {}", name::readable(key)), refusal)
                }
                Err(error @ Error::Told { exit: Exit::Incomplete | Exit::Refused, .. }) => error,
                Err(error) => return Err(error),
            };
            // The last error ends the program.
            if let Some(before) = failed.replace(error) {
                output.error(&before);
            }
        }
        failed.map_or(Ok(Exit::Done), Err)
    }
}

/// The filter for people.
fn text_of(name: &str, info: &FilterInfo, coloured: bool) -> String {
    let mut lines = vec![
        ("module", info.module.name().to_owned()),
        ("holds", info.cells.name().to_owned()),
        (
            "items",
            format!(
                "{} of {} ({})",
                amount::readable_items(info.items),
                amount::readable_items(info.capacity),
                amount::readable_rate(info.items as f64 / info.capacity.max(1) as f64)
            ),
        ),
        ("fill", amount::known_rate(info.fill)),
        ("rate now", amount::known_rate(info.rate_now)),
        ("error rate", amount::known_rate(info.error_rate)),
        ("memory", amount::readable_bytes(info.bytes)),
        ("needs", Need::of([info.bytes]).text()),
        ("expansion", info.readable_expansion()),
    ];
    if let Some(layout) = info.layout.as_ref().filter(|layout| *layout != "native") {
        lines.push(("layout", layout.clone()));
    }
    if let Some(window) = info.window {
        lines.push(("window", window.to_string()));
    }
    if let Some((index, count)) = info.shard {
        lines.push(("shard", format!("{index} of {count}")));
    }
    lines.push(("layers", info.layer_count.to_string()));
    titled(name, &lines, coloured)
}

/// A title, and lines below it.
fn titled(name: &str, lines: &[(&str, String)], coloured: bool) -> String {
    let mut text = Style::Bold.apply(name, coloured);
    for (label, value) in lines {
        // Writing to a string does not fail.
        let _ = write!(text, "\n  {label:<18}{value}");
    }
    text
}
