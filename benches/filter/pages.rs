//! Pages that split: memory, rate, and CPU time of an item in batches of 100, in one process.
//!
//! `cargo bench -p redis-bloom-benches --bench filter -- pages` prints a table in Markdown;
//! `-- pages 800000` leaves out larger filters. The filters take turns. The least time of all
//! rounds counts, because other programs of a busy machine only add to it. Time is CPU time of the
//! thread.

use std::hint::black_box;

use redis_bloom::filter::{
    Hash,
    pages::{Growth, Pages, Payload, Plan},
};

type Item = [u8; 16];

const BATCH: usize = 100;
/// Items of a chunk of `Pages`.
const CHUNK: usize = 64;
/// Numbers of items that are never added.
const STRANGERS: u64 = 1 << 40;
const SEED: u64 = 0x9E37_79B9;
const ROUNDS: usize = 3;

fn item(number: u64) -> Item {
    (u128::from(number) | 7 << 64).to_le_bytes()
}

unsafe extern "C" {
    fn clock_gettime(clock: i32, time: *mut [i64; 2]) -> i32;
}

/// Nanoseconds that this thread has run.
fn cpu() -> f64 {
    /// The number of this clock on Linux.
    const CLOCK_THREAD_CPUTIME_ID: i32 = 3;
    let mut time = [0; 2];
    // SAFETY: `time` has the two numbers of 64 bits of a `timespec` on 64-bit Linux.
    let failed = unsafe { clock_gettime(CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(failed, 0, "no clock of the thread's time");
    time[0] as f64 * 1e9 + time[1] as f64
}

/// Runs `work` on batches of the items; returns the nanoseconds of each item.
fn time(numbers: impl Iterator<Item = u64>, mut work: impl FnMut(&[Item])) -> f64 {
    let (mut spent, mut count) = (0.0, 0_usize);
    let (mut numbers, mut turn) = (numbers.peekable(), Vec::new());
    while numbers.peek().is_some() {
        turn.clear();
        turn.extend(numbers.by_ref().take(8_000).map(item));
        let begin = cpu();
        turn.chunks(BATCH).for_each(&mut work);
        spent += cpu() - begin;
        count += turn.len();
    }
    spent / count.max(1) as f64
}

/// A filter to measure.
trait Contender {
    fn add(&mut self, batch: &[Item]);
    fn found(&self, batch: &[Item]) -> usize;
    fn delete(&mut self, batch: &[Item]) -> usize;
    fn bytes(&self) -> u64;
    /// A generation starts.
    fn turn(&mut self) {}
}

/// Pages, and what a window keeps beside them.
struct Paged {
    pages: Pages,
    /// The page that is swept next, and the additions since one was.
    cursor: (usize, usize),
    generations: u16,
    number: u8,
}

impl Paged {
    fn new(rate: f64, capacity: u64, growth: Growth, payload: Payload) -> Self {
        let plan = Plan::new(rate, capacity, growth, payload).expect("a rate in range");
        let pages = Pages::new(plan).expect("memory");
        Self { pages, cursor: (0, 0), generations: 0, number: 0 }
    }

    /// A window of G = `generations`, reserved for `capacity` items in the time of the window. Some
    /// more are alive, and some are dead and not swept yet.
    fn window(rate: f64, capacity: u64, generations: u16) -> Self {
        let bits = (generations + 3).ilog2() as u8 + 1;
        let capacity = capacity + capacity / u64::from(generations);
        let payload = Payload::Generation(bits);
        let new = Self::new(rate, capacity, Growth::Doublings(2), payload);
        Self { generations, ..new }
    }

    fn each(batch: &[Item], mut work: impl FnMut(&[Hash])) {
        let mut hashes = [Hash::default(); CHUNK];
        for chunk in batch.chunks(CHUNK) {
            for (hash, item) in hashes.iter_mut().zip(chunk) {
                *hash = Hash::of(item, SEED);
            }
            work(&hashes[..chunk.len()]);
        }
    }

    /// Sweeps a page for each 32 items, until all are clean.
    fn sweep(&mut self, items: usize) {
        self.cursor.1 = self.cursor.1.saturating_add(items);
        while self.cursor.1 >= 32 && self.cursor.0 < self.pages.pages().len().max(1) {
            self.pages.sweep(self.cursor.0);
            self.cursor = (self.cursor.0 + 1, self.cursor.1 - 32);
            self.pages.join_if_due();
        }
    }
}

impl Contender for Paged {
    fn add(&mut self, batch: &[Item]) {
        let pages = &mut self.pages;
        let most = pages.plan().payload.most();
        match pages.plan().payload {
            Payload::Generation(_) => {
                let now = pages.generations().newest;
                Self::each(batch, |hashes| {
                    pages.insert_chunk(hashes, now, |_| now, |_| {}).expect("memory");
                });
                self.sweep(batch.len());
            }
            _ => Self::each(batch, |hashes| {
                let raise = |payload: u64| (payload + 1).min(most);
                pages.insert_chunk(hashes, 0, raise, |_| {}).expect("memory");
            }),
        }
    }

    fn found(&self, batch: &[Item]) -> usize {
        let mut found = 0;
        let (forgets, generations) = (self.generations > 0, self.pages.generations());
        Self::each(batch, |hashes| {
            self.pages.find_chunk(hashes, |payload| {
                let alive = |payload| !forgets || generations.is_alive(payload);
                found += usize::from(payload.is_some_and(alive));
            });
        });
        found
    }

    fn delete(&mut self, batch: &[Item]) -> usize {
        let mut deleted = 0;
        Self::each(batch, |hashes| {
            self.pages.lower_chunk(hashes, |before| deleted += usize::from(before > 0));
        });
        deleted
    }

    fn bytes(&self) -> u64 {
        self.pages.bytes() + size_of::<Pages>() as u64
    }

    fn turn(&mut self) {
        self.sweep(usize::MAX);
        self.number = (self.number + 1) & self.pages.plan().payload.most() as u8;
        self.pages.turn(self.number, self.generations as u8 + 1);
        self.cursor = (0, 0);
    }
}

/// What was measured of one contender at one size.
#[derive(Clone, Copy)]
struct Figures {
    bits: f64,
    rate: f64,
    add: f64,
    hit: f64,
    miss: f64,
    delete: f64,
}

const NONE: Figures =
    Figures { bits: 0.0, rate: 0.0, add: 1e9, hit: 1e9, miss: 1e9, delete: f64::NAN };

impl Figures {
    /// Keeps the least times.
    fn with(self, other: Self) -> Self {
        Self {
            add: self.add.min(other.add),
            hit: self.hit.min(other.hit),
            miss: self.miss.min(other.miss),
            delete: self.delete.min(other.delete),
            ..other
        }
    }

    fn print(self, title: &str, items: u64) {
        let Self { bits, rate, add, hit, miss, delete } = self;
        let delete = if delete.is_nan() { "-".into() } else { format!("{delete:.0}") };
        let times = format!("{add:.0} | {hit:.0} | {miss:.0} | {delete}");
        println!("| {title} | {items} | {bits:.1} | {:.3} % | {times} |", 100.0 * rate);
    }
}

/// Bits, rate, and the times of queries.
fn queried(contender: &dyn Contender, members: &[std::ops::Range<u64>], items: u64) -> Figures {
    let bits = contender.bytes() as f64 * 8.0 / items as f64;
    // Small filters are queried several times.
    let rounds = (200_000 / items).max(1);
    let numbers = (0..rounds).flat_map(|_| members.iter().cloned().flatten());
    let (mut found, mut asked) = (0, 0);
    let hit = time(numbers, |batch| {
        asked += batch.len();
        found += black_box(contender.found(black_box(batch)));
    });
    assert_eq!(found, asked, "a member is not found");
    let (mut wrong, strangers) = (0, items.clamp(400_000, 4_000_000));
    let miss = time(STRANGERS..STRANGERS + strangers, |batch| {
        wrong += black_box(contender.found(black_box(batch)));
    });
    Figures { bits, rate: wrong as f64 / strangers as f64, hit, miss, ..NONE }
}

/// A filter that is filled to each of the sizes.
fn grown(mut contender: Box<dyn Contender>, sizes: &[u64], counts: bool) -> Vec<Figures> {
    let mut from = 0;
    let measure = |&size: &u64| {
        let add = time(from..size, |batch| contender.add(batch));
        from = size;
        let mut figures = queried(&*contender, std::slice::from_ref(&(0..size)), size);
        figures.add = add;
        if counts {
            let mut deleted = 0;
            let tenth = 0..size / 10;
            figures.delete = time(tenth.clone(), |batch| deleted += contender.delete(batch));
            assert!(deleted as u64 > size / 10 * 9 / 10);
            time(tenth, |batch| contender.add(batch));
        }
        figures
    };
    sizes.iter().map(measure).collect()
}

/// Filters of one size each.
fn reserved(make: &dyn Fn(u64) -> Box<dyn Contender>, sizes: &[u64], counts: bool) -> Vec<Figures> {
    sizes.iter().flat_map(|&size| grown(make(size), &[size], counts)).collect()
}

/// Windows of the sizes, in which each user comes in each generation, or once.
fn passed(
    make: &dyn Fn(u64) -> Box<dyn Contender>,
    sizes: &[u64],
    generations: u64,
    returning: bool,
) -> Vec<Figures> {
    let measure = |&size: &u64| {
        let mut window = make(size);
        let part = size / generations;
        let (mut most, mut add) = (0, f64::INFINITY);
        // Until all generations have turned over, and one more.
        let turns = generations + 4;
        let users = |turn: u64| if returning { 0..size } else { turn * part..(turn + 1) * part };
        for turn in 0..turns {
            window.turn();
            let spent = time(users(turn), |batch| window.add(batch));
            if turn > generations + 1 {
                most = most.max(window.bytes());
                add = add.min(spent);
            }
        }
        let last = turns - if returning { 1 } else { generations };
        let members: Vec<_> = (last..turns).map(users).collect();
        let bits = most as f64 * 8.0 / size as f64;
        Figures { add, bits, ..queried(&*window, &members, size) }
    };
    sizes.iter().map(measure).collect()
}

type Series<'a> = (&'a str, Box<dyn Fn() -> Vec<Figures> + 'a>);

/// The sizes from 10,000 items on where memory is highest.
fn worst(most: u64) {
    let mut pages = Paged::new(0.01, 0, Growth::Endless, Payload::Nothing);
    let mut worst = 0.0_f64;
    for number in (0..most).step_by(BATCH) {
        let batch: Vec<Item> = (number..number + BATCH as u64).map(item).collect();
        pages.add(&batch);
        if number >= 10_000 {
            let bits = pages.bytes() as f64 * 8.0 / (number + BATCH as u64) as f64;
            worst = worst.max(bits);
        }
    }
    println!("\nMost bits an item from 10,000 to {most}: {worst:.1}");
}

/// The longest single addition while pages grow to `most` items, in microseconds: the least of some
/// rounds, since other programs only add to it.
fn longest(most: u64) -> f64 {
    let round = || {
        let mut pages = Paged::new(0.01, 0, Growth::Endless, Payload::Nothing).pages;
        let mut longest = 0.0_f64;
        for number in 0..most {
            let hash = Hash::of(&item(number), SEED);
            let begin = cpu();
            pages.insert_chunk(&[hash], 0, |payload| payload, |_| {}).expect("memory");
            longest = longest.max(cpu() - begin);
        }
        longest / 1_000.0
    };
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}

/// Prints all tables.
pub(crate) fn run(most: u64) {
    let sizes: Vec<u64> = [10_000, 100_000, 800_000, 2_000_000, 10_000_000]
        .into_iter()
        .filter(|&n| n <= most)
        .collect();
    let sizes = &sizes[..];
    let windows = &sizes[..sizes.len().min(3)];
    let count = Payload::Count(4);
    let paged = |rate, capacity, growth, payload| -> Box<dyn Contender> {
        Box::new(Paged::new(rate, capacity, growth, payload))
    };
    let mut series: Vec<Series> = Vec::new();
    for rate in [0.01, 0.001] {
        let name: fn(&str) -> &str = |name| name;
        let percent = rate == 0.01;
        series.push((
            name(if percent { "pages, grown, 1 %" } else { "pages, grown, 0.1 %" }),
            Box::new(move || {
                grown(paged(rate, 0, Growth::Endless, Payload::Nothing), sizes, false)
            }),
        ));
    }
    for (name, growth) in [
        ("pages, 4-bit counts, reserved, NONSCALING", Growth::Never),
        ("pages, 4-bit counts, reserved, 16 times", Growth::Doublings(4)),
        ("pages, 4-bit counts, reserved", Growth::Endless),
    ] {
        let make = move |size| paged(0.01, size, growth, count);
        series.push((name, Box::new(move || reserved(&make, sizes, true))));
    }
    series.push((
        "pages, 4-bit counts, grown",
        Box::new(move || grown(paged(0.01, 0, Growth::Endless, count), sizes, true)),
    ));
    for (generations, returning, name) in [
        (4, true, "pages, window, G = 4, returning"),
        (4, false, "pages, window, G = 4, once"),
        (8, true, "pages, window, G = 8, returning"),
        (8, false, "pages, window, G = 8, once"),
    ] {
        let make =
            move |size| -> Box<dyn Contender> { Box::new(Paged::window(0.01, size, generations)) };
        series
            .push((name, Box::new(move || passed(&make, windows, generations.into(), returning))));
    }
    let only = std::env::var("SERIES").unwrap_or_default();
    series.retain(|(title, _)| title.contains(&only));
    let mut results = vec![vec![NONE; sizes.len()]; series.len()];
    for _ in 0..ROUNDS {
        for ((_, measure), results) in series.iter().zip(&mut results) {
            for (result, new) in results.iter_mut().zip(measure()) {
                *result = result.with(new);
            }
        }
    }
    println!("| structure | items | bits an item | rate | add ns | hit ns | miss ns | delete ns |");
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    for ((title, _), results) in series.iter().zip(&results) {
        for (&size, figures) in sizes.iter().zip(results).filter(|(_, f)| f.bits > 0.0) {
            figures.print(title, size);
        }
    }
    if only.is_empty() {
        worst(most.min(1_000_000));
        println!("Longest addition to pages: {:.0} us", longest(most.min(1_000_000)));
    }
}
