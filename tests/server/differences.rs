//! The differences from RedisBloom that docs/reference/differences.md lists.
//!
//! Each table row has commands and the replies to the last of them. This module's column always
//! runs. The columns of RedisBloom run where `REDIS_BLOOM_PEER_REDISBLOOM` names its library. A
//! second test sends many more commands to both, and each reply that differs must be in a row.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use crate::{
    harness::{Client, Protocol, Random, Reply, Server},
    redisbloom_live::{peer, redisbloom},
    replayed::{insert, reserves},
};

const HEAD: &str = "| commands | RedisBloom 2.8 | RedisBloom 8 | redis-bloom |";
/// A reply cell of a command that must not be sent, because it ends RedisBloom's server.
const FATAL: &str = "*the server crashes*";

/// A row of the page.
struct Row {
    /// The commands; the replies belong to the last one.
    commands: Vec<String>,
    redisbloom_2: String,
    redisbloom_8: String,
    own: String,
}

/// All rows of the page.
fn rows() -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/differences.md");
    let page = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let mut rows = Vec::new();
    for table in page.split(HEAD).skip(1) {
        for line in table.lines().skip(2).take_while(|line| line.starts_with('|')) {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [commands, redisbloom_2, redisbloom_8, own] = cells[..] else {
                panic!("not four cells: {line}")
            };
            // Code spans have odd numbers.
            let commands: Vec<String> =
                commands.split('`').skip(1).step_by(2).map(str::to_owned).collect();
            assert!(!commands.is_empty(), "no command: {line}");
            let [redisbloom_2, redisbloom_8, own] =
                [redisbloom_2, redisbloom_8, own].map(|cell| cell.trim_matches('`').to_owned());
            rows.push(Row { commands, redisbloom_2, redisbloom_8, own });
        }
    }
    rows
}

/// A reply as the page shows it.
fn shown(reply: &Reply) -> String {
    match reply {
        Reply::Error(text) => format!("(error) {}", text.trim_end()),
        Reply::Int(number) => number.to_string(),
        Reply::Bool(yes) => u8::from(*yes).to_string(),
        Reply::Null | Reply::NullArray => "(nil)".to_owned(),
        Reply::Double(number) => number.to_string(),
        Reply::Simple(text) => text.clone(),
        Reply::Bulk(bytes) => bytes.escape_ascii().to_string(),
        Reply::Array(elements) => {
            format!("[{}]", elements.iter().map(shown).collect::<Vec<_>>().join(", "))
        }
        Reply::Map(pairs) => {
            let values: Vec<_> = pairs.iter().map(|(_, value)| shown(value)).collect();
            format!("[{}]", values.join(", "))
        }
        other => format!("{other:?}"),
    }
}

/// Runs the commands on an empty server; returns the last reply.
fn last_reply(client: &mut Client, commands: &[String]) -> Reply {
    client.run("FLUSHALL");
    let mut last = Reply::Null;
    for command in commands {
        last = client.run(command);
    }
    client.assert_in_step();
    last
}

#[track_caller]
fn check_column(server: &Server, name: &str, column: impl Fn(&Row) -> &str) {
    let mut failures = Vec::new();
    for row in rows().iter().filter(|row| column(row) != FATAL) {
        let reply = shown(&last_reply(&mut server.client(), &row.commands));
        if reply != column(row) {
            failures.push(format!("{:?}\n   page {}\n  reply {reply}", row.commands, column(row)));
        }
    }
    assert!(failures.is_empty(), "docs/reference/differences.md, {name}:\n{}", failures.join("\n"));
}

#[test]
fn the_page_has_our_replies() {
    assert!(rows().len() > 40, "only {} rows were found", rows().len());
    check_column(&Server::start(), "redis-bloom", |row| &row.own);
}

/// A row of equal replies is no difference.
#[test]
fn each_row_of_the_page_is_a_difference() {
    for row in rows() {
        assert!(
            row.redisbloom_2 != row.own || row.redisbloom_8 != row.own,
            "{:?}: all replies are {}",
            row.commands,
            row.own
        );
    }
}

/// The column of the page for a running RedisBloom.
fn column_of(client: &mut Client) -> fn(&Row) -> &String {
    let modules = client.run("MODULE LIST");
    let bloom = modules.elements().iter().find(|module| module.get("name").unwrap().text() == "bf");
    let version = bloom.and_then(|module| module.get("ver")).expect("RedisBloom is loaded").int();
    match version / 10_000 {
        2 => |row| &row.redisbloom_2,
        8 => |row| &row.redisbloom_8,
        other => panic!("docs/reference/differences.md has no column for RedisBloom {other}"),
    }
}

#[test]
fn the_page_has_the_replies_of_redisbloom() {
    let Some(path) = peer("the_page_has_the_replies_of_redisbloom") else {
        return;
    };
    let server = redisbloom(&path);
    let column = column_of(&mut server.client());
    check_column(&server, "RedisBloom", |row| column(row));
    for row in rows().iter().filter(|row| column(row) == FATAL) {
        let server = redisbloom(&path);
        let client = &mut server.client();
        let ended = row
            .commands
            .iter()
            .any(|command| client.try_cmd(&command.split(' ').collect::<Vec<_>>()).is_err());
        assert!(ended, "{:?} did not end the server", row.commands);
    }
}

// --- Many more commands -------------------------------------------------------------------------

/// What the key `k` is before a command.
const STATES: [&[&str]; 6] = [
    &[],
    &["SET k v"],
    &["BF.RESERVE k 1e-9 100"],
    &["BF.RESERVE k 1e-9 100", "BF.MADD k a b c"],
    &["BF.RESERVE k 1e-9 2 NONSCALING", "BF.MADD k a b"],
    &["BF.RESERVE k 1e-9 8 EXPANSION 2", "BF.MADD k a b c s t u v w x y z"],
];

/// Every command with these words in every state. Both are small, so no item collides: rates are
/// low wherever a filter has more than one item.
fn forms() -> Vec<Vec<Vec<u8>>> {
    let mut forms: Vec<String> = Vec::new();
    for command in ["BF.ADD", "BF.EXISTS", "BF.MADD", "BF.MEXISTS"] {
        for items in ["", " a", " d", " a d", " d d", " d e f a"] {
            forms.push(format!("{command} k{items}"));
        }
    }
    for word in
        ["", "x", "CAPACITY", "size", "Filters", "ITEMS", "EXPANSION", "ITEM", "ITEMS x", "ERROR"]
    {
        forms.push(format!("BF.INFO k {word}"));
    }
    for command in ["BF.CARD", "BF.DEBUG"] {
        forms.extend([command.to_owned(), format!("{command} k"), format!("{command} k x")]);
    }
    // The last ones are beyond every dump. Chunks of native filters differ
    // (docs/reference/differences.md).
    for iterator in ["", "x", "1.5", "-1", "9999999999999", "9999999999999 x"] {
        forms.push(format!("BF.SCANDUMP k {iterator}"));
    }
    for arguments in ["", "1", "x data", "1 data", "1 data x", "0 data", "-1 data", "2 data"] {
        forms.push(format!("BF.LOADCHUNK k {arguments}"));
    }
    for rate in
        ["0.01", "1e-9", "0.3", "0.99", "1E-05", ".5", "0", "1", "-1", "1.5", "x", "nan", "inf"]
    {
        for capacity in ["100", "1", "1000000", "0", "-1", "x", "1.5", "1e3", "+1", "010"] {
            forms.push(format!("BF.RESERVE k {rate} {capacity}"));
            forms.push(format!("BF.RESERVE k {rate} {capacity} NONSCALING"));
            forms.push(format!("BF.INSERT k ERROR {rate} CAPACITY {capacity} ITEMS a"));
            forms.push(format!("BF.INSERT k CAPACITY {capacity} NOCREATE ERROR {rate} ITEMS a"));
        }
    }
    let words =
        ["EXPANSION", "NONSCALING", "0", "1", "4", "-1", "32768", "32769", "x", "COUNTNG", "ITEMS"];
    let mut tails: Vec<String> = vec![String::new()];
    let mut longest = 0;
    for _ in 0..3 {
        let from = std::mem::replace(&mut longest, tails.len());
        let more: Vec<String> = tails[from..]
            .iter()
            .flat_map(|tail| words.map(|word| format!("{tail} {word}")))
            .collect();
        tails.extend(more);
    }
    for tail in &tails {
        forms.push(format!("BF.RESERVE k 0.01 100{tail}"));
        forms.push(format!("BF.INSERT k{tail} ITEMS a"));
        if tail.contains("ITEMS") {
            forms.push(format!("BF.INSERT k{tail}"));
        }
    }
    let mut forms: Vec<Vec<Vec<u8>>> = forms
        .iter()
        .map(|form| form.split_whitespace().map(|word| word.as_bytes().to_vec()).collect())
        .collect();
    // RedisBloom's abbreviations. One item is enough, and cannot collide at a high rate.
    let random = &mut Random::new(29);
    forms.extend((0..500).map(|number| insert(random, number)).chain(reserves()).map(|form| {
        let mut words = form.words;
        words.truncate(words.len() - form.items.len().saturating_sub(1));
        words[1] = b"k".to_vec();
        words
    }));
    forms
}

/// What a filter shows of itself that follows from a command: all fields but its size.
const SHOWS: [&str; 4] =
    ["BF.INFO k CAPACITY", "BF.INFO k FILTERS", "BF.INFO k ITEMS", "BF.INFO k EXPANSION"];

/// A difference without what varies: the name of the command, and both replies without repeated
/// elements and arguments, also those of `earlier`, the command before. For a field of BF.INFO in
/// [`SHOWS`] the name has the field, and the numbers count; other numbers of BF.INFO are left out.
fn kind(earlier: &str, command: &str, theirs: &str, own: &str) -> [String; 3] {
    let words: Vec<_> = command.split(' ').collect();
    let name = match words[..] {
        ["BF.INFO", _, field] if SHOWS.contains(&format!("BF.INFO k {field}").as_str()) => {
            format!("BF.INFO {field}")
        }
        _ => words[0].to_owned(),
    };
    let plain = |reply: &str| {
        if let Some((text, _)) = reply.split_once(" '").filter(|_| reply.contains("argument '")) {
            return text.to_owned();
        }
        let elements = reply.trim_matches(['[', ']']).split(", ");
        let mut elements: Vec<String> = elements
            .map(|element| match element.parse::<f64>() {
                Ok(_) if name == "BF.INFO" => "number".to_owned(),
                Ok(_) if earlier.split(' ').skip(2).any(|word| word == element) => {
                    "argument".to_owned()
                }
                _ => element.to_owned(),
            })
            .collect();
        elements.dedup();
        elements.join(", ")
    };
    let (theirs, own) = (plain(theirs), plain(own));
    [name, theirs, own]
}

/// The differences that the page lists for one RedisBloom.
fn listed(column: fn(&Row) -> &String) -> BTreeSet<[String; 3]> {
    let kind = |row: &Row| {
        let [before @ .., command] = &row.commands[..] else { panic!("no command") };
        kind(before.last().map_or("", String::as_str), command, column(row), &row.own)
    };
    rows().iter().map(kind).collect()
}

#[test]
fn a_wrong_number_is_no_listed_difference() {
    let columns: [fn(&Row) -> &String; 2] = [|row| &row.redisbloom_2, |row| &row.redisbloom_8];
    for column in columns {
        let listed = listed(column);
        for shows in SHOWS {
            let wrong = kind("BF.MADD k a b", shows, "[1]", "[3]");
            assert!(!listed.contains(&wrong), "{wrong:?}");
        }
        assert!(listed.contains(&kind("BF.RESERVE k 0.01 1 9", SHOWS[3], "[2]", "[9]")));
    }
}

#[test]
fn every_difference_from_redisbloom_is_in_the_page() {
    let Some(path) = peer("every_difference_from_redisbloom_is_in_the_page") else {
        return;
    };
    let (ours, theirs) = (Server::start(), redisbloom(&path));
    let column = column_of(&mut theirs.client());
    let listed = listed(column);
    // Of two mistakes in one command the servers may name different ones. Both texts must be known.
    let texts = |side: usize| {
        listed
            .iter()
            .flat_map(|kind| [(&kind[0], &kind[side]), (&kind[0], &kind[2])])
            .filter(|(_, text)| text.starts_with("(error)"))
            .collect::<BTreeSet<_>>()
    };
    let (their_texts, own_texts) = (texts(1), texts(2));
    let is_listed = |kind: &[String; 3]| {
        let [name, theirs, own] = kind;
        listed.contains(kind)
            || their_texts.contains(&(name, theirs)) && own_texts.contains(&(name, own))
    };
    let forms = forms();
    let mut unlisted = BTreeMap::new();
    let (mut sent, mut differ) = (0, 0);
    for protocol in Protocol::BOTH {
        let (new, old) = (&mut ours.speak(protocol), &mut theirs.speak(protocol));
        for form in &forms {
            for state in STATES {
                for client in [&mut *new, &mut *old] {
                    client.run("FLUSHALL");
                    state.iter().for_each(|command| drop(client.run(command)));
                }
                let command = String::from_utf8_lossy(&form.join(&b' ')).into_owned();
                let mut note = |earlier: &str, command: &str, there: &Reply, here: &Reply| {
                    sent += 1;
                    if there == here || is_layout(command, there, here) {
                        return;
                    }
                    differ += 1;
                    let kind = kind(earlier, command, &shown(there), &shown(here));
                    if !is_listed(&kind) {
                        let sent = || format!("{state:?} {earlier} {command}");
                        unlisted.entry(kind).or_insert_with(sent);
                    }
                };
                let (there, here) = (old.cmd(form), new.cmd(form));
                note("", &command, &there, &here);
                if there != here && state.is_empty() {
                    // A filter or another value in the key makes further errors possible, and the
                    // two servers find another error first.
                    break;
                }
                for shows in SHOWS {
                    note(&command, shows, &old.run(shows), &new.run(shows));
                }
            }
        }
    }
    println!("{sent} replies, {differ} of them differ");
    assert!(differ > 1_000, "only {differ} of {sent} replies differ");
    assert!(unlisted.is_empty(), "not in docs/reference/differences.md: {unlisted:#?}");
}

/// Whether both replies describe the layout of a filter, which differs always: the size, the lines
/// of BF.DEBUG, the chunks of a dump.
fn is_layout(command: &str, theirs: &Reply, own: &Reply) -> bool {
    if theirs.is_error() || own.is_error() {
        return false;
    }
    let words: Vec<_> = command.split(' ').collect();
    match words[..] {
        ["BF.DEBUG", ..] | ["BF.INFO", _, "size"] => true,
        ["BF.INFO", _] => {
            ["Capacity", "Number of filters", "Number of items inserted", "Expansion rate"]
                .iter()
                .all(|field| theirs.get(field) == own.get(field))
        }
        _ => false,
    }
}
