//! A page for each part, `docs/internals/benchmarks/PART.md`, with its tables, targets and machine;
//! and `docs/internals/benchmarks.md`, which lists them and the targets that are missed. So a part
//! can be repeated alone.

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
        self.say(&format!("## {text}"));
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
        self.say(&format!("![{}]({}.svg)", plot.title, plot.file));
        self.plots.push(plot);
    }

    /// Adds a target of the project and the measured value.
    pub(crate) fn target(&mut self, work: &str, bound: Bound, measured: f64) {
        let (wanted, met) = match bound {
            Bound::AtMost(most) => (format!("at most {most:.2}"), measured <= most),
            Bound::AtLeast(least) => (format!("at least {least:.2}"), measured >= least),
            Bound::AtMostMs(most) => (format!("at most {most:.1} ms"), measured <= most),
            Bound::AtMostBits(most) => (format!("at most {most:.1} bits"), measured <= most),
            Bound::None => ("none".into(), measured == 0.0),
        };
        let met = if met { "met" } else { "**missed**" };
        let measured = match bound {
            Bound::None => format!("{measured}"),
            Bound::AtMostMs(_) => format!("{measured:.1} ms"),
            Bound::AtMostBits(_) => format!("{measured:.2} bits"),
            _ if measured < 0.1 => format!("{measured:.4}"),
            _ => format!("{measured:.2}"),
        };
        self.targets.push(format!("| {work} | {wanted} | {measured} | {met} |\n"));
    }
}

impl Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(f, "# {}\n\n{}\n\n{}", self.title, facts(), self.body.trim_end())?;
        if !self.targets.is_empty() {
            write!(f, "\n## Targets\n\n{ROWS}{}", self.targets.concat())?;
        }
        Ok(())
    }
}

/// The pages of the parts, `docs/internals/benchmarks/PART.md`, and the page that lists them.
pub(crate) struct Report {
    docs: PathBuf,
}

impl Report {
    pub(crate) fn open() -> Self {
        Self { docs: "docs/internals".into() }
    }

    /// Writes the page of a part, and draws its plots.
    pub(crate) fn keep(&self, part: &str, section: &Section) {
        let directory = self.docs.join("benchmarks");
        fs::create_dir_all(&directory).expect("docs can be written to");
        fs::write(directory.join(format!("{part}.md")), section.to_string())
            .expect("docs can be written to");
        for plot in &section.plots {
            plot.draw(&directory.join(format!("{}.svg", plot.file)));
        }
    }

    /// Writes the list of the pages of `parts`, and the targets that they miss, below the summary.
    pub(crate) fn write(&self, parts: &[&str]) {
        let (mut list, mut missed) = (String::new(), String::new());
        for part in parts {
            let path = self.docs.join(format!("benchmarks/{part}.md"));
            let Ok(page) = fs::read_to_string(path) else { continue };
            let title = page.lines().next().unwrap_or_default().trim_start_matches("# ");
            let facts = page.lines().nth(2).unwrap_or_default().trim_matches('_');
            let date = facts.split(';').next().unwrap_or_default();
            let targets: Vec<&str> = page
                .lines()
                .skip_while(|line| *line != "## Targets")
                .filter(|line| line.ends_with("met |") || line.ends_with("missed** |"))
                .collect();
            let lost: Vec<&str> =
                targets.iter().copied().filter(|line| line.ends_with("missed** |")).collect();
            let met = match targets.len() {
                0 => String::new(),
                all => format!("{} of {all}", all - lost.len()),
            };
            list += &format!("| [{title}](benchmarks/{part}.md) | {date} | {met} |\n");
            for line in lost {
                let row = line.trim_start_matches("| ").trim_end_matches(" **missed** |");
                missed += &format!("| {title} | {row}\n");
            }
        }
        let path = self.docs.join("benchmarks.md");
        let page = fs::read_to_string(&path).expect("the summary");
        let (summary, _) = page.split_once(PARTS).expect("the heading of the parts");
        let page = format!("{summary}{PARTS}{list}\n{MISSED}{missed}");
        fs::write(path, page).expect("docs can be written to");
        eprintln!("bench: wrote docs/internals/benchmarks.md");
    }
}

/// What precedes it is written by hand, and stays.
const PARTS: &str = "\
## Parts

`make bench` writes what follows, and the pages of the parts.

| part | measured | targets met |
| --- | --- | --- |
";

const MISSED: &str = "\
## Targets that are missed

Ratios of server CPU per item within one run, unless the line says otherwise. \"Against the \
floor\" is the cost relative to an empty module.
Between two runs of the same module these ratios differed by up to 0.13, and ratios to a peer by \
more. A smaller distance from a target is
noise.

| part | work | target | measured |
| --- | --- | ---: | ---: |
";

/// The head of the table of targets.
const ROWS: &str = "| work | target | measured | |\n| --- | ---: | ---: | --- |\n";

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
    let changes =
        output("git", &["status", "--porcelain", "--", ".", ":!docs/internals/benchmarks*"]);
    let dirty = if changes.is_empty() { "" } else { "-dirty" };
    output("git", &["describe", "--always"]) + dirty
}

/// When, where and of what the part was measured, in one line.
fn facts() -> String {
    let server = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
    let server = output(&server, &["--version"]);
    let server = server.split(" sha").next().unwrap_or_default().to_owned();
    let rustc = output("rustc", &["--version"]);
    let peers = std::env::var("PEERS").unwrap_or_default();
    let names = peers.split_whitespace().filter_map(|peer| peer.split('=').next());
    let peers: String = names.map(|name| format!("; {name}")).collect();
    let kernel = output("uname", &["-sr"]);
    format!(
        "_{}; {}; commit {}; {server}{peers}; {}; {kernel}; {rustc}_",
        date(),
        machine(),
        commit(),
        processor()
    )
}
