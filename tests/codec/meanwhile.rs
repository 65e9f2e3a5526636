//! A filter that changes during its dump: it grows, gets items, counts them.

use redis_bloom::codec::{
    Error,
    native::{Load, Taken, dump},
};

use crate::{
    forge::cut,
    sample,
    support::{Strings, add, fill, filter, has, item, layers, params},
};

#[test]
fn growing_during_a_dump_is_refused() {
    let mut filter = sample::small_stack();
    let (header, chunks) = cut(&filter, 5);
    let mut load = Load::begin(&header, u64::MAX).expect("its header");
    for (iterator, data) in &chunks[..3] {
        assert_eq!(load.take(*iterator, data, |_| u64::MAX), Ok(Taken::Next));
    }
    let capacity = filter.capacity();
    fill(&mut filter, 2, capacity + 1);
    assert_eq!(filter.layers().len(), 4);
    let (_, later) = cut(&filter, 5);
    let received = load.received();
    for (iterator, data) in &later {
        let outcome = load.take(*iterator, data, |_| u64::MAX);
        assert!(matches!(outcome, Err(Error::OtherFilter | Error::TooBig { .. })), "{outcome:?}");
    }
    assert_eq!(load.received(), received);
}

#[test]
fn additions_during_a_dump_lose_no_older_item() {
    // Three chunks of up to 16 MiB, with additions before each.
    let mut original = filter(&params(0.01, 30_000_000, 2, 21));
    fill(&mut original, 1, 20_000);
    let (mut iterator, header) = dump::header(&original);
    let mut load = Load::begin(&header, u64::MAX).expect("its header");
    let mut chunks = 0;
    loop {
        fill(&mut original, 2 + chunks, 30_000 + 10_000 * chunks);
        let (next, data) = dump::at(&original, iterator).expect("a chunk");
        let taken = load.take(next, &data, |_| u64::MAX).expect("the next chunk");
        (iterator, chunks) = (next, chunks + 1);
        if taken == Taken::Last {
            break;
        }
    }
    assert_eq!(chunks, 3);
    fill(&mut original, 9, 60_000);
    let copy = layers(load);
    for number in 0..20_000 {
        assert!(has(&copy, &item(1, number)), "item {number}");
    }
    // The count is that of the last chunk, so it includes additions during the dump.
    assert_eq!(copy.items(), 50_000);
    // Every bit of the copy is set in the original.
    let holds = sample::stream(&copy)
        .iter()
        .zip(sample::stream(&original))
        .all(|(copied, bits)| copied & !bits == 0);
    assert!(holds);
    let mut copy = copy;
    let again = (0..10_000).filter(|&number| add(&mut copy, &item(2, number))).count();
    assert_eq!(again, 0, "what was added before the first chunk is in every chunk");
}

#[test]
fn a_filter_that_fills_up_during_its_dump_loads_as_full() {
    let mut original = filter(&params(0.01, 100, 0, 22));
    fill(&mut original, 1, 60);
    let (_, header) = dump::header(&original);
    fill(&mut original, 1, 100);
    let (iterator, data) = dump::at(&original, 1).expect("a chunk");
    let mut load = Load::begin(&header, u64::MAX).expect("its header");
    assert_eq!(load.layered().expect("layers").items(), 60);
    assert_eq!(load.take(iterator, &data, |_| u64::MAX), Ok(Taken::Last));
    assert_eq!(Strings::of(&layers(load)), Strings::of(&original));
}
