//! Payloads that are generations: what is alive stays, what is dead leaves, whatever splits and
//! joins in between.

use std::collections::HashMap;

use redis_bloom::filter::pages::{Growth, Pages, Payload, Plan};

use super::{Counts, crowded, exact_rate, hash, pages};

/// G + 1 generations alive of 2^c.
const ALIVE: u8 = 5;
const PAYLOAD: Payload = Payload::Generation(3);

/// A window, and when each item came last.
struct Model {
    pages: Pages,
    last: HashMap<u64, u64>,
    generation: u64,
    /// The next page to sweep.
    cursor: usize,
    /// Additions since a page was swept.
    added: u32,
}

impl Model {
    /// Sweeps pages, with joins in between.
    fn sweep(&mut self, pages: usize) {
        for _ in 0..pages {
            if self.cursor >= self.pages.pages().len() {
                return;
            }
            self.pages.sweep(self.cursor);
            self.cursor += 1;
            self.pages.join_if_due();
        }
    }

    fn turn(&mut self) {
        self.sweep(usize::MAX);
        self.generation += 1;
        self.cursor = 0;
        self.pages.turn((self.generation % 8) as u8, ALIVE);
    }

    fn add(&mut self, number: u64) {
        let now = self.pages.generations().newest;
        self.pages.insert(hash(number), now, |_| now).expect("memory");
        self.last.insert(number, self.generation);
        self.added += 1;
        if self.added.is_multiple_of(32) {
            self.sweep(1);
        }
    }

    fn has(&self, number: u64) -> bool {
        let generations = self.pages.generations();
        self.pages.find(hash(number)).is_some_and(|payload| generations.is_alive(payload))
    }

    /// Every item of the window is found; of the others, at most as many as the rate allows, with
    /// five deviations.
    fn check(&self) {
        let mut wrong = 0;
        for (&number, &last) in &self.last {
            let alive = last + u64::from(ALIVE) > self.generation;
            assert!(!alive || self.has(number), "{number} of generation {last} is lost");
            wrong += usize::from(!alive && self.has(number));
        }
        let mean = exact_rate(&self.pages) * self.last.len() as f64;
        assert!(wrong as f64 <= mean + 5.0 * mean.sqrt() + 5.0, "{wrong} are remembered");
    }
}

fn model(pages: Pages) -> Model {
    Model { pages, last: HashMap::new(), generation: 0, cursor: 0, added: 0 }
}

#[test]
fn a_window_remembers_what_came_in_it_and_no_more() {
    // Slots of all widths, of which a word has one to four.
    let crowds = [9, 12, 13, 17, 18, 28, 29].map(|tag_bits| crowded(tag_bits, PAYLOAD));
    for pages in crowds.into_iter().chain([pages(0.01, 0, Growth::Endless, PAYLOAD)]) {
        let mut model = model(pages);
        // Bursts and quiet times; a third of the items come again.
        for (turn, items) in [3_000, 100, 20_000, 0, 0, 500, 30, 0, 1, 0, 8_000, 8_000, 10, 10, 10]
            .into_iter()
            .cycle()
            .take(45)
            .enumerate()
        {
            model.turn();
            for i in 0..items {
                let fresh = turn as u64 * 100_000 + i;
                let known = model.last.len() as u64 > i && i % 3 == 0;
                model.add(if known { i * 7 } else { fresh });
            }
            model.check();
        }
        for _ in 0..=ALIVE {
            model.turn();
        }
        model.sweep(usize::MAX);
        assert_eq!(model.pages.slot_count(), 0, "nothing is alive");
        while model.pages.join_if_due() {}
        assert_eq!(model.pages.bytes(), crowded(9, PAYLOAD).bytes());
    }
}

/// The words of what stays are those that it would have alone.
#[test]
fn a_sweep_leaves_the_words_of_what_is_alive() {
    let widths = [1, 9, 11, 12, 13, 16, 17, 18, 27, 28, 29, 45];
    for (tag_bits, bits) in widths.into_iter().flat_map(|tag| [1, 3, 8].map(|bits| (tag, bits))) {
        let payload = Payload::Generation(bits);
        let plan = Plan { tag_bits, payload, doublings: 0, page_slots: u16::MAX, first_pages: 1 };
        let [mut swept, mut alone] = [(); 2].map(|()| Pages::new(plan).expect("memory"));
        let half = 1 << (bits - 1);
        [&mut swept, &mut alone].into_iter().for_each(|it| it.turn(tag_bits % half, half));
        let generations = swept.generations();
        for number in 0..6_000 {
            // Both pages become long, which sorts slots, before one has others than the other.
            let payload = if number < 400 { generations.newest } else { number % 11 * 23 };
            let payload = payload & generations.most;
            let before = swept.insert(hash(number), payload, |payload| payload).expect("memory");
            if before.is_none() && generations.is_alive(payload) {
                alone.insert(hash(number), payload, |payload| payload).expect("memory");
            }
        }
        assert!(alone.slot_count() < swept.slot_count());
        swept.sweep(0);
        assert!(swept == alone, "{tag_bits} {bits}");
    }
}

/// Users who come in every generation take their slot once.
#[test]
fn returning_items_take_no_more_memory() {
    let mut model = model(pages(0.01, 0, Growth::Endless, PAYLOAD));
    for _ in 0..20 {
        model.turn();
        (0..20_000).for_each(|number| model.add(number));
        assert!(model.pages.slot_count() <= 20_000);
    }
    let bits = model.pages.bytes() as f64 * 8.0 / 20_000.0;
    assert!(bits <= 21.0, "{bits}");
}
