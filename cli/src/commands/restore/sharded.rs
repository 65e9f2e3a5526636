//! The restore of a sharded filter: all files of the directory are checked, then the shards of a
//! new generation are loaded, all nodes at once, and at last the descriptor is written.
//!
//! ```text
//!   NAME                        meanwhile                     at the end
//!   is free                     `state creating`: no client   `state ready`
//!                               uses it
//!   is a sharded filter         serves as before; the field   one transaction puts the new
//!   (--replace)                 `restoring` is the lock       generation in; tombstones replace
//!                                                             the old shards
//! ```
//!
//! A restore that was killed leaves the descriptor with its generation in `spare.*`: --resume goes
//! on there.

use std::sync::atomic::{AtomicU64, Ordering};

use bloom::codec::native::Load;
use serde::Serialize;

use super::Arguments;
use crate::sharding::{Descriptor, Generation, State};
use crate::{
    amount,
    at_once::{Servers, on_all, on_all_watched},
    connection::{Connection, Options},
    descriptor::{
        Change, DROPPING, Fields, bury, names_of, parsed, read, retired_fields, spare,
        spare_fields, unused, update,
    },
    dump_directory::{Manifest, path_of},
    dump_file::Reader,
    error::{Error, Exit},
    interrupt,
    name::{self, Named},
    output::Output,
    progress::{Alone, Part, Progress, Unit, Watch},
    refusal::Kind,
    replication::LastWrite,
    restore_key::{Checked, Restore, first},
    sharded,
    stamp::Stamp,
};

/// The field that holds the identity of the dump.
const RESTORING: &[u8] = b"restoring";

/// What was restored, or would be.
#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    name: Named<'a>,
    directory: &'a str,
    product: &'a str,
    shards: u16,
    bytes: u64,
}

/// What to do about the name.
enum Start {
    /// Nothing is under way; the generation must be above this one.
    Begin(u64),
    /// An earlier restore of this dump has begun this generation.
    Resume(Generation),
}

impl Arguments {
    pub(super) fn restore_shards(
        &self,
        connection: &Options,
        output: &Output,
    ) -> Result<Exit, Error> {
        let manifest = Manifest::read(&self.file)?;
        let mut progress = Alone::new(output, "checking".to_owned());
        let checked = self.check_shards(&manifest, &mut progress)?;
        drop(progress);
        let name = name::bytes(&self.name);
        let shown = name::readable(name);
        let servers = Servers::of(connection.target()?, output)?;
        let start = self.start(&servers, &manifest)?;
        let bytes: u64 = checked.iter().map(|checked| checked.bytes).sum();
        let (size, count) = (amount::readable_bytes(bytes), manifest.shards);
        let directory = name::readable_path(&self.file);
        let report = Report {
            name: Named::of(name),
            directory: &self.file.display().to_string(),
            product: &manifest.product,
            shards: count,
            bytes,
        };
        if self.dry_run {
            let text = format!("{directory}: {count} shards, {size}; would be {shown}");
            output.data(&report, text)?;
            return Ok(Exit::Done);
        }
        bury(&servers, name, |_, _| Ok(()))?;
        let half_loaded = |error: Error| {
            let name = name::typed(name);
            let hint =
                format!("restore --resume goes on from here, `drop {name}` removes all of it.");
            error.partly(hint)
        };
        let generation = match start {
            Start::Resume(generation) => {
                servers.confirm(&[name.to_vec()]).map_err(half_loaded)?;
                generation
            }
            Start::Begin(above) => self.lock(&servers, &manifest, above)?,
        };
        let total = AtomicU64::new(0);
        let mut progress = Progress::new(output, &shown, Some(bytes));
        on_all_watched(
            &servers,
            &generation.keys,
            |server, at, _| {
                let (key, file) = (&generation.keys[at], path_of(&self.file, at));
                let mut part = Part::of(&total);
                load_shard(&servers, server, key, &file, &checked[at], &mut part)
            },
            || {
                progress.at(
                    total.load(Ordering::Relaxed),
                    total.load(Ordering::Relaxed),
                    Unit::Bytes,
                );
            },
        )
        .map_err(half_loaded)?;
        drop(progress);
        let again = || {
            format!(
                "restore --resume loads it again, `drop {}` removes all of it.",
                name::typed(name)
            )
        };
        complete(&servers, name, &generation, |_| again())
            .and_then(|()| publish(&servers, name, &manifest, &generation))
            .map_err(half_loaded)?;
        // The old shards stay if one of the new ones is lost.
        complete(&servers, name, &generation, |shard| {
            format!(
                "`restore {} {}` loads it again.",
                name::readable_path(&path_of(&self.file, shard)),
                name::typed(&generation.keys[shard])
            )
        })?;
        bury(&servers, name, |_, _| Ok(()))?;
        let text = format!("{shown}: {count} shards, {size} from {directory}");
        output.data(&report, text)?;
        Ok(Exit::Done)
    }

    /// Reads all files to their ends.
    fn check_shards(
        &self,
        manifest: &Manifest,
        progress: &mut Alone,
    ) -> Result<Vec<Checked>, Error> {
        let check = |(at, _)| check_shard(&self.file, manifest, at, progress);
        manifest.files.iter().enumerate().map(check).collect()
    }

    /// Sees what is at the name, and changes nothing.
    fn start(&self, servers: &Servers, manifest: &Manifest) -> Result<Start, Error> {
        let name = name::bytes(&self.name);
        let (shown, typed) = (name::readable(name), name::typed(name));
        let refused = |what: &str, hint: &str| {
            Error::refused_partly(format!("restore {shown}: {what}"), hint.to_owned())
        };
        let fields = read(servers, name).map_err(|error| match error {
            error if error.is(Kind::WrongType) => refused(
                "WRONGTYPE the name holds something else than a sharded filter",
                "Drop that first, or use another name.",
            ),
            error => error,
        })?;
        if fields.is_empty() {
            return Ok(Start::Begin(0));
        }
        if fields.contains_key(DROPPING) {
            let hint = format!("Finish that by `drop {typed}`.");
            return Err(refused("BUSYKEY the filter is being removed", &hint));
        }
        if let Some(identity) = fields.get(RESTORING) {
            let same = *identity == manifest.identity().into_bytes();
            let hint = format!(
                "Go on with that dump by --resume, or remove the filter by `drop {typed}`."
            );
            return match spare(&fields).filter(|_| self.resume && same) {
                Some(generation) => Ok(Start::Resume(generation)),
                None if self.resume => {
                    let what = "another dump is being restored there, or was interrupted";
                    Err(refused(what, &hint))
                }
                None => {
                    let what = "BUSYKEY another restore is under way or was interrupted";
                    Err(refused(what, &hint))
                }
            };
        }
        let descriptor = parsed(name, &fields)?;
        if descriptor.next != Ok(None) || fields.contains_key(&b"rebuild"[..]) {
            let hint =
                format!("Finish that by `rebuild {typed} --commit`, or give it up by --abort.");
            return Err(refused("the filter is being rebuilt", &hint));
        }
        if !self.replace {
            let hint = "Put the dump in its place by --replace, or use another name.";
            return Err(refused("BUSYKEY the filter exists", hint));
        }
        Ok(Start::Begin(descriptor.current.number))
    }

    /// Takes the name: nobody else restores there then.
    fn lock(
        &self,
        servers: &Servers,
        manifest: &Manifest,
        above: u64,
    ) -> Result<Generation, Error> {
        let name = name::bytes(&self.name);
        let generation = unused(servers, name, above + 1, &manifest.generation(name)?)?;
        let identity = manifest.identity().into_bytes();
        update(servers, name, |fields| {
            if fields.get(RESTORING) == Some(&identity)
                && spare(fields).as_ref() == Some(&generation)
            {
                return Ok((Change::default(), ()));
            }
            let changed = fields.contains_key(RESTORING)
                || fields.contains_key(DROPPING)
                || fields.contains_key(&b"rebuild"[..])
                || (above == 0) != fields.is_empty();
            if changed {
                return Err(Error::incomplete(
                    format!("{}: somebody else has begun to change it", name::readable(name)),
                    "Look again, and repeat the command if it is free.",
                ));
            }
            let mut set = spare_fields(&generation);
            set.push((RESTORING.to_vec(), identity.clone()));
            if fields.is_empty() {
                set.push((b"state".to_vec(), State::Creating.name().into()));
            }
            Ok((Change { set, delete: Vec::new() }, ()))
        })?;
        Ok(generation)
    }
}

/// Reads the file of a shard to its end. It must be the one that the manifest names, and hold that
/// shard.
fn check_shard(
    directory: &std::path::Path,
    manifest: &Manifest,
    at: usize,
    watch: &mut dyn Watch,
) -> Result<Checked, Error> {
    let path = path_of(directory, at);
    let checked = Checked::of(&path, watch)?;
    let entry = &manifest.files[at];
    let shard = sharded::shard_at(at, manifest.files.len());
    let held = Load::begin(&checked.header, u64::MAX).ok().and_then(|load| load.shard());
    if !entry.is_of(checked.checksums) || held.is_none() || held != shard {
        return Err(Error::usage(
            format!("{}: a file of another dump, or of another shard", name::readable_path(&path)),
            "Restore the directory as dump wrote it.",
        ));
    }
    Ok(checked)
}

/// Loads a shard into its key, or what an earlier restore has not loaded of it.
fn load_shard(
    servers: &Servers,
    server: &mut Connection,
    key: &[u8],
    file: &std::path::Path,
    checked: &Checked,
    watch: &mut dyn Watch,
) -> Result<(), Error> {
    interrupt::check("")?;
    let found = server.call_for_key(redis::cmd("BF.INFO").arg(key));
    let mut restore = Restore { server, key };
    let mut done = match found {
        // Nobody else has keys of this generation: it is complete.
        Ok(_) => {
            watch.at(checked.bytes);
            return servers.acknowledged(server, LastWrite::Elsewhere);
        }
        Err(error) if error.is(Kind::NotFound) => 0,
        Err(error) if error.is(Kind::Unfinished) => {
            let done = restore.chunks_done(file, checked)?;
            if done == 0 {
                restore.server.call(redis::cmd("UNLINK").arg(key))?;
            }
            done
        }
        Err(error) => return Err(error),
    };
    let begins = done == 0;
    if begins {
        restore.begin(&first(&mut Reader::open(file)?)?)?;
        done = 1;
    }
    restore.load_file(file, checked, done, watch)?;
    // Complete filters answer it, others do not.
    server.call_for_key(redis::cmd("BF.INFO").arg(key))?;
    servers.acknowledged(server, if begins { LastWrite::Here } else { LastWrite::Elsewhere })
}

/// Checks that all shards are there: a server may have lost one while others were loaded.
fn complete(
    servers: &Servers,
    name: &[u8],
    generation: &Generation,
    hint: impl Fn(usize) -> String + Sync,
) -> Result<(), Error> {
    let look = |_: &mut Connection, at: usize, _| match Stamp::of_shard(servers, generation, at)? {
        Some(_) => Ok(()),
        None => Err(Error::incomplete(
            format!(
                "restore {}: shard {at} of {} is lost",
                name::readable(name),
                generation.shards()
            ),
            hint(at),
        )),
    };
    on_all(servers, &generation.keys, look).map(|_| ())
}

/// Makes the generation the one that answers.
fn publish(
    servers: &Servers,
    name: &[u8],
    manifest: &Manifest,
    generation: &Generation,
) -> Result<(), Error> {
    update(servers, name, |fields: &Fields| {
        let old = parsed(name, fields).ok();
        let ours = fields.get(RESTORING) == Some(&manifest.identity().into_bytes())
            && spare(fields).as_ref() == Some(generation)
            && !fields.contains_key(DROPPING);
        if !ours {
            // An earlier attempt, whose reply was lost.
            if old.is_some_and(|old| old.current == *generation) {
                return Ok((Change::default(), ()));
            }
            return Err(Error::incomplete(
                format!("restore {}: it was dropped or replaced meanwhile", name::readable(name)),
                "Look what is there now, and restore it again.",
            ));
        }
        let poll = old.as_ref().map_or(manifest.poll, |old| old.poll);
        let new = Descriptor { current: generation.clone(), next: Ok(None), base: None, poll };
        let mut delete = names_of(fields, "spare.");
        delete.extend([RESTORING.to_vec(), b"base".to_vec()]);
        let mut set = new.fields(State::Ready);
        if let Some(old) = &old {
            let more = generation.shards()..old.current.shards();
            delete.extend(more.map(|index| index.to_string().into_bytes()));
            set.extend(retired_fields(&old.current.keys));
        }
        Ok((Change { set, delete }, ()))
    })
}
