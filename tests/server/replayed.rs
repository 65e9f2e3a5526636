//! BF.RESERVE and BF.INSERT as a primary or an AOF of another product has them: RedisBloom and
//! valkey-bloom replicate what their clients wrote, and both read more spellings than clients may
//! use here. No item may be lost for a spelling, and a change that cannot be applied is logged and
//! counted.

use crate::{
    harness::{Client, Random, Server, array, err, info, int, mexists, ok, wait_until},
    redisbloom_live::{peer, redisbloom},
};

/// A command, and what the filter behind its key must be.
#[derive(Debug)]
struct Form {
    words: Vec<Vec<u8>>,
    key: String,
    items: Vec<String>,
    capacity: i64,
    /// `None` for a non-scaling filter.
    expansion: Option<i64>,
}

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

const LARGEST: i64 = 32_768;

fn one_of(random: &mut Random, words: &[&'static str]) -> &'static str {
    words[random.below(words.len())]
}

/// A BF.INSERT as RedisBloom reads it: by the first letters of a word, the last value of an option,
/// NONSCALING over EXPANSION.
fn insert(random: &mut Random, number: usize) -> Form {
    let key = format!("insert-{number}");
    let (mut words, mut capacity, mut expansion, mut nonscaling) =
        (words(&format!("BF.INSERT {key}")), 100, 2, false);
    let mut push = |word: &str| words.push(word.as_bytes().to_vec());
    for _ in 0..random.below(6) {
        match random.below(4) {
            0 => {
                push(one_of(random, &["CAPACITY", "capacity", "cap", "C", "Counting"]));
                capacity = *random.pick(&[7, 100, 1_000]);
                push(&capacity.to_string());
            }
            1 => {
                push(one_of(random, &["ERROR", "error", "err", "ER", "errata"]));
                push(one_of(random, &["0.01", "1e-2", ".2", "0x1p-4", "0X.08", "1E-05"]));
            }
            2 => {
                push(one_of(random, &["EXPANSION", "expand", "EX", "e", "E-"]));
                expansion = *random.pick(&[1, 2, 4, LARGEST]);
                push(&expansion.to_string());
            }
            _ => {
                push(one_of(random, &["NONSCALING", "nonscaling", "NOSCALE", "non", "NOPE"]));
                nonscaling = true;
            }
        }
    }
    push(one_of(random, &["ITEMS", "items", "it", "I", "Is"]));
    let items: Vec<String> =
        (0..1 + random.below(3)).map(|item| format!("{item}-of-{number}")).collect();
    items.iter().for_each(|item| push(item));
    Form { words, key, items, capacity, expansion: (!nonscaling).then_some(expansion) }
}

/// Every BF.RESERVE with up to three of these words behind the capacity that RedisBloom takes: it
/// looks for NONSCALING, then for the first EXPANSION and an integer behind it, and ignores the
/// rest.
fn reserves() -> Vec<Form> {
    const WORDS: [&str; 8] =
        ["EXPANSION", "expansion", "NONSCALING", "NoScale", "4", "1", "SEED", "\n"];
    let mut all: Vec<Vec<&str>> = vec![vec![]];
    let mut from = 0;
    for _ in 0..3 {
        let longest = all[from..].to_vec();
        from = all.len();
        all.extend(longest.iter().flat_map(|form| WORDS.map(|word| [&form[..], &[word]].concat())));
    }
    let mut forms = Vec::new();
    for (number, options) in all.iter().enumerate() {
        let find = |option: &str| options.iter().position(|word| word.eq_ignore_ascii_case(option));
        // With a seed it is a form of this module's.
        if find("SEED")
            .is_some_and(|at| options.get(at + 1).is_some_and(|word| word.parse::<u64>().is_ok()))
        {
            continue;
        }
        let nonscaling = find("NONSCALING").is_some();
        let expansion = match find("EXPANSION") {
            None => 2,
            Some(_) if nonscaling => continue,
            Some(at) => match options.get(at + 1).and_then(|word| word.parse().ok()) {
                Some(factor) => factor,
                None => continue,
            },
        };
        let key = format!("reserve-{number}");
        let mut words = words(&format!(
            "BF.RESERVE {key} {} 12",
            if number % 2 == 0 { "0.01" } else { "0x1p-7" }
        ));
        words.extend(options.iter().map(|word| word.as_bytes().to_vec()));
        forms.push(Form {
            words,
            key,
            items: vec![],
            capacity: 12,
            expansion: (!nonscaling).then_some(expansion),
        });
    }
    forms
}

/// What RedisBloom 2.8 takes and no generated form has, and what valkey-bloom takes.
fn others() -> Vec<Form> {
    let seed = [b'x'; 32];
    let form = |line: &str, items: &[&str], capacity, expansion| {
        let mut words = words(line);
        for word in &mut words {
            if word == b"<seed>" {
                *word = seed.to_vec();
            }
        }
        Form {
            key: String::from_utf8(words[1].clone()).expect("ASCII"),
            words,
            items: items.iter().map(|&item| item.to_owned()).collect(),
            capacity,
            expansion,
        }
    };
    vec![
        // Another range.
        form("BF.INSERT wide EXPANSION 40000 ITEMS a", &["a"], 100, Some(LARGEST)),
        form("BF.INSERT wider e 9223372036854775807 i a", &["a"], 100, Some(LARGEST)),
        form("BF.RESERVE widest 0.01 10 EXPANSION 32769", &[], 10, Some(LARGEST)),
        // A value that a later one replaces.
        form("BF.INSERT last CAPACITY 5 ERROR 0.5 CAPACITY 6 ITEMS a", &["a"], 6, Some(2)),
        form("BF.INSERT word ITEMS ITEMS", &["ITEMS"], 100, Some(2)),
        // The key is a word of the command, too.
        form("BF.RESERVE NONSCALING 0.01 100", &[], 100, None),
        form("BF.RESERVE nonscaling 0.01 100", &[], 100, None),
        // valkey-bloom: a creation with its seed, where the last of both words decides.
        form(
            "BF.INSERT v1 ERROR 0.01 CAPACITY 10 NONSCALING EXPANSION 3 SEED <seed> ITEMS a",
            &["a"],
            10,
            Some(3),
        ),
        form(
            "BF.INSERT v2 ERROR 0.01 CAPACITY 10 EXPANSION 3 NONSCALING SEED <seed> ITEMS a",
            &["a"],
            10,
            None,
        ),
        form(
            "BF.INSERT v3 ERROR 0.01 CAPACITY 10 EXPANSION 4294967295 SEED <seed>",
            &[],
            10,
            Some(0xFFFF_FFFF),
        ),
        // And additions to one that is there: what is said of its making has no effect.
        form(
            "BF.INSERT v1 ERROR +0.01 CAPACITY +010 TIGHTENING 0.5 ITEMS b",
            &["a", "b"],
            10,
            Some(3),
        ),
        form("BF.INSERT v1 EXPANSION +4294967295 NONSCALING ITEMS c", &["c"], 10, Some(3)),
        form(
            "BF.INSERT v1 NONSCALING EXPANSION 2 SEED <seed> VALIDATESCALETO +7 ITEMS d",
            &["d"],
            10,
            Some(3),
        ),
        form("BF.INSERT v1 SEED <seed> TIGHTENING 5e-1 CAPACITY 010 ITEMS e", &["e"], 10, Some(3)),
    ]
}

fn aof<'a>(commands: impl IntoIterator<Item = &'a [Vec<u8>]>) -> Vec<u8> {
    let mut aof = Vec::new();
    for words in commands {
        aof.extend(format!("*{}\r\n", words.len()).bytes());
        for word in words {
            aof.extend(format!("${}\r\n", word.len()).bytes());
            aof.extend([&word[..], b"\r\n"].concat());
        }
    }
    aof
}

#[track_caller]
fn assert_applied(client: &mut Client, form: &Form) {
    let shown: Vec<_> = form.words.iter().map(|word| word.escape_ascii().to_string()).collect();
    assert_eq!(client.run(&format!("EXISTS {}", form.key)), int(1), "{shown:?}");
    let made = info(client, &form.key);
    assert_eq!((made.capacity, made.expansion), (form.capacity, form.expansion), "{shown:?}");
    if !form.items.is_empty() {
        assert!(mexists(client, &form.key, &form.items).iter().all(|&there| there), "{shown:?}");
    }
}

#[test]
fn every_form_that_a_peer_takes_is_taken_from_an_aof() {
    let random = &mut Random::new(17);
    let mut forms: Vec<Form> = (0..500).map(|number| insert(random, number)).collect();
    forms.extend(reserves());
    assert!(forms.len() > 700, "{}", forms.len());
    forms.extend(others());
    let log = aof(forms.iter().map(|form| &form.words[..]));
    let server = Server::on_file("appendonly.aof", &log, &["appendonly yes"]);
    let client = &mut server.client();
    assert!(!server.log().contains("not applied"), "{}", server.log());
    forms.iter().for_each(|form| assert_applied(client, form));
    assert_eq!(client.server_info("bf", "bf_unapplied"), "0");
}

/// What no product takes must not pass in silence.
#[test]
fn what_an_aof_has_and_cannot_be_applied_is_logged_and_counted() {
    let lines = [
        "SET text t",
        "BF.ADD fine a",
        "BF.ADD text a",
        "BF.MADD text a b",
        "BF.INSERT kept WHAT ITEMS a",
        "BF.INSERT kept ERROR 2 ITEMS a",
        "BF.INSERT kept EXPANSION ITEMS",
        "BF.INSERT missing NOCREATE ITEMS a",
        "BF.RESERVE kept 1 100",
        "BF.RESERVE fine 0.01 100",
        "BF.DEL fine a",
    ];
    let commands: Vec<_> = lines.iter().map(|line| words(line)).collect();
    let log = aof(commands.iter().map(|words| &words[..]));
    let server = Server::on_file("appendonly.aof", &log, &["appendonly yes"]);
    let client = &mut server.client();
    assert_eq!(client.server_info("bf", "bf_unapplied"), "9");
    let log = server.log();
    for line in [
        "BF.ADD of key 'text' was not applied, though a primary, an AOF or a slot migration sent it: WRONGTYPE",
        "BF.INSERT of key 'kept' was not applied, though a primary, an AOF or a slot migration sent it: ERR Unknown argument",
        "BF.RESERVE of key 'fine' was not applied, though a primary, an AOF or a slot migration sent it: ERR item exists",
    ] {
        assert!(log.contains(line), "{line}: {log}");
    }
    // A client is answered, which is enough.
    assert!(client.run("BF.ADD text a").is_error());
    assert!(client.run("BF.INSERT kept WHAT ITEMS a").is_error());
    assert_eq!(client.server_info("bf", "bf_unapplied"), "9");
}

#[test]
fn what_a_primary_sends_and_cannot_be_applied_is_logged_and_counted() {
    let primary = Server::start();
    let source = &mut primary.client();
    assert_eq!(source.run("BF.ADD k a"), int(1));
    let replica = primary.replica();
    let client = &mut replica.client();
    assert_eq!(client.run("CONFIG SET replica-read-only no"), ok());
    assert_eq!(client.run("SET k text"), ok());
    // On a replica a client is answered, too, and its reads of missing keys are nobody's fault.
    assert!(client.run("BF.ADD k b").is_error());
    assert!(client.run("BF.INFO missing").is_error());
    assert_eq!(client.server_info("bf", "bf_unapplied"), "0");
    assert_eq!(source.run("BF.ADD k b"), int(1));
    assert_eq!(source.run("BF.MADD k c d"), array([int(1), int(1)]));
    wait_until("both are counted", || client.server_info("bf", "bf_unapplied") == "2");
    let log = replica.log();
    assert!(log.contains("BF.ADD of key 'k' was not applied"), "{log}");
}

/// A filter that no machine has the memory for, as a primary on a larger machine may have one.
#[test]
fn a_filter_of_an_aof_that_there_is_no_memory_for_is_counted() {
    let log = aof([&words("BF.RESERVE large 0.01 1000000000000000 SEED 1")[..]]);
    let server = Server::on_file("appendonly.aof", &log, &["appendonly yes"]);
    let client = &mut server.client();
    assert_eq!(client.server_info("bf", "bf_unapplied"), "1");
    assert_eq!(client.run("EXISTS large"), int(0));
    let log = server.log();
    assert!(log.contains("BF.RESERVE of key 'large' was not applied"), "{log}");
}

/// Forms as a client of RedisBloom may send them, right and wrong, to a live one with a replica
/// here.
#[test]
fn a_replica_of_redisbloom_takes_every_form_that_it_takes() {
    let Some(path) = peer("a_replica_of_redisbloom_takes_every_form_that_it_takes") else {
        return;
    };
    let primary = redisbloom(&path);
    let old = &mut primary.client();
    let replica = primary.replica();
    let new = &mut replica.client();
    let random = &mut Random::new(71);
    let mut forms: Vec<Form> = (0..1_000).map(|number| insert(random, number)).collect();
    forms.extend(reserves());
    forms.extend(others());
    let mut taken = Vec::new();
    for form in &forms {
        let reply = old.cmd(&form.words);
        if !reply.is_error() {
            taken.push(form);
        } else if form.key.contains("-") {
            // The generators are models of its grammar. Newer servers read no hexadecimal numbers.
            let hexadecimal =
                form.words.iter().any(|word| word.starts_with(b"0x") || word.starts_with(b"0X"));
            assert!(hexadecimal, "{form:?}: {reply:?}");
        }
    }
    println!("{} of {} forms taken", taken.len(), forms.len());
    assert!(taken.len() > 600, "{} of {} forms taken", taken.len(), forms.len());
    assert_eq!(old.run("WAIT 1 30000"), int(1));
    for form in taken {
        let (there, here) = (info(old, &form.key), info(new, &form.key));
        assert_eq!(here.capacity, there.capacity, "{form:?}");
        assert_eq!(here.expansion, there.expansion.map(|factor| factor.min(LARGEST)), "{form:?}");
        if !form.items.is_empty() {
            assert_eq!(
                mexists(old, &form.key, &form.items),
                mexists(new, &form.key, &form.items),
                "{form:?}"
            );
        }
    }
    assert_eq!(new.server_info("bf", "bf_unapplied"), "0");
}

/// To clients the grammar is what it was: whole words, our ranges.
#[test]
fn a_client_of_a_writable_replica_is_no_primary() {
    let primary = Server::start();
    let replica = primary.replica();
    let client = &mut replica.client();
    assert_eq!(client.run("CONFIG SET replica-read-only no"), ok());
    assert_eq!(client.run("BF.INSERT k it a"), err("ERR Unknown argument received"));
    assert_eq!(client.run("BF.RESERVE k 0.01 100 COUNTNG"), err("ERR unknown argument 'COUNTNG'"));
    assert_eq!(client.server_info("bf", "bf_unapplied"), "0");
}
