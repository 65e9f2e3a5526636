//! BF.RESERVE and BF.INSERT from a primary or an AOF of another product. RedisBloom and
//! valkey-bloom replicate commands as their clients wrote them, and both accept more spellings than
//! this module. No spelling may lose an item: what cannot be applied is logged and counted, and the
//! key answers an error.

use crate::{
    harness::{
        Client, NO_COPY, Random, Server, array, err, info, int, ints, mexists, ok, wait_until,
    },
    redisbloom_live::{peer, redisbloom},
};

/// A command, and the filter that its key must hold afterwards.
#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) words: Vec<Vec<u8>>,
    key: String,
    pub(crate) items: Vec<String>,
    capacity: i64,
    /// `None` for a non-scaling filter.
    expansion: Option<i64>,
    by: By,
}

/// Which product accepts a form.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    RedisBloom,
    /// Version 2 alone, which checks the ranges of the last values alone and has other ranges.
    RedisBloom2,
    ValkeyBloom,
}

impl Form {
    /// Whether this module reads the form: whole words, and numbers as most clients write them.
    fn is_plain(&self) -> bool {
        const OPTIONS: [&str; 7] = [
            "CAPACITY",
            "ERROR",
            "EXPANSION",
            "NONSCALING",
            "TIGHTENING",
            "SEED",
            "VALIDATESCALETO",
        ];
        let options =
            self.words[2..].iter().take_while(|word| !word.eq_ignore_ascii_case(b"ITEMS"));
        let texts: Vec<_> =
            options.map(|word| String::from_utf8_lossy(word).to_ascii_uppercase()).collect();
        let is_number = |text: &String| {
            text.parse().is_ok_and(|number: f64| number > 0.0 && number.is_finite())
        };
        let is_known =
            |text: &String| is_number(text) || text.len() == 32 || OPTIONS.contains(&&text[..]);
        match self.words[0].as_slice() {
            b"BF.RESERVE" => is_number(&texts[0]),
            _ => texts.iter().all(is_known),
        }
    }
}

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

const LARGEST: i64 = 32_768;

fn one_of(random: &mut Random, words: &[&'static str]) -> &'static str {
    words[random.below(words.len())]
}

/// A random BF.INSERT that RedisBloom accepts. RedisBloom reads only the first letters of a word,
/// the last value of an option counts, and NONSCALING overrides EXPANSION.
pub(crate) fn insert(random: &mut Random, number: usize) -> Form {
    let key = format!("insert-{number}");
    let (mut words, mut capacity, mut expansion, mut nonscaling) =
        (words(&format!("BF.INSERT {key}")), 100, 2, false);
    let mut by = By::RedisBloom;
    let mut push = |word: &str| words.push(word.as_bytes().to_vec());
    for _ in 0..random.below(6) {
        // At times a value out of range, which the next one replaces.
        let repaired = random.below(8) == 0;
        let option = random.below(4);
        if repaired && option < 3 {
            by = By::RedisBloom2;
            let bad = [("c", ["0", "-3"]), ("er", ["inf", "-0.5"]), ("e", ["-1", "-32768"])];
            let (word, values) = &bad[option];
            push(word);
            push(values[random.below(2)]);
        }
        match option {
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
    Form { words, key, items, capacity, expansion: (!nonscaling).then_some(expansion), by }
}

/// Every BF.RESERVE with up to three of these words after the capacity that RedisBloom accepts:
/// RedisBloom searches for NONSCALING, then for the first EXPANSION and an integer after it, and
/// ignores all other words.
pub(crate) fn reserves() -> Vec<Form> {
    const WORDS: [&str; 8] =
        ["EXPANSION", "expansion", "NONSCALING", "NoScale", "4", "1", "WORD", "\n"];
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
            by: By::RedisBloom,
        });
    }
    forms
}

/// Forms of RedisBloom 2.8 that are not generated, and forms of valkey-bloom.
fn others() -> Vec<Form> {
    let seed = [b'x'; 32];
    let form = |by, line: &str, items: &[&str], capacity, expansion| {
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
            by,
        }
    };
    vec![
        // An expansion above our range.
        form(By::RedisBloom2, "BF.INSERT wide EXPANSION 40000 ITEMS a", &["a"], 100, Some(LARGEST)),
        form(
            By::RedisBloom2,
            "BF.INSERT wider e 9223372036854775807 i a",
            &["a"],
            100,
            Some(LARGEST),
        ),
        form(By::RedisBloom2, "BF.RESERVE widest 0.01 10 EXPANSION 32769", &[], 10, Some(LARGEST)),
        // A later value replaces an earlier one, and an item is named like an option.
        form(
            By::RedisBloom,
            "BF.INSERT last CAPACITY 5 ERROR 0.5 CAPACITY 6 ITEMS a",
            &["a"],
            6,
            Some(2),
        ),
        form(By::RedisBloom, "BF.INSERT word ITEMS ITEMS", &["ITEMS"], 100, Some(2)),
        // valkey-bloom: a creation with a seed; the last of NONSCALING and EXPANSION counts.
        form(
            By::ValkeyBloom,
            "BF.INSERT v1 ERROR 0.01 CAPACITY 10 NONSCALING EXPANSION 3 SEED <seed> ITEMS a",
            &["a"],
            10,
            Some(3),
        ),
        form(
            By::ValkeyBloom,
            "BF.INSERT v2 ERROR 0.01 CAPACITY 10 EXPANSION 3 NONSCALING SEED <seed> ITEMS a",
            &["a"],
            10,
            None,
        ),
        form(
            By::ValkeyBloom,
            "BF.INSERT v3 ERROR 0.01 CAPACITY 10 EXPANSION 4294967295 SEED <seed>",
            &[],
            10,
            Some(0xFFFF_FFFF),
        ),
        // valkey-bloom: additions to an existing filter; options of its creation have no effect.
        form(
            By::ValkeyBloom,
            "BF.INSERT v1 ERROR 0.01 CAPACITY 10 TIGHTENING 0.5 ITEMS b",
            &["a", "b"],
            10,
            Some(3),
        ),
        form(
            By::ValkeyBloom,
            "BF.INSERT v1 EXPANSION 4294967295 NONSCALING ITEMS c",
            &["c"],
            10,
            Some(3),
        ),
        form(
            By::ValkeyBloom,
            "BF.INSERT v1 NONSCALING EXPANSION 2 SEED <seed> VALIDATESCALETO 7 ITEMS d",
            &["d"],
            10,
            Some(3),
        ),
        form(
            By::ValkeyBloom,
            "BF.INSERT v1 SEED <seed> TIGHTENING 5e-1 CAPACITY 10 ITEMS e",
            &["e"],
            10,
            Some(3),
        ),
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

/// A key that lacks items does not say "absent".
#[track_caller]
fn assert_error(client: &mut Client, form: &Form) {
    let reply = client.run(&format!("BF.EXISTS {} a", form.key));
    assert_eq!(reply, err(NO_COPY), "{form:?}");
}

#[test]
fn every_form_of_another_product_is_applied_or_an_error() {
    let random = &mut Random::new(17);
    let mut forms: Vec<Form> = (0..500).map(|number| insert(random, number)).collect();
    forms.extend(reserves());
    assert!(forms.len() > 700, "{}", forms.len());
    forms.extend(others());
    let log = aof(forms.iter().map(|form| &form.words[..]));
    let server = Server::on_file("appendonly.aof", &log, &["appendonly yes"]);
    let client = &mut server.client();
    let (plain, others): (Vec<_>, Vec<_>) = forms.iter().partition(|form| form.is_plain());
    assert!(plain.len() > 200 && others.len() > 200, "{} {}", plain.len(), others.len());
    plain.iter().for_each(|form| assert_applied(client, form));
    others.iter().for_each(|form| assert_error(client, form));
    assert_eq!(client.server_info("bf", "bf_unapplied"), others.len().to_string());
}

/// A release that knows more options than this one writes them beside SEED. RedisBloom ignores
/// words, but a filter with another seed, or of another kind, is not what the primary has: the key
/// answers errors.
#[test]
fn options_of_a_newer_release_are_not_taken_for_words_of_redisbloom() {
    let lines = [
        "BF.RESERVE shard 0.01 100 SEED 7 SHARD 1500 2048",
        "BF.RESERVE more 0.01 100 SEED 7 WINDOW 4 60",
        "BF.RESERVE wide 0.01 100 seed 340282366920938463463374607431768211455",
    ];
    let commands: Vec<_> = lines.iter().map(|line| words(line)).collect();
    let log = aof(commands.iter().map(|words| &words[..]));
    let server = Server::on_file("appendonly.aof", &log, &["appendonly yes"]);
    let client = &mut server.client();
    for line in lines {
        let key = line.split(' ').nth(1).expect("a key");
        for ask in ["BF.EXISTS", "BF.ADD"] {
            let reply = client.cmd(&[ask, key, "a"]);
            assert!(reply.is_error(), "{line}: {ask} answers {reply:?}");
        }
    }
    assert_eq!(client.server_info("bf", "bf_unapplied"), lines.len().to_string());
}

#[test]
fn a_command_of_an_aof_that_cannot_be_applied_is_logged_and_counted() {
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
        "BF.RESERVE counters 0.01 100 COUNTING SEED 1",
        "BF.ADD counters a",
        "BF.DEL counters a",
        "BF.DEL counters a",
    ];
    let commands: Vec<_> = lines.iter().map(|line| words(line)).collect();
    let log = aof(commands.iter().map(|words| &words[..]));
    let server = Server::on_file("appendonly.aof", &log, &["appendonly yes"]);
    let client = &mut server.client();
    assert_eq!(client.server_info("bf", "bf_unapplied"), "10");
    let log = server.log();
    for (command, error) in [
        ("BF.ADD of key 'text'", "WRONGTYPE"),
        ("BF.INSERT of key 'kept'", "ERR Unknown argument"),
        ("BF.RESERVE of key 'fine'", "ERR item exists"),
    ] {
        let line = format!(
            "{command} was not applied, though it came from a primary, an AOF, a slot migration \
             or a file: {error}"
        );
        assert!(log.contains(&line), "{line}: {log}");
    }
    // Errors of clients are not counted, because the client gets a reply.
    assert!(client.run("BF.ADD text a").is_error());
    assert!(client.run("BF.INSERT kept WHAT ITEMS a").is_error());
    assert_eq!(client.server_info("bf", "bf_unapplied"), "10");
}

/// Options that cannot be read say nothing about the filter that is there.
#[test]
fn a_command_of_an_aof_that_cannot_be_read_leaves_the_filter_that_is_there() {
    let lines = [
        "BF.MADD kept a b",
        "BF.INSERT kept ERROR 0x1p-4 ITEMS c",
        "BF.INSERT kept WHAT c",
        "BF.INSERT kept NOREFRESH WHAT c",
        "BF.INSERT kept GENERATIONS 4 ITEMS c",
        "BF.INSERT kept WINDOW COUNT EXPANSION 2 ITEMS c",
        "BF.INSERT kept WINDOW COUNT COUNTING ITEMS c",
        "BF.INSERT kept WINDOW EX no ITEMS c",
        "BF.INSERT kept SEED no ITEMS c",
    ];
    let commands: Vec<_> = lines.iter().map(|line| words(line)).collect();
    let log = aof(commands.iter().map(|words| &words[..]));
    let server = Server::on_file("appendonly.aof", &log, &["appendonly yes"]);
    let client = &mut server.client();
    assert_eq!(client.run("BF.MEXISTS kept a b"), ints([1, 1]));
    assert_eq!(client.server_info("bf", "bf_unapplied"), "8");
}

#[test]
fn a_command_of_a_primary_that_cannot_be_applied_is_logged_and_counted() {
    let primary = Server::start();
    let source = &mut primary.client();
    assert_eq!(source.run("BF.ADD k a"), int(1));
    let replica = primary.replica();
    let client = &mut replica.client();
    assert_eq!(client.run("CONFIG SET replica-read-only no"), ok());
    assert_eq!(client.run("SET k text"), ok());
    // Errors of clients of the replica are not counted, nor are reads of missing keys.
    assert!(client.run("BF.ADD k b").is_error());
    assert!(client.run("BF.INFO missing").is_error());
    assert_eq!(client.server_info("bf", "bf_unapplied"), "0");
    assert_eq!(source.run("BF.ADD k b"), int(1));
    assert_eq!(source.run("BF.MADD k c d"), array([int(1), int(1)]));
    wait_until("both are counted", || client.server_info("bf", "bf_unapplied") == "2");
    let log = replica.log();
    assert!(log.contains("BF.ADD of key 'k' was not applied"), "{log}");
}

/// A primary on a larger machine may have a filter that does not fit into this machine's memory.
#[test]
fn a_filter_of_an_aof_that_is_too_large_for_memory_is_counted() {
    let log = aof([&words("BF.RESERVE large 0.01 1000000000000000 SEED 1")[..]]);
    let server = Server::on_file("appendonly.aof", &log, &["appendonly yes"]);
    let client = &mut server.client();
    assert_eq!(client.server_info("bf", "bf_unapplied"), "1");
    assert_eq!(client.run("BF.EXISTS large a"), err(NO_COPY));
    let log = server.log();
    assert!(log.contains("BF.RESERVE of key 'large' was not applied"), "{log}");
}

/// Sends correct and wrong forms to a running RedisBloom that has a replica with this module.
#[test]
fn a_replica_of_redisbloom_applies_every_plain_form() {
    let Some(path) = peer("a_replica_of_redisbloom_applies_every_plain_form") else {
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
    let version_2 = !old.run("BF.INSERT version CAPACITY 0 CAPACITY 1 ITEMS a").is_error();
    let mut taken = Vec::new();
    for form in &forms {
        let reply = old.cmd(&form.words);
        if !reply.is_error() {
            taken.push(form);
            continue;
        }
        // Newer servers read no hexadecimal numbers.
        let hexadecimal =
            form.words.iter().any(|word| word.starts_with(b"0x") || word.starts_with(b"0X"));
        let may_refuse = match form.by {
            By::RedisBloom => hexadecimal,
            By::RedisBloom2 => !version_2,
            By::ValkeyBloom => true,
        };
        assert!(may_refuse, "{form:?}: {reply:?}");
    }
    println!("{} of {} forms taken", taken.len(), forms.len());
    assert!(taken.len() > 600, "{} of {} forms taken", taken.len(), forms.len());
    assert_eq!(old.run("WAIT 1 30000"), int(1));
    let (plain, others): (Vec<&Form>, Vec<&Form>) =
        taken.into_iter().partition(|form| form.is_plain());
    others.iter().for_each(|form| assert_error(new, form));
    for form in plain {
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
    // Also the command that tells the version.
    let unapplied = others.len() + usize::from(version_2);
    assert_eq!(new.server_info("bf", "bf_unapplied"), unapplied.to_string());
}

/// For clients the usual grammar applies: whole words and our ranges.
#[test]
fn a_client_of_a_writable_replica_is_not_treated_like_a_primary() {
    let primary = Server::start();
    let replica = primary.replica();
    let client = &mut replica.client();
    assert_eq!(client.run("CONFIG SET replica-read-only no"), ok());
    assert_eq!(client.run("BF.INSERT k it a"), err("ERR Unknown argument received"));
    assert_eq!(client.run("BF.RESERVE k 0.01 100 COUNTNG"), err("ERR unknown argument 'COUNTNG'"));
    assert_eq!(client.server_info("bf", "bf_unapplied"), "0");
}

/// RedisBloom ignores stray words, also those that are options here. A command of this module has a
/// seed: with one, what cannot be read may be an option of a later release.
#[test]
fn a_reservation_of_redisbloom_with_stray_words_is_applied() {
    // This module would read COUNTING, too, but writes a seed.
    let stray =
        ["SEED", "SEED x", "COUNTING", "COUNTING 5", "SHARD 1500 2048", "WINDOW EX", "WINDOW"];
    let mut commands = Vec::new();
    for (number, stray) in stray.iter().enumerate() {
        commands.push(words(&format!("BF.RESERVE k{number} 0.01 100 {stray}")));
        commands.push(words(&format!("BF.ADD k{number} a")));
    }
    let log = aof(commands.iter().map(|words| &words[..]));
    let server = Server::on_file("appendonly.aof", &log, &["appendonly yes"]);
    let client = &mut server.client();
    for (number, stray) in stray.iter().enumerate() {
        let key = format!("k{number}");
        assert_eq!(mexists(client, &key, &["a", "b"]), [true, false], "{stray}");
        assert_eq!(info(client, &key).capacity, 100, "{stray}");
        let layout = client.cmd(&["BF.INFO", &key, "LAYOUT"]);
        assert_eq!(layout.elements()[0].text(), "redisbloom", "{stray}");
    }
    assert_eq!(client.server_info("bf", "bf_unapplied"), "0");
}
