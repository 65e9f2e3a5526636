//! One round: servers, an input, and runs of the tool until one loads everything.
//!
//! ```text
//!   run ──killed, or exit 5──▶ what happens between two runs ──▶ run with --resume or --skip ...
//!    │  what it says is true                                       │
//!    └─exit 0──────────────▶ end ◀── a last run that nothing hinders, from the beginning
//! ```

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, ExitStatus, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::{
    claims::{Begin, Run},
    input::Input,
    relay::Relays,
    setup::Setup,
    stage::Stage,
    world::{Harm, NAME, USER, World},
};
use crate::harness::Random;

/// Runs before the last one.
const RUNS: usize = 4;
/// A run that takes longer hangs.
const HANGS: Duration = Duration::from_secs(180);
/// Pause between two looks at the tool.
const POLL: Duration = Duration::from_millis(2);

/// What all rounds share.
#[derive(Clone, Debug)]
pub(super) struct Bench {
    /// The tool.
    tool: String,
}

impl Bench {
    /// The tool of this build, or that which LOAD_MODEL_TOOL names: to see which faults the model
    /// finds in another one.
    pub(super) fn new() -> Self {
        let own = || env!("CARGO_BIN_EXE_redis-bloom").to_owned();
        Self { tool: std::env::var("LOAD_MODEL_TOOL").unwrap_or_else(|_| own()) }
    }
}

/// What a round was like, for the summary.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    rounds: usize,
    runs: usize,
    /// Runs that ended with exit 0 after items may have been lost.
    done_after_loss: usize,
    /// Runs that ended early, and said what is in the filter.
    partial: usize,
    /// Runs that ended early, and said nothing.
    unknown: usize,
}

impl Tally {
    /// Counts another round.
    pub(super) fn add(&mut self, round: Self) {
        self.rounds += 1;
        self.runs += round.runs;
        self.done_after_loss += round.done_after_loss;
        self.partial += round.partial;
        self.unknown += round.unknown;
    }
}

struct Round<'b> {
    bench: &'b Bench,
    setup: Setup,
    input: Input,
    stage: Arc<Stage>,
    relays: Relays,
    random: Random,
    dir: &'b Path,
    tally: Tally,
}

/// Plays the round of a seed. The error is the report of what is wrong.
pub(super) fn play(seed: u64, bench: &Bench) -> Result<Tally, String> {
    let mut random = Random::new(seed);
    let setup = Setup::choose(&mut random);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let input = Input::write(&setup, &mut random, dir.path());
    let world = World::start(&setup, input.items.clone(), random.clone());
    let stage = Arc::new(Stage::new(world));
    let relays = Relays::start(&stage, setup.servers);
    let dir = dir.path();
    let mut round =
        Round { bench, setup, input, stage, relays, random, dir, tally: Tally::default() };
    let result = round.runs();
    let mut world = round.stage.world();
    world.end();
    result
        .map(|()| round.tally)
        .map_err(|fault| format!("{fault}\n\n{:?}\n{}\n", round.setup, world.story.join("\n")))
}

impl Round<'_> {
    fn runs(&mut self) -> Result<(), String> {
        let mut begin = Begin::First;
        for _ in 0..RUNS {
            let (items, steps) = (self.input.items.len(), self.input.steps(&self.setup));
            let events = self.setup.events(&mut self.random, items, steps);
            self.stage.begin(events);
            let run = self.run(begin)?;
            if run.code == Some(0) {
                return Ok(());
            }
            begin = self.next(&run);
            let mut world = self.stage.world();
            for act in self.setup.between(&mut self.random, items) {
                world.play(&act);
            }
        }
        self.stage.begin(Vec::new());
        {
            let mut world = self.stage.world();
            world.create_missing();
            if self.setup.acks.unwrap_or(1) > 0 && self.setup.replicas {
                world.attach_missing();
            }
            world.harm = Harm::Nothing;
        }
        self.setup.retry_for = "60s";
        self.run(Begin::First).map(|_| ())
    }

    /// Runs the tool, and judges what it says. Journals of a load into another database are removed
    /// as it advises, one for each file.
    fn run(&mut self, begin: Begin) -> Result<Run, String> {
        let mut run = self.run_once(begin)?;
        for at in 0..self.input.files.len() {
            let journal = format!("{}.redis-bloom", self.input.files[at].display());
            if run.refuses_journal() && run.stderr.contains(&format!("Remove {journal} to load")) {
                fs::remove_file(journal).expect("a journal");
                run = self.run_once(Begin::First)?;
            }
        }
        match run.refuses_journal() {
            true => Err("it refuses a journal that is gone".to_owned()),
            false => Ok(run),
        }
    }

    fn run_once(&mut self, begin: Begin) -> Result<Run, String> {
        self.tally.runs += 1;
        let words = self.words(begin);
        let output = |name: &str| File::create(self.dir.join(name)).expect("a file for output");
        let stdin = match self.setup.stdin {
            true => File::open(&self.input.files[0]).expect("the input").into(),
            false => Stdio::null(),
        };
        // No event comes before the tool is known to it.
        let mut world = self.stage.world();
        let tool = Command::new(&self.bench.tool)
            .args(&words)
            .env_remove("REDISCLI_AUTH")
            .stdin(stdin)
            .stdout(output("stdout"))
            .stderr(output("stderr"))
            .spawn()
            .expect("the tool runs");
        world.note(format!("redis-bloom {}", words.join(" ")));
        world.tool = Some(tool);
        world.interrupted = false;
        drop(world);
        let status = self.ended();
        // Events that are late would come between this run and the next one.
        self.stage.begin(Vec::new());
        let read = |name: &str| {
            String::from_utf8_lossy(&fs::read(self.dir.join(name)).expect("output")).into_owned()
        };
        let (stdout, stderr) = (read("stdout"), read("stderr"));
        let mut world = self.stage.world();
        world.tool = None;
        world.settle();
        let Some(status) = status else {
            return Err(format!("it hangs: {stdout}{stderr}"));
        };
        world.note(format!("{status}\n{stdout}{stderr}"));
        let run = Run::of(begin, status, stdout, stderr);
        let claim = run.claim(self.input.items.len());
        let from = claim.start;
        let lost = world.missing(&self.input.items[claim.clone()]);
        let lost: Vec<_> = lost.into_iter().map(|place| place + from).collect();
        let succeeds = match world.harm {
            Harm::Nothing => self.setup.can_succeed(),
            Harm::Cut => self.setup.can_reconnect(),
            Harm::Loss => false,
        };
        let succeeds = succeeds && !world.interrupted && begin != Begin::Resumed;
        // Only another database makes another load of it.
        let succeeds = succeeds && !(run.refuses_journal() && world.database != 0);
        let after_loss = world.harm == Harm::Loss && run.code == Some(0);
        self.tally.done_after_loss += usize::from(after_loss);
        let partial = run.code != Some(0) && !claim.is_empty();
        self.tally.partial += usize::from(partial);
        self.tally.unknown += usize::from(run.code.is_some_and(|code| code != 0) && !partial);
        match run.fault(self.input.items.len(), &lost, succeeds) {
            Some(fault) => Err(fault),
            None => Ok(run),
        }
    }

    /// Waits for the tool; `None` if it hangs.
    fn ended(&self) -> Option<ExitStatus> {
        let started = Instant::now();
        loop {
            let mut world = self.stage.world();
            let tool = world.tool.as_mut().expect("a run");
            if let Some(status) = tool.try_wait().expect("a child") {
                return Some(status);
            }
            if started.elapsed() > HANGS {
                // It is no use any more, and may have ended.
                let _ = tool.kill();
                let _ = tool.wait();
                return None;
            }
            drop(world);
            thread::sleep(POLL);
        }
    }

    fn words(&self, begin: Begin) -> Vec<String> {
        let setup = &self.setup;
        let mut words: Vec<String> = Vec::new();
        let mut add = |text: &str| words.extend(text.split_whitespace().map(str::to_owned));
        add(&format!("-p {} --user {USER} --pass any", self.relays.port()));
        let database = self.stage.world().database;
        if database > 0 {
            add(&format!("-n {database}"));
        }
        add(&format!("load {NAME} --json --batch {}b", setup.batch));
        add(&format!("--journal-every {}", setup.journal_every));
        add(&format!("--retry-for {}", setup.retry_for));
        setup.form.option().iter().for_each(|word| add(word));
        if let Some(acks) = setup.acks {
            add(&format!("--acks {acks}"));
        }
        match begin {
            Begin::First => {}
            Begin::Resumed => add("--resume"),
            Begin::Skipped(items) => add(&format!("--skip {items}")),
        }
        if !setup.stdin {
            self.input.files.iter().for_each(|file| add(&file.display().to_string()));
        }
        words
    }

    /// How the next run begins: as the message advises, mostly.
    fn next(&mut self, run: &Run) -> Begin {
        let stubborn = self.random.below(8) == 0;
        match run.skip() {
            Some(items) => Begin::Skipped(items),
            None if !self.setup.can_resume() || run.code == Some(2) => Begin::First,
            None if run.code.is_none() || run.advises_to_resume() || stubborn => Begin::Resumed,
            None => Begin::First,
        }
    }
}
