//! A key whose creation a primary or an AOF sent, and for which this server had no memory: it
//! answers an error, never "absent", until it is deleted or a full sync brings the filter.

use crate::{
    harness::{
        Client, NO_COPY, Server, assert_unharmed, config_name, digest, dump, err, int, load,
        mexists, numbered, ok, simple, wait_until,
    },
    valkey::SEED,
    valkey_bloom::Model,
};

/// Of the process that is refused memory.
const SPACE: u64 = 1 << 30;
/// Items of a filter of 1.2 GB, which does not fit.
const MANY: &str = "1000000000";

type Words = Vec<Vec<u8>>;

fn words(line: &str) -> Words {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn aof<'a>(commands: impl IntoIterator<Item = &'a Words>) -> Vec<u8> {
    let mut aof = Vec::new();
    for words in commands {
        aof.extend(format!("*{}\r\n", words.len()).bytes());
        for word in words {
            aof.extend([format!("${}\r\n", word.len()).as_bytes(), word, b"\r\n"].concat());
        }
    }
    aof
}

/// The command by which a primary with valkey-bloom creates a filter.
fn valkeys(key: &str, capacity: &str) -> Words {
    let mut made = words(&format!("BF.INSERT {key} ERROR 0.01 CAPACITY {capacity} TIGHTENING 0.5"));
    made.extend([b"SEED".to_vec(), SEED.to_vec()]);
    made.extend(words("EXPANSION 2 ITEMS a b c"));
    made
}

/// Commands that create a filter which does not fit, with the items a, b and c where the command
/// has items.
fn creations() -> Vec<(&'static str, Words)> {
    vec![
        ("reserved", words(&format!("BF.RESERVE reserved 0.01 {MANY}"))),
        ("options", words(&format!("BF.RESERVE options 0.01 {MANY} NONSCALING SEED 7"))),
        ("inserted", words(&format!("BF.INSERT inserted CAPACITY {MANY} ITEMS a b c"))),
        ("packed", words(&format!("BF.BULKADD packed CAPACITY {MANY} LINES a\nb\nc"))),
        ("valkeys", valkeys("valkeys", MANY)),
        ("added", words("BF.ADD added a")),
        ("many_added", words("BF.MADD many_added a b c")),
    ]
}

/// A server that makes filters of any size, by default large ones. A small setting of the replica
/// would make a small filter of a later addition.
fn source() -> Server {
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(client.cmd(&["CONFIG", "SET", &config_name("max-filter-bytes"), "16gb"]), ok());
    assert_eq!(client.cmd(&["CONFIG", "SET", &config_name("initial-size"), MANY]), ok());
    server
}

fn wait_for_link(replica: &mut Client) {
    wait_until("the replica is in sync", || {
        replica.server_info("replication", "master_link_status") == "up"
    });
}

/// Asserts that no command on the key answers as if it were missing, empty or complete.
#[track_caller]
fn answers_nothing(client: &mut Client, key: &str) {
    assert_eq!(client.cmd(&["EXISTS", key]), int(1), "{key}");
    for command in [
        "BF.EXISTS KEY a",
        "BF.MEXISTS KEY a COMPLETE",
        "BF.BULKEXISTS KEY LINES a",
        "BF.COUNT KEY a",
        "BF.CARD KEY",
        "BF.INFO KEY",
        "BF.INFO KEY ITEMS",
        "BF.DEBUG KEY",
        "BF.SCANDUMP KEY 0",
    ] {
        let reply = client.run(&command.replace("KEY", key));
        assert_eq!(reply, err(NO_COPY), "{command} of {key}");
    }
    client.assert_in_step();
}

fn unapplied(client: &mut Client) -> usize {
    client.server_info("bf", "bf_unapplied").parse().expect("a number")
}

#[track_caller]
fn wait_for(replica: &mut Client, count: usize) {
    wait_until("the changes are counted", || unapplied(replica) >= count);
    assert_eq!(unapplied(replica), count);
}

/// The primary's memory is not touched until bits are set, so filters of 1.2 GB cost it little.
#[test]
fn a_creation_that_a_replica_has_no_memory_for_leaves_a_key_that_answers_an_error() {
    let primary = source();
    let mut replica =
        Server::with().config("appendonly yes").address_space(SPACE).replica_of(&primary).start();
    let (client, read) = (&mut primary.client(), &mut replica.client());
    wait_for_link(read);
    let creations = creations();
    for (key, command) in &creations {
        let reply = client.cmd(command);
        assert!(!reply.is_error(), "{key}: {reply:?}");
    }
    wait_for(read, creations.len());
    for (key, _) in &creations {
        answers_nothing(read, key);
    }
    // Additions do not make a filter of the replica's own settings.
    for (key, _) in &creations {
        assert_eq!(client.cmd(&["BF.ADD", key, "d"]), int(1), "{key}");
        client.cmd(&["BF.MADD", key, "e", "COMPLETE"]);
        client.cmd(&["BF.BULKADD", key, "LINES", "f"]);
        assert_eq!(mexists(client, key, &["d", "e", "f", "COMPLETE"]), [true; 4], "{key}");
    }
    wait_for(read, 4 * creations.len());
    assert_eq!(client.run("DBSIZE"), read.run("DBSIZE"));
    // What is done to the key is done to the key of the replica.
    for command in ["EXPIRE inserted 10000", "RENAME packed renamed", "COPY reserved copied"] {
        assert!(!client.run(command).is_error(), "{command}");
    }
    assert_eq!(client.run("UNLINK many_added"), int(1));
    assert_eq!(client.run("DEL options"), int(1));
    assert_eq!(client.run("WAIT 1 30000"), int(1));
    assert!(read.run("TTL inserted").int() > 0);
    assert_eq!(read.run("EXISTS packed many_added options"), int(0));
    let keys = ["inserted", "renamed", "copied", "reserved", "valkeys"];
    let all_answer_nothing = |read: &mut Client| {
        for key in keys {
            answers_nothing(read, key);
        }
    };
    all_answer_nothing(read);
    // A filter of that name which fits.
    assert_eq!(client.run("BF.RESERVE options 0.01 100"), ok());
    assert_eq!(client.run("BF.ADD options a"), int(1));
    wait_until("it is made", || read.run("BF.EXISTS options a") == int(1));
    let bytes: u64 = read.server_info("bf", "bf_bytes").parse().expect("a number");
    assert!(bytes < 10_000, "{bytes} bytes");
    // Saved and loaded it is what it was: from an RDB file, the AOF and a rewritten AOF.
    assert_eq!(read.run("DEBUG RELOAD"), ok());
    all_answer_nothing(read);
    replica.configure("replicaof no one");
    for rewrite in [None, Some("yes"), Some("no")] {
        let read = &mut replica.client();
        if let Some(preamble) = rewrite {
            assert_eq!(read.cmd(&["CONFIG", "SET", "aof-use-rdb-preamble", preamble]), ok());
            read.run("BGREWRITEAOF");
            wait_until("the AOF is rewritten", || !read.has_child());
        }
        replica.kill_and_restart();
        let read = &mut replica.client();
        all_answer_nothing(read);
        assert_eq!(read.run("BF.EXISTS options a"), int(1));
        // A client's addition.
        assert_eq!(read.run("BF.ADD inserted d"), err(NO_COPY));
    }
    let read = &mut replica.client();
    let payload = read.run("DUMP inserted").payload();
    assert_eq!(read.cmd(&[b"RESTORE", b"restored" as &[u8], b"0", &payload]), ok());
    answers_nothing(read, "restored");
    assert_eq!(read.run("FLUSHALL"), ok());
    assert_eq!(read.run("BF.EXISTS inserted a"), int(0));
    assert_eq!(read.run("BF.ADD inserted a"), int(1));
    assert_unharmed(&replica);
}

/// Once there is memory, a full sync brings the filters.
#[test]
fn a_full_sync_with_memory_replaces_the_placeholder() {
    let primary = source();
    let replica = Server::with().address_space(SPACE).replica_of(&primary).start();
    let (client, read) = (&mut primary.client(), &mut replica.client());
    wait_for_link(read);
    // Filters of 60 MB: one fits at least, twenty do not.
    let keys = numbered("k", 20);
    for key in &keys {
        let line = format!("BF.INSERT {key} ERROR 0.01 CAPACITY 50000000 ITEMS a");
        assert_eq!(client.run(&line).elements().len(), 1);
    }
    assert_eq!(client.run("WAIT 1 30000"), int(1));
    assert!((1..20).contains(&unapplied(read)));
    answers_nothing(read, &keys[19]);
    let (last, others) = keys.split_last().expect("keys");
    assert_eq!(client.call("DEL", &others[0], &others[1..]), int(19));
    assert_eq!(client.run("WAIT 1 30000"), int(1));
    let before = unapplied(read);
    // What was a primary of its own cannot go on where it stopped.
    assert_eq!(read.run("REPLICAOF NO ONE"), ok());
    assert_eq!(read.run(&format!("REPLICAOF 127.0.0.1 {}", primary.port())), ok());
    wait_for_link(read);
    assert_eq!(read.cmd(&["BF.MEXISTS", last, "a", "b"]).answers(), [true, false]);
    assert_eq!(unapplied(read), before);
    assert_unharmed(&replica);
}

/// The AOF of the replica has the COPY, which succeeds when the server starts with more memory, but
/// not the addition that was refused.
#[test]
fn a_copy_that_succeeds_in_the_aof_does_not_answer_without_its_items() {
    let primary = source();
    let mut replica =
        Server::with().config("appendonly yes").address_space(SPACE).replica_of(&primary).start();
    let (client, read) = (&mut primary.client(), &mut replica.client());
    wait_for_link(read);
    assert_eq!(client.run("BF.RESERVE a 0.01 450000000"), ok());
    assert_eq!(client.run("COPY a b"), int(1));
    assert_eq!(client.run("BF.ADD b d"), int(1));
    wait_for(read, 2);
    replica.kill();
    let dir = replica.dir().join("appendonlydir");
    let mut roomy = Server::with().start();
    roomy.kill();
    std::fs::rename(dir, roomy.dir().join("appendonlydir")).expect("it is moved");
    roomy.configure("appendonly yes");
    roomy.relaunch();
    answers_nothing(&mut roomy.client(), "b");
}

/// A filter of valkey-bloom's that a primary restores: its bitmap arrives, and there is no memory
/// for its bits.
#[test]
fn a_restored_filter_of_valkey_that_a_replica_has_no_memory_for() {
    let payload = {
        let elsewhere = source();
        let client = &mut elsewhere.client();
        assert_eq!(client.cmd(&valkeys("v", "450000000")).elements().len(), 3);
        client.run("DUMP v").payload()
    };
    let primary = source();
    let replica = Server::with().address_space(SPACE).replica_of(&primary).start();
    let (client, read) = (&mut primary.client(), &mut replica.client());
    wait_for_link(read);
    assert_eq!(client.call("RESTORE", "v", &[&b"0"[..], &payload]), ok());
    wait_for(read, 1);
    answers_nothing(read, "v");
    assert_eq!(read.run("TYPE v"), simple("bloomfltr"));
    assert_eq!(client.run("BF.ADD v d"), int(1));
    wait_for(read, 2);
    answers_nothing(read, "v");
    assert_unharmed(&replica);
}

/// A load that lacks a chunk may be completed later, without the items that were added since.
#[test]
fn a_load_whose_chunk_found_no_memory_becomes_a_placeholder() {
    let pieces = {
        let elsewhere = source();
        let client = &mut elsewhere.client();
        assert_eq!(client.run("BF.RESERVE k 0.01 180000000"), ok());
        dump(client, "k")
    };
    let primary = source();
    let replica = Server::with().address_space(240 << 20).replica_of(&primary).start();
    let (client, read) = (&mut primary.client(), &mut replica.client());
    wait_for_link(read);
    for piece in &pieces {
        assert_eq!(load(client, "copy", piece), ok());
    }
    assert_eq!(client.run("WAIT 1 30000"), int(1));
    let before = unapplied(read);
    assert!(before > 0, "there was memory for all chunks");
    assert_eq!(client.run("BF.ADD copy d"), int(1));
    wait_for(read, before + 1);
    answers_nothing(read, "copy");
    assert_unharmed(&replica);
}

/// A bloomfltr filter is copied with its type, so there is a placeholder of that type.
#[test]
fn merges_and_copies_that_a_replica_has_no_memory_for() {
    const HALF: &str = "450000000";
    let primary = source();
    let mut replica = Server::with().address_space(SPACE).replica_of(&primary).start();
    let (client, read) = (&mut primary.client(), &mut replica.client());
    wait_for_link(read);
    assert_eq!(client.run(&format!("BF.RESERVE a 0.01 {HALF} SEED 7")), ok());
    assert_eq!(client.run("BF.ADD a x"), int(1));
    assert_eq!(client.run("BF.MERGE merged a"), ok());
    assert_eq!(client.run("COPY a copied"), int(1));
    assert_eq!(client.run("BF.RESERVE small 0.01 100"), ok());
    assert_eq!(client.run("COPY a small REPLACE"), int(1));
    wait_for(read, 3);
    assert_eq!(read.run("BF.EXISTS a x"), int(1));
    for key in ["merged", "copied", "small"] {
        assert_eq!(client.cmd(&["BF.ADD", key, "d"]), int(1), "{key}");
        answers_nothing(read, key);
    }
    // A filter that exists lacks the items of a source that is not here.
    assert_eq!(client.run("BF.MERGE a copied"), ok());
    wait_for(read, 7);
    answers_nothing(read, "a");
    // Without SYNC Valkey frees the memory later.
    assert_eq!(client.run("FLUSHALL SYNC"), ok());
    assert_eq!(client.cmd(&valkeys("v", HALF)).elements().len(), 3);
    assert_eq!(client.run("TYPE v"), simple("bloomfltr"));
    for (count, key) in [(8, "copied"), (9, "added")] {
        assert_eq!(client.cmd(&["COPY", "v", key]), int(1));
        wait_for(read, count);
    }
    assert_eq!(client.run("BF.ADD added d"), int(1));
    wait_for(read, 10);
    answers_nothing(read, "added");
    answers_nothing(read, "copied");
    assert_eq!(client.run("WAIT 1 30000"), int(1));
    replica.configure("replicaof no one");
    let read = &mut replica.client();
    assert_eq!(read.run("REPLICAOF NO ONE"), ok());
    assert_eq!(read.run("DEL v"), int(1));
    assert_eq!(read.run("TYPE copied"), simple("bloomfltr"));
    assert_eq!(read.run("DEBUG RELOAD"), ok());
    answers_nothing(read, "copied");
    let payload = read.run("DUMP copied").payload();
    assert_eq!(read.cmd(&[b"RESTORE", b"restored" as &[u8], b"0", &payload]), ok());
    answers_nothing(read, "restored");
    // A client can make a filter with the parameters of a placeholder, and its chunk.
    assert_eq!(read.run("BF.RESERVE like 0.01 1 NONSCALING SEED 8100956909263679341"), ok());
    let pieces = dump(read, "like");
    assert_eq!(load(read, "copied", &pieces[0]), ok(), "the header is its own");
    assert_eq!(load(read, "copied", &pieces[1]), err("ERR received bad data"));
    answers_nothing(read, "copied");
    for preamble in ["no", "yes"] {
        assert_eq!(read.cmd(&["CONFIG", "SET", "aof-use-rdb-preamble", preamble]), ok());
        assert_eq!(read.run("CONFIG SET appendonly yes"), ok());
        wait_until("the AOF is written", || !read.has_child());
        assert_eq!(read.run("DEBUG LOADAOF"), ok());
        answers_nothing(read, "copied");
        assert_eq!(read.run("CONFIG SET appendonly no"), ok());
    }
    assert_unharmed(&replica);
}

/// Guava's form of a filter of `bytes` bytes.
fn guava(bytes: usize) -> Vec<u8> {
    let mut out = vec![1, 7];
    out.extend(((bytes / 8) as u32).to_be_bytes());
    out.resize(out.len() + bytes, 0);
    out
}

/// A server that starts from an AOF, with the memory for the small filters alone.
#[test]
fn an_aof_with_creations_that_there_is_no_memory_for() {
    const FILLERS: usize = 30;
    let mut commands: Vec<Words> = creations().into_iter().map(|(_, command)| command).collect();
    let mut unapplied_here = commands.len();
    let mut keys: Vec<&str> = creations().into_iter().map(|(key, _)| key).collect();
    // What follows is of 90 MB. The fillers leave no room for 40 MB in one piece, and then one of
    // 120 MB becomes free. The server itself has the memory of three fillers.
    commands.push(words("BF.INSERT source CAPACITY 75000000 ERROR 0.01 SEED 5 ITEMS a b c"));
    commands.push(words("BF.RESERVE room 0.01 100000000"));
    for i in 0..FILLERS {
        commands.push(words(&format!("BF.RESERVE filler:{i} 0.01 32000000")));
    }
    for i in [4, 8, 12] {
        commands.push(words(&format!("DEL filler:{i}")));
    }
    for (key, line) in [("copied", "COPY source copied"), ("merged", "BF.MERGE merged source")] {
        commands.push(words(line));
        keys.push(key);
        unapplied_here += 1;
    }
    commands.push(words("DEL room"));
    let model = Model::new(75_000_000, 0.01, 0.5, 2, &SEED).blob();
    for (key, command) in [
        ("loaded", [&words("BF.LOAD loaded")[..], &[model]].concat()),
        ("guava", [&words("BF.IMPORT guava GUAVA")[..], &[guava(90_000_000)]].concat()),
    ] {
        commands.push(command);
        keys.push(key);
        unapplied_here += 1;
    }
    commands.push(words("BF.RESERVE small 0.01 100"));
    for key in keys.iter().chain(&["small"]) {
        commands.push(words(&format!("BF.ADD {key} d")));
        commands.push(words(&format!("BF.MADD {key} e COMPLETE")));
        unapplied_here += if *key == "small" { 0 } else { 2 };
    }
    let aof = aof(&commands);
    // With the memory every command is applied.
    let roomy = Server::on_file("appendonly.aof", &aof, &["appendonly yes"]);
    assert_eq!(unapplied(&mut roomy.client()), 0);
    drop(roomy);
    let mut server = Server::with().address_space(SPACE).start();
    server.kill();
    std::fs::write(server.dir().join("appendonly.aof"), aof).expect("it is written");
    server.configure("appendonly yes");
    // Valkey frees large values in a thread, which may be too late for the next command.
    server.configure("lazyfree-lazy-user-del no");
    server.configure(&format!("{} {MANY}", config_name("initial-size")));
    server.relaunch();
    let client = &mut server.client();
    for key in &keys {
        answers_nothing(client, key);
    }
    assert_eq!(mexists(client, "small", &["d", "e", "COMPLETE"]), [true; 3]);
    assert_eq!(mexists(client, "source", &["a", "b", "c"]), [true; 3]);
    let fillers = client.run("KEYS filler:*").elements().len();
    let made: usize = client.server_info("bf", "bf_filters").parse().expect("a number");
    // `bf_filters` counts the placeholders, too.
    assert_eq!(made, fillers + keys.len() + 2);
    let refused = unapplied(client).checked_sub(unapplied_here).expect("all are counted");
    assert!((1..FILLERS).contains(&refused), "{refused} fillers did not fit");
    // The cure in docs/guide/incidents.md: the same files, and more memory.
    let mut cured = Server::with().start();
    cured.kill();
    let (from, to) = [&server, &cured].map(|server| server.dir().join("appendonlydir")).into();
    std::fs::create_dir(&to).expect("it is made");
    for file in std::fs::read_dir(from).expect("the files of the AOF") {
        let file = file.expect("a file");
        std::fs::copy(file.path(), to.join(file.file_name())).expect("it is copied");
    }
    cured.configure("appendonly yes");
    cured.relaunch();
    assert_eq!(unapplied(&mut cured.client()), 0);
    assert_eq!(mexists(&mut cured.client(), "inserted", &["a", "b", "c", "d"]), [true; 4]);
    drop(cured);
    for key in &keys {
        assert_eq!(client.cmd(&["BF.ADD", key, "f"]), err(NO_COPY), "{key}");
        assert_eq!(client.cmd(&["DEL", key]), int(1), "{key}");
    }
    assert_unharmed(&server);
}

/// The pages of a filter that counts or forgets are there from the start, so one that is reserved
/// for 300 million items takes 90 MB on its primary, too. The replica has no memory for that.
#[test]
fn counting_filters_and_windows_that_a_replica_has_no_memory_for() {
    const SPACE: u64 = 240 << 20;
    const ITEMS: &str = "5000000000";
    let primary = source();
    let mut replica =
        Server::with().config("appendonly yes").address_space(SPACE).replica_of(&primary).start();
    let (client, read) = (&mut primary.client(), &mut replica.client());
    wait_for_link(read);
    // The first ones take what there is.
    let kinds = ["COUNTING", "WINDOW COUNT", "WINDOW EX 9999 NONSCALING"];
    let mut refused = Vec::new();
    for round in 0..2 {
        for kind in kinds {
            let key = format!("{}-{round}", kind.replace(' ', "-"));
            let before = unapplied(read);
            assert_eq!(client.run(&format!("BF.RESERVE {key} 0.01 {ITEMS} {kind}")), ok());
            assert_eq!(client.cmd(&["BF.ADD", &key, "a"]), int(1));
            assert_eq!(client.run("WAIT 1 30000"), int(1));
            if unapplied(read) == before {
                assert_eq!(read.cmd(&["BF.EXISTS", &key, "a"]), int(1), "{key}");
            } else {
                answers_nothing(read, &key);
                assert_eq!(client.cmd(&["BF.MADD", &key, "b", "c"]).elements().len(), 2);
                // The replica counts this one, too, before the next key is looked at.
                assert_eq!(client.run("WAIT 1 30000"), int(1));
                refused.push(key);
            }
        }
    }
    assert!(refused.len() >= 3, "{refused:?} did not fit");
    assert_eq!(client.run("WAIT 1 30000"), int(1));
    replica.configure("replicaof no one");
    replica.kill_and_restart();
    let read = &mut replica.client();
    for key in &refused {
        answers_nothing(read, key);
        assert_eq!(read.cmd(&["BF.ADD", key, "d"]), err(NO_COPY), "{key}");
    }
    assert_unharmed(&replica);
}

/// A filter that becomes full needs the memory of one page to grow, whatever its expansion says.
#[test]
fn a_full_filter_needs_little_memory_to_grow() {
    let primary = source();
    let replica = Server::with().address_space(SPACE).replica_of(&primary).start();
    let (client, read) = (&mut primary.client(), &mut replica.client());
    wait_for_link(read);
    let items = numbered("item", 35_000);
    // The second layer of a stack would be for 983 million items.
    for (key, kind) in [("bits", ""), ("counters", " COUNTING")] {
        let reserve = format!("BF.RESERVE {key} 0.01 30000 EXPANSION 32768{kind}");
        assert_eq!(client.run(&reserve), ok());
        for batch in items.chunks(1_000) {
            assert_eq!(client.call("BF.MADD", key, batch).elements().len(), batch.len());
        }
        assert_eq!(client.run("WAIT 1 30000"), int(1));
        assert!(mexists(read, key, &items).into_iter().all(|there| there), "{key}");
        assert_eq!(digest(read, key), digest(client, key));
    }
    assert_eq!(unapplied(read), 0);
    assert_unharmed(&replica);
}
