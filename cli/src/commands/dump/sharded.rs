//! The dump of a sharded filter: a file for each shard, in a directory, all nodes at once.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::sharding::Descriptor;
use bloom::sharding::Shard;
use serde::Serialize;

use super::Arguments;
use crate::{
    amount,
    at_once::{Servers, on_all, on_all_watched},
    connection::Connection,
    dump_directory::{Directory, Entry, Manifest, may_make, path_of},
    dump_key::{Dump, Dumped, product_of},
    error::{Error, Exit},
    filter_info::{Detail, Reader},
    name::{self, Named},
    output::Output,
    part_file::RESUME,
    progress::{Part, Progress, Unit},
    refusal::Kind,
    sharded::{self, Filter},
    stamp::Stamp,
};

/// What was written.
#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    name: Named<'a>,
    directory: &'a str,
    shards: usize,
    bytes: u64,
    /// Whether items were added during the dump.
    changed: bool,
}

/// An error of the work on a shard, with the number of the shard.
fn of_shard(error: Error, name: &[u8], shard: usize, shards: usize) -> Error {
    match error {
        error if error.is(Kind::NotFound) || error.is(Kind::WrongType) => Error::incomplete(
            format!("shard {shard} of {shards} is lost"),
            format!(
                "Load its items from their source by `repair {} --shard {shard} --from FILE`.",
                name::typed(name)
            ),
        ),
        // A rebuild may replace a shard at any time, an error of a connection passes.
        error if error.passes() => error,
        Error::Refused { command, refusal } => {
            Error::refused(format!("shard {shard} of {shards}: {command}"), refusal)
        }
        error => error,
    }
}

impl Arguments {
    pub(super) fn dump_shards(
        &self,
        server: &Connection,
        descriptor: &Descriptor,
        output: &Output,
    ) -> Result<Exit, Error> {
        let shown = self.shown();
        if descriptor.base.is_some() {
            return Err(Error::usage(
                format!("{shown}: a dump of its shards lacks the items of its base"),
                "Rebuild it from the source of its items first; then it needs no base.",
            ));
        }
        may_make(&self.output)?;
        let servers = Servers::of(server.target().clone(), output)?;
        let keys = &descriptor.current.keys;
        let count = keys.len();
        let shard = |at: usize| sharded::shard_at(at, count);
        let infos = on_all(&servers, keys, |server, at, _| {
            let info = Reader::default()
                .read_one(server, &keys[at], Detail::Filter)
                .map_err(|error| of_shard(error, self.key(), at, count))?;
            let held = |own: Shard| (u64::from(own.index()), u64::from(own.count()));
            match shard(at) {
                Some(own) if info.shard != Some(held(own)) => Err(sharded::foreign(&keys[at], own)),
                _ => Ok(info),
            }
        })?;
        let bytes = infos.iter().map(|info| info.bytes).sum();
        let directory = name::readable_path(&self.output);
        let product = product_of(&mut servers.connect(self.key())?, infos[0].module)?;
        let written = Directory::begin(&self.output, self.resume)?;
        let sum = AtomicU64::new(0);
        let mut progress = Progress::new(output, &shown, Some(bytes));
        let dumped = on_all_watched(
            &servers,
            keys,
            |server, at, again| {
                let path = path_of(&written.part, at);
                let dump = Dump {
                    key: &keys[at],
                    path: &path,
                    product: &product,
                    shard: shard(at),
                    output,
                };
                let stamp = Stamp::of_shard(&servers, &descriptor.current, at)?;
                let resume = self.resume || again;
                let part = &mut Part::of(&sum);
                let kept = if resume { dump.kept(server, part)? } else { None };
                kept.map_or_else(|| dump.run(server, &infos[at], resume, part), Ok)
                    .map(|dumped| (dumped, stamp))
                    .map_err(|error| of_shard(error, self.key(), at, count))
            },
            || progress.at(sum.load(Ordering::Relaxed), sum.load(Ordering::Relaxed), Unit::Bytes),
        )
        .map_err(|error| error.resumed_by(RESUME))?;
        drop(progress);
        let (dumped, stamps): (Vec<_>, Vec<_>) = dumped.into_iter().unzip();
        let replaced = |how: &str| {
            Error::incomplete(
                format!("{shown} {how} during the dump"),
                "Dump it again, without --resume.",
            )
        };
        // A rebuild that ended meanwhile has replaced the shards, one after the other.
        match sharded::find(&mut servers.connect(self.key())?, self.key())? {
            Filter::Sharded(now) if now.current == descriptor.current => {}
            _ => return Err(replaced("was rebuilt")),
        }
        // One that was dropped and created again has the same keys.
        on_all(&servers, keys, |_, at, _| {
            let now = Stamp::of_shard(&servers, &descriptor.current, at)?;
            let same = now.zip(stamps[at].as_ref()).is_some_and(|(now, old)| now.is_of(old));
            if same { Ok(()) } else { Err(replaced("or a shard of it was replaced")) }
        })?;
        let entry = |(at, dumped): (usize, &Dumped)| {
            Entry::new(at, dumped.chunks, dumped.bytes, dumped.checksums)
        };
        let files = dumped.iter().enumerate().map(entry).collect();
        written.finish(Manifest::new(self.key(), descriptor, &product, files))?;
        let changed = dumped.iter().any(|dumped| dumped.changed);
        let bytes = dumped.iter().map(|dumped| dumped.bytes).sum();
        let report = Report {
            name: Named::of(self.key()),
            directory: &self.output.display().to_string(),
            shards: count,
            bytes,
            changed,
        };
        if changed {
            output
                .remark("Items were added during the dump. It has all that were in when it began.");
        }
        output.remark(format_args!(
            "{directory} holds the filters' seeds: whoever reads it can make items that collide."
        ));
        let size = amount::readable_bytes(bytes);
        output.data(&report, format_args!("{shown}: {count} shards, {size} in {directory}"))?;
        Ok(Exit::Done)
    }
}
