//! The tool: `redis-bloom load` of a file of lines into one local server, beside `redis-cli --pipe`
//! with BF.MADD commands. In one row awk makes the commands from the same file. In another row they
//! are made before the clock starts.
//!
//! They take turns, each time with an empty filter. Then `redis-bloom dump` and `restore` of a
//! filter of 1 GiB, to a file in memory.

use std::{
    fs::{self, File},
    io::{BufWriter, Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use crate::{
    contender::{self, Contender, OURS},
    measure::Series,
    persistence::load_random,
    report::{Bound, Section},
    server::Server,
};

/// Lines in the file, each of 31 bytes and a line feed.
const LINES: u64 = 20_000_000;
/// Lines that `redis-cli` gets, the first ones of the file: it is slower.
const PIPED: u64 = 2_000_000;
/// Items in a BF.MADD.
const ARGUMENTS: u64 = 100;
/// Makes a command of every hundred lines.
const AWK: &str = r#"{ line = line " " $0 } NR % 100 == 0 { print "BF.MADD k" line; line = "" }"#;
const ROUNDS: usize = 5;
/// Rounds of dump and restore.
const COPIES: usize = 5;
/// A directory in memory, so that no disk is measured.
const MEMORY: &str = "/dev/shm";
/// Clock ticks in a second, in `/proc`: 100 on every Linux.
const TICKS: f64 = 100.0;

/// What a run of a client cost.
#[derive(Clone, Copy)]
struct Run {
    /// Nanoseconds of wall time.
    wall: f64,
    /// Nanoseconds of the server's main thread.
    server: f64,
    /// Nanoseconds of all threads of the client.
    client: f64,
    /// The client's peak of memory, in bytes.
    peak: f64,
}

pub(crate) fn run() -> Option<Section> {
    let Some(tool) = std::env::var_os("REDIS_BLOOM_TOOL") else {
        eprintln!("bench: REDIS_BLOOM_TOOL is not set: run `make bench BENCH=tool`");
        return None;
    };
    let ours = contender::filters().into_iter().find(|contender| contender.name == OURS)?;
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let (lines, commands) = (dir.path().join("lines"), dir.path().join("commands"));
    write_lines(&lines).expect("a file of 640 MB can be written");
    write_commands(&commands).expect("a file of 90 MB can be written");

    let [mut speed, mut busy, mut share, mut ratio, mut peak] = [0; 5].map(|_| Series::default());
    let [mut piped, mut made, mut ratio_made] = [0; 3].map(|_| Series::default());
    for round in 0..ROUNDS {
        eprintln!("bench: tool, round {}", round + 1);
        let mut server = ours.start(&[]);
        let load = {
            reserve(&mut server);
            let mut command = Command::new(&tool);
            command.args(["load", "k", "--quiet", "-p", &server.port().to_string()]).arg(&lines);
            measured(&mut server, &mut command, LINES)
        };
        let pipe = {
            reserve(&mut server);
            let mut command = Command::new("redis-cli");
            command
                .args(["-p", &server.port().to_string(), "--pipe"])
                .stdin(File::open(&commands).expect("it was written"));
            measured(&mut server, &mut command, PIPED)
        };
        let awk = {
            reserve(&mut server);
            let pipe = format!(
                "head -n {PIPED} '{}' | awk '{AWK}' | redis-cli -p {} --pipe",
                lines.display(),
                server.port()
            );
            measured(&mut server, Command::new("sh").args(["-c", &pipe]), PIPED)
        };
        let per_line = load.wall / LINES as f64;
        let [per_piped, per_made] = [pipe, awk].map(|run| run.wall / PIPED as f64);
        // Items in a microsecond are million items in a second.
        speed.push(1e3 / per_line);
        made.push(1e3 / per_made);
        ratio_made.push(per_made / per_line);
        piped.push(1e3 / per_piped);
        busy.push(load.server / load.wall);
        share.push(load.client / load.server);
        ratio.push(per_piped / per_line);
        peak.push(load.peak / 1e6);
    }
    let (dumped, restored) = copies(Path::new(&tool), &ours)?;
    let mut section = Section::new("The CLI");
    section.say(&format!(
        "`redis-bloom load` reads {} M lines of 31 bytes from a file in the page cache. It fills \
         an empty filter, reserved for that many at 1 %, on one local server. `redis-cli --pipe` \
         sends the first {} M lines as BF.MADD of {ARGUMENTS} items each. awk makes these commands \
         from the same file, or they are made before the clock starts. Medians of {ROUNDS} rounds; \
         the best round in brackets. \"Busy\" is the CPU time of the server's main thread divided \
         by wall time. `dump` and `restore` are of a filter of 1 GiB, to and from a file in \
         memory.",
        LINES / 1_000_000,
        PIPED / 1_000_000,
    ));
    let cell = |series: &Series, best: f64, unit: &str| {
        format!("{:.2}{unit} ({best:.2}{unit})", series.median())
    };
    let rows = [
        ("load, million items a second", cell(&speed, speed.most(), "")),
        ("awk and redis-cli --pipe, million items a second", cell(&made, made.most(), "")),
        ("redis-cli --pipe alone, million items a second", cell(&piped, piped.most(), "")),
        ("load: faster than awk and redis-cli --pipe", cell(&ratio_made, ratio_made.most(), "x")),
        ("load: faster than redis-cli --pipe alone", cell(&ratio, ratio.most(), "x")),
        ("server busy", cell(&busy, busy.most(), "")),
        ("client's CPU time divided by the server's", cell(&share, share.least(), "")),
        ("client's peak of memory", cell(&peak, peak.least(), " MB")),
        ("dump, MB a second", cell(&dumped, dumped.most(), "")),
        ("restore, MB a second", cell(&restored, restored.most(), "")),
    ];
    let rows: Vec<_> = rows.into_iter().map(|(name, cell)| vec![name.to_owned(), cell]).collect();
    section.table(&["", "median (best)"], &rows);
    section.target("load: million items a second", Bound::AtLeast(10.0), speed.median());
    section.target(
        "load: share of the time that the server is busy",
        Bound::AtLeast(0.9),
        busy.median(),
    );
    section.target(
        "load: the client's CPU time divided by the server's",
        Bound::AtMost(1.0),
        share.median(),
    );
    section.target(
        "load of a file: faster than awk and redis-cli --pipe",
        Bound::AtLeast(5.0),
        ratio_made.median(),
    );
    section.target(
        "load: the client's memory divided by 128 MiB",
        Bound::AtMost(1.0),
        peak.most() * 1e6 / f64::from(128 << 20),
    );
    section.target("dump: MB a second", Bound::AtLeast(500.0), dumped.median());
    section.target("restore: MB a second", Bound::AtLeast(500.0), restored.median());
    Some(section)
}

/// Megabytes a second of `dump` and of `restore`.
fn copies(tool: &Path, ours: &Contender) -> Option<(Series, Series)> {
    let dir = tempfile::tempdir_in(MEMORY).expect("a directory in memory can be made");
    let file = dir.path().join("dump");
    let mut server = ours.start(&[]);
    server.run::<()>("BF.RESERVE empty 0.01 800000000 SEED 1");
    let bytes = load_random(&mut server, "empty", "a", 1, 3)?;
    let [mut dumped, mut restored] = [0; 2].map(|_| Series::default());
    for _ in 0..COPIES {
        let timed = |words: &[&str]| {
            let begin = Instant::now();
            let mut command = Command::new(tool);
            command.args(["--quiet", "-p", &server.port().to_string()]).args(words);
            let output = command.output().expect("the tool can be run");
            assert!(output.status.success(), "{command:?}: {output:?}");
            bytes / 1e6 / begin.elapsed().as_secs_f64()
        };
        let path = file.to_str().expect("a path in UTF-8");
        dumped.push(timed(&["dump", "a", "-o", path]));
        restored.push(timed(&["restore", path, "b"]));
        let [of_a, of_b]: [Vec<String>; 2] =
            ["a", "b"].map(|key| server.run(&format!("DEBUG DIGEST-VALUE {key}")));
        assert_eq!(of_a, of_b, "the copy is equal");
        server.run::<()>("DEL b");
        fs::remove_file(&file).expect("the file was written");
    }
    Some((dumped, restored))
}

fn reserve(server: &mut Server) {
    server.run::<()>("DEL k");
    server.run::<()>(&format!("BF.RESERVE k 0.01 {LINES}"));
}

fn line(number: u64) -> String {
    // Scattered numbers, each once: the factor is odd.
    format!("https://example.com/{:011}", number * 7_919 % 100_000_000_000)
}

fn write_lines(path: &Path) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    (0..LINES).try_for_each(|number| writeln!(file, "{}", line(number)))?;
    file.flush()
}

fn write_commands(path: &Path) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for start in (0..PIPED).step_by(ARGUMENTS as usize) {
        write!(file, "*{}\r\n$7\r\nBF.MADD\r\n$1\r\nk\r\n", ARGUMENTS + 2)?;
        for number in start..start + ARGUMENTS {
            write!(file, "$31\r\n{}\r\n", line(number))?;
        }
    }
    file.flush()
}

/// Runs a client that adds `items` items.
fn measured(server: &mut Server, command: &mut Command, items: u64) -> Run {
    let (before, begin) = (server.cpu(), Instant::now());
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("redis-cli and the tool can be run");
    let process = PathBuf::from(format!("/proc/{}", child.id()));
    let read = |name: &str| fs::read_to_string(process.join(name)).unwrap_or_default();
    let (mut peak, mut stat) = (0.0, Vec::new());
    // A process that has ended is a zombie until it is waited for, and keeps its times.
    let wall = loop {
        let ended = Instant::now();
        let status = read("status");
        let field = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = field.and_then(|field| field.trim().strip_suffix(" kB")?.parse().ok());
        peak = kilobytes.map_or(peak, |kilobytes: f64| kilobytes * 1024.0);
        let text = read("stat");
        stat = text.rsplit(')').next().map(words).unwrap_or(stat);
        if stat.first().is_none_or(|state| state == "Z") {
            break ended - begin;
        }
        sleep(Duration::from_millis(2));
    };
    let mut output = String::new();
    let mut stdout = child.stdout.take().expect("a pipe");
    stdout.read_to_string(&mut output).expect("text");
    let status = child.wait().expect("it ended");
    assert!(status.success(), "{command:?}: {output}");
    // False positives are not counted; they are 1 % in the end, and fewer before.
    let added: u64 = server.run("BF.CARD k");
    assert!(added <= items && added >= items * 98 / 100, "{added} of {items}: {output}");
    // utime and stime are the fields 14 and 15 of the line, of which two are before the bracket.
    let ticks = |at: usize| stat.get(at).and_then(|field| field.parse().ok()).unwrap_or(f64::NAN);
    Run {
        wall: wall.as_nanos() as f64,
        server: server.cpu() - before,
        client: (ticks(11) + ticks(12)) / TICKS * 1e9,
        peak,
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
