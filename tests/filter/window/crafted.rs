//! An item that tests positive by accident in the oldest generation when it is added.

use redis_bloom::filter::Window;

use super::{add_each, has, stored, window};
use crate::support::{item, time};

const NOW: i64 = 1_790_000_000_000;
/// A generation is alive up to the age 4/3 T.
const LENGTH: u64 = 3_000;

/// A window whose oldest generation, which dies next, is full, and an item that tests positive
/// there alone without having been added.
fn crafted(refresh: bool) -> (Window, Vec<u8>) {
    let mut window = window(0.25, 300, 0, time(LENGTH, 3, refresh));
    let filling: Vec<Vec<u8>> = (0..100).map(|number| item(1, number).to_vec()).collect();
    add_each(&mut window, &filling, NOW).2.expect("room");
    for at in [1_000, 2_000, 3_000] {
        add_each(&mut window, &[item(2, at).to_vec()], NOW + at as i64).2.expect("room");
    }
    let generations: Vec<_> = window.generations().map(|(_, layers)| layers[0]).collect();
    assert_eq!(generations.len(), 4);
    let accident = (0..100_000).map(|number| item(3, number).to_vec()).find(|item| {
        let hash = window.filter().hash(item);
        generations[0].contains(hash) && !generations[1..].iter().any(|one| one.contains(hash))
    });
    (window, accident.expect("one item in twenty"))
}

#[test]
fn with_refresh_it_is_written_and_found_for_the_whole_window() {
    let (mut window, accident) = crafted(true);
    let now = NOW + 3_999;
    let (shift, done, _) = add_each(&mut window, std::slice::from_ref(&accident), now);
    assert_eq!((shift, done), (None, vec![(false, true)]), "it answers 0, and changes the filter");
    // The generation that had it by accident is gone a millisecond later.
    assert!(has(&window, &accident, now + LENGTH as i64));
    // Once more in the same generation: nothing changes, so nothing is replicated.
    let before = stored(&window);
    let (_, done, _) = add_each(&mut window, std::slice::from_ref(&accident), now);
    assert_eq!(done, [(false, false)]);
    assert_eq!(stored(&window), before);
}

#[test]
fn without_refresh_it_answers_0_and_is_not_replicated() {
    let (mut window, accident) = crafted(false);
    let before = stored(&window);
    let (shift, done, _) = add_each(&mut window, std::slice::from_ref(&accident), NOW + 3_999);
    assert_eq!((shift, done), (None, vec![(false, false)]));
    assert_eq!(stored(&window), before);
    // It promised nothing. Once the accident is over, the item is new.
    assert!(!has(&window, &accident, NOW + 4_000));
    let (shift, done, _) = add_each(&mut window, &[accident], NOW + 4_000);
    assert!(shift.is_some());
    assert_eq!(done, [(true, true)]);
}
