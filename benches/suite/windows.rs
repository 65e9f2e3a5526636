//! Filters that forget. In process: their cost by the number of generations. In the server: their
//! cost against the empty module and plain filters, their memory, the time of a shift, and the AOF.
//!
//! A window is measured when it has all its generations. In a server that would take as long as the
//! window itself. So this program fills it, with times in the past. BF.LOADCHUNK loads it. The
//! filter is loaded with a newest generation of age T/G, so the first addition shifts.

use std::{
    ops::Range,
    time::{Duration, Instant, SystemTime},
};

use redis_bloom::{
    codec::native::dump,
    filter::{Additions, Answers, Author, Expansion, Filter, Params, Rules, Span, paged::Paged},
};

use crate::{
    contender::{self, BY_HAND, FLOOR, Rival, ours},
    measure::{Series, Starts},
    payload::{self, Items, MEMBERS, Op, STRANGERS, Speech},
    plot::Plot,
    report::{Bound, Section},
    server::Server,
};

/// Items of a window.
const SIZES: [(u64, &str); 2] = [(2_000_000, "2 M items"), (20_000_000, "20 M items")];
/// Generations, if nothing else is said.
const GENERATIONS: u8 = 4;
/// The window of windows of time, in milliseconds: 40 hours. It outlasts the measurement.
const SPAN: u64 = 40 * 60 * 60 * 1_000;
/// Items in a batch.
const BATCH: u64 = 100;
/// Items in a turn.
const TURN: u64 = 20_000;
/// Rounds of turns after each start; one more warms up.
const ROUNDS: u64 = 5;
const STARTS: u64 = 5;

/// The bits of a window for the figures of the page: 1 million items.
const MEMORY_ITEMS: u64 = 1_000_000;

pub(crate) fn run() -> Option<Section> {
    let mut section = Section::new("Windows");
    section.say(&format!(
        "Sliding-window filters, at 1 %. Unless a table says otherwise, a window here has all its \
         generations: {GENERATIONS} full ones, and a newest one that additions fill. So a window \
         of N items has more than N. A window of N items is compared with plain filters for N \
         items."
    ));
    in_process(&mut section);
    for (size, title) in SIZES {
        eprintln!("bench: windows in the server, {title}");
        in_server(&mut section, size, title);
    }
    shifts(&mut section);
    returning(&mut section);
    repeated(&mut section);
    memory(&mut section);
    Some(section)
}

/// Milliseconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.expect("a time after 1970").as_millis() as i64
}

/// Parameters of a filter of bits; an expansion of 0 is NONSCALING.
fn params(capacity: u64, expansion: u64) -> Params {
    Params {
        error_rate: 0.01,
        capacity,
        expansion: Expansion::new(expansion).expect("a factor in range"),
        seed: 42,
        counts: false,
        shard: None,
    }
}

/// A window with all its generations. All but the newest have `each` members, in turn; the newest
/// has `newest` of them, and started `age` milliseconds ago.
fn window(kind: (u64, u64, Rules), each: u64, newest: u64, age: i64) -> Paged {
    let last = u64::from(kind.2.generations);
    window_of(kind, age, |generation| {
        let items = if generation < last { each } else { newest };
        generation * each..generation * each + items
    })
}

/// A window with all its generations: the numbers of the members of each by `members`.
fn window_of(
    (capacity, expansion, rules): (u64, u64, Rules),
    age: i64,
    members: impl Fn(u64) -> Range<u64>,
) -> Paged {
    let window = Paged::new(&params(capacity, expansion), Some(rules), u64::MAX);
    let mut window = window.expect("memory for the filter");
    let count = u64::from(rules.generations);
    let slot = SPAN / count;
    for generation in 0..=count {
        let time = now() - age - ((count - generation) * slot) as i64;
        let numbers = members(generation);
        for start in numbers.clone().step_by(500_000) {
            let numbers = start..numbers.end.min(start + 500_000);
            let items = texts(&Items::InTurn { set: MEMBERS, numbers });
            add(&mut window, items.iter().map(<[u8; 17]>::as_slice), time);
        }
    }
    let generations = window.window().map_or(0, |window| window.generations.len() as u64);
    assert_eq!(generations, count + 1, "all generations");
    window
}

/// Adds a batch at a time; returns how many items were new.
fn add<'a>(window: &mut Paged, items: impl Iterator<Item = &'a [u8]>, time: i64) -> u64 {
    let mut new = 0;
    window.turn(time);
    let count = |done: Additions| new += done.new.ones() as u64;
    let outcome = window.add_each(items, Author::Client(time), |_| u64::MAX, count);
    outcome.expect("memory for an item");
    new
}

fn timed(generations: u8) -> Rules {
    Rules { span: Span::Time(SPAN), generations, refresh: true }
}

/// A filter in this process.
enum Local {
    Plain(Filter),
    Window(Paged),
}

impl Local {
    /// Adds items in batches; returns how many were new.
    fn add(&mut self, items: &[[u8; 17]], now: i64) -> u64 {
        let mut new = 0;
        for batch in items.chunks(BATCH as usize) {
            let each = batch.iter().map(<[u8; 17]>::as_slice);
            match self {
                Self::Plain(filter) => {
                    let count = |found: Answers| new += found.ones() as u64;
                    filter.add_each(each, |_| u64::MAX, count).expect("memory for an item");
                }
                Self::Window(window) => new += add(window, each, now),
            }
        }
        new
    }

    /// Asks for items in batches; returns how many are there.
    fn count(&self, items: &[[u8; 17]], now: i64) -> u64 {
        let mut found = 0;
        for batch in items.chunks(BATCH as usize) {
            let each = batch.iter().map(<[u8; 17]>::as_slice);
            let count = |answers: Answers| found += answers.ones() as u64;
            match self {
                Self::Plain(filter) => filter.contains_each(each, count),
                Self::Window(window) => window.contains_each(each, now, count),
            }
        }
        found
    }
}

/// A filter in this process, and its items: members in turn.
struct Held {
    filter: Local,
    /// Numbers of the members that are found for certain.
    members: Range<u64>,
    /// Items for one generation, and those that the newest one has.
    each: u64,
    newest: u64,
    /// T/G, and the time of its last addition.
    slot: i64,
    now: i64,
}

impl Held {
    /// A plain filter, 80 % full.
    fn plain(capacity: u64) -> Self {
        let filter = Filter::new(&params(capacity, 2), u64::MAX).expect("memory for the filter");
        let mut filter = Local::Plain(filter);
        let end = capacity * 4 / 5;
        for start in (0..end).step_by(500_000) {
            let numbers = start..end.min(start + 500_000);
            filter.add(&texts(&Items::InTurn { set: MEMBERS, numbers }), 0);
        }
        Self { filter, members: 0..end, each: u64::MAX, newest: 0, slot: 0, now: 0 }
    }

    /// A window, the newest generation half full.
    fn window(capacity: u64, generations: u8) -> Self {
        let each = capacity / u64::from(generations);
        let newest = each / 2;
        let window = window((capacity, 2, timed(generations)), each, newest, 0);
        let now = window.window().map_or(0, |window| window.newest().start);
        let end = capacity + newest;
        Self {
            filter: Local::Window(window),
            members: end - capacity..end,
            each,
            newest,
            slot: (SPAN / u64::from(generations)) as i64,
            now,
        }
    }

    /// Adds the next members. Returns the time that it took, and how many were new.
    fn add_new(&mut self, count: u64) -> (Duration, u64) {
        let numbers = self.members.end..self.members.end + count;
        let items = texts(&Items::InTurn { set: MEMBERS, numbers });
        let mut rest = items.as_slice();
        let (begin, mut new) = (Instant::now(), 0);
        while !rest.is_empty() {
            if self.newest == self.each {
                (self.newest, self.now) = (0, self.now + self.slot);
            }
            let room = (self.each - self.newest).min(rest.len() as u64);
            let (first, later) = rest.split_at(room as usize);
            new += self.filter.add(first, self.now);
            self.newest += room;
            rest = later;
        }
        let time = begin.elapsed();
        self.members.end += count;
        if let Local::Window(_) = self.filter {
            self.members.start += count;
        }
        (time, new)
    }

    /// Asks for items. Returns the time that it took, and how many were found.
    fn ask(&self, items: &Items) -> (Duration, u64) {
        let items = texts(items);
        let begin = Instant::now();
        let found = self.filter.count(&items, self.now);
        (begin.elapsed(), found)
    }
}

fn texts(items: &Items) -> Vec<[u8; 17]> {
    items.texts().collect()
}

/// Works in process and in the server.
const WORKS: [&str; 3] = ["add, new", "exists, hit", "exists, miss"];

/// Nanoseconds of an item in process, by the number of generations.
fn in_process(section: &mut Section) {
    const BY: [u8; 6] = [1, 2, 4, 8, 16, 32];
    const ROUNDS: u64 = 15;
    section.heading("In process, by GENERATIONS");
    section.say(&format!(
        "Nanoseconds per item in batches of {BATCH}, and in brackets the ratio to a plain filter. \
         The least of {ROUNDS} turns; a ratio is the median over turns.",
    ));
    let mut rows = Vec::new();
    let mut lines = Vec::new();
    for (size, title) in SIZES {
        eprintln!("bench: windows in process, {title}");
        let mut filters: Vec<Held> = [Held::plain(size)]
            .into_iter()
            .chain(BY.map(|generations| Held::window(size, generations)))
            .collect();
        let mut samples = vec![vec![Series::default(); filters.len()]; WORKS.len()];
        // The first round warms up.
        for round in 0..=ROUNDS {
            for (at, held) in filters.iter_mut().enumerate() {
                let (adding, new) = held.add_new(TURN);
                let present = held.members.clone();
                let present = Items::scattered_in(MEMBERS, present, TURN, round);
                let (hitting, found) = held.ask(&present);
                let absent = Items::scattered(STRANGERS, 1_000_000_000, TURN, round);
                let (missing, wrong) = held.ask(&absent);
                let right = new >= TURN * 9 / 10 && found == TURN && wrong <= TURN / 10;
                assert!(right, "{title}: {new} new, {found} found, {wrong} wrong of {TURN}");
                if round > 0 {
                    for (samples, time) in samples.iter_mut().zip([adding, hitting, missing]) {
                        samples[at].push(time.as_nanos() as f64 / TURN as f64);
                    }
                }
            }
        }
        for (work, samples) in WORKS.iter().zip(&samples) {
            let cell = |series: &Series| {
                format!("{:.0} ({:.2})", series.least(), series.over(&samples[0]))
            };
            let head = [(*work).to_owned(), title.to_owned()];
            rows.push(head.into_iter().chain(samples.iter().map(cell)).collect());
        }
        let points = BY.iter().zip(&samples[2][1..]);
        let points = points.map(|(&by, series)| (f64::from(by), series.least()));
        lines.push((title.to_owned(), points.collect()));
    }
    let head: Vec<String> = ["work", "window", "plain"]
        .map(String::from)
        .into_iter()
        .chain(BY.map(|generations| format!("GENERATIONS {generations}")))
        .collect();
    section.table(&head, &rows);
    section.plot(Plot {
        file: "windows",
        title: "A miss in a window, in process".into(),
        x_label: "GENERATIONS",
        y_label: "ns per item",
        lines,
    });
}

/// A contender of the server, and the number of its members when the measurement begins.
struct Entrant {
    rival: Rival,
    filled: u64,
}

/// The words by which a window is fed.
fn words(capacity: u64, span: u64) -> String {
    format!("CAPACITY {capacity} ERROR 0.01 WINDOW PX {span} ITEMS")
}

/// Loads a filter under the key `k`.
fn load(server: &mut Server, filter: &Paged) {
    let mut chunk = Some(dump::header(filter));
    while let Some((iterator, data)) = chunk {
        let text = iterator.to_string();
        let loaded = server.call::<String>("BF.LOADCHUNK", &[b"k", text.as_bytes(), &data]);
        loaded.unwrap_or_else(|error| panic!("BF.LOADCHUNK {iterator}: {error}"));
        chunk = dump::at(filter, iterator);
    }
}

/// Server CPU per item, against the empty module and plain filters.
fn in_server(section: &mut Section, size: u64, title: &str) {
    let each = size / u64::from(GENERATIONS);
    let newest = each * 3 / 10;
    let held = size + newest;
    let window = window((size, 2, timed(GENERATIONS)), each, newest, 60_000);
    let insert: &'static str = Box::leak(words(size, SPAN).into_boxed_str());
    let batches = [1, BATCH];
    let mut samples = vec![vec![Vec::<Starts>::new(); WORKS.len()]; batches.len()];
    let mut names = Vec::new();
    for start in 0..STARTS {
        let mut entrants: Vec<Entrant> = Vec::new();
        for contender in contender::all().iter().filter(|contender| contender.name != BY_HAND) {
            let mut rival = Rival::with_filter(contender, size, &[]);
            let filled = size * 4 / 5;
            contender::fill(std::slice::from_mut(&mut rival), 0, filled);
            entrants.push(Entrant { rival, filled });
        }
        let speeches =
            [("window", Speech::Commands), ("window, BF.INSERT", Speech::Insert(insert))];
        for (name, speech) in speeches {
            let mut rival = Rival { name: name.into(), speech, server: ours().start(&[]) };
            load(&mut rival.server, &window);
            entrants.push(Entrant { rival, filled: held });
        }
        names = entrants.iter().map(|entrant| entrant.rival.name.clone()).collect();
        for samples in samples.as_mut_slice().iter_mut().flatten() {
            samples.resize_with(entrants.len(), Starts::default);
            samples.iter_mut().for_each(Starts::begin);
        }
        let mut members = held;
        for (batch, samples) in batches.into_iter().zip(&mut samples) {
            for round in 0..=ROUNDS {
                for (work, samples) in WORKS.iter().zip(samples.iter_mut()) {
                    let seed = start * (ROUNDS + 1) + round;
                    if *work == "add, new" {
                        members += TURN;
                    }
                    for turn in 0..entrants.len() {
                        let at = (turn + seed as usize) % entrants.len();
                        let Entrant { rival, filled } = &mut entrants[at];
                        let (op, items, right) = match *work {
                            "add, new" => {
                                let numbers = members - TURN..members;
                                let items = Items::InTurn { set: MEMBERS, numbers };
                                (Op::Add, items, TURN * 9 / 10..=TURN)
                            }
                            "exists, hit" => {
                                let items = Items::scattered(MEMBERS, *filled, TURN, seed);
                                (Op::Exists, items, TURN..=TURN)
                            }
                            _ => {
                                let items = Items::scattered(STRANGERS, 1_000_000_000, TURN, seed);
                                (Op::Exists, items, 0..=TURN / 10)
                            }
                        };
                        let cost = rival.work(op, &items, batch);
                        assert!(
                            rival.name == FLOOR || right.contains(&cost.ones),
                            "{}, {work}: {} of {TURN} are 1",
                            rival.name,
                            cost.ones
                        );
                        if round > 0 {
                            samples[at].push(cost.cpu / TURN as f64);
                        }
                    }
                }
            }
        }
    }
    section.heading(&format!("In the server, {title}"));
    section.say(&format!(
        "CPU nanoseconds of the server's main thread per item, and in brackets the ratio to the \
         empty module. Plain filters hold 80 % of their capacity. The last column adds by \
         `BF.INSERT` with the options of the window, as programs should. The others add by \
         `BF.ADD` and `BF.MADD`. A figure is the lowest of {ROUNDS} turns of {TURN} items after \
         each of {STARTS} starts of the servers, then the median over starts. A ratio is the \
         median over rounds and starts. The targets are for the others: `BF.INSERT` with one item \
         takes twice the time of `BF.ADD`, because the server parses and replicates more words."
    ));
    let position = |name: &str| names.iter().position(|one| one == name).expect("it is measured");
    let (floor, ours) = (position(FLOOR), position("window"));
    let mut rows = Vec::new();
    for (batch, samples) in batches.into_iter().zip(&samples) {
        for (work, samples) in WORKS.iter().zip(samples) {
            let cell =
                |one: &Starts| format!("{:.0} ({:.2})", one.least(), one.over(&samples[floor]));
            let head = [(*work).to_owned(), batch.to_string()];
            rows.push(head.into_iter().chain(samples.iter().map(cell)).collect());
            let title = format!("{work}, window, batch of {batch}, {title}");
            for (peer, name) in names.iter().enumerate() {
                if contender::is_peer(name) {
                    section.target(
                        &format!("{title}: as fast as a plain filter of {name}"),
                        Bound::AtLeast(1.0),
                        samples[peer].over(&samples[ours]),
                    );
                }
            }
        }
    }
    let head = [["work", "batch"].map(String::from).to_vec(), names.clone()].concat();
    section.table(&head, &rows);
}

/// What the addition costs that opens a generation and drops another.
fn shifts(section: &mut Section) {
    const SIZES: [u64; 3] = [1_000_000, 20_000_000, 100_000_000];
    const LOADS: u64 = 5;
    section.heading("A shift");
    section.say(&format!(
        "Milliseconds of a `BF.ADD` that starts a generation and forgets the oldest: CPU of the \
         main thread, and the time that the client waits. The last two columns are for the next \
         addition. Medians of {LOADS} filters; the largest in brackets."
    ));
    let mut rows = Vec::new();
    for size in SIZES {
        eprintln!("bench: shifts of a window for {size} items");
        let mut server = ours().start(&[]);
        let each = size / u64::from(GENERATIONS);
        let slot = (SPAN / u64::from(GENERATIONS)) as i64;
        let window = window((size, 2, timed(GENERATIONS)), each, each, slot);
        let mut samples = vec![Series::default(); 4];
        for _ in 0..LOADS {
            server.run::<()>("DEL k");
            load(&mut server, &window);
            let [bytes]: [u64; 1] = server.run("BF.INFO k SIZE");
            let resident = resident(&server);
            assert!(resident > bytes * 9 / 10, "{resident} of {bytes} bytes are resident");
            let before = server.info_number("bf_shifts");
            for (at, item) in [(0, "first"), (2, "second")] {
                let command =
                    format!("*3\r\n$6\r\nBF.ADD\r\n$1\r\nk\r\n${}\r\n{item}\r\n", item.len());
                let (cpu, begin) = (server.cpu(), Instant::now());
                server.round_trip(command.as_bytes(), 1);
                samples[at + 1].push(begin.elapsed().as_secs_f64() * 1e3);
                samples[at].push((server.cpu() - cpu) / 1e6);
            }
            assert_eq!(server.info_number("bf_shifts"), before + 1, "one shift");
        }
        let cells = samples.iter().map(|s| format!("{:.3} ({:.3})", s.median(), s.most()));
        let bytes = window.bytes() as f64;
        let head = [format!("{} M", size / 1_000_000), format!("{:.1}", bytes / 1e6)];
        rows.push(head.into_iter().chain(cells).collect());
        section.target(
            &format!("CPU of the addition that shifts a window of {} M items", size / 1_000_000),
            Bound::AtMostMs(1.0),
            samples[0].median(),
        );
    }
    let head =
        ["items", "MB", "shift, CPU", "shift, wait", "next addition, CPU", "next addition, wait"];
    section.table(&head, &rows);
}

/// Users who come back in every generation.
fn returning(section: &mut Section) {
    const ROUNDS: u64 = 5;
    section.heading("Users who come back");
    section.say(&format!(
        "Every user is active in every generation. CPU nanoseconds of the server's main thread per \
         user in batches of {BATCH}: additions of all users in a new generation, then queries. The \
         least of {ROUNDS} filters, and in brackets the largest. Before \
         [pages](../design.md#pages), 20,000 such users took 80 bits each with 4 generations, and \
         413 with 24."
    ));
    let mut rows = Vec::new();
    for users in [20_000, 1_000_000] {
        for generations in [4, 24] {
            eprintln!("bench: {users} users who come back in {generations} generations");
            let age = (SPAN / u64::from(generations)) as i64;
            let window = window_of((users, 2, timed(generations)), age, |_| 0..users);
            let bits = window.bytes() as f64 * 8.0 / users as f64;
            let mut rival = Rival {
                name: "window".into(),
                speech: Speech::Commands,
                server: ours().start(&[]),
            };
            let mut samples = vec![Series::default(); WORKS.len()];
            for round in 0..ROUNDS {
                rival.server.run::<()>("DEL k");
                load(&mut rival.server, &window);
                let before = rival.server.info_number("bf_shifts");
                let all = Items::InTurn { set: MEMBERS, numbers: 0..users };
                let absent = Items::scattered(STRANGERS, 1_000_000_000, users, round);
                let turns = [
                    (Op::Add, &all, 0..=0),
                    (Op::Exists, &all, users..=users),
                    (Op::Exists, &absent, 0..=users / 10),
                ];
                for ((op, items, right), samples) in turns.into_iter().zip(&mut samples) {
                    let cost = rival.work(op, items, BATCH);
                    assert!(right.contains(&cost.ones), "{op:?}: {} of {users} are 1", cost.ones);
                    samples.push(cost.cpu / users as f64);
                }
                assert_eq!(rival.server.info_number("bf_shifts"), before + 1, "one shift");
            }
            let cells = samples.iter().map(|one| format!("{:.0} ({:.0})", one.least(), one.most()));
            let head = [users.to_string(), generations.to_string(), format!("{bits:.1}")];
            rows.push(head.into_iter().chain(cells).collect());
            let title = format!("bits per user who comes back, {users}, GENERATIONS {generations}");
            section.target(&title, Bound::AtMostBits(23.0), bits);
        }
    }
    let head = ["users", "GENERATIONS", "bits", "add, known", "exists, hit", "exists, miss"];
    section.table(&head, &rows);
}

/// Bytes of the server's memory that are resident.
fn resident(server: &Server) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/statm", server.pid()));
    let text = text.expect("Linux; the server is alive");
    let pages: Option<u64> = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.expect("the second number of statm") * 4096
}

/// Bytes of the AOF for additions of items that the newest generation holds.
fn repeated(section: &mut Section) {
    let mut server = ours().start(&["--appendonly", "yes", "--appendfsync", "no"]);
    let insert: &'static str = Box::leak(words(MEMORY_ITEMS, SPAN).into_boxed_str());
    let items = Items::InTurn { set: MEMBERS, numbers: 0..TURN };
    let mut bytes = Vec::new();
    for batch in [1, 1, BATCH] {
        let before = server.info_number("aof_current_size");
        let commands = payload::commands(Speech::Insert(insert), Op::Add, "k", &items, batch);
        server.stream(&commands);
        bytes.push((server.info_number("aof_current_size") - before) as f64);
    }
    assert!(bytes[0] > 0.0, "additions are written");
    section.heading("The AOF");
    section.say(&format!(
        "{TURN} new items, added one by one, took {:.1} bytes of the AOF an item. Adding the same \
         items again took {:.1} bytes one by one, and {:.1} in batches of {BATCH}.",
        bytes[0] / TURN as f64,
        bytes[1] / TURN as f64,
        bytes[2] / TURN as f64
    ));
    section.target(
        "items added to a window again within a generation: AOF bytes",
        Bound::None,
        bytes[1] + bytes[2],
    );
}

/// Bits per item of the window.
fn memory(section: &mut Section) {
    let each = MEMORY_ITEMS / u64::from(GENERATIONS);
    let items = Rules { span: Span::Items, generations: GENERATIONS, refresh: true };
    // Some items test positive when they are added, so a window of items needs some more of them.
    let kinds = [
        ("the last items", (0, items, each * 101 / 100), 22.0),
        (
            "NONSCALING, full",
            (0, timed(GENERATIONS), MEMORY_ITEMS / (u64::from(GENERATIONS) + 1)),
            22.0,
        ),
        ("a window of time that may grow", (2, timed(GENERATIONS), each), 22.0),
    ];
    section.heading("Memory of windows");
    section.say(
        "Bits for each of the 1 million items of a window, when it has all its generations. Except \
         for the NONSCALING window, the filter then has a quarter more items than a million.",
    );
    let mut rows = Vec::new();
    for (name, (expansion, rules, each), most) in kinds {
        let window = window((MEMORY_ITEMS, expansion, rules), each, each, 0);
        let bits = window.bytes() as f64 * 8.0 / MEMORY_ITEMS as f64;
        rows.push(vec![name.to_owned(), format!("{bits:.2}")]);
        let title = format!("bits per item of 1 million, {name}");
        section.target(&title, Bound::AtMostBits(most), bits);
    }
    section.table(&["", "bits"], &rows);
}
