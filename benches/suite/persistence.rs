//! Saving, loading and rewriting a filter of 1 GiB: time, memory of the child, and pages copied
//! while the child saves.
//!
//! 800 million additions would take too long. Instead, an empty filter is dumped in chunks and
//! loaded with random bits, of which half are set, as in a full filter. So no page is empty, and
//! the server's compression gains nothing. The filter counts no items yet, so it accepts additions.
//!
//! Filters that grow are smaller: 10 million items, added by commands.
//!
//! Items added during a snapshot copy pages. `rdb_last_cow_size` is their size in bytes: the
//! private memory of the child at its end.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread::{scope, sleep},
    time::{Duration, Instant},
};

use crate::{
    contender::{self, Contender, OURS, Rival},
    measure::Series,
    payload::{Items, MEMBERS, Op, STRANGERS},
    report::{Bound, Section},
    server::Server,
};

/// Items whose filter takes about 1 GiB at 1 %.
const CAPACITY: u64 = 800_000_000;
const ROUNDS: usize = 2;
/// Items added while the child saves.
const ADDED: u64 = 20_000;
/// Items added by one command.
const BATCH: u64 = 100;
/// Bytes per page.
const PAGE: f64 = 4096.0;
const GIB: f64 = (1_u64 << 30) as f64;
const MIB: f64 = (1_u64 << 20) as f64;

/// The measurements of one contender.
#[derive(Default)]
struct Figures {
    save: Series,
    save_cpu: Series,
    load: Series,
    load_cpu: Series,
    rewrite: Series,
    file: Series,
    save_child: Series,
    rewrite_child: Series,
    busy_child: Series,
    idle_copies: Series,
    copies: Series,
}

pub(crate) fn run() -> Option<Section> {
    let mut section = Section::new("Persistence");
    let mut names: Vec<String> = Vec::new();
    let mut all: Vec<Figures> = Vec::new();
    let filters = contender::filters();
    // One server at a time: two filters of this size would compete for memory.
    for round in 0..ROUNDS {
        for contender in &filters {
            eprintln!("bench: persistence of {}, round {}", contender.name, round + 1);
            let Some((mut rival, gib)) = filled(contender) else {
                continue;
            };
            if !names.contains(&contender.name) {
                names.push(contender.name.clone());
                all.push(Figures::default());
            }
            let at = names.iter().position(|name| *name == contender.name).unwrap_or_default();
            measure(&mut rival, gib, &mut all[at]);
        }
    }
    section.say(&format!(
        "A filter of about 1 GiB, half of its bits set; medians of {ROUNDS} rounds. All rows \
         except the copied pages are per GiB of bits. The memory of the child is the peak of \
         `Private_Dirty`, read every 10 ms. Copied pages are `rdb_last_cow_size` at the end of the \
         child. {ADDED} new items are added to the filter during a BGSAVE."
    ));
    type Row = (&'static str, fn(&Figures) -> &Series, f64);
    let rows: [Row; 11] = [
        ("SAVE, s", |figures| &figures.save, 1.0),
        ("SAVE, s of CPU", |figures| &figures.save_cpu, 1.0),
        ("load, s", |figures| &figures.load, 1.0),
        ("load, s of CPU", |figures| &figures.load_cpu, 1.0),
        ("BGREWRITEAOF without RDB preamble, s", |figures| &figures.rewrite, 1.0),
        ("RDB file, GiB", |figures| &figures.file, 1.0),
        ("child of BGSAVE, MiB", |figures| &figures.save_child, MIB),
        ("child of BGREWRITEAOF, MiB", |figures| &figures.rewrite_child, MIB),
        ("child of BGSAVE with additions, MiB", |figures| &figures.busy_child, MIB),
        ("pages copied, idle, MiB", |figures| &figures.idle_copies, MIB),
        ("pages copied, with additions, MiB", |figures| &figures.copies, MIB),
    ];
    let head: Vec<&str> = [""].into_iter().chain(names.iter().map(String::as_str)).collect();
    let table: Vec<Vec<String>> = rows
        .iter()
        .map(|(name, of, unit)| {
            let cells = all.iter().map(|figures| format!("{:.2}", of(figures).median() / unit));
            [(*name).to_owned()].into_iter().chain(cells).collect()
        })
        .collect();
    section.table(&head, &table);
    targets(&mut section, &names, &all);
    copies_by_kind(&mut section);
    Some(section)
}

/// Pages that additions copy in filters that were reserved and that grow.
fn copies_by_kind(section: &mut Section) {
    const HELD: u64 = 10_000_000;
    const ADDED: [u64; 3] = [1_000, 10_000, 100_000];
    let mut kinds: Vec<(Contender, &str, String)> = Vec::new();
    for contender in contender::filters() {
        kinds.push((contender.clone(), "reserved", format!("{}", 2 * HELD)));
        kinds.push((contender, "grown", "100".into()));
    }
    kinds.push((contender::ours(), "COUNTING, grown", "100 COUNTING".into()));
    let mut rows = Vec::new();
    for (contender, kind, words) in kinds {
        eprintln!("bench: pages copied in {}, {kind}", contender.name);
        // The child sleeps after the key.
        let mut rival = Rival::with_filter(&contender, 1, &["--rdb-key-save-delay", "4000000"]);
        rival.server.run::<()>("DEL k");
        rival.server.run::<()>(&format!("BF.RESERVE k 0.01 {words}"));
        contender::fill(std::slice::from_mut(&mut rival), 0, HELD);
        let bytes = rival.info("Size");
        let mut held = HELD;
        let copies = ADDED.map(|added| {
            let items = Items::InTurn { set: MEMBERS, numbers: held..held + added };
            let additions = crate::payload::commands(rival.speech, Op::Add, "k", &items, BATCH);
            held += added;
            format!("{:.1}", copied_while_asleep(&mut rival.server, &additions) / MIB)
        });
        let head = [format!("{}, {kind}", contender.name), format!("{:.1}", bytes / MIB)];
        rows.push(head.into_iter().chain(copies).collect());
    }
    section.heading("Pages copied, by kind of filter");
    section.say(
        "MiB that additions copy while the child of a BGSAVE sleeps: its `Private_Dirty` after the \
         additions, less its value before. Each filter has 10 million items at 1 %; reserved \
         filters are for 20 million. At most the whole filter is copied.",
    );
    section.table(&["", "size, MiB", "1,000 added", "10,000", "100,000"], &rows);
}

fn targets(section: &mut Section, names: &[String], all: &[Figures]) {
    let Some(ours) = names.iter().position(|name| name == OURS) else {
        return;
    };
    let copies = all[ours].copies.median() - all[ours].idle_copies.median();
    section.target(
        "pages copied during BGSAVE for each item added",
        Bound::AtMost(1.0),
        copies / (ADDED as f64 * PAGE),
    );
    for (peer, name) in names.iter().enumerate().filter(|(peer, _)| *peer != ours) {
        let (ours, peer) = (&all[ours], &all[peer]);
        let share = |of: fn(&Figures) -> f64| of(ours) / of(peer);
        let wall = share(|figures| figures.save.median() + figures.load.median());
        let cpu = share(|figures| figures.save_cpu.median() + figures.load_cpu.median());
        let child = share(|figures| figures.save_child.median());
        let copies = share(|figures| figures.copies.median());
        section.target(
            &format!("SAVE and load of 1 GiB, seconds against {name}"),
            Bound::AtMost(1.0),
            wall,
        );
        section.target(
            &format!("SAVE and load of 1 GiB, CPU against {name}"),
            Bound::AtMost(1.0),
            cpu,
        );
        section.target(
            &format!("peak memory of the saving child against {name}"),
            Bound::AtMost(0.5),
            child,
        );
        section.target(
            &format!("bytes copied during BGSAVE against {name}"),
            Bound::AtMost(0.3),
            copies,
        );
    }
}

/// Bytes that a sleeping child of BGSAVE holds alone after the commands, and did not before. NaN if
/// it ends too early.
fn copied_while_asleep(server: &mut Server, commands: &[u8]) -> f64 {
    server.run::<()>("BGSAVE");
    let child = children(server.pid()).pop().unwrap_or_default();
    let held = || private_memory(&child).unwrap_or(f64::NAN);
    let mut before = held();
    loop {
        sleep(Duration::from_millis(500));
        let now = held();
        // It sleeps, or it is gone.
        if now == before || now.is_nan() {
            break;
        }
        before = now;
    }
    server.stream(commands);
    let copied = held() - before;
    while server.info("rdb_bgsave_in_progress") == "1" {
        sleep(Duration::from_millis(5));
    }
    copied
}

/// A server with a filter of random bits in `k`, and its size in GiB; `None` for a contender that
/// cannot load chunks.
fn filled(contender: &Contender) -> Option<(Rival, f64)> {
    let mut rival = Rival::with_filter(contender, CAPACITY, &["--appendonly", "no"]);
    rival.server.run::<()>("RENAME k empty");
    let Some(bits) = load_random(&mut rival.server, "empty", "k", 1, 0) else {
        eprintln!("bench: {} has no BF.SCANDUMP: its persistence is not measured", contender.name);
        return None;
    };
    rival.server.run::<()>("DEL empty");
    Some((rival, bits / GIB))
}

/// Dumps the filter `empty` and loads it as `key`, with random bits in the place of its own. Half
/// of them are set, and half of those for each halving.
/// Returns the bytes of bits, or `None` if the server cannot dump filters.
pub(crate) fn load_random(
    server: &mut Server,
    empty: &str,
    key: &str,
    seed: u64,
    halvings: u32,
) -> Option<f64> {
    let (mut iterator, mut bits, mut noise) = (0_i64, 0, Noise { state: seed, halvings });
    loop {
        let dump = server.call::<(i64, Vec<u8>)>("BF.SCANDUMP", &[empty, &iterator.to_string()]);
        let (next, mut chunk) = dump.ok()?;
        if next == 0 {
            return Some(bits as f64);
        }
        if iterator > 0 {
            bits += chunk.len();
            noise.replace_bits(&mut chunk);
        }
        let next_text = next.to_string();
        let words = [key.as_bytes(), next_text.as_bytes(), &chunk];
        let loaded = server.call::<String>("BF.LOADCHUNK", &words);
        loaded.unwrap_or_else(|error| panic!("BF.LOADCHUNK {next}: {error}"));
        iterator = next;
    }
}

/// Pseudo-random words (xorshift64).
struct Noise {
    state: u64,
    halvings: u32,
}

impl Noise {
    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    /// Overwrites the bits in a chunk. A chunk of this module has a frame and a header before the
    /// bits, and a checksum after them (`src/codec/native/dump.rs`); chunks of other modules are
    /// only bits.
    fn replace_bits(&mut self, chunk: &mut [u8]) {
        let framed = chunk.starts_with(b"rbchnk");
        let header = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| chunk[at + i]));
        let (start, end) = match framed {
            true => (20 + header(16) as usize, chunk.len() - 8),
            false => (0, chunk.len()),
        };
        for word in chunk[start..end].chunks_mut(8) {
            let bits = (0..self.halvings).fold(self.next(), |bits, _| bits & self.next());
            let len = word.len();
            word.copy_from_slice(&bits.to_le_bytes()[..len]);
        }
        if framed {
            let sum = redis_bloom::filter::checksum(&chunk[..end]);
            chunk[end..].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

fn measure(rival: &mut Rival, gib: f64, figures: &mut Figures) {
    let (wall, cpu) = rival.server.timed("SAVE");
    figures.save.push(wall / gib);
    figures.save_cpu.push(cpu / gib);
    let file = rival.server.dir().join("dump.rdb");
    figures
        .file
        .push(std::fs::metadata(file).map_or(f64::NAN, |file| file.len() as f64) / GIB / gib);

    figures.save_child.push(bgsave(rival, |_| {}) / gib);
    figures.idle_copies.push(copied(rival));

    let begin = Instant::now();
    let peak = in_child(&mut rival.server, "BGREWRITEAOF", "aof_rewrite_in_progress", |_| {});
    figures.rewrite.push(begin.elapsed().as_secs_f64() / gib);
    figures.rewrite_child.push(peak / gib);

    // The load precedes the additions, so that it loads what was saved. FLUSHALL first: the time of
    // the load must not include freeing the old value.
    rival.server.run::<()>("FLUSHALL SYNC");
    let (wall, cpu) = rival.server.timed("DEBUG RELOAD NOSAVE");
    figures.load.push(wall / gib);
    figures.load_cpu.push(cpu / gib);

    let (set, numbers) = (STRANGERS, 0..ADDED);
    let items = Items::InTurn { set, numbers };
    let additions = crate::payload::commands(rival.speech, Op::Add, "k", &items, BATCH);
    let peak = bgsave(rival, |server| {
        server.stream(&additions);
    });
    figures.busy_child.push(peak / gib);
    figures.copies.push(copied(rival));
}

/// Bytes of the pages copied during the last BGSAVE.
fn copied(rival: &mut Rival) -> f64 {
    rival.server.info_number("rdb_last_cow_size") as f64
}

/// Runs a BGSAVE and `meanwhile` at the same time. Returns the peak private memory of the child, in
/// bytes.
fn bgsave(rival: &mut Rival, meanwhile: impl FnOnce(&mut Server)) -> f64 {
    in_child(&mut rival.server, "BGSAVE", "rdb_bgsave_in_progress", meanwhile)
}

/// Starts `command`, which forks a child, runs `meanwhile`, and waits for the child's end. Returns
/// the peak private memory of the child, in bytes.
fn in_child(
    server: &mut Server,
    command: &str,
    field: &str,
    meanwhile: impl FnOnce(&mut Server),
) -> f64 {
    server.run::<()>(command);
    let (pid, over) = (server.pid(), AtomicBool::new(false));
    scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut peak = 0.0_f64;
            while !over.load(Relaxed) {
                for child in children(pid) {
                    peak = peak.max(private_memory(&child).unwrap_or(0.0));
                }
                sleep(Duration::from_millis(10));
            }
            peak
        });
        meanwhile(server);
        if server.info(field) != "1" {
            eprintln!("bench: {command} ended before all additions were sent");
        }
        while server.info(field) == "1" {
            sleep(Duration::from_millis(5));
        }
        over.store(true, Relaxed);
        sampler.join().unwrap_or(f64::NAN)
    })
}

/// The process ids of the children of a process; at most one child at a time is expected.
fn children(pid: u32) -> Vec<String> {
    let children =
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().map(str::to_owned).collect()
}

/// The private memory of a process, in bytes.
fn private_memory(pid: &str) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Private_Dirty:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<f64>().ok()? * 1024.0)
}
