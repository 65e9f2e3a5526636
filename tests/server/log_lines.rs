//! What the log says: a line about the module when it is loaded; and for each refusal the key, the
//! size and the limit that decided, which the error text for clients does not name.

use std::time::Instant;

use crate::harness::{
    Client, Clock, Payload, Server, Version, add_until_card, add_until_refused, config_name, dump,
    load, ok, version,
};

#[test]
fn errors_of_clients_do_not_flood_the_log() {
    let words = |line: &str| -> Vec<Vec<u8>> {
        line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    };
    let source = Server::with().config("rdbcompression no").start();
    let client = &mut source.client();
    client.run("BF.ADD k a");
    let payload = Payload::of(client, "k");
    let restore = |payload: &Payload| [words("RESTORE k 0"), vec![payload.bytes()]].concat();
    let (mut damaged, mut newer) = (payload.clone(), payload);
    damaged.strings[0].pop();
    // The last ten bits of the head are the encoding version.
    newer.head[8] |= 3;
    newer.head[9] = 0xff;
    for (command, line) in [
        (words("BF.RESERVE k 1e-15 4611686018427387904"), "BF.RESERVE refused: "),
        (words("BF.MERGE full other"), "BF.MERGE refused: "),
        (restore(&damaged), "a stored filter was refused: "),
        (restore(&newer), "cannot read encoding version "),
    ] {
        let server = Server::start();
        let client = &mut server.client();
        fill_two(client);
        let begun = Instant::now();
        for _ in 0..30 {
            assert!(client.cmd(&command).is_error(), "{line}");
        }
        let seconds = begun.elapsed().as_secs() as usize;
        let lines = said(&server, line).len();
        assert!((10..=11 + seconds).contains(&lines), "{lines} lines: {}", server.log());
    }
}

#[test]
fn the_log_still_gets_lines_after_the_clock_was_set_back() {
    let clock = Clock::new();
    clock.set(3_600_000);
    let server = Server::with().clock(&clock).start();
    let client = &mut server.client();
    for lines in [1, 2] {
        assert!(client.run("BF.RESERVE k 1e-15 4611686018427387904").is_error());
        assert_eq!(said(&server, "BF.RESERVE refused: ").len(), lines, "{}", server.log());
        clock.set(0);
    }
}

/// Two filters for 10 items that are full of different items.
fn fill_two(client: &mut Client) {
    for key in ["full", "other"] {
        let line = format!("BF.RESERVE {key} 1e-9 10 NONSCALING SEED 1");
        assert_eq!(client.run(&line), ok());
        add_until_card(client, key, key, 10);
    }
}

#[test]
fn a_refused_merge_is_logged_with_key_and_numbers() {
    let server = Server::start();
    let client = &mut server.client();
    fill_two(client);
    for key in ["full", "new"] {
        let reply = client.cmd(&["BF.MERGE", key, "full", "other"]);
        let why = reply.error().strip_prefix("ERR ").expect("a code").to_owned();
        assert!(why.starts_with("the union holds about "), "{why}");
        let last = said(&server, "BF.MERGE").pop().unwrap_or_default();
        assert_eq!(last, format!("key '{key}': BF.MERGE refused: {why}"));
    }
}

/// The lines of the log that have `words`, without the server's own beginning.
fn said(server: &Server, words: &str) -> Vec<String> {
    let log = server.log();
    let lines = log.lines().filter(|line| line.contains(words));
    lines.map(|line| line.split_once("<bf> ").map_or(line, |(_, text)| text).to_owned()).collect()
}

#[test]
fn a_load_is_one_line_with_versions_processor_and_settings() {
    let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let code = if flags.contains("avx512vl") { "AVX-512" } else { "portable" };
    let Version { valkey, major, minor } = version();
    let [rate, size, factor, most, missing, layout] = [
        "error-rate",
        "initial-size",
        "expansion-factor",
        "max-filter-bytes",
        "missing-key-error",
        "layout",
    ]
    .map(config_name);
    let start = |lines: &[String]| {
        let builder = Server::with().module_arguments(&["INITIAL_SIZE", "500"]);
        lines.iter().fold(builder, |builder, line| builder.config(line)).start()
    };
    for (lines, rest) in [
        (
            vec!["maxmemory 1gb".to_owned()],
            format!(
                "{rate} 0.01, {size} 500, {factor} 2, {most} 0, {missing} no, \
                 {layout} native; one filter may take 1073741824 bytes"
            ),
        ),
        (
            vec![
                format!("{rate} 0.001"),
                format!("{most} 64mb"),
                format!("{missing} yes"),
                format!("{layout} redisbloom"),
            ],
            format!(
                "{rate} 0.001, {size} 500, {factor} 2, {most} 67108864, {missing} yes, \
                 {layout} redisbloom; one filter may take 67108864 bytes"
            ),
        ),
    ] {
        let server = start(&lines);
        let said = said(&server, "redis-bloom");
        let [line] = &said[..] else { panic!("not one line: {said:#?}") };
        let product = if valkey { "Valkey" } else { "Redis" };
        let start =
            format!("redis-bloom {} in {product} {major}.{minor}.", env!("CARGO_PKG_VERSION"));
        assert!(line.starts_with(&start), "{line}");
        assert!(line.ends_with(&format!(", {code} code; {rest}")), "{line}");
    }
}

/// For each limit the log names it.
#[test]
fn a_refused_creation_is_logged_with_key_size_and_limit() {
    let server = Server::start();
    let client = &mut server.client();
    let most = config_name("max-filter-bytes");
    let max_filter_bytes = "(max-filter-bytes 102400, maxmemory 0, noeviction)";
    let mut refused = |setting: &[&str], line: &str, expected: &str| {
        let words = [&["CONFIG", "SET"], setting].concat();
        assert_eq!(client.cmd(&words), ok());
        assert_eq!(client.run(line).error(), "ERR Insufficient memory to create filter", "{line}");
        let last = said(&server, " refused: ").pop().unwrap_or_default();
        assert!(last.starts_with("key 'large': BF."), "{last}");
        assert!(last.contains(" refused: a filter of 133"), "{last}");
        assert!(last.contains("passes the ceiling of ") && last.ends_with(expected), "{last}");
    };
    for line in ["BF.RESERVE large 0.01 100000000", "BF.INSERT large CAPACITY 100000000 ITEMS a"] {
        refused(&[&most, "100kb", "maxmemory", "0"], line, max_filter_bytes);
        refused(
            &[&most, "0", "maxmemory", "100mb"],
            line,
            "(max-filter-bytes 0, maxmemory 104857600, noeviction)",
        );
    }
}

#[test]
fn a_refused_growth_is_logged_with_key_size_and_limit() {
    let server = Server::start();
    let client = &mut server.client();
    let most = config_name("max-filter-bytes");
    assert_eq!(client.cmd(&["CONFIG", "SET", &most, "20kb"]), ok());
    assert_eq!(client.run("BF.RESERVE k 0.000001 1000"), ok());
    add_until_refused(client, "k", "item");
    for line in ["BF.ADD k another", "BF.MADD k another", "BF.INSERT k ITEMS another"] {
        let logged = said(&server, " refused: ").len();
        assert!(format!("{:?}", client.run(line)).contains("problem inserting"), "{line}");
        let said = said(&server, " refused: ");
        assert_eq!(said.len(), logged + 1, "{line}: {said:#?}");
        let last = &said[logged];
        let command = line.split(' ').next().unwrap_or_default();
        assert!(last.starts_with(&format!("key 'k': {command} refused: a filter of ")), "{last}");
        let expected = " bytes passes the ceiling of 20480 bytes (max-filter-bytes 20480, \
                        maxmemory 0, noeviction)";
        assert!(last.ends_with(expected), "{last}");
    }
}

#[test]
fn a_refused_load_is_logged_with_key_size_and_limit() {
    let source = Server::start();
    let from = &mut source.client();
    from.run("BF.RESERVE k 0.01 10000000");
    let header = dump(from, "k").swap_remove(0);

    let server = Server::start();
    let client = &mut server.client();
    let most = config_name("max-filter-bytes");
    assert_eq!(client.cmd(&["CONFIG", "SET", &most, "1mb"]), ok());
    assert!(load(client, "new", &header).is_error());
    let last = said(&server, " refused: ").pop().unwrap_or_default();
    assert!(last.starts_with("key 'new': BF.LOADCHUNK refused: a filter of 133"), "{last}");
    assert!(last.contains("the ceiling of 1048576 bytes (max-filter-bytes 1048576, "), "{last}");
}

/// A key may have any bytes and any length.
#[test]
fn the_log_escapes_and_shortens_a_key() {
    let server = Server::start();
    let client = &mut server.client();
    let key = [&b"line\nbreak\0'"[..], &[b'x'; 1_000]].concat();
    assert!(client.cmd(&[&b"BF.RESERVE"[..], &key, b"1e-15", b"4611686018427387904"]).is_error());
    let last = said(&server, " refused: ").pop().unwrap_or_default();
    let shown = format!("key 'line\\nbreak\\x00\\'{}': BF.RESERVE refused", "x".repeat(128 - 12));
    assert!(last.starts_with(&shown), "{last}");
}

#[test]
fn a_filter_beyond_addressable_memory_is_logged() {
    let server = Server::start();
    let client = &mut server.client();
    assert!(client.run("BF.RESERVE k 1e-15 4611686018427387904").is_error());
    let log = server.log();
    assert!(
        log.contains("a filter of more bytes than can be addressed passes the ceiling of "),
        "{log}"
    );
}
