//! A copy of a filter in this process, for questions without a server: it reads a file of
//! `redis-bloom dump`, and takes a new file as soon as that has the name.
//!
//! ```text
//!   redis-bloom dump urls -o urls.new && mv urls.new urls.dump      another program, once a day
//!
//!   urls.dump ──reload()──▶ Copy ──Arc──▶ Replica ◀──version?── Asker ◀── contains()
//!                                                               one a thread
//! ```
//!
//! The path is a file with one filter, or a directory with a file of each shard of a sharded
//! filter. To replace a directory at once, let the path be a symbolic link and rename another link
//! over it.
//!
//! A question takes no lock: an [`Asker`] has its own `Arc` of the copy, and compares one number.
//! It takes the lock once after each new copy. The memory of an old copy is freed when every asker
//! has asked again, or is gone; until then there are two.
//!
//! A "yes" of the copy is as good as a "yes" of the server, because a filter only gains items. (But
//! items may since have been deleted from a `COUNTING` filter.) A "no" is as old as the file. A
//! window forgets by the clock of this machine.
//!
//! ```text
//!   cargo run --release --no-default-features --example replica -- urls.dump < items
//!   cargo run --release --no-default-features --example replica -- urls.dump --measure
//! ```

use std::{
    fs::{self, File, Metadata},
    io::{self, BufRead as _, BufReader, Read, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use redis_bloom::{
    codec::native::{Load, Stored, Taken},
    filter::{self, paged::Paged},
    sharding::{Shard, shard_of},
};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// A filter of either kind.
#[derive(Debug)]
pub enum Filter {
    /// Of layers: it was reserved, or is another product's.
    Layers(filter::Filter),
    /// Of pages: it grows, counts or forgets.
    Pages(Paged),
}

impl Filter {
    fn shard(&self) -> Option<Shard> {
        match self {
            Self::Layers(filter) => filter.shard(),
            Self::Pages(paged) => paged.shard(),
        }
    }

    fn contains(&self, item: &[u8]) -> bool {
        match self {
            Self::Layers(filter) => filter.contains(filter.hash(item)),
            Self::Pages(paged) => {
                let now = if paged.window().is_some() { now() } else { 0 };
                paged.contains(paged.hash(item), now)
            }
        }
    }
}

/// Milliseconds since 1970.
fn now() -> i64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A filter, or all shards of a sharded filter.
#[derive(Debug)]
pub struct Copy {
    /// Shard 0 first; a single filter that is no shard.
    shards: Vec<Filter>,
}

impl Copy {
    /// Reads and checks a dump file, or a directory with those of all shards. Files in it whose
    /// names end in `.part` or `.json` are no dumps.
    ///
    /// # Errors
    /// A file cannot be read, is damaged, or the shards are not all there.
    pub fn read(path: &Path) -> Result<Self, Error> {
        if !path.is_dir() {
            return Self::of(vec![read_file(path)?]);
        }
        let mut filters = Vec::new();
        for entry in fs::read_dir(path)? {
            let file = entry?.path();
            if !["part", "json"].iter().any(|&end| file.extension().is_some_and(|it| it == end)) {
                filters.push(read_file(&file)?);
            }
        }
        Self::of(filters)
    }

    fn of(mut filters: Vec<Filter>) -> Result<Self, Error> {
        let number = |filter: &Filter| filter.shard().map_or((0, 1), |it| (it.index(), it.count()));
        filters.sort_by_key(number);
        let count = filters.len();
        let whole =
            filters.iter().map(number).eq((0..count).map(|index| (index as u16, count as u16)));
        if !whole || count == 0 {
            let found: Vec<_> = filters.iter().map(number).collect();
            return Err(format!("not all shards of one filter: {found:?}").into());
        }
        Ok(Self { shards: filters })
    }

    /// Whether the item was probably in the filter when it was dumped.
    #[must_use]
    pub fn contains(&self, item: &[u8]) -> bool {
        let filter = match &self.shards[..] {
            [filter] => filter,
            shards => &shards[usize::from(shard_of(item, shards.len() as u16))],
        };
        filter.contains(item)
    }
}

/// A copy that is replaced when its file is.
#[derive(Debug)]
pub struct Replica {
    path: PathBuf,
    /// The copy, and the file that it was read from.
    current: Mutex<(Arc<Copy>, Stamp)>,
    /// The number of the current copy. Rises after the copy was replaced.
    version: AtomicU64,
}

/// What changes when another file gets the name.
type Stamp = (u64, u64, i64, i64, u64);

fn stamp(path: &Path) -> io::Result<Stamp> {
    let of = |it: &Metadata| (it.dev(), it.ino(), it.mtime(), it.mtime_nsec(), it.len());
    fs::metadata(path).map(|metadata| of(&metadata))
}

impl Replica {
    /// Reads the file, or the directory.
    ///
    /// # Errors
    /// Those of [`Copy::read`].
    pub fn open(path: impl Into<PathBuf>) -> Result<Arc<Self>, Error> {
        let path = path.into();
        // Before the file: a file that is renamed meanwhile is read again, never missed.
        let stamp = stamp(&path)?;
        let current = Mutex::new((Arc::new(Copy::read(&path)?), stamp));
        Ok(Arc::new(Self { path, current, version: AtomicU64::new(0) }))
    }

    /// Reads the file again if another one has the name; answers whether it did. Questions go on
    /// meanwhile. After an error the old copy stays, and the next call tries again.
    ///
    /// # Errors
    /// Those of [`Copy::read`].
    pub fn reload(&self) -> Result<bool, Error> {
        let stamp = stamp(&self.path)?;
        if stamp == self.current().1 {
            return Ok(false);
        }
        let copy = Arc::new(Copy::read(&self.path)?);
        let old = std::mem::replace(&mut *self.current(), (copy, stamp));
        self.version.fetch_add(1, Ordering::Release);
        drop(old);
        Ok(true)
    }

    /// What a thread asks with.
    #[must_use]
    pub fn asker(self: &Arc<Self>) -> Asker {
        let version = self.version.load(Ordering::Acquire);
        Asker { copy: self.current().0.clone(), replica: self.clone(), version }
    }

    fn current(&self) -> std::sync::MutexGuard<'_, (Arc<Copy>, Stamp)> {
        // No code that holds the lock panics.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks a [`Replica`]; one for each thread.
#[derive(Clone, Debug)]
pub struct Asker {
    replica: Arc<Replica>,
    copy: Arc<Copy>,
    version: u64,
}

impl Asker {
    /// Whether the item was probably in the filter when the newest file was written.
    pub fn contains(&mut self, item: &[u8]) -> bool {
        let version = self.replica.version.load(Ordering::Acquire);
        if version != self.version {
            // The version first: a copy that is newer than its version is only taken once more.
            self.version = version;
            self.copy = self.replica.current().0.clone();
        }
        self.copy.contains(item)
    }
}

/// Reads a dump file. Every byte of it is under a checksum; `cli/src/dump_file.rs` has its layout.
fn read_file(path: &Path) -> Result<Filter, Error> {
    let damaged = |error: Error| -> Error { format!("{}: {error}", path.display()).into() };
    let file = File::open(path).map_err(|error| damaged(error.into()))?;
    let length = file.metadata()?.len();
    read_dump(BufReader::new(file), length).map_err(damaged)
}

fn read_dump(mut input: impl Read, length: u64) -> Result<Filter, Error> {
    let mut checksums = Xxh3::new();
    let head = take(&mut input, 12)?;
    if !head.starts_with(b"rb-dump\n\x01\x00") {
        return Err("not a dump file, or of another version".into());
    }
    let product = u16::from_le_bytes([head[10], head[11]]);
    record(&mut input, head, u64::from(product), &mut checksums)?;
    let (mut load, mut complete) = (None, false);
    let (mut chunks, mut bytes) = (0, 0);
    loop {
        let head = take(&mut input, 17)?;
        let (first, second) = (number(&head[1..9]), number(&head[9..17]));
        match head[0] {
            b'C' if second <= length => {
                let iterator = i64::try_from(first)?;
                let data = record(&mut input, head, second, &mut checksums)?;
                (chunks, bytes) = (chunks + 1, bytes + second);
                match &mut load {
                    // All bits of the filter are in the file: it cannot be larger.
                    None => load = Some(Load::begin(&data[17..], length)?),
                    Some(load) => {
                        let taken = load.take(iterator, &data[17..], |_| u64::MAX)?;
                        complete = taken == Taken::Last;
                    }
                }
            }
            b'E' => {
                let expected = checksums.digest();
                let end = record(&mut input, head, 8, &mut Xxh3::new())?;
                let whole = (first, second, number(&end[17..])) == (chunks, bytes, expected);
                let more = input.read(&mut [0])? > 0;
                return match load {
                    Some(mut load) if complete && whole && !more => match load.finish()? {
                        Stored::Layers(filter) => Ok(Filter::Layers(filter)),
                        Stored::Pages(paged) => Ok(Filter::Pages(paged)),
                        Stored::Partial(_) => Err("chunks are missing".into()),
                    },
                    _ => Err("chunks are missing, or bytes are behind the end".into()),
                };
            }
            _ => return Err("damaged".into()),
        }
    }
}

/// Reads the rest of a record, of which `head` was read, with `more` bytes before its checksum.
/// Returns all of it but the checksum.
fn record(
    input: &mut impl Read,
    mut head: Vec<u8>,
    more: u64,
    checksums: &mut Xxh3,
) -> Result<Vec<u8>, Error> {
    head.extend(take(input, more)?);
    let checksum = take(input, 8)?;
    if number(&checksum) != xxh3_64(&head) {
        return Err("a checksum is wrong".into());
    }
    checksums.update(&checksum);
    Ok(head)
}

/// Reads `count` bytes. Memory is allocated as they arrive.
fn take(input: &mut impl Read, count: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    input.by_ref().take(count).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == count { Ok(bytes) } else { Err("it ends too early".into()) }
}

/// Eight bytes as a number.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Answers each line of standard input, or measures.
fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (path, measured) = match &arguments[..] {
        [path] => (path, false),
        [path, option] if option == "--measure" => (path, true),
        _ => return Err("usage: replica FILE-OR-DIRECTORY [--measure] < items".into()),
    };
    let replica = Replica::open(path)?;
    let mut asker = replica.asker();
    if measured {
        measure(&mut asker);
        return Ok(());
    }
    thread::spawn(move || {
        loop {
            thread::sleep(Duration::from_secs(1));
            match replica.reload() {
                Ok(true) => eprintln!("a new file was read"),
                Ok(false) => {}
                Err(error) => eprintln!("the old copy stays: {error}"),
            }
        }
    });
    let mut output = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let item = line?;
        writeln!(output, "{} {item}", u8::from(asker.contains(item.as_bytes())))?;
    }
    Ok(())
}

/// Prints the nanoseconds that a question takes: the median of 1,001 runs of 1,000 absent items.
fn measure(asker: &mut Asker) {
    let mut next = 0u64;
    let mut times: Vec<f64> = (0..1001)
        .map(|_| {
            let items: Vec<String> = (next..next + 1000).map(|it| format!("absent:{it}")).collect();
            next += 1000;
            let start = Instant::now();
            let found = items.iter().filter(|item| asker.contains(item.as_bytes())).count();
            let time = start.elapsed().as_nanos() as f64 / items.len() as f64;
            std::hint::black_box(found);
            time
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{:.0} ns", times[times.len() / 2]);
}
