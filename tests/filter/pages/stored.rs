//! The words of pages: equal after the same operations, read back as they were written, and refused
//! if they are corrupt.

use redis_bloom::filter::{
    Error, Hash,
    pages::{Growth, Page, Pages, Payload, Pieces, Plan},
};

use super::{COUNT, Counts, add, copy, crowded, hash, pages, raise};

const NO_PAGE: Result<(), Error> = Err(Error::Impossible("words that are not those of a page"));

#[test]
fn the_words_follow_from_the_operations() {
    for (tag_bits, payload) in [(5, COUNT), (11, COUNT), (24, COUNT), (6, Payload::Nothing)] {
        let (mut pages, mut replica) = (crowded(tag_bits, payload), crowded(tag_bits, payload));
        for step in 0..60_000_u64 {
            let number = step.wrapping_mul(0x9E37_79B9) % 30_000;
            for pages in [&mut pages, &mut replica] {
                if payload == Payload::Nothing {
                    add(pages, number);
                } else if step < 20_000 || step % 3 == 0 {
                    pages.raise(hash(number)).expect("memory");
                } else {
                    pages.lower(hash(number));
                }
            }
            // The replica is written out and read in again and again.
            if step < 200 || step % 5_000 == 0 {
                replica = copy(&replica);
                assert_eq!(pages, replica, "step {step}");
                assert_eq!(pages.bytes(), replica.bytes());
            }
        }
        assert_eq!(pages, pages.duplicate().expect("memory"));
        assert_eq!(pages, copy(&replica));
    }
}

#[test]
fn the_slots_are_all_that_was_added() {
    let mut pages = pages(1e-6, 0, Growth::Endless, Payload::Nothing);
    for most in [100, 50_000] {
        for number in 0..most {
            add(&mut pages, number);
        }
        let known: std::collections::HashSet<_> =
            pages.slots().map(|slot| (slot.place, slot.known, slot.block)).collect();
        assert_eq!(known.len() as u64, pages.slot_count());
        for number in 0..most {
            let hash = hash(number);
            let place = ((u128::from(hash.probes) * 1984) >> 64) as u16;
            let is = |bits: u8| known.contains(&(place, bits, hash.block & ((1 << bits) - 1)));
            assert!((1..64).any(is), "{number} of {most}");
        }
    }
}

/// Reads all pages in, the first one from other words.
fn read(pages: &Pages, first: &[u64]) -> Result<Pages, Error> {
    let mut pieces = Pieces::new(pages.plan(), 0);
    while let Some((reach, page)) = pages.page_at(pieces.end()) {
        let words = if reach.start == 0 { first } else { page.words() };
        pieces.push(reach.level, words)?;
    }
    pieces.finish(pages.copies())
}

/// Each single bit of a page flipped: the words are refused, or they are those of another sound
/// page, on which every operation works.
#[test]
fn a_page_with_a_flipped_bit_is_refused_or_sound() {
    for items in [50, 2_000] {
        let (mut refused, mut sound) = (0, 0);
        let mut pages = crowded(11, COUNT);
        raise(&mut pages, 0..items);
        let words = pages.pages()[0].words();
        assert_eq!(words.len() < 39, items == 50);
        for bit in 0..words.len() * 64 {
            let mut words = words.to_vec();
            words[bit / 64] ^= 1 << (bit % 64);
            let (reach, _) = pages.page_at(0).expect("a page");
            let Ok(page) = Page::from_words(&words, pages.plan().format(reach.level)) else {
                refused += 1;
                continue;
            };
            sound += 1;
            assert_eq!(page.words(), words);
            if bit % 61 != 0 {
                continue;
            }
            let Ok(mut pages) = read(&pages, &words) else {
                continue;
            };
            raise(&mut pages, 1_000..4_000);
            for number in 0..4_000 {
                pages.lower(hash(number));
            }
            assert_eq!(pages.slots().count() as u64, pages.slot_count());
        }
        // Bits of tags and counts may have either value.
        assert!(refused > words.len() * 5 && sound > words.len() * 5, "{refused} {sound}");
    }
}

#[test]
fn words_without_sense_are_refused() {
    let pages = {
        let mut pages = crowded(11, COUNT);
        raise(&mut pages, 0..2_000);
        pages
    };
    let (reach, page) = pages.page_at(0).expect("a page");
    let (format, sound) = (pages.plan().format(reach.level), page.words());
    let read = |words: &[u64]| Page::from_words(words, format).map(drop);
    assert_eq!(read(sound), Ok(()));
    assert_eq!(read(&[]), NO_PAGE);
    assert_eq!(read(&[0; 70]), NO_PAGE);
    assert_eq!(read(&[u64::MAX; 70]), NO_PAGE);
    assert_eq!(read(&vec![0; 70_000]), NO_PAGE);
    assert_eq!(read(&sound[..sound.len() - 1]), NO_PAGE);
    let longer = [sound, &[0]].concat();
    assert_eq!(read(&longer), NO_PAGE);
    // No one at all in the last block.
    let mut words = sound.to_vec();
    let start = (words[7] >> 32 & 0xFFFF) as usize;
    words[start..].fill(0);
    assert_eq!(read(&words), NO_PAGE);
    // Noise behind the starts.
    for seed in 0..2_000_u64 {
        let mut words = sound.to_vec();
        for (i, word) in words.iter_mut().enumerate().skip(8) {
            let noise = (seed * 1_000 + i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            *word = noise ^ noise >> 29;
        }
        assert!(read(&words).is_err());
    }
}

/// A short page of three slots of bucket 0: 64 ends in which three zeros come first, a gap, and the
/// slots from the top down. A slot of 12 bits is a tag of 6 above a place of 5, with a marker.
#[test]
fn a_short_page_without_sense_is_refused() {
    let plan = Plan {
        tag_bits: 6,
        payload: Payload::Nothing,
        doublings: 0,
        page_slots: 256,
        first_pages: 1,
    };
    let read = |slots: [u64; 3], gap: u64| {
        let [a, b, c] = slots;
        let words = [u64::MAX << 3, a << 52 | b << 40 | c << 28 | gap << 3 | 0b111];
        Page::from_words(&words, plan.format(0)).map(drop)
    };
    let slot = |tag: u64, place: u64| tag << 5 | place;
    let full = 1 << 6;
    let sound = slot(full | 5, 3);
    assert_eq!(read([sound, slot(full | 5, 4), slot(full | 6, 3)], 0), Ok(()));
    assert_eq!(read([slot(full, 30), sound, slot(full, 0)], 0), Ok(()), "in any order");
    assert_eq!(read([slot(1, 4), sound, slot(full, 0)], 0), Ok(()), "a void slot");
    assert_eq!(read([sound, slot(full, 0), slot(full, 1)], 1), NO_PAGE, "a bit in the gap");
    assert_eq!(read([sound, sound, slot(full, 0)], 0), NO_PAGE, "an item that has two slots");
    assert_eq!(read([sound, slot(1, 3), slot(full, 0)], 0), NO_PAGE, "a void slot and another");
    assert_eq!(read([sound, slot(0b1_10, 3), slot(full, 0)], 0), Ok(()), "other tags");
    assert_eq!(read([sound, slot(0b1_01, 3), slot(full, 0)], 0), NO_PAGE, "the beginning of it");
    assert_eq!(read([sound, slot(full, 31), slot(full, 0)], 0), NO_PAGE, "a place that is not");
    assert_eq!(read([sound, slot(0, 16), slot(full, 0)], 0), NO_PAGE, "no marker above the place");
    // No slots in a block of two words, or in a page of the length of a long one.
    let format = plan.format(0);
    assert_eq!(Page::from_words(&[u64::MAX, 0], format).map(drop), NO_PAGE);
    let none = Page::from_words(&[u64::MAX], format).expect("a page without slots");
    assert_eq!((none.words(), none.bytes()), (&[u64::MAX][..], 0));
}

/// Somebody who knows the seed makes items for one bucket: it takes so many that no operation is
/// slow, and refuses the others, in whatever pages. Words with more are refused.
#[test]
fn a_bucket_holds_no_more_than_is_fast() {
    // The tags have zeros below, so that splits move none, and with 0 doublings make them longer.
    for (page_slots, doublings) in [(256, 19), (256, 0), (u16::MAX, 19)] {
        let plan = Plan { tag_bits: 36, payload: COUNT, doublings, page_slots, first_pages: 1 };
        let mut pages = Pages::new(plan).expect("memory");
        let hash = |number: u64| Hash { block: number << 20, probes: 0 };
        let taken = (0..3_000).take_while(|&number| pages.raise(hash(number)).is_ok()).count();
        assert!((1_000..2_000).contains(&taken), "{taken}");
        assert!((0..taken as u64).all(|number| pages.count(hash(number)) == 1));
        assert_eq!(pages.items(), taken as u64);
        let other = Hash { block: 5, probes: u64::MAX };
        assert_eq!((pages.raise(other), pages.raise(other)), (Ok(0), Ok(1)));
        let mut position = 0;
        while let Some((reach, page)) = pages.page_at(position) {
            position = reach.end();
            let format = plan.format(reach.level);
            let mut words = page.words().to_vec();
            assert!(Page::from_words(&words, format).is_ok());
            if words.len() < 39 {
                continue;
            }
            // A gap that is a thousand words longer.
            let end = usize::from((words[0] >> 16) as u16);
            words.splice(end - 1..end - 1, [0; 1_000]);
            (1..32).for_each(|start| words[start / 4] += 1_000 << (start % 4 * 16));
            assert_eq!(Page::from_words(&words, format).map(drop), NO_PAGE);
        }
        for number in 0..taken as u64 {
            assert_eq!(pages.lower(hash(number)), 1);
        }
        assert_eq!(pages.items(), 1);
    }
}
