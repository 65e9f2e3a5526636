//! Dumps of filters that change between the chunks.

use std::collections::HashMap;

use redis_bloom::{
    codec::{
        Error,
        native::{Load, Stored, Taken, dump, rdb},
    },
    filter::{
        Error as FilterError, Plan as FilterPlan,
        paged::Sweep,
        pages::{END, Pages, Payload},
    },
};

use super::{
    COUNT, GENERATION, Random, above, all, bits, check_sane, crowded, filled, finished, frame,
    hash, paged,
};
use crate::support::{Reading, Strings};

/// Any iterator reads what is at its place and behind it, or nothing.
#[test]
fn any_iterator_is_answered() {
    for (name, filter) in all() {
        let mut random = Random(1);
        let end = (bits(&filter) + END) as i64;
        let odd = [i64::MIN, -1, 0, 1, 2, 9, end - END as i64, end, end + 1, end + 2, i64::MAX];
        let some: Vec<_> = (0..20).map(|_| 1 + random.below(END) as i64).collect();
        for iterator in odd.into_iter().chain(some) {
            let chunk = dump::at(&filter, iterator);
            assert_eq!(chunk.is_some(), (1..=end).contains(&iterator), "{name} {iterator}");
            let Some((next, chunk)) = chunk else {
                continue;
            };
            assert!(frame::first(&chunk) < iterator as u64, "{name} {iterator}");
            assert!(next > iterator, "{name} {iterator}");
            // A load that has nothing takes a chunk of the beginning only.
            let mut load = Load::begin(&dump::header(&filter).1, u64::MAX).expect(name);
            let taken = load.take(next, &chunk, |_| u64::MAX).is_ok();
            assert_eq!(taken, frame::first(&chunk) == 0, "{name} {iterator}");
        }
    }
}

/// Counts of items, with what each was at any time of a dump.
struct Model {
    pages: Pages,
    counts: HashMap<u64, u64>,
    /// The lowest and the highest count since the dump began.
    bounds: HashMap<u64, (u64, u64)>,
}

impl Model {
    fn set(&mut self, number: u64, count: u64) {
        self.counts.insert(number, count);
        let bounds = self.bounds.entry(number).or_insert((0, 0));
        *bounds = (bounds.0.min(count), bounds.1.max(count));
    }

    fn raise(&mut self, number: u64) {
        let count = self.counts.get(&number).copied().unwrap_or(0);
        // The highest count stays for ever.
        if count < 15 {
            super::raise(&mut self.pages, number);
            self.set(number, count + 1);
        }
    }

    fn lower(&mut self, number: u64) {
        let count = self.counts.get(&number).copied().unwrap_or(0);
        if count > 0 {
            super::lower(&mut self.pages, number);
            self.set(number, count - 1);
        }
    }

    /// Additions or deletions, so that pages split or join.
    fn change(&mut self, random: &mut Random, items: u64) {
        let grows = random.below(2) == 0;
        for _ in 0..random.below(2_000) {
            let number = random.below(items);
            if grows { self.raise(number) } else { self.lower(number) }
        }
    }

    fn begin(&mut self) {
        self.bounds =
            self.counts.iter().map(|(&number, &count)| (number, (count, count))).collect();
    }
}

/// Seeded random changes between the chunks of a dump, of one page to a few, with repetitions, a
/// client that asks twice, and a load that is copied half-way. With 24 bits of tag no two items of
/// this test are equal, so that each count of the copy is one that the item had during the dump.
/// With 3 bits most slots are void, and counts are never too low.
#[test]
fn a_copy_has_counts_of_the_time_of_the_dump() {
    let (mut grown, mut joined) = (0, 0);
    for seed in 0..120 {
        let mut random = Random(seed);
        let tag_bits = [24, 3][seed as usize % 2];
        let mut model = Model {
            pages: Pages::new(crowded(tag_bits, COUNT)).expect("memory"),
            counts: HashMap::new(),
            bounds: HashMap::new(),
        };
        let items = 1 + random.below(6_000);
        for _ in 0..1 + random.below(4) {
            model.change(&mut random, items);
        }
        model.begin();
        let (mut iterator, header) = dump::header(&paged(&model.pages));
        let mut load = Load::begin(&header, u64::MAX).expect("its header");
        loop {
            let pages = model.pages.pages().len();
            if random.below(3) > 0 {
                model.change(&mut random, items);
            }
            grown += u64::from(model.pages.pages().len() > pages);
            joined += u64::from(model.pages.pages().len() < pages);
            let (_, chunk) = dump::at(&paged(&model.pages), iterator).expect("a chunk");
            let (next, chunk) = frame::cut(&chunk, 0, 1 + random.below(5) as usize);
            if random.below(4) == 0 {
                // The client asks again, as if it had got no reply.
                continue;
            }
            match load.take(next, &chunk, |_| u64::MAX) {
                Ok(Taken::Last) => break,
                taken => assert_eq!(taken, Ok(Taken::Next), "seed {seed}"),
            }
            if random.below(2) == 0 {
                assert_eq!(load.take(next, &chunk, |_| 0), Ok(Taken::Repeated), "seed {seed}");
            }
            if random.below(3) == 0 {
                load = load.duplicate().expect("memory");
            }
            iterator = next;
        }
        let copy = finished(load);
        for (&number, &(least, most)) in &model.bounds {
            let count = copy.pages().find(hash(number)).map_or(0, |payload| payload + 1);
            assert!(count >= least, "seed {seed}: item {number} is counted {count} < {least}");
            if tag_bits == 24 {
                assert!(count <= most, "seed {seed}: item {number} is counted {count} > {most}");
            }
        }
        check_sane(&copy);
    }
    // Otherwise the test shows nothing.
    assert!(grown > 50 && joined > 20, "{grown} {joined}");
}

/// Items are only added. Those that were there at the beginning are in the copy, and the copy has
/// the pages of no other items.
#[test]
fn a_filter_that_grows_is_copied() {
    for (tag_bits, chunks) in [(20, 3), (20, 40), (4, 3)] {
        let mut original = filled(crowded(tag_bits, Payload::Nothing), 20_000);
        let (mut iterator, header) = dump::header(&paged(&original));
        let mut load = Load::begin(&header, u64::MAX).expect("its header");
        let mut number = 20_000;
        let each = original.pages().len() / chunks + 1;
        while load.received() < END {
            let (_, chunk) = dump::at(&paged(&original), iterator).expect("a chunk");
            let (next, chunk) = frame::cut(&chunk, 0, each);
            load.take(next, &chunk, |_| u64::MAX).expect("the next chunk");
            iterator = next;
            for _ in 0..20_000 / chunks {
                original
                    .insert_chunk(&[hash(number)], 0, |payload| payload, |_| ())
                    .expect("memory");
                number += 1;
            }
        }
        let copy = finished(load);
        assert!((0..20_000).all(|number| copy.pages().find(hash(number)).is_some()));
        assert!(copy.items(0) >= 20_000 || tag_bits == 4, "{}", copy.items(0));
        assert!(copy.pages().pages().len() <= original.pages().len());
        check_sane(&copy);
    }
}

/// A filter that grew far more than four times while it was copied needs more splits than a command
/// may do.
#[test]
fn a_filter_that_grows_too_much_is_refused() {
    let grown =
        FilterError::Impossible("the filter grew too much while it was dumped: dump it again");
    let mut original = filled(crowded(20, Payload::Nothing), 2_000);
    let mut load = Load::begin(&dump::header(&paged(&original)).1, u64::MAX).expect("its header");
    let (_, chunk) = dump::at(&paged(&original), 1).expect("a chunk");
    let (next, chunk) = frame::cut(&chunk, 0, frame::records(&chunk, 0).len() - 1);
    load.take(next, &chunk, |_| u64::MAX).expect("a chunk");
    for number in 0..200_000 {
        original.insert_chunk(&[hash(number)], 0, |payload| payload, |_| ()).expect("memory");
    }
    let (end, chunk) = dump::at(&paged(&original), next).expect("a chunk");
    let before = (load.received(), load.bytes());
    assert_eq!(load.take(end, &chunk, |_| u64::MAX), Err(Error::Filter(grown)));
    assert_eq!((load.received(), load.bytes()), before);
}

#[test]
fn chunks_of_another_filter_or_generation_are_refused() {
    let mut original = filled(crowded(9, GENERATION), 1_900);
    let (_, header) = dump::header(&paged(&original));
    let mut load = Load::begin(&header, u64::MAX).expect("its header");
    let (_, chunk) = dump::at(&paged(&original), 1).expect("a chunk");
    let (next, head) = frame::cut(&chunk, 0, 2);
    assert_eq!(load.take(next, &head, |_| u64::MAX), Ok(Taken::Next));
    // Sweeps and additions of the same generation change nothing.
    original.sweep(0);
    original.insert_chunk(&[hash(5_000)], 0, |_| 0, |_| ()).expect("memory");
    let (end, rest) = dump::at(&paged(&original), next).expect("a chunk");
    let mut other = load.duplicate().expect("memory");
    assert_eq!(other.take(end, &rest, |_| u64::MAX), Ok(Taken::Last));
    // A turn does.
    original.turn(1, 5);
    let (end, rest) = dump::at(&paged(&original), next).expect("a chunk");
    assert_eq!(load.take(end, &rest, |_| u64::MAX), Err(Error::OtherFilter));
    assert!(!load.began_with(&dump::header(&paged(&original)).1));
    original.turn(0, 5);
    let mut another = FilterPlan::of_pages(&paged(&original));
    another.seed = 1;
    let another = another.with_pages(None, original.duplicate().expect("memory"));
    let (end, rest) = dump::at(&another, next).expect("a chunk");
    assert_eq!(load.take(end, &rest, |_| u64::MAX), Err(Error::OtherFilter));
    let (end, rest) = dump::at(&paged(&original), next).expect("a chunk");
    assert_eq!(load.take(end - 1, &rest, |_| u64::MAX).map(drop), {
        let from = frame::first(&rest);
        Err(Error::Order { from, to: END, received: 0 })
    });
    assert_eq!(load.take(end, &rest, |_| u64::MAX), Ok(Taken::Last));
}

/// A pass over the pages that went on between the chunks may have missed pages of the copy: it
/// begins again. So does one that went back, because another server sent the rest, which had not
/// swept as much.
#[test]
fn a_pass_that_went_on_or_back_begins_again() {
    let pages = filled(crowded(9, GENERATION), 1_900);
    let with = |sweep: Sweep| {
        let mut plan = FilterPlan::of_pages(&paged(&pages));
        let window = plan.paged.as_mut().and_then(|paged| paged.window.as_mut());
        window.expect("a window").sweep = sweep;
        assert_eq!(plan.check(), Ok(()));
        plan.with_pages(None, pages.duplicate().expect("memory"))
    };
    let (early, late) = (
        Sweep { oldest: 3, floor: 4, page: 1, changes: 2 },
        Sweep { oldest: 4, floor: 4, page: 0, changes: 9 },
    );
    let behind = Sweep { oldest: 3, floor: 3, page: 0, changes: 1 };
    for (first, then, expected) in [
        (early, early, early),
        (early, late, Sweep { oldest: 3, ..late }),
        (late, early, Sweep { page: 0, ..early }),
        (late, behind, behind),
    ] {
        let (before, after) = (with(first), with(then));
        let mut load = Load::begin(&dump::header(&before).1, u64::MAX).expect("its header");
        let (_, chunk) = dump::at(&before, 1).expect("a chunk");
        let (next, chunk) = frame::cut(&chunk, 0, 2);
        assert_eq!(load.take(next, &chunk, |_| u64::MAX), Ok(Taken::Next));
        let (_, rest) = dump::at(&after, next).expect("a chunk");
        let (next, chunk) = frame::cut(&rest, 0, 1);
        assert_eq!(load.take(next, &chunk, |_| u64::MAX), Ok(Taken::Next));
        let mut strings = Strings::default();
        rdb::save(&load, &mut strings);
        let read = rdb::load(&mut Reading(strings.0.iter()), u64::MAX);
        assert!(matches!(read, Ok(Stored::Partial(_))), "{first:?} {then:?}: {read:?}");
        let (end, rest) = dump::at(&after, next).expect("a chunk");
        assert_eq!(load.take(end, &rest, |_| u64::MAX), Ok(Taken::Last));
        let copy = finished(load);
        assert_eq!(copy.window().map(|window| window.sweep), Some(expected));
    }
}

/// A filter that is complete accepts what it has, and nothing else.
#[test]
fn a_complete_filter_accepts_repeated_chunks() {
    for (name, filter) in all() {
        let (one, header) = dump::header(&filter);
        assert_eq!(dump::repeat(&filter, one, &header), Err(Error::Exists), "{name}");
        if filter.base().is_some() {
            continue;
        }
        // It got more items in the meantime.
        let sound = &filter;
        let mut grown = sound.pages().duplicate().expect("memory");
        let newest = grown.generations().newest;
        for number in 1_000_000..1_003_000 {
            grown.insert_chunk(&[hash(number)], newest, |payload| payload, |_| ()).expect("memory");
        }
        let grown = paged(&grown);
        let (next, chunk) = dump::at(sound, 1).expect("a chunk");
        for filter in [sound, &grown] {
            assert_eq!(dump::repeat(filter, next, &chunk), Ok(()), "{name}");
        }
        let (next, chunk) = dump::at(&grown, 1).expect("a chunk");
        assert_eq!(dump::repeat(sound, next, &chunk), Err(Error::Complete), "{name}");
    }
    let (filter, other) = (above(40), above(2_500));
    for place in [1, 1 + bits(&filter) as i64] {
        let (next, chunk) = dump::at(&filter, place).expect("a chunk");
        assert_eq!(dump::repeat(&filter, next, &chunk), Ok(()));
        assert_eq!(dump::repeat(&other, next, &chunk), Ok(()));
    }
    let (next, chunk) = dump::at(&other, 1 + bits(&filter) as i64).expect("a chunk");
    assert_eq!(dump::repeat(&filter, next, &chunk), Err(Error::Complete));
}
