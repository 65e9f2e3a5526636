//! The page: sections of this run or of an earlier one, the targets and the machine.
//!
//! Each part stores its section in `target/bench/`, and the page is written from all sections
//! there. So a part can be repeated alone; its section states its date.

use std::{
    fmt::{self, Display},
    fs,
    path::PathBuf,
    process::Command,
};

use crate::plot::Plot;

/// The result of a part.
#[derive(Default)]
pub(crate) struct Section {
    title: String,
    body: String,
    targets: Vec<String>,
    plots: Vec<Plot>,
}

/// The bound that a target sets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// A difference in milliseconds, which may be negative.
    AtMostMs(f64),
    /// A number of bits.
    AtMostBits(f64),
    /// A count that must be 0.
    None,
}

impl Section {
    pub(crate) fn new(title: &str) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// A paragraph.
    pub(crate) fn say(&mut self, text: &str) {
        self.body += &format!("{text}\n\n");
    }

    pub(crate) fn heading(&mut self, text: &str) {
        self.say(&format!("### {text}"));
    }

    pub(crate) fn table(&mut self, head: &[impl AsRef<str>], rows: &[Vec<String>]) {
        let head: Vec<&str> = head.iter().map(AsRef::as_ref).collect();
        let rule = vec!["---:"; head.len() - 1].join(" | ");
        let mut text = format!("| {} |\n| --- | {rule} |\n", head.join(" | "));
        for row in rows {
            text += &format!("| {} |\n", row.join(" | "));
        }
        self.say(text.trim_end());
    }

    pub(crate) fn plot(&mut self, plot: Plot) {
        self.say(&format!("![{}](benchmarks/{}.svg)", plot.title, plot.file));
        self.plots.push(plot);
    }

    /// Adds a target of the project and the measured value.
    pub(crate) fn target(&mut self, work: &str, bound: Bound, measured: f64) {
        let (wanted, met) = match bound {
            Bound::AtMost(most) => (format!("at most {most:.2}x"), measured <= most),
            Bound::AtLeast(least) => (format!("at least {least:.2}x"), measured >= least),
            Bound::AtMostMs(most) => (format!("at most {most:.1} ms"), measured <= most),
            Bound::AtMostBits(most) => (format!("at most {most:.1} bits"), measured <= most),
            Bound::None => ("none".into(), measured == 0.0),
        };
        let met = if met { "met" } else { "**missed**" };
        let measured = match bound {
            Bound::None => format!("{measured}"),
            Bound::AtMostMs(_) => format!("{measured:.1} ms"),
            Bound::AtMostBits(_) => format!("{measured:.2} bits"),
            _ if measured < 0.1 => format!("{measured:.4}x"),
            _ => format!("{measured:.2}x"),
        };
        self.targets.push(format!("| {work} | {wanted} | {measured} | {met} |\n"));
    }
}

impl Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(f, "## {}\n\n{}", self.title, self.body.trim_end())
    }
}

/// Where sections are stored, and where the page is written.
pub(crate) struct Report {
    kept: PathBuf,
    docs: PathBuf,
}

impl Report {
    pub(crate) fn open() -> Self {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let kept = target_dir().join("bench");
        fs::create_dir_all(&kept).expect("the build directory can be written to");
        Self { kept, docs: root.join("docs") }
    }

    /// Stores a section under its part's name, and draws its plots.
    pub(crate) fn keep(&self, index: usize, part: &str, section: &Section) {
        eprintln!("bench: {part} is part {}", index + 1);
        let stamp = format!("_{}; {}_", date(), machine());
        let text = format!("## {}\n\n{stamp}\n\n{}\n", section.title, section.body.trim_end());
        self.write_kept(&format!("{part}.md"), &text);
        self.write_kept(&format!("{part}.targets"), &section.targets.concat());
        let plots = self.docs.join("benchmarks");
        fs::create_dir_all(&plots).expect("docs can be written to");
        for plot in &section.plots {
            plot.draw(&plots.join(format!("{}.svg", plot.file)));
        }
    }

    fn write_kept(&self, name: &str, text: &str) {
        fs::write(self.kept.join(name), text).expect("the build directory can be written to");
    }

    /// Writes the page from the stored sections of `parts`.
    pub(crate) fn write(&self, parts: &[&str]) {
        let kept = |part: &str, kind: &str| {
            fs::read_to_string(self.kept.join(format!("{part}.{kind}"))).unwrap_or_default()
        };
        let all = |kind| {
            parts
                .iter()
                .map(|part| kept(part, kind))
                .filter(|text| !text.is_empty())
                .collect::<Vec<_>>()
        };
        let mut page = String::from(HEAD);
        page += &format!("| part of the machine | |\n| --- | --- |\n{}\n", facts());
        let targets = all("targets").concat();
        if !targets.is_empty() {
            page += TARGETS;
            page += &format!(
                "| work | target | measured | |\n| --- | ---: | ---: | --- |\n{targets}\n"
            );
        }
        page += &all("md").join("\n");
        let path = self.docs.join("benchmarks.md");
        fs::write(&path, page).expect("docs can be written to");
        eprintln!("bench: wrote docs/benchmarks.md");
    }
}

const HEAD: &str = "\
# Benchmarks

`make bench` (`benches/suite/`) writes this page; do not edit it. `make bench BENCH=growing` repeats
one part. `PEERS=\"name=path.so\"` adds other modules. Each table was measured in one run on one
machine, and contenders took turns. Each part states when it was measured. Compare contenders within
a table, not tables of different machines.

- **floor**: an empty module (`examples/floor.rs`). It opens the key, reads the items, replies, and
  replicates additions. No module can be faster.
- **SETBIT/GETBIT**: a Bloom filter that a client builds in a string, with k commands an item, all
  in one pipeline.

";

const TARGETS: &str = "\
## Targets

Ratios of server CPU per item within one run, unless the line says otherwise. \"Against the floor\"
is the cost, if an empty module is 1.0. Between two runs of one module these ratios differed by up
to 0.13, and ratios to a peer by more. A ratio that is closer to its target than that is neither
safely met nor safely missed.

";

/// The build directory of cargo. This program is in `release/deps` below it.
pub(crate) fn target_dir() -> PathBuf {
    let program = std::env::current_exe().expect("a running program has a path");
    program.ancestors().nth(3).expect("it lies in TARGET/release/deps").into()
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

fn date() -> String {
    output("date", &["-u", "+%Y-%m-%d %H:%M UTC"])
}

/// The name of the processor, and whether it has the instructions that
/// `src/filter/layer/blocked/simd.rs` uses.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split(": ").nth(1))
    };
    let wide = field("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "avx512vl"));
    let wide = if wide { "with" } else { "without" };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let name = field("model name").unwrap_or("unknown processor");
    format!("{name} ({cores} cores, {wide} AVX-512VL)")
}

/// The load of the machine at the end of the part.
fn machine() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("?");
    format!("load average at the end {load}")
}

/// The commit, marked if there are uncommitted changes outside of the page itself.
fn commit() -> String {
    let changes = output("git", &["status", "--porcelain", "--", ".", ":!docs/benchmarks*"]);
    let dirty = if changes.is_empty() { "" } else { "-dirty" };
    output("git", &["describe", "--always"]) + dirty
}

/// Rows of the table of the machine.
fn facts() -> String {
    let server = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
    let server = output(&server, &["--version"]);
    let server = server.split(" sha").next().unwrap_or_default().to_owned();
    let peers = std::env::var("PEERS").unwrap_or_default();
    let names: Vec<&str> =
        peers.split_whitespace().filter_map(|peer| peer.split('=').next()).collect();
    let parts =
        std::env::args().skip(1).filter(|word| word != "--bench").collect::<Vec<_>>().join(" ");
    let mut line = String::from("make bench");
    if !parts.is_empty() {
        line += &format!(" BENCH=\"{parts}\"");
    }
    if !names.is_empty() {
        line += &format!(
            " PEERS=\"{}\"",
            names.iter().map(|name| format!("{name}=...")).collect::<Vec<_>>().join(" ")
        );
    }
    let rows = [
        ("date", date()),
        ("processor", processor()),
        ("kernel", output("uname", &["-sr"])),
        ("server", server),
        ("compiler", output("rustc", &["--version"])),
        ("commit", commit()),
        ("command", format!("`{line}`")),
    ];
    rows.iter().map(|(name, value)| format!("| {name} | {value} |\n")).collect()
}
