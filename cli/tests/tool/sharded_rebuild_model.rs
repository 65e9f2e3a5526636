//! A random model of `rebuild`: runs with random options, killed between any two commands, while
//! shards of the new generation are lost or replaced and clients add.
//!
//! ```text
//!   the tool ──▶ a relay, which kills the tool, spoils a shard or adds items ──▶ the server
//!                before the Nth command
//! ```
//!
//! After every run: clients can use the descriptor; unless a shard that answers was spoiled, no
//! item is missing; exit 0 means that the tool saw what it promises; and what a spoiled shard lacks
//! is still in the old shard, if it was there when the new one was spoiled.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, thread,
};

use crate::sharding::{Descriptor, Generation, shard_capacity};
use redis_bloom_harness::Signal;

use crate::{
    harness::{Client, Random, Reply, Server, int, mexists, numbered, signal},
    relay::{Before, Relayed, relayed},
    run::run_at,
};

/// Filters at once: a rebuild waits for most of its time.
const THREADS: u64 = 16;
/// Rebuilds of each.
const CASES: u64 = 2;

#[test]
fn a_rebuild_loses_nothing_that_it_says_it_has() {
    let server = Server::start();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let server = &server;
            scope.spawn(move || {
                for case in 0..CASES {
                    Model::new(server, thread * CASES + case).run();
                }
            });
        }
    });
}

/// What the commands contain that change the step; the first one is in every command.
const AFTER: [&str; 7] = [
    "",
    "waiting\r\n",
    "filling\r\n",
    "filled\r\n",
    "exchanged\r\n",
    "exchanged\r\n",
    "committed\r\n",
];

/// What the relay does before a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Nothing,
    Kill,
    Spoil,
    Add,
}

/// A spoiled shard of a generation.
struct Spoiled {
    generation: u64,
    /// Keys of old shards that were gone then, or may go: the tool had looked just before.
    gone: BTreeSet<Vec<u8>>,
}

/// A filter, and what is known of it.
struct Model<'s> {
    server: &'s Server,
    client: Client,
    random: Random,
    seed: u64,
    name: String,
    dir: tempfile::TempDir,
    /// Items whose addition was answered.
    items: Vec<String>,
    /// The first dump of each new shard, and how many items it counted.
    dumps: BTreeMap<Vec<u8>, (i64, Vec<u8>)>,
    /// Spoiled shards, by their keys.
    spoiled: BTreeMap<Vec<u8>, Spoiled>,
    /// What happened, for the message of a failure.
    story: Vec<String>,
}

impl<'s> Model<'s> {
    fn new(server: &'s Server, seed: u64) -> Self {
        let mut random = Random::new(Random::new(seed).next());
        let name = format!("urls-{seed}");
        let shards = 1 + random.below(4);
        let words = format!("create {name} --items 5k --error 1e-6 --shards {shards} --poll 1");
        run_at(server, &words).done();
        let mut model = Self {
            server,
            client: server.client(),
            random,
            seed,
            name,
            dir: tempfile::tempdir().expect("a directory"),
            items: Vec::new(),
            dumps: BTreeMap::new(),
            spoiled: BTreeMap::new(),
            story: Vec::new(),
        };
        model.add(300);
        model
    }

    fn run(mut self) {
        for _ in 0..6 {
            self.step();
        }
        self.finish();
    }

    fn fields(&mut self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let reply = self.client.run(&format!("HGETALL {}", self.name));
        let bytes = |reply: &Reply| match reply {
            Reply::Bulk(bytes) => bytes.clone(),
            other => panic!("{other:?}"),
        };
        reply.elements().chunks(2).map(|pair| (bytes(&pair[0]), bytes(&pair[1]))).collect()
    }

    fn descriptor(&mut self) -> Descriptor {
        let fields = self.fields();
        let pairs = fields.iter().map(|(field, value)| (&field[..], &value[..]));
        let parsed = Descriptor::parse(pairs);
        parsed.unwrap_or_else(|error| panic!("{error}: {}", self.told()))
    }

    fn step_name(&mut self) -> String {
        let step = self.fields().remove(&b"rebuild"[..]).unwrap_or_default();
        String::from_utf8(step).expect("text")
    }

    fn told(&self) -> String {
        format!("seed {}:\n{}", self.seed, self.story.join("\n"))
    }

    /// Adds as a client that has just read the descriptor.
    fn add(&mut self, count: usize) {
        let descriptor = self.descriptor();
        let next = descriptor.next.clone().expect("it is readable");
        let first = self.items.len();
        for item in numbered(&format!("{first}-item"), count) {
            let mut insert = |generation: &Generation| {
                let key = generation.key_of(item.as_bytes()).to_vec();
                let words: [&[u8]; 5] =
                    [b"BF.INSERT", &key, b"NOCREATE", b"ITEMS", item.as_bytes()];
                matches!(self.client.cmd(&words), Reply::Array(replies)
                    if matches!(replies[..], [Reply::Int(_)]))
            };
            let current = insert(&descriptor.current);
            // An old shard may be gone; a new one must take it.
            let next = next
                .as_ref()
                .is_none_or(|next| insert(next) || next.number < descriptor.current.number);
            if current && next {
                self.items.push(item);
            }
        }
    }

    /// The items that a generation lacks.
    fn missing(&mut self, generation: &Generation) -> Vec<String> {
        let mut missing = Vec::new();
        for key in &generation.keys {
            let own: Vec<_> = self
                .items
                .iter()
                .filter(|item| generation.key_of(item.as_bytes()) == &key[..])
                .cloned()
                .collect();
            let mut words: Vec<&[u8]> = vec![b"BF.MEXISTS", key];
            words.extend(own.iter().map(String::as_bytes));
            match self.client.cmd(&words) {
                Reply::Array(answers) => {
                    let absent = own.into_iter().zip(answers);
                    missing.extend(absent.filter(|(_, yes)| *yes != int(1)).map(|(item, _)| item));
                }
                _ => missing.extend(own),
            }
        }
        missing
    }

    fn is_filter(&mut self, key: &[u8]) -> bool {
        !self.client.cmd(&[b"BF.CARD", key]).is_error()
            && self.client.cmd(&[b"EXISTS", key]) == int(1)
    }

    /// The generation that the tool is making, or has made and not finished.
    fn new_generation(&mut self) -> Option<Generation> {
        let descriptor = self.descriptor();
        let next = descriptor.next.clone().expect("it is readable")?;
        Some(if next.number > descriptor.current.number { next } else { descriptor.current })
    }

    /// Keeps a dump of each shard that is still empty, or nearly.
    fn keep_dumps(&mut self) {
        if !["waiting", "filling"].contains(&&*self.step_name()) {
            return;
        }
        for key in self.new_generation().map_or_else(Vec::new, |new| new.keys) {
            let card = self.client.cmd(&[b"BF.CARD", &key[..]]);
            let dump = self.client.cmd(&[b"DUMP", &key[..]]);
            if let (Reply::Int(card), Reply::Bulk(dump)) = (card, dump) {
                self.dumps.entry(key).or_insert((card, dump));
            }
        }
    }

    /// Loses or replaces a shard of the new generation. `looked`: the tool may have looked at it
    /// just before, and be about to bury one old shard.
    fn spoil(&mut self, looked: bool) {
        let Some(new) = self.new_generation() else { return };
        let fields = self.fields();
        // Before the new generation has a note, its shards have nothing to lose.
        if !fields.keys().any(|field| field.starts_with(b"rebuild.")) {
            return;
        }
        let place = self.random.below(new.keys.len());
        let key = new.keys[place].clone();
        let noted = fields.get(format!("rebuild.{place}").as_bytes()).map(|text| {
            let text = str::from_utf8(text).expect("text");
            text.split_once(' ').expect("two words").1.parse::<i64>().expect("a number")
        });
        // Clients may add a few items again: an older copy that has as many as were noted is not
        // noticed, as stamp.rs says.
        let older = self.dumps.get(&key).filter(|(card, _)| noted.is_some_and(|at| card + 50 < at));
        let older = older.map(|(_, dump)| dump.clone());
        self.client.cmd(&[b"DEL", &key[..]]);
        let kind = self.random.below(5);
        let capacity = shard_capacity(new.capacity, new.shards()).expect("shards");
        let text = match (kind, older) {
            (0, _) => "deleted",
            (1, _) => {
                assert_eq!(self.client.cmd(&[b"BF.ADD", &key[..], b"x"]), int(1));
                "recreated by BF.ADD"
            }
            (2, _) => {
                let shown = str::from_utf8(&key).expect("text");
                let (rate, shards) = (new.error_rate, new.shards());
                let words = format!(
                    "BF.RESERVE {shown} {rate} {capacity} EXPANSION 1 SHARD {place} {shards}"
                );
                assert!(!self.client.run(&words).is_error());
                "reserved, empty"
            }
            (3, _) => {
                self.client.cmd(&[b"SET", &key[..], b"x"]);
                "a string"
            }
            (_, Some(dump)) => {
                let restored = self.client.cmd(&[b"RESTORE", &key[..], b"0", &dump]);
                assert!(!restored.is_error(), "{restored:?}");
                "restored from an older dump"
            }
            _ => "evicted",
        };
        let mut gone = BTreeSet::new();
        let mut some = true;
        if let Some(old) = self.old_generation() {
            for old in old.keys {
                let there = self.is_filter(&old);
                // The first one that is there is what the tool buries next.
                if !there || looked && std::mem::take(&mut some) {
                    gone.insert(old);
                }
            }
        }
        let step = self.step_name();
        self.story
            .push(format!("  spoil shard {place} of generation {} at {step}: {text}", new.number));
        self.spoiled.insert(key, Spoiled { generation: new.number, gone });
    }

    /// The old generation, while the new one answers.
    fn old_generation(&mut self) -> Option<Generation> {
        let descriptor = self.descriptor();
        let next = descriptor.next.expect("it is readable");
        next.filter(|next| next.number < descriptor.current.number)
    }

    /// A run of the tool, and what happens before and in it.
    fn step(&mut self) {
        self.keep_dumps();
        match self.random.below(8) {
            0 => self.spoil(false),
            1 | 2 => self.add(3),
            _ => {}
        }
        let step = self.step_name();
        let shards = 1 + self.random.below(4);
        let begins = step.is_empty() || step == "aborted";
        let with = if begins { format!(" --shards {shards}") } else { String::new() };
        let words = match (&*step, self.random.below(12)) {
            (_, 0) => "--abort".to_owned(),
            (_, 1) => "--commit".to_owned(),
            ("" | "aborted", 2..=6) => with,
            ("filled" | "exchanged" | "committed", 2..=9) => "--commit".to_owned(),
            (_, 2..=5) => format!("{with} --from items"),
            _ => format!("{with} --from items --commit"),
        };
        let late = ["filling", "filled", "exchanged"].contains(&&*step);
        let event = match self.random.below(6) {
            0 | 1 => Event::Kill,
            2 | 3 => Event::Spoil,
            4 if late => Event::Add,
            _ => Event::Nothing,
        };
        self.tool(&words, event);
    }

    /// Runs the tool, and checks what is there then.
    fn tool(&mut self, words: &str, event: Event) {
        fs::write(self.dir.path().join("items"), self.items.join("\n")).expect("a file");
        let known = self.items.len();
        let step = self.step_name();
        let most = 4 << self.random.below(5);
        let after = *self.random.pick(&AFTER);
        let before = Before { after, command: self.random.below(most) };
        self.story.push(format!("at '{step}': rebuild {words}; {event:?} before {before:?}"));
        let (server, dir) = (self.server, self.dir.path().to_owned());
        let mut spoiled = BTreeSet::new();
        let words_of_tool = format!("rebuild {} {words}", self.name);
        let Relayed { output, later, .. } = relayed(server, &dir, &words_of_tool, before, |pid| {
            match event {
                Event::Kill => {
                    signal(pid, Signal::KILL).expect("it runs");
                    return false;
                }
                Event::Spoil => {
                    let before: BTreeSet<_> = self.spoiled.keys().cloned().collect();
                    self.spoil(true);
                    let new = self.spoiled.keys().filter(|key| !before.contains(*key));
                    spoiled.extend(new.cloned());
                }
                Event::Add => self.add(5),
                Event::Nothing => {}
            }
            true
        });
        let code = output.status.code();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        self.story.push(format!("  {code:?} {}", stderr.trim()));
        // Spoiled after the tool had looked for the last time, which is as good as after its end.
        let late = |key: &Vec<u8>| {
            let look = [&b"\r\n"[..], key, b"\r\n$8\r\nIDENTITY"].concat();
            spoiled.contains(key) && !later.windows(look.len()).any(|part| part == look)
        };
        let unseen: BTreeSet<_> = self.spoiled.keys().filter(|key| late(key)).cloned().collect();
        self.judge(code, words, known, &unseen);
    }

    /// Checks what a run has left.
    fn judge(&mut self, code: Option<i32>, words: &str, known: usize, unseen: &BTreeSet<Vec<u8>>) {
        let descriptor = self.descriptor();
        let current = descriptor.current.clone();
        // Generations that were given up are nobody's any more.
        let next = descriptor.next.clone().expect("it is readable");
        let numbers = [Some(current.number), next.as_ref().map(|next| next.number)];
        self.spoiled.retain(|_, spoiled| numbers.contains(&Some(spoiled.generation)));
        let keys: BTreeSet<_> = self.spoiled.keys().cloned().collect();
        let missing = self.missing(&current);
        for item in &missing {
            let key = current.key_of(item.as_bytes()).to_vec();
            assert!(keys.contains(&key), "{item} is missing: {}", self.told());
            // What the shard lacks is in the old one, if it was there.
            if let Some(old) = self.old_generation() {
                let from = old.key_of(item.as_bytes()).to_vec();
                if !self.spoiled[&key].gone.contains(&from) {
                    let there = mexists(&mut self.client, str::from_utf8(&from).unwrap(), &[item]);
                    assert_eq!(there, [true], "{item} is destroyed: {}", self.told());
                }
            }
        }
        if code != Some(0) || words.contains("--abort") {
            assert!(matches!(code, None | Some(0 | 4 | 5)), "{}", self.told());
            return;
        }
        let promised = match (words.contains("--commit"), words.contains("--from")) {
            (true, _) => {
                assert_eq!(self.step_name(), "", "{}", self.told());
                Some(current)
            }
            (false, true) => next,
            (false, false) => None,
        };
        let Some(promised) = promised else { return };
        for item in self.missing(&promised) {
            let key = promised.key_of(item.as_bytes()).to_vec();
            let at = self.items.iter().position(|known| *known == item).expect("a known item");
            assert!(at >= known || unseen.contains(&key), "{item} is not in: {}", self.told());
        }
    }

    /// Whatever happened, the filter can be brought to an end, and has all items then; but not if a
    /// shard is lost after the exchange.
    fn finish(&mut self) {
        if !["exchanged", "committed"].contains(&&*self.step_name()) {
            if !self.step_name().is_empty() {
                self.tool("--abort", Event::Nothing);
            }
            let step = self.step_name();
            assert_eq!(step, "", "{}", self.told());
        }
        fs::write(self.dir.path().join("items"), self.items.join("\n")).expect("a file");
        let current = self.descriptor().current;
        let spoiled = current.keys.iter().any(|key| self.spoiled.contains_key(key));
        let step = self.step_name();
        match (step.is_empty(), spoiled) {
            (true, false) => {}
            (false, false) => self.tool("--commit", Event::Nothing),
            (true, true) => self.tool(" --from items --commit", Event::Nothing),
            (false, true) => {
                // The old shards that are left are not removed: nobody can bring it to an end.
                self.tool("--commit", Event::Nothing);
                assert_eq!(self.step_name(), step, "{}", self.told());
                return;
            }
        }
        assert_eq!(self.step_name(), "", "{}", self.told());
        let current = self.descriptor().current;
        assert_eq!(self.missing(&current), [""; 0], "{}", self.told());
    }
}
