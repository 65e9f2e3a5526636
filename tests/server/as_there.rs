//! Checks a filter from a file of another product: it gives every answer that the product gave,
//! before and after the same later additions. `tests/fixtures/products.rs` describes the recorded
//! answers.

use crate::{
    harness::{Client, Reply, Server, digest, err, info, int, mexists, numbered},
    products::Answers,
};

/// Compares answers and numbers with those recorded before the later items were added.
#[track_caller]
pub(crate) fn check_first(client: &mut Client, key: &str, name: &str) {
    let answers = Answers::read(name);
    assert!(mexists(client, key, &answers.items(0)) == answers.exists, "{name}");
    check_numbers(client, key, name, &answers.debug, &answers.info);
}

/// Adds the later items, and compares replies, answers and numbers with the recorded ones.
#[track_caller]
pub(crate) fn go_on(client: &mut Client, key: &str, name: &str) {
    let answers = Answers::read(name);
    let later = numbered("later", answers.later.len());
    for (item, &answer) in later.iter().zip(&answers.later) {
        let expected = match answer {
            2 => err("ERR non scaling filter is full"),
            answer => int(i64::from(answer)),
        };
        assert_eq!(client.cmd(&["BF.ADD", key, item]), expected, "{name} {item}");
    }
    let items = answers.items(later.len());
    assert!(mexists(client, key, &items) == answers.exists_later, "{name}");
    check_numbers(client, key, name, &answers.debug_later, &answers.info_later);
}

/// Compares BF.DEBUG or BF.INFO with the recorded lines; a fixture has one of the two.
#[track_caller]
fn check_numbers(client: &mut Client, key: &str, name: &str, debug: &[String], info: &[String]) {
    if info.is_empty() {
        let reply = client.cmd(&["BF.DEBUG", key]);
        let lines: Vec<_> = reply.elements().iter().map(Reply::text).collect();
        assert_eq!(lines, debug, "{name}");
    } else {
        check_info(client, key, info);
    }
}

/// Compares BF.INFO with the recorded lines, for the fields that this module has.
#[track_caller]
fn check_info(client: &mut Client, key: &str, lines: &[String]) {
    let value =
        |field: &str| lines.iter().find_map(|line| line.strip_prefix(field)).expect("a line");
    let number = |field: &str| value(field).parse::<i64>().expect("a number");
    let ours = info(client, key);
    assert_eq!(ours.capacity, number("Capacity: "));
    assert_eq!(ours.filters, number("Number of filters: "));
    assert_eq!(ours.items, number("Number of items inserted: "));
    assert_eq!(ours.expansion, value("Expansion rate: ").parse().ok());
    let rate = client.cmd(&["BF.INFO", key, "ERROR"]).elements()[0].text();
    assert_eq!(rate.parse::<f64>(), value("Error rate: ").parse());
}

/// Runs `go_on` on the key `name` and on a copy: the copy is independent and grows identically.
#[track_caller]
pub(crate) fn go_on_beside_a_copy(client: &mut Client, name: &str) {
    assert_eq!(client.cmd(&["COPY", name, "copy"]), int(1));
    assert_eq!(digest(client, "copy"), digest(client, name));
    go_on(client, name, name);
    check_first(client, "copy", name);
    go_on(client, "copy", name);
    assert_eq!(digest(client, "copy"), digest(client, name));
    assert_eq!(client.run("DEL copy"), int(1));
}

/// Runs `go_on` on every key; a replica that had the keys before stays identical.
#[track_caller]
pub(crate) fn go_on_with_a_replica(server: &Server, names: &[&str]) {
    let replica = server.replica();
    let (client, read) = (&mut server.client(), &mut replica.client());
    for name in names {
        go_on(client, name, name);
    }
    assert_eq!(client.run("WAIT 1 30000"), int(1));
    for name in names {
        assert_eq!(digest(read, name), digest(client, name), "{name}");
    }
}
