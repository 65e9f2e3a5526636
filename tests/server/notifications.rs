//! Notifications of changes: keyspace events, WATCH and client tracking. A command that changes
//! nothing notifies nobody. The names of the events are those of valkey-bloom.

use crate::harness::{Client, Reply, Server, add_until_card, dump, int, load, ok};

/// The keyspace events since the last call, sorted.
#[track_caller]
fn events(subscriber: &mut Client, client: &mut Client) -> Vec<String> {
    client.run("SET end x");
    let mut events = Vec::new();
    loop {
        let message = subscriber.read();
        let [_, _, channel, key] = message.elements() else {
            panic!("a message of four parts: {message:?}")
        };
        if key.text() == "end" {
            events.sort();
            return events;
        }
        events.push(format!(
            "{} {}",
            channel.text().rsplit(':').next().unwrap_or_default(),
            key.text()
        ));
    }
}

#[test]
fn new_filters_and_new_items_cause_keyspace_events() {
    let server = Server::start();
    let (client, subscriber) = (&mut server.client(), &mut server.client());
    client.run("CONFIG SET notify-keyspace-events Eg$");
    assert!(!subscriber.run("PSUBSCRIBE __keyevent@0__:*").is_error());
    client.run("BF.RESERVE full 0.001 2 NONSCALING");
    client.run("BF.MADD full a b");
    events(subscriber, client);
    let both: &[&str] = &["bloom.add k", "bloom.reserve k"];
    let rows: [(&str, &[&str]); 37] = [
        ("BF.RESERVE k 0.01 100", &["bloom.reserve k"]),
        ("BF.RESERVE k 0.01 100", &[]),
        ("BF.ADD k a", &["bloom.add k"]),
        ("BF.ADD k a", &[]),
        ("BF.MADD k a b c", &["bloom.add k"]),
        ("BF.MADD k a b c", &[]),
        ("BF.INSERT k ITEMS a d", &["bloom.add k"]),
        ("BF.INSERT k NOCREATE ITEMS a d", &[]),
        ("BF.BULKADD k WIDTH 1 aef", &["bloom.add k"]),
        ("BF.BULKADD k WIDTH 1 aef", &[]),
        ("BF.BULKEXISTS k WIDTH 1 aef", &[]),
        ("BF.BULKADD bulk COUNTING LINES a", &["bloom.add bulk", "bloom.reserve bulk"]),
        ("BF.BULKADD bulk NOCREATE LINES a", &["bloom.add bulk"]),
        ("BF.BULKADD full LINES c", &[]),
        ("BF.BULKADD missing NOCREATE LINES a", &[]),
        ("BF.BULKADD missing LENGTHS aa", &[]),
        ("BF.INSERT c COUNTING ITEMS a b", &["bloom.add c", "bloom.reserve c"]),
        ("BF.ADD c a", &["bloom.add c"]),
        ("BF.MADD c a b", &["bloom.add c"]),
        ("BF.DEL c a b x", &["bloom.del c"]),
        ("BF.DEL c x", &[]),
        ("BF.DEL missing x", &[]),
        ("BF.DEL k a", &[]),
        ("BF.COUNT c a", &[]),
        // A new window: its first generation starts with the first item.
        (
            "BF.INSERT w CAPACITY 9 WINDOW EX 999 ITEMS a",
            &["bloom.add w", "bloom.reserve w", "bloom.shift w"],
        ),
        ("BF.ADD w b", &["bloom.add w"]),
        ("BF.ADD w b", &[]),
        ("BF.FORGET w", &[]),
        ("BF.RESERVE n 0.000001 1 WINDOW COUNT GENERATIONS 1", &["bloom.reserve n"]),
        ("BF.MADD n a b", &["bloom.add n", "bloom.shift n"]),
        ("BF.EXISTS k a", &[]),
        ("BF.MEXISTS k a z", &[]),
        ("BF.INFO k", &[]),
        ("BF.ADD full c", &[]),
        ("BF.MADD full a c", &[]),
        ("BF.INSERT missing NOCREATE ITEMS a", &[]),
        ("BF.RESERVE missing 2 100", &[]),
    ];
    for (line, expected) in rows {
        client.run(line);
        assert_eq!(events(subscriber, client), expected, "{line}");
    }
    let pieces = dump(client, "k");
    let mut seen = pieces.iter().map(|piece| {
        assert_eq!(load(client, "copy", piece), ok());
        events(subscriber, client)
    });
    assert_eq!(seen.next(), Some(Vec::new()), "the header alone is not a filter yet");
    assert_eq!(seen.next().as_deref(), Some(&["bloom.reserve copy".to_owned()][..]));
    assert!(seen.next().is_none(), "a small filter has one chunk");
    for line in ["BF.ADD k a", "BF.MADD k a b", "BF.INSERT k ITEMS a b", "BF.BULKADD k WIDTH 1 ab"]
    {
        client.run("DEL k");
        events(subscriber, client);
        client.run(line);
        assert_eq!(events(subscriber, client), both, "{line} on a missing key");
    }
}

/// EXEC after WATCH is aborted if and only if the filter changed in between.
#[test]
fn watch_sees_changes_and_nothing_else() {
    let server = Server::start();
    let (client, other) = (&mut server.client(), &mut server.client());
    let rows = [
        ("BF.ADD k a", false),
        ("BF.MADD k a b", false),
        ("BF.INSERT k ITEMS a b", false),
        ("BF.BULKADD k WIDTH 1 ab", false),
        ("BF.BULKEXISTS k LINES z", false),
        ("BF.EXISTS k z", false),
        ("BF.INFO k", false),
        ("BF.SCANDUMP k 0", false),
        ("BF.RESERVE k 0.01 100", false),
        ("BF.LOADCHUNK k 5 x", false),
        ("BF.DEL k a", false),
        ("BF.ADD k c", true),
        ("BF.MADD k a d", true),
        ("BF.BULKADD k WIDTH 1 af", true),
        ("BF.INSERT k ITEMS a e", true),
        ("DEL k", true),
        ("BF.RESERVE k 0.01 100", true),
    ];
    other.run("BF.MADD k a b");
    for (line, changes) in rows {
        client.run("WATCH k");
        other.run(line);
        client.run("MULTI");
        client.run("PING");
        let refused = matches!(client.run("EXEC"), Reply::Null | Reply::NullArray);
        assert_eq!(refused, changes, "{line}");
    }
}

/// A client that caches replies (CLIENT TRACKING) gets an invalidation when the filter changes.
#[test]
fn tracking_clients_get_an_invalidation_on_a_change() {
    let server = Server::start();
    let (client, other) = (&mut server.resp3(), &mut server.client());
    assert_eq!(client.run("CLIENT TRACKING ON"), ok());
    add_until_card(other, "k", "item", 10);
    assert_eq!(client.run("BF.EXISTS k z"), Reply::Bool(false));
    other.run("BF.ADD k item-0");
    assert_eq!(client.run("PING").text(), "PONG", "nothing changed: no invalidation");
    assert_eq!(other.run("BF.ADD k z"), int(1));
    let message = client.read();
    assert!(
        matches!(&message, Reply::Push(parts) if parts[0].text() == "invalidate"),
        "{message:?}"
    );
    assert_eq!(client.run("BF.EXISTS k z"), Reply::Bool(true));
}
