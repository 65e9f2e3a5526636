//! Batches over the shards of a sharded filter: a caller's batch becomes a command for each shard
//! that has an item in it, so the larger the number of shards, the fewer items a command has.
//!
//! All shards are on one server. So its time is the sum of the times that the servers of a cluster
//! would take. The row without shards is the filter in one key, which checks no item. Each row has
//! a server, and the rows take turns.

use redis_bloom::sharding::shard_of;

use crate::{
    contender::{self, OURS},
    measure::Starts,
    payload::{Items, MEMBERS},
    plot::Plot,
    report::Section,
    server::Server,
};

/// Numbers of shards. 0 is the filter in one key.
const SHARDS: [u16; 5] = [0, 1, 8, 64, 128];
/// Items in a batch of the caller.
const BATCHES: [u64; 3] = [10, 100, 1_000];
/// Commands: one for additions, and two for questions.
const COMMANDS: [&str; 3] = ["BF.INSERT", "BF.MEXISTS", "BF.BULKEXISTS"];
/// Items that all shards are made for, and those that are in from the start.
const CAPACITY: u64 = 4_000_000;
const FILLED: u64 = 1_000_000;
/// Items in a turn.
const TURN: u64 = 20_000;
/// Rounds of turns after each start; one more warms up.
const ROUNDS: u64 = 5;
const STARTS: u64 = 3;

/// A server with the shards of one filter.
struct Row {
    server: Server,
    /// The number of shards; 0 for the filter in one key. Shard i is the key i.
    shards: u16,
}

pub(crate) fn run() -> Option<Section> {
    let mut section = Section::new("Batches over shards");
    section.say(&format!(
        "CPU nanoseconds of the server's main thread per item. A caller's batch of 10, 100 or \
         1,000 items becomes one command for each shard that has an item in it. All shards are on \
         one server, reserved for {CAPACITY} items at 1 %; {FILLED} items of 17 bytes have been \
         added. `BF.INSERT` adds new items; queries are for items in the filter. \"No shards\" is \
         a filter in one key, which does not check the shard of an item. A figure is the lowest of \
         {ROUNDS} turns of {TURN} items after each of {STARTS} starts of the servers, then the \
         median over starts."
    ));
    let mut samples: Vec<Starts> = Vec::new();
    samples.resize_with(SHARDS.len() * BATCHES.len() * COMMANDS.len(), Starts::default);
    for start in 0..STARTS {
        eprintln!("bench: shards, start {} of {STARTS}", start + 1);
        measure(start, &mut samples);
    }
    let of = |row: usize, command: usize, batch: usize| {
        samples[(row * COMMANDS.len() + command) * BATCHES.len() + batch].least()
    };
    let head: Vec<String> = ["command".to_owned(), "shards".to_owned()]
        .into_iter()
        .chain(BATCHES.map(|batch| format!("batch of {batch}")))
        .collect();
    let mut rows = Vec::new();
    for (command, name) in COMMANDS.iter().enumerate() {
        for (row, &shards) in SHARDS.iter().enumerate() {
            let shown = if shards == 0 { "no shards".into() } else { shards.to_string() };
            let figures = (0..BATCHES.len()).map(|batch| format!("{:.0}", of(row, command, batch)));
            rows.push([format!("`{name}`"), shown].into_iter().chain(figures).collect());
        }
    }
    section.table(&head, &rows);
    let line = |batch: usize| {
        let rows = SHARDS.iter().enumerate().filter(|(_, shards)| **shards > 0);
        rows.map(|(row, &shards)| (f64::from(shards), of(row, 1, batch))).collect()
    };
    section.plot(Plot {
        file: "shards",
        title: "Small batches over many shards cost more for each item (BF.MEXISTS, hits)".into(),
        x_label: "shards",
        y_label: "server CPU, ns per item",
        lines: BATCHES
            .iter()
            .enumerate()
            .map(|(at, batch)| (format!("batches of {batch}"), line(at)))
            .collect(),
    });
    Some(section)
}

impl Row {
    /// Starts a server and fills the shards.
    fn start(shards: u16) -> Self {
        let contenders = contender::all();
        let ours = contenders.iter().find(|one| one.name == OURS).expect("this module");
        let mut server = ours.start(&[]);
        if shards == 0 {
            server.run::<()>(&format!("BF.RESERVE k 0.01 {CAPACITY}"));
        }
        // As the tool sizes them: six standard deviations above the mean.
        let mean = CAPACITY as f64 / f64::from(shards);
        let each = (mean + 6.0 * mean.sqrt()).ceil();
        for index in 0..shards {
            server.run::<()>(&format!("BF.RESERVE {index} 0.01 {each} SHARD {index} {shards}"));
        }
        let mut row = Self { server, shards };
        for from in (0..FILLED).step_by(100_000) {
            row.send("BF.INSERT", from..from + 100_000, 1_000);
        }
        row
    }

    /// Sends the members with these numbers in batches; returns CPU nanoseconds an item.
    fn send(&mut self, command: &str, numbers: std::ops::Range<u64>, batch: u64) -> f64 {
        let count = numbers.end - numbers.start;
        let items: Vec<_> = Items::InTurn { set: MEMBERS, numbers }.texts().collect();
        let mut bytes = Vec::new();
        for batch in items.chunks(batch as usize) {
            if self.shards == 0 {
                put_command(&mut bytes, command, b"k", batch.iter());
            }
            let mut own = vec![Vec::new(); self.shards.into()];
            for item in batch.iter().filter(|_| self.shards > 0) {
                own[usize::from(shard_of(item, self.shards))].push(item);
            }
            for (index, own) in own.into_iter().enumerate().filter(|(_, own)| !own.is_empty()) {
                put_command(&mut bytes, command, index.to_string().as_bytes(), own.into_iter());
            }
        }
        let cost = self.server.stream(&bytes);
        // Packed answers are bits, which `stream` does not count; it ends the run at an error.
        let least = if command == "BF.INSERT" { count * 9 / 10 } else { count };
        assert!(command == "BF.BULKEXISTS" || cost.ones >= least, "{command}: {} ones", cost.ones);
        cost.cpu / count as f64
    }
}

/// Appends a command for the items of one shard.
fn put_command<'a>(
    out: &mut Vec<u8>,
    name: &str,
    key: &[u8],
    items: impl ExactSizeIterator<Item = &'a [u8; 17]>,
) {
    let mut words: Vec<Vec<u8>> = vec![name.into(), key.into()];
    match name {
        "BF.INSERT" => words.extend([b"NOCREATE".to_vec(), b"ITEMS".to_vec()]),
        "BF.BULKEXISTS" => words.push(b"LENGTHS".to_vec()),
        _ => {}
    }
    if name == "BF.BULKEXISTS" {
        words.push(items.flat_map(|item| [&[17], &item[..]].concat()).collect());
    } else {
        words.extend(items.map(|item| item.to_vec()));
    }
    out.extend(format!("*{}\r\n", words.len()).bytes());
    for word in words {
        out.extend(format!("${}\r\n", word.len()).bytes());
        out.extend(word);
        out.extend(b"\r\n");
    }
}

/// One start of all servers: adds a figure to each series for each round.
fn measure(start: u64, samples: &mut [Starts]) {
    samples.iter_mut().for_each(Starts::begin);
    let mut rows = SHARDS.map(Row::start);
    let mut members = FILLED;
    for round in 0..=ROUNDS {
        let known = (start * (ROUNDS + 1) + round) * TURN;
        let mut samples = samples.iter_mut();
        let added = members;
        for row in &mut rows {
            members = added;
            for command in COMMANDS {
                for batch in BATCHES {
                    let from = if command == "BF.INSERT" {
                        members += TURN;
                        members - TURN
                    } else {
                        known
                    };
                    let cost = row.send(command, from..from + TURN, batch);
                    let series = samples.next().expect("a series for each");
                    if round > 0 {
                        series.push(cost);
                    }
                }
            }
        }
    }
}
