//! Random sequences of operations, checked against an exact model: the multiset of the items that
//! were added and not deleted since.

use std::collections::HashMap;

use redis_bloom::filter::pages::{Growth, Pages, Payload, Plan};

use super::{COUNT, Counts, add, crowded, exact_rate, hash, pages};

/// A sequence without a pattern (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((u128::from(z ^ z >> 31) * n as u128) >> 64) as usize
    }
}

/// Items and how often each was added and not deleted.
#[derive(Default)]
struct Multiset {
    counts: HashMap<u64, u64>,
    numbers: Vec<u64>,
}

impl Multiset {
    fn raise(&mut self, number: u64) {
        let count = self.counts.entry(number).or_default();
        *count += 1;
        if *count == 1 {
            self.numbers.push(number);
        }
    }

    fn lower(&mut self, index: usize) -> u64 {
        let number = self.numbers[index];
        let count = self.counts.get_mut(&number).expect("a member");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&number);
            self.numbers.swap_remove(index);
        }
        number
    }
}

/// Checks all counts. A count that is too high takes another item that matches the same slot. Each
/// item matches one of another with a probability of at most the exact rate, so the number of such
/// items is at most binomial, and stays below its mean by five deviations in all but 3 of 10^7
/// cases; the seeds are fixed. Copies of void slots have the highest count.
fn check(pages: &Pages, model: &Multiset) {
    let highest = pages.plan().payload.most() + 1;
    let mut above = 0;
    for (&number, &count) in &model.counts {
        let counted = pages.count(hash(number));
        assert!(counted >= count.min(highest), "{number}: {counted} and not {count}");
        let copied = counted == highest && pages.copies() > 0;
        above += usize::from(counted > count && !copied);
    }
    let mean = exact_rate(pages) * model.numbers.len() as f64;
    let most = mean + 5.0 * mean.sqrt() + 5.0;
    assert!(above as f64 <= most, "{above} of {} counts too high: {mean}", model.numbers.len());
}

/// Adds and deletes until all is deleted: grows to `most` items, shrinks to a quarter, three times.
fn turn_over(pages: &mut Pages, most: usize, seed: u64) {
    let (mut random, mut model, mut fresh) = (Random(seed), Multiset::default(), 0);
    for round in 0..6 {
        let grows = round % 2 == 0;
        while if grows { model.numbers.len() < most } else { model.numbers.len() > most / 4 } {
            let adds = random.below(10) < if grows { 8 } else { 3 };
            if adds || model.numbers.is_empty() {
                let known = random.below(4) == 0 && !model.numbers.is_empty();
                let number = if known {
                    model.numbers[random.below(model.numbers.len())]
                } else {
                    fresh += 1;
                    fresh
                };
                // Up to 20, so that some counts reach the highest.
                if model.counts.get(&number).is_some_and(|&count| count == 20) {
                    continue;
                }
                let before = pages.raise(hash(number)).expect("memory");
                let known = model.counts.get(&number).copied().unwrap_or(0);
                assert!(before >= known.min(pages.plan().payload.most() + 1));
                model.raise(number);
            } else {
                let number = model.lower(random.below(model.numbers.len()));
                assert!(pages.lower(hash(number)) > 0, "{number} is lost");
            }
        }
        check(pages, &model);
        assert_eq!(pages.slots().count() as u64, pages.slot_count());
    }
    while !model.numbers.is_empty() {
        let number = model.lower(model.numbers.len() - 1);
        assert!(pages.lower(hash(number)) > 0, "{number} is lost");
    }
}

#[test]
fn counts_are_never_too_low_and_seldom_too_high() {
    for (tag_bits, most) in [(8, 60_000), (11, 20_000), (16, 100)] {
        turn_over(&mut crowded(tag_bits, COUNT), most, tag_bits.into());
    }
    for growth in [Growth::Never, Growth::Doublings(2), Growth::Endless] {
        turn_over(&mut pages(0.01, 30_000, growth, COUNT), 30_000, 7);
    }
}

/// With tags of 5 bits and 400 times the first page, most slots of old items are void, and copied.
#[test]
fn counts_of_used_up_tags_stay_at_the_highest() {
    let mut pages = crowded(5, COUNT);
    turn_over(&mut pages, 100_000, 3);
    assert!(pages.copies() > 100, "no tag was used up: the test shows nothing");
    let most = pages.plan().payload.most();
    assert!(pages.slots().all(|slot| slot.payload == most), "what is left is what stays for ever");
}

#[test]
fn what_was_added_and_deleted_leaves_nothing() {
    let mut pages = pages(1e-9, 0, Growth::Endless, COUNT);
    let empty = pages.duplicate().expect("memory");
    for count in [1, 10, 64, 65, 128, 129, 5_000, 100_000] {
        for number in 0..count {
            assert_eq!(pages.raise(hash(number)), Ok(0));
            assert_eq!(pages.raise(hash(number)), Ok(1));
        }
        assert_eq!(pages.items(), count);
        for number in 0..count {
            assert_eq!((pages.count(hash(number)), pages.count(hash(count + number))), (2, 0));
            assert_eq!(pages.lower(hash(number)), 2);
            assert_eq!(pages.lower(hash(number)), 1);
            assert_eq!(pages.lower(hash(number)), 0);
        }
        assert_eq!(pages, empty, "{count}");
        assert_eq!(pages.bytes(), empty.bytes());
    }
}

/// Memory follows the items when they become fewer.
#[test]
fn pages_join_when_items_leave() {
    let mut pages = pages(0.01, 0, Growth::Endless, COUNT);
    let mut model = HashMap::new();
    for number in 0..200_000 {
        model.entry(number).or_insert(0);
        pages.raise(hash(number)).expect("memory");
    }
    let full = pages.bytes();
    for number in 0..180_000 {
        pages.lower(hash(number));
    }
    let left = pages.items();
    assert!((19_500..=20_000).contains(&left), "{left}");
    // A tenth of the items in a seventh of the pages.
    assert!(pages.bytes() < full / 7, "{} of {full}", pages.bytes());
    assert!((180_000..200_000).all(|number| pages.count(hash(number)) > 0));
}

#[test]
fn nothing_that_was_added_is_absent_at_any_size() {
    for (tag_bits, most) in [(4, 20_000_u64), (9, 20_000), (20, 20_000), (22, 2_000), (45, 20_000)]
    {
        let mut pages = crowded(tag_bits, Payload::Nothing);
        let mut new = 0;
        for number in 0..most {
            new += u64::from(add(&mut pages, number));
            assert!(!add(&mut pages, number), "{number} is lost at once");
            // At each of the first sizes, then at some.
            if number < 300 || number % 997 == 0 {
                let lost = (0..=number).find(|&old| pages.find(hash(old)).is_none());
                assert_eq!(lost, None, "{tag_bits} bits, {number} items");
            }
        }
        assert_eq!((pages.items(), pages.slots().count() as u64), (new, pages.slot_count()));
    }
}

/// A batch does what single operations do, and both ways to select give the same words
/// (`make test-pure` runs this with the portable one, too).
#[test]
fn chunks_do_what_single_operations_do() {
    for (payload, first_pages) in
        [(Payload::Nothing, 1), (COUNT, 1), (Payload::Nothing, 8), (COUNT, 8)]
    {
        let plan = Plan { first_pages, ..crowded(10, payload).plan() };
        let [mut single, mut batch] = [plan; 2].map(|plan| Pages::new(plan).expect("memory"));
        let most = payload.most();
        let raise = |payload: u64| (payload + 1).min(most);
        let mut random = Random(5);
        for step in 0..2_000 {
            let count = random.below(65);
            let hashes: Vec<_> = (0..count).map(|_| hash(random.below(40_000) as u64)).collect();
            let (mut expected, mut answers) = (Vec::new(), Vec::new());
            if step < 1_200 || payload == Payload::Nothing {
                expected.extend(hashes.iter().map(|&hash| single.insert(hash, 0, raise)));
                let answer = |before| answers.push(Ok(before));
                batch.insert_chunk(&hashes, 0, raise, answer).expect("memory");
            } else {
                let count = |count: u64| Ok(count.checked_sub(1));
                expected.extend(hashes.iter().map(|&hash| count(single.lower(hash))));
                batch.lower_chunk(&hashes, |before| answers.push(count(before)));
            }
            assert_eq!(answers, expected);
            let (mut found, mut each) = (Vec::new(), Vec::new());
            batch.find_chunk(&hashes, |payload| found.push(payload));
            each.extend(hashes.iter().map(|&hash| single.find(hash)));
            assert_eq!(found, each);
            if step % 100 == 0 {
                assert_eq!(single, batch);
            }
        }
        assert_eq!(single, batch);
    }
}
