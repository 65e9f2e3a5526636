//! What filters that grow, count or forget promise at sizes where the error rate shows: bits of
//! memory an item, the rate, counts, and when a filter is full.

use std::collections::VecDeque;

use crate::harness::{
    Client, Clock, Server, digest, err, info, int, ints, layers, madd, mexists, numbered, ok,
};

const FULL: &str = "ERR non scaling filter is full";

/// Bits of memory for each of so many items, by BF.INFO SIZE.
fn bits(client: &mut Client, items: usize) -> f64 {
    info(client, "k").size as f64 * 8.0 / items as f64
}

/// Asserts that so many of `trials` are explained by the rate: five standard deviations above the
/// mean are too many.
#[track_caller]
fn assert_rate(found: usize, trials: usize, rate: f64, what: &str) {
    let mean = trials as f64 * rate;
    let most = mean + 5.0 * mean.sqrt() + 3.0;
    assert!(found as f64 <= most, "{what}: {found} of {trials}, {most} at most");
}

/// Asserts that the filter keeps the rate for items that nothing added.
#[track_caller]
fn assert_absent(client: &mut Client, rate: f64) {
    let absent = mexists(client, "k", &numbered("absent", 100_000));
    let found = absent.iter().filter(|&&found| found).count();
    assert_rate(found, 100_000, rate, "absent items that are found");
}

#[test]
fn a_filter_that_nobody_reserved_takes_few_bits_at_every_size() {
    let server = Server::start();
    let client = &mut server.client();
    for (rate, most) in [(0.01, 17.8), (0.001, 21.8)] {
        client.run("DEL k");
        assert_eq!(client.run(&format!("BF.INSERT k ERROR {rate} ITEMS item-0")), ints([1]));
        let items = numbered("item", 120_000);
        for (number, batch) in items.chunks(2_000).enumerate() {
            madd(client, "k", batch);
            let present = 2_000 * (number + 1);
            let bits = bits(client, present);
            assert!(present <= 12_000 || bits <= most + 1.0, "{bits} bits for {present} items");
        }
        let bits = bits(client, items.len());
        assert!(bits <= most, "{bits} bits at {rate}");
        assert!(mexists(client, "k", &items).iter().all(|&found| found));
        assert_absent(client, rate);
        let missing = items.len() - info(client, "k").items as usize;
        assert_rate(missing, items.len(), rate, "items that tested present");
    }
}

/// The bits stay; what they do not hold is in pages, which have a quarter of the rate.
#[test]
fn a_reserved_filter_that_overflows_keeps_its_bits_and_its_rate() {
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(client.run("BF.RESERVE k 0.01 20000"), ok());
    let reserved = info(client, "k").size;
    let items = numbered("item", 100_000);
    let mut next = 0;
    let mut until = |client: &mut Client, card: i64| {
        while info(client, "k").items < card {
            let missing = (card - info(client, "k").items) as usize;
            madd(client, "k", &items[next..next + missing.min(1_000)]);
            next += missing.min(1_000);
        }
        next
    };
    until(client, 20_000);
    assert_eq!(info(client, "k").size, reserved);
    assert_eq!(layers(client, "k").1.len(), 1);
    for (card, filters, capacity) in
        [(20_001, 2, 60_000), (60_000, 2, 60_000), (60_001, 3, 140_000), (70_000, 3, 140_000)]
    {
        let added = until(client, card);
        let shown = info(client, "k");
        assert_eq!((shown.items, shown.filters, shown.capacity), (card, filters, capacity));
        // However many layers a stack would have.
        let (_, layers) = layers(client, "k");
        let [below, pages] = &layers[..] else { panic!("{layers:?}") };
        assert_eq!((below.size, below.capacity), (20_000, 20_000));
        assert_eq!((pages.size, pages.capacity), (card - 20_000, capacity - 20_000));
        assert!(below.ratio + pages.ratio <= 0.01, "{layers:?}");
        assert!(mexists(client, "k", &items[..added]).iter().all(|&found| found));
        assert_absent(client, 0.01);
    }
    let bits = bits(client, 70_000);
    assert!(bits <= 17.8, "{bits} bits");
}

#[test]
fn counting_filters_take_few_bits() {
    let server = Server::start();
    let client = &mut server.client();
    let items = numbered("item", 200_000);
    for (rate, most) in [("0.01", 19.5), ("0.001", 23.0), ("0.000001", 36.0)] {
        client.run("DEL k");
        assert_eq!(client.run(&format!("BF.RESERVE k {rate} 200000 COUNTING")), ok());
        madd(client, "k", &items);
        let bits = bits(client, items.len());
        assert!(bits <= most, "{bits} bits at {rate}");
    }
}

#[test]
fn twenty_turnovers_of_a_counting_filter_change_neither_its_rate_nor_its_card() {
    const CAPACITY: usize = 20_000;
    let server = Server::start();
    let client = &mut server.client();
    for words in ["COUNTING", "COUNTING NONSCALING"] {
        client.run("DEL k");
        assert_eq!(client.run(&format!("BF.RESERVE k 0.01 {CAPACITY} {words} SEED 7")), ok());
        let empty = digest(client, "k");
        let mut members = VecDeque::new();
        for turn in 0..20 {
            let items = numbered(&format!("turn-{turn}"), CAPACITY);
            for batch in items.chunks(1_000) {
                if members.len() == CAPACITY {
                    let old: Vec<String> = members.drain(..1_000).collect();
                    let deleted = client.call("BF.DEL", "k", &old).answers();
                    assert!(deleted.iter().all(|&deleted| deleted), "{words}: turn {turn}");
                }
                // None is refused.
                madd(client, "k", batch);
                members.extend(batch.iter().cloned());
            }
        }
        let members = Vec::from(members);
        assert!(mexists(client, "k", &members).iter().all(|&found| found), "{words}");
        assert_absent(client, 0.01);
        let card = client.run("BF.CARD k").int() as usize;
        assert!(card <= CAPACITY, "{card} items");
        assert_rate(CAPACITY - card, CAPACITY, 0.01, "items that share a slot");
        // Deleted as often as added: nothing is left.
        for batch in members.chunks(1_000) {
            assert_eq!(client.call("BF.DEL", "k", batch).answers(), vec![true; batch.len()]);
        }
        assert_eq!(client.run("BF.CARD k"), int(0));
        assert_eq!(client.run("BF.INFO k UNDELETED"), ints([0]));
        assert_eq!(digest(client, "k"), empty, "{words}");
    }
}

#[test]
fn counts_up_to_fifteen_are_exact_but_for_the_rate() {
    let server = Server::start();
    let client = &mut server.client();
    client.run("BF.RESERVE k 0.01 15000 COUNTING");
    let items = numbered("item", 15_000);
    for round in 0..15 {
        let often: Vec<_> = items.iter().skip(round).step_by(15).collect();
        for _ in 0..=round {
            madd(client, "k", &often);
        }
    }
    let commands: Vec<_> = items.iter().map(|item| vec!["BF.COUNT", "k", item.as_str()]).collect();
    let mut more = 0;
    for (place, commands) in commands.chunks(15).enumerate() {
        for (round, reply) in client.pipeline(commands).iter().enumerate() {
            let (count, truth) = (reply.int(), round as i64 + 1);
            assert!(
                count >= truth,
                "{} was added {truth} times: {count}",
                items[15 * place + round]
            );
            more += usize::from(count > truth);
        }
    }
    // Both of two items that share a slot have more.
    assert_rate(more, 2 * items.len(), 0.01, "counts that are too high");
    assert!(more > 0, "at 1 %, some of 15,000 items share a slot");
}

#[test]
fn a_counting_filter_that_does_not_scale_is_full_exactly_at_its_capacity() {
    let server = Server::start();
    let client = &mut server.client();
    for capacity in [1, 10, 1_000, 10_000] {
        client.run("DEL k");
        client.run(&format!("BF.RESERVE k 0.000000001 {capacity} COUNTING NONSCALING"));
        let items = numbered("item", capacity);
        assert!(madd(client, "k", &items).iter().all(|&new| new), "{capacity}");
        for _ in 0..3 {
            assert_eq!(client.run("BF.ADD k new"), err(FULL), "{capacity}");
            // A known item is counted.
            assert_eq!(client.run("BF.ADD k item-0"), int(0));
            assert_eq!(client.run("BF.DEL k item-0 item-0"), ints([1, 1]));
            assert_eq!(client.run("BF.ADD k new"), int(1), "{capacity}");
            assert_eq!(client.run("BF.ADD k item-0"), err(FULL), "{capacity}");
            assert_eq!(client.run("BF.DEL k new"), int(1));
            assert_eq!(client.run("BF.ADD k item-0"), int(1));
            assert_eq!(client.run("BF.CARD k"), int(capacity as i64));
        }
    }
}

/// Each user comes once in every generation, so the window has no more items than users.
#[test]
fn users_who_return_take_one_place_each_and_none_is_refused() {
    const USERS: usize = 20_000;
    let clock = Clock::new();
    let server = Server::with().clock(&clock).start();
    let client = &mut server.client();
    let users = numbered("user", USERS);
    for generations in [4, 24] {
        for words in ["NONSCALING", "EXPANSION 2"] {
            client.run("DEL k");
            let window = format!("WINDOW EX 864000 GENERATIONS {generations} {words}");
            assert_eq!(client.run(&format!("BF.RESERVE k 0.01 {USERS} {window}")), ok());
            for generation in 0..2 * generations + 3 {
                let new = madd(client, "k", &users).iter().filter(|&&new| new).count();
                let known = USERS - new;
                if generation == 0 {
                    assert_rate(known, USERS, 0.01, "users who tested present");
                } else {
                    assert_eq!(new, 0, "{window}: users were forgotten");
                }
                clock.advance(864_000_000 / generations + 1_000);
            }
            let card = client.run("BF.CARD k").int() as usize;
            assert_rate(USERS - card, USERS, 0.01, "users who share a slot");
            let bits = bits(client, USERS);
            assert!(bits <= 23.0, "{window}: {bits} bits a user");
            assert_absent(client, 0.01);
        }
    }
}

#[test]
fn items_that_come_once_take_few_bits_in_a_window() {
    let clock = Clock::new();
    let server = Server::with().clock(&clock).start();
    let client = &mut server.client();
    client.run("BF.RESERVE k 0.01 100000 WINDOW EX 864000");
    for generation in 0..15 {
        madd(client, "k", &numbered(&format!("{generation}"), 20_000));
        let bits = bits(client, 100_000);
        assert!(generation < 4 || bits <= 22.0, "{bits} bits in generation {generation}");
        if generation >= 5 {
            let old = numbered(&format!("{}", generation - 5), 20_000);
            let found = mexists(client, "k", &old).iter().filter(|&&found| found).count();
            assert_rate(found, old.len(), 0.01, "forgotten items");
        }
        clock.advance(216_000_000 + 1_000);
    }
}
