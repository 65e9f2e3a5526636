//! Filters that grow, count or forget against exact models, with copies at random moments.
//!
//! ```text
//!   random command ──▶ server ──▶ reply       equal
//!                 └──▶ model  ──▶ expected
//! ```
//!
//! The error rate is 1e-9, so no item of a test is found by chance: all answers, counts and numbers
//! are exact. `tests/filter/paged/` does the same without a server.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::harness::{
    Client, Clock, Random, Reply, Server, assert_unharmed, digest, dump, info, int, load, ok,
    wait_until,
};

const FULL: &str = "ERR non scaling filter is full";

/// A tenth of a generation of the windows of time.
const UNIT: i64 = 360_000;

/// The highest count: it means "16 or more", and stays.
const STUCK: u8 = 16;

/// What a filter must answer.
struct Model {
    key: &'static str,
    /// The words after the key, the error rate and the capacity of BF.RESERVE.
    words: &'static str,
    capacity: u64,
    expansion: Option<u64>,
    kind: Kind,
    /// The next item that nothing has added.
    fresh: usize,
}

enum Kind {
    /// How often each item was added and not deleted since. A filter that does not count has 1.
    Counts {
        counts: HashMap<usize, u8>,
        deletes: bool,
    },
    Window(Window),
}

/// A window of time has generations of 10 units; one of items has generations of so many items.
struct Window {
    items_each: Option<usize>,
    generations: i64,
    refresh: bool,
    /// Numbers, and starts in units, of the generations that were alive at the last change.
    alive: Vec<(u64, Option<i64>)>,
    /// The number of the generation in which each item came last.
    last: HashMap<usize, u64>,
    /// Items of each generation.
    items: BTreeMap<u64, usize>,
}

impl Window {
    fn kind(items_each: Option<usize>, generations: i64, refresh: bool) -> Kind {
        let (last, items) = (HashMap::new(), BTreeMap::new());
        let alive = vec![(0, None)];
        Kind::Window(Window { items_each, generations, refresh, alive, last, items })
    }

    fn newest(&self) -> u64 {
        self.alive.last().expect("a generation").0
    }

    /// The oldest generation that is alive at this time.
    fn oldest(&self, now: i64) -> u64 {
        let dead = |start: Option<i64>| {
            start.is_some_and(|start| now - start >= 10 * (self.generations + 1))
        };
        let alive = self.alive.iter().find(|(_, start)| self.items_each.is_some() || !dead(*start));
        alive.map_or(self.newest() + 1, |(number, _)| *number)
    }

    fn card(&self, now: i64) -> usize {
        self.items.range(self.oldest(now)..).map(|(_, items)| items).sum()
    }

    fn holds(&self, item: usize, now: i64) -> bool {
        self.last.get(&item).is_some_and(|&number| number >= self.oldest(now))
    }

    /// Forgets what is out of the window; returns how many generations.
    fn forget(&mut self, now: i64) -> usize {
        let (oldest, before) = (self.oldest(now), self.alive.len());
        let next = self.newest() + 1;
        self.alive.retain(|(number, _)| *number >= oldest);
        let forgotten = before - self.alive.len();
        if self.alive.is_empty() {
            self.alive.push((next, None));
        }
        forgotten
    }

    /// What time demands before an addition.
    fn turn(&mut self, now: i64) {
        let due = |start: Option<i64>| start.is_none_or(|start| now - start >= 10);
        if self.items_each.is_some() || !due(self.alive.last().expect("a generation").1) {
            return;
        }
        self.forget(now);
        let newest = self.newest();
        if self.items.get(&newest).is_none_or(|&items| items == 0) {
            self.alive.last_mut().expect("a generation").1 = Some(now);
        } else {
            self.alive.push((newest + 1, Some(now)));
        }
    }

    fn put(&mut self, item: usize) {
        let newest = self.newest();
        if let Some(before) = self.last.insert(item, newest) {
            *self.items.get_mut(&before).expect("a generation with items") -= 1;
        }
        let items = self.items.entry(newest).or_default();
        *items += 1;
        if self.items_each == Some(*items) {
            if self.alive.len() as i64 > self.generations {
                self.alive.remove(0);
            }
            self.alive.push((newest + 1, Some(0)));
        }
    }
}

impl Model {
    fn full(&self, now: i64) -> bool {
        let card = match &self.kind {
            Kind::Counts { counts, .. } => counts.len(),
            Kind::Window(Window { items_each: Some(_), .. }) => return false,
            Kind::Window(window) => window.card(now),
        };
        self.expansion.is_none() && card as u64 >= self.capacity
    }

    fn holds(&self, item: usize, now: i64) -> bool {
        match &self.kind {
            Kind::Counts { counts, .. } => counts.contains_key(&item),
            Kind::Window(window) => window.holds(item, now),
        }
    }

    fn card(&self, now: i64) -> i64 {
        match &self.kind {
            Kind::Counts { counts, .. } => counts.len() as i64,
            Kind::Window(window) => window.card(now) as i64,
        }
    }

    /// The answers to additions by one command, and whether an error ends them.
    fn add(&mut self, items: &[usize], now: i64) -> (Vec<bool>, bool) {
        if let Kind::Window(window) = &mut self.kind {
            window.turn(now);
        }
        let mut answers = Vec::new();
        for &item in items {
            let new = !self.holds(item, now);
            if new && self.full(now) {
                return (answers, true);
            }
            match &mut self.kind {
                Kind::Counts { counts, deletes } => {
                    let count = counts.entry(item).or_default();
                    *count = if *deletes { STUCK.min(*count + 1) } else { 1 };
                }
                Kind::Window(window) => {
                    if new || window.refresh && window.last[&item] != window.newest() {
                        window.put(item);
                    }
                }
            }
            answers.push(new);
        }
        (answers, false)
    }

    /// The layers and the capacity of a stack of layers with as many items.
    fn stack(&self, items: u64) -> (i64, i64) {
        let (mut layers, mut last, mut sum) = (1, self.capacity, self.capacity);
        while let Some(expansion) = self.expansion
            && sum < items
        {
            last *= expansion;
            sum += last;
            layers += 1;
        }
        (layers, sum as i64)
    }

    /// Items that may be there, and others, for a command.
    fn pick(&mut self, random: &mut Random, count: usize, fresh: usize) -> Vec<usize> {
        let mut items = Vec::new();
        for _ in 0..count {
            if random.below(100) < fresh {
                self.fresh += 1;
                items.push(self.fresh - 1);
            } else if random.below(8) == 0 {
                // Some come so often that their count is stuck.
                items.push(random.below(3));
            } else {
                // Mostly late ones; an item that comes is often there.
                let back = [30, 300, 3_000, 30_000][random.below(4)];
                items.push((self.fresh + 5).saturating_sub(random.below(back)));
            }
        }
        items
    }
}

fn names(items: &[usize]) -> Vec<String> {
    items.iter().map(|item| format!("item-{item}")).collect()
}

/// Sends additions by one of the commands for them, and compares the answers. Returns whether an
/// item was refused.
#[track_caller]
fn add(client: &mut Client, model: &mut Model, random: &mut Random, now: i64, what: &str) -> bool {
    let count = *random.pick(&[1, 1, 2, 30, 64, 65, 300]);
    let fresh = *random.pick(&[0, 30, 90, 100]);
    let items = model.pick(random, count, fresh);
    let (answers, full) = model.add(&items, now);
    let (key, names) = (model.key, names(&items));
    let reply = match (count, random.below(3)) {
        (1, _) => Reply::Array(vec![client.cmd(&["BF.ADD", key, &names[0]])]),
        (_, 0) => client.call("BF.MADD", key, &names),
        (_, 1) => {
            let words: Vec<_> =
                ["NOCREATE", "ITEMS"].into_iter().chain(names.iter().map(|n| &n[..])).collect();
            client.call("BF.INSERT", key, &words)
        }
        _ if full => client.call("BF.MADD", key, &names),
        _ => {
            let reply = client.cmd(&["BF.BULKADD", key, "LINES", &names.join("\n")]);
            let bits = crate::harness::bits(&reply);
            Reply::Array(bits.into_iter().map(|new| int(new.into())).collect())
        }
    };
    let mut expected: Vec<_> = answers.into_iter().map(|new| int(new.into())).collect();
    if full {
        expected.push(crate::harness::err(FULL));
    }
    assert_eq!(reply, Reply::Array(expected), "{what}: {key}");
    full
}

/// Deletes items and compares the answers.
#[track_caller]
fn delete(client: &mut Client, model: &mut Model, random: &mut Random, what: &str) {
    let items = model.pick(random, 100, 1);
    let key = model.key;
    let Kind::Counts { counts, deletes: true } = &mut model.kind else { return };
    let expected: Vec<bool> = items
        .iter()
        .map(|item| match counts.get_mut(item) {
            None | Some(&mut STUCK) => false,
            Some(1) => counts.remove(item).is_some(),
            Some(count) => {
                *count -= 1;
                true
            }
        })
        .collect();
    assert_eq!(client.call("BF.DEL", key, &names(&items)).answers(), expected, "{what}: {key}");
}

/// Compares all that a key answers with the model.
#[track_caller]
fn check(
    client: &mut Client,
    model: &mut Model,
    random: &mut Random,
    key: &str,
    now: i64,
    what: &str,
) {
    let items = model.pick(random, 500, 0);
    let expected: Vec<_> = items.iter().map(|&item| model.holds(item, now)).collect();
    let names = names(&items);
    assert_eq!(client.call("BF.MEXISTS", key, &names).answers(), expected, "{what}: {key}");
    let one = client.cmd(&["BF.EXISTS", key, &names[0]]);
    assert_eq!(one, int(expected[0].into()), "{what}: {key}");
    let bulk = client.cmd(&["BF.BULKEXISTS", key, "LINES", &names.join("\n")]);
    assert_eq!(crate::harness::bits(&bulk), expected, "{what}: {key}");
    assert_eq!(client.cmd(&["BF.CARD", key]), int(model.card(now)), "{what}: {key}");
    match &model.kind {
        Kind::Counts { counts, deletes } => {
            let shown = info(client, key);
            let expected = model.stack(counts.len() as u64);
            assert_eq!((shown.filters, shown.capacity), expected, "{what}: {key}");
            for (item, name) in items.iter().zip(&names).take(if *deletes { 20 } else { 0 }) {
                let count = counts.get(item).copied().unwrap_or(0);
                assert_eq!(
                    client.cmd(&["BF.COUNT", key, name]),
                    int(count.into()),
                    "{what}: {key}"
                );
            }
        }
        Kind::Window(window) => {
            let shown = client.cmd(&["BF.INFO", key, "GENERATIONS"]);
            let shown: Vec<_> = shown.elements()[0]
                .elements()
                .iter()
                .map(|map| map.get("Items").cloned())
                .collect();
            let items = |(number, _): &(u64, _)| window.items.get(number).copied().unwrap_or(0);
            let expected: Vec<_> =
                window.alive.iter().map(|one| Some(int(items(one) as i64))).collect();
            assert_eq!(shown, expected, "{what}: {key}");
        }
    }
}

/// Copies a key in one of the ways in which a client can, and checks the copy.
fn copy(client: &mut Client, model: &mut Model, random: &mut Random, now: i64, what: &str) {
    let key = model.key;
    let way = random.below(3);
    let what = format!("{what}, copied in way {way}");
    match way {
        0 => {
            // In a transaction: a window is swept between commands.
            client.run("MULTI");
            client.cmd(&["COPY", key, "copy"]);
            client.cmd(&["DEBUG", "DIGEST-VALUE", key, "copy"]);
            let replies = client.run("EXEC");
            let digests = replies.elements()[1].elements();
            assert_eq!(digests[0], digests[1], "{what}: {key}");
        }
        1 => {
            let payload = client.cmd(&["DUMP", key]).payload();
            assert_eq!(client.call("RESTORE", "copy", &[&b"0"[..], &payload]), ok());
            assert!(client.run("DUMP copy").payload() == payload, "{what}: {key}");
        }
        _ => {
            for piece in dump(client, key) {
                assert_eq!(load(client, "copy", &piece), ok(), "{what}: {key}");
            }
            if !matches!(model.kind, Kind::Window(_)) {
                assert_eq!(digest(client, "copy"), digest(client, key), "{what}: {key}");
            }
        }
    }
    check(client, model, random, "copy", now, &what);
    assert_eq!(client.run("DEL copy"), int(1));
}

/// Waits until a replica has all that its primary has. Passes over windows may still change both.
fn wait_for(client: &mut Client, replica: &Server, key: &str) {
    let read = &mut replica.client();
    wait_until(&format!("the replica has an equal {key}"), || {
        digest(read, key) == digest(client, key)
    });
    assert_eq!(read.server_info("bf", "bf_unapplied"), "0");
}

fn models() -> Vec<Model> {
    let counts = |deletes| Kind::Counts { counts: HashMap::new(), deletes };
    let model = |key, capacity, expansion, words, kind| Model {
        key,
        words,
        capacity,
        expansion,
        kind,
        fresh: 0,
    };
    vec![
        // Pages from the first item on, and pages above a full layer.
        model("grows", 100, Some(2), "", counts(false)),
        model("overflows", 3_000, Some(3), "EXPANSION 3", counts(false)),
        model("counts", 100, Some(2), "COUNTING", counts(true)),
        model("reserved", 20_000, Some(2), "COUNTING", counts(true)),
        model("fixed", 1_000, None, "COUNTING NONSCALING", counts(true)),
        model("window", 1_000, Some(2), "WINDOW EX 14400", Window::kind(None, 4, true)),
        model(
            "first",
            4_000,
            Some(1),
            "EXPANSION 1 WINDOW EX 14400 NOREFRESH",
            Window::kind(None, 4, false),
        ),
        model(
            "many",
            500,
            Some(2),
            "WINDOW PX 86400000 GENERATIONS 24",
            Window::kind(None, 24, true),
        ),
        model(
            "bounded",
            500,
            None,
            "WINDOW EX 7200 GENERATIONS 2 NONSCALING",
            Window::kind(None, 2, true),
        ),
        model("items", 2_000, None, "WINDOW COUNT", Window::kind(Some(500), 4, true)),
        model(
            "old",
            3_000,
            None,
            "WINDOW COUNT GENERATIONS 1 NOREFRESH",
            Window::kind(Some(3_000), 1, false),
        ),
    ]
}

#[test]
fn every_kind_answers_as_its_model_and_so_do_its_copies() {
    let clock = Clock::new();
    let mut server = Server::with().clock(&clock).config("appendonly yes").start();
    let replica = Server::with().clock(&clock).replica_of(&server).start();
    let mut random = Random::new(0x9a_6e5);
    let mut models = models();
    for model in &models {
        let line = format!("BF.RESERVE {} 1e-9 {} {}", model.key, model.capacity, model.words);
        assert_eq!(server.client().run(line.trim()), ok(), "{line}");
    }
    let mut client = server.client();
    let (mut now, mut seen) = (0, BTreeSet::new());
    for step in 0..1_500 {
        let what = format!("step {step}");
        let at = random.below(models.len());
        let model = &mut models[at];
        match random.below(100) {
            0..60 => {
                if add(&mut client, model, &mut random, now, &what) {
                    seen.insert((model.key, "full"));
                }
            }
            60..75 => delete(&mut client, model, &mut random, &what),
            75..85 => {
                let key = model.key;
                check(&mut client, model, &mut random, key, now, &what);
            }
            85..90 => copy(&mut client, model, &mut random, now, &what),
            90..94 => wait_for(&mut client, &replica, model.key),
            94..96 => {
                if let Kind::Window(window) = &mut model.kind {
                    let forgotten = window.forget(now) as i64;
                    if forgotten > 0 {
                        seen.insert(("a window", "forgot"));
                    }
                    let reply = client.cmd(&["BF.FORGET", model.key]);
                    assert_eq!(reply, int(forgotten), "{what}: {}", model.key);
                }
            }
            _ => {
                let units = *random.pick(&[1, 3, 7, 10, 10, 25, 60]);
                clock.advance(units * UNIT);
                now += units;
            }
        }
        if step % 300 == 299 {
            for model in &mut models {
                wait_for(&mut client, &replica, model.key);
            }
            let reload = random.below(2) == 0;
            if reload {
                assert_eq!(client.run("DEBUG RELOAD"), ok());
            } else {
                server.kill_and_restart();
                client = server.client();
            }
            for model in &mut models {
                let (key, what) = (model.key, format!("{what}, read again ({reload})"));
                check(&mut client, model, &mut random, key, now, &what);
            }
        }
    }
    for model in &mut models {
        let key = model.key;
        check(&mut client, model, &mut random, key, now, "the end");
        if let Kind::Counts { counts, deletes: true } = &mut model.kind {
            // Deleted as often as added, nothing is left but what is stuck.
            let mut left = counts.clone();
            while !left.is_empty() {
                let items: Vec<_> = left.keys().copied().collect();
                client.call("BF.DEL", model.key, &names(&items));
                left.retain(|_, count| {
                    *count -= 1;
                    *count > 0
                });
            }
            counts.retain(|_, count| *count == STUCK);
            if !counts.is_empty() {
                seen.insert(("a count", "stuck"));
            }
            assert_eq!(client.cmd(&["BF.CARD", model.key]), int(counts.len() as i64));
        }
        wait_for(&mut client, &replica, model.key);
    }
    let all =
        [("a count", "stuck"), ("a window", "forgot"), ("bounded", "full"), ("fixed", "full")];
    assert_eq!(Vec::from_iter(seen), all, "the test meets all cases");
    [&server, &replica].into_iter().for_each(assert_unharmed);
}
