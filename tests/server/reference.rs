//! Compares docs/reference with the module: the sections of commands.md with COMMAND DOCS, the
//! texts of errors.md with `src/command/refusal.rs`, the tables of settings.md and metrics.md with
//! what a server shows. Other tests do this for differences.md, for the console sessions
//! (`documentation.rs`) and for cli.md.

use std::{collections::BTreeSet, fs, path::Path};

use crate::harness::{
    Client, REDISBLOOMS, Reply, Server, commands, config_name, listed, ok, version,
};

/// The text of a file of this repository.
#[track_caller]
fn text(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rows of the tables of a part of a page, without their heads.
fn rows(part: &str) -> Vec<Vec<String>> {
    let lines: Vec<&str> = part.lines().collect();
    let is_row = |line: &str| line.starts_with('|');
    let mut rows = Vec::new();
    for (number, line) in lines.iter().enumerate().filter(|(_, line)| is_row(line)) {
        let is_head = lines.get(number + 1).is_some_and(|next| next.starts_with("|---"));
        if !is_head && !line.starts_with("|---") {
            let cells = line.trim_matches('|').split(" | ");
            rows.push(cells.map(|cell| cell.trim().to_owned()).collect());
        }
    }
    rows
}

/// The part of a page below a heading, up to the next heading of its level or a higher one.
#[track_caller]
fn below<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, rest) =
        page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("{heading}"));
    let level = heading.find(' ').expect("a level");
    let ends = (1..=level).filter_map(|level| rest.find(&format!("\n{} ", "#".repeat(level))));
    &rest[..ends.min().unwrap_or(rest.len())]
}

/// The texts in backticks.
fn spans(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn texts(reply: &Reply) -> Vec<String> {
    reply.elements().iter().map(Reply::text).collect()
}

// --- commands.md --------------------------------------------------------------------------------

/// An argument of COMMAND DOCS as the page writes it.
fn syntax(argument: &Reply) -> String {
    let field = |name: &str| argument.get(name).map(Reply::text);
    let parts = |separator: &str| {
        let parts = argument.get("arguments").expect("the parts").elements();
        parts.iter().map(syntax).collect::<Vec<_>>().join(separator)
    };
    let flags = argument.get("flags").map(texts).unwrap_or_default();
    let is = |flag: &str| flags.iter().any(|known| known == flag);
    let kind = field("type").expect("a type");
    let mut shown = match kind.as_str() {
        "pure-token" => String::new(),
        "block" => parts(" "),
        "oneof" if is("optional") => parts(" | "),
        "oneof" => format!("<{}>", parts(" | ")),
        _ => field("name").expect("a name"),
    };
    if let Some(token) = field("token") {
        shown = format!("{token} {shown}").trim_end().to_owned();
    }
    if is("multiple") {
        shown = format!("{shown} [{shown} ...]");
    }
    if is("optional") { format!("[{shown}]") } else { shown }
}

#[test]
fn each_section_states_what_the_server_knows_of_the_command() {
    let server = Server::start();
    let client = &mut server.resp3();
    let page = text("docs/reference/commands.md");
    let mut sections = Vec::new();
    for section in page.split("\n## ").filter(|section| section.starts_with("BF.")) {
        let (title, below) = section.split_once('\n').expect("a heading");
        let name = title.to_lowercase();
        let reply = client.cmd(&["COMMAND", "DOCS", &name]);
        let docs = reply.get(&name).unwrap_or_else(|| panic!("no docs of {name}"));

        let indented = below.lines().skip(1).take_while(|line| line.starts_with("    "));
        let shown: Vec<_> = indented.flat_map(str::split_whitespace).collect();
        let arguments = docs.get("arguments").expect("arguments").elements();
        let expected: Vec<_> = arguments.iter().map(syntax).collect();
        assert_eq!(shown.join(" "), format!("{title} {}", expected.join(" ")), "the syntax");

        let facts = below.lines().find(|line| line.starts_with("**Since** "));
        let facts = facts.unwrap_or_else(|| panic!("{title} has no line of facts"));
        let fact = |name: &str| {
            let fact = facts.split(" · ").find_map(|fact| fact.strip_prefix(name));
            fact.unwrap_or_else(|| panic!("{title}: no {name}in {facts}")).to_owned()
        };
        assert_eq!(fact("**Since** "), docs.get("since").expect("since").text(), "{title}");
        let (time, complexity) = (fact("**Time** "), docs.get("complexity").expect("time").text());
        let rest =
            complexity.strip_prefix(&time).unwrap_or_else(|| panic!("{title}: {complexity}"));
        assert!(rest.is_empty() || rest.starts_with([',', ';']), "{title}: {complexity}");
        check_permissions(client, &name, &fact("**ACL** "), &fact("**Key** "));

        for part in ["**Reply**", "**Errors**", "```console"] {
            assert!(below.contains(&format!("\n{part}")), "{title} has no {part}");
        }
        sections.push(name);
    }
    sections.sort();
    assert_eq!(sections, listed(client), "sections and commands");
}

/// Servers before Redis 7.2 know no categories of a module, and `bloom` is a module's own.
#[track_caller]
fn check_permissions(client: &mut Client, name: &str, categories: &str, key: &str) {
    let command = commands().find(|command| command.name() == name).expect("a command");
    let expected = match command.flags {
        ["readonly", ..] => "%R~",
        _ if command.key.contains(&"access") => "%RW~",
        _ => "%W~",
    };
    assert_eq!(spans(key)[0], expected, "{name}: the permission of the key");
    let reply = client.cmd(&["COMMAND", "INFO", name]);
    let flags = texts(&reply.elements()[0].elements()[2]);
    let mut shown: BTreeSet<_> = spans(categories).into_iter().collect();
    for (flag, category) in [("write", "@write"), ("readonly", "@read")] {
        let flagged = flags.iter().any(|known| known == flag);
        assert_eq!(shown.contains(category), flagged, "{name}: {category}");
    }
    let redisblooms = REDISBLOOMS.iter().any(|command| command.name() == name);
    assert_eq!(shown.remove("@bloom"), redisblooms, "{name}: @bloom");
    if version().at_least((7, 2), (7, 2)) {
        let known = texts(&reply.elements()[0].elements()[6]).into_iter();
        let known: BTreeSet<_> = known.filter(|category| category != "@bloom").collect();
        assert_eq!(shown, known, "{name}: categories");
    }
}

// --- errors.md ----------------------------------------------------------------------------------

/// The texts of `src/command/refusal.rs`: literals that begin with a code.
fn refusals() -> Vec<String> {
    let source = text("src/command/refusal.rs");
    let (_, code) = source.split_once("\nimpl Refusal {").expect("the texts");
    let mut found = Vec::new();
    for literal in code.split('"').skip(1).step_by(2) {
        // A line that ends in a backslash continues after the blanks of the next one.
        let joined: Vec<_> = literal.split("\\\n").enumerate().collect();
        let part = |(number, part): &(usize, &str)| {
            if *number == 0 { (*part).to_owned() } else { part.trim_start().to_owned() }
        };
        let joined: String = joined.iter().map(part).collect();
        let code = joined.split(' ').next().unwrap_or_default();
        if code.len() > 2 && code.bytes().all(|byte| byte.is_ascii_uppercase()) {
            found.push(joined);
        }
    }
    // The texts of merges stand with their errors.
    let of_merges = found.iter().position(|text| text == "ERR {why}").expect("the text of a merge");
    found.remove(of_merges);
    let before = found.len();
    let source = text("src/filter/error.rs");
    let (_, code) = source.split_once("\npub enum Unmergeable {").expect("the errors");
    let (code, _) = code.split_once("\n}\n").expect("an end");
    let texts = code.split("#[error(\"").skip(1).filter_map(|text| text.split_once("\")]"));
    found.extend(texts.map(|(text, _)| format!("ERR {text}")));
    // Each error has a text that was found, in the place of the one of all merges.
    assert_eq!(found.len() - before, code.matches("#[error(").count());
    found
}

/// Whether `shown` is the text, with anything in the place of each `{...}`.
fn is_text(template: &str, shown: &str) -> bool {
    let mut parts =
        template.split('{').map(|part| part.split_once('}').map_or(part, |(_, end)| end));
    let Some(mut rest) = shown.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut ends_with_value = false;
    for part in parts {
        let Some(place) = rest.find(part).filter(|place| part.is_empty() || *place > 0) else {
            return false;
        };
        ends_with_value = part.is_empty();
        rest = &rest[place + part.len()..];
    }
    rest.is_empty() != ends_with_value
}

/// The first cells of the tables of errors.md: those of the module, and those of the server.
fn errors() -> [Vec<String>; 2] {
    let page = text("docs/reference/errors.md");
    let (own, servers) = page.split_once("\n## Errors of the server\n").expect("the last table");
    [own, servers].map(|part| rows(part).iter().map(|row| spans(&row[0]).remove(0)).collect())
}

#[test]
fn every_error_has_its_row() {
    let (known, [shown, _]) = (refusals(), errors());
    assert!(known.len() > 50, "only {} texts were found", known.len());
    for text in &known {
        let rows = shown.iter().filter(|shown| is_text(text, shown)).count();
        assert_eq!(rows, 1, "docs/reference/errors.md: rows of {text}");
    }
    for shown in &shown {
        assert!(known.iter().any(|text| is_text(text, shown)), "no error of the module: {shown}");
    }
}

#[test]
fn the_errors_of_the_commands_are_in_the_list() {
    let (known, [_, servers]) = (refusals(), errors());
    let mut found = 0;
    for line in text("docs/reference/commands.md").lines() {
        let errors =
            spans(line).into_iter().chain(line.strip_prefix("(error) ").map(str::to_owned));
        for error in errors.filter(|error| error.starts_with("ERR ") || error.starts_with("BUSY")) {
            let listed = known.iter().any(|text| is_text(text, &error)) || servers.contains(&error);
            assert!(listed, "docs/reference/commands.md: {error}");
            found += 1;
        }
    }
    assert!(found > 40, "only {found} errors were found");
}

// --- settings.md --------------------------------------------------------------------------------

#[test]
fn the_table_of_settings_is_what_the_server_has() {
    let server = Server::start();
    let client = &mut server.client();
    let page = text("docs/reference/settings.md");
    let table = rows(page.split("\n## ").next().expect("the first part"));
    let mut shown = BTreeSet::new();
    for row in &table {
        let [short, long, default, range, _] = &row[..] else { panic!("five cells: {row:?}") };
        let [short, long, default] = [short, long, default].map(|cell| spans(cell).remove(0));
        let name = short.strip_prefix("bf.").expect("bf.").to_owned();
        assert_eq!(long, format!("bf-{name}"));
        assert_eq!(client.config_get(&config_name(&name)), Some(default), "{name}");
        let mut set = |value: &str| client.cmd(&["CONFIG", "SET", &config_name(&name), value]);
        if let Some((least, most)) = range.split_once(" to ") {
            let beyond = most.parse::<i128>().expect("a number") + 1;
            let below = least.parse::<i128>().expect("a number") - 1;
            assert_eq!([set(least), set(most)], [ok(), ok()], "{name}: {range}");
            for value in [below, beyond] {
                assert!(set(&value.to_string()).is_error(), "{name}: {value} is not {range}");
            }
        } else if let Some((one, other)) = range.split_once(" or ") {
            assert_eq!([set(one), set(other)], [ok(), ok()], "{name}: {range}");
            assert!(set("maybe").is_error(), "{name}");
        } else {
            let limits: Vec<&str> = range.split(", ").collect();
            for limit in limits {
                let number = limit.rsplit(' ').next().expect("a number");
                assert!(set(number).is_error(), "{name}: {number} is not {range}");
            }
        }
        shown.insert(name);
    }
    // The example has the same names, and a test compares it with CONFIG GET.
    let named = |text: &str, mark: &str| -> BTreeSet<String> {
        let words = text.split(|end: char| end.is_whitespace() || end == '`');
        let words = words.map(|word| word.trim_end_matches([',', ';']));
        let words = words.filter_map(|word| word.strip_prefix(mark));
        words.map(str::to_owned).collect()
    };
    let example = text("redis.conf.example");
    let own = |names: BTreeSet<String>| -> BTreeSet<String> {
        names.into_iter().filter(|name| !name.starts_with("bloom-")).collect()
    };
    assert_eq!(shown, own(named(&example, "bf-")), "settings.md and redis.conf.example");
    assert_eq!(named(&page, "bf.bloom-"), named(&example, "bf.bloom-"), "names of valkey-bloom");
}

#[test]
fn the_load_arguments_of_the_page_are_taken() {
    let page = text("docs/reference/settings.md");
    let mut taken = 0;
    for row in rows(below(&page, "## Load arguments")) {
        for argument in spans(&row[0]).iter().filter(|argument| argument.len() > 3) {
            let setting = spans(&row[1]).remove(0);
            let value = if setting == "layout" { "redisbloom" } else { "0.5" };
            let value = if setting == "initial-size" { "1000" } else { value };
            let server = Server::with().module_arguments(&[argument, value]).start();
            let got = server.client().config_get(&config_name(&setting));
            assert_eq!(got.as_deref(), Some(value), "{argument}");
            taken += 1;
        }
    }
    assert_eq!(taken, 6);
}

// --- metrics.md ---------------------------------------------------------------------------------

#[test]
fn the_page_has_every_field_of_info() {
    let server = Server::start();
    let info = server.client().cmd(&["INFO", "everything"]).text();
    let fields = info.lines().filter_map(|line| line.split_once(':'));
    let known: BTreeSet<_> =
        fields.map(|(name, _)| name).filter(|name| name.starts_with("bf_")).collect();
    let page = text("docs/reference/metrics.md");
    let table = rows(below(&page, "## INFO"));
    let shown: Vec<_> = table.iter().flat_map(|row| spans(&row[0])).collect();
    assert_eq!(shown.iter().map(String::as_str).collect::<BTreeSet<_>>(), known, "INFO");
    assert_eq!(shown.len(), known.len(), "a field has two rows");
}

#[test]
fn the_page_has_every_field_of_bf_info() {
    let server = Server::start();
    let client = &mut server.resp3();
    assert_eq!(client.run("BF.RESERVE k 0.01 100 WINDOW EX 60"), ok());
    client.run("BF.ADD k a");
    let docs = client.run("COMMAND DOCS BF.INFO");
    let docs = docs.get("bf.info").and_then(|docs| docs.get("arguments")).expect("arguments");
    let choice = docs.elements()[1].get("arguments").expect("the words");
    let words: Vec<_> =
        choice.elements().iter().map(|word| word.get("token").expect("a word").text()).collect();
    let page = text("docs/reference/metrics.md");
    let part = below(&page, "## BF.INFO");
    let (table, generations) = part.split_once("\n### Generations\n").expect("the heading");
    let table = rows(table);
    assert_eq!(table.iter().map(|row| spans(&row[0]).remove(0)).collect::<Vec<_>>(), words);
    let labels = |reply: &Reply| -> Vec<String> {
        let Reply::Map(pairs) = reply else { panic!("a map: {reply:?}") };
        pairs.iter().map(|(label, _)| label.text()).collect()
    };
    for (row, word) in table.iter().zip(&words) {
        let reply = client.cmd(&["BF.INFO", "k", word]);
        assert_eq!(labels(&reply), spans(&row[1]), "{word}");
        let value = reply.get(&spans(&row[1])[0]).expect("the value");
        let inner = match word.as_str() {
            "WINDOW" => labels(value),
            "LAYERS" => labels(&value.elements()[0]),
            "GENERATIONS" => {
                let rows = rows(generations).into_iter().map(|row| spans(&row[0]).remove(0));
                assert_eq!(labels(&value.elements()[0]), rows.collect::<Vec<_>>(), "{word}");
                continue;
            }
            _ => continue,
        };
        let named = spans(&row[2]).into_iter().filter(|name| name.starts_with(char::is_uppercase));
        assert_eq!(named.collect::<Vec<_>>(), inner, "{word}");
    }
}

/// The tests of `notifications.rs` show when each is sent.
#[test]
fn the_page_has_every_event() {
    let source = text("src/module/effects.rs");
    let known: BTreeSet<_> = source
        .split("c\"bloom.")
        .skip(1)
        .map(|rest| format!("bloom.{}", rest.split('"').next().unwrap_or_default()))
        .collect();
    let page = text("docs/reference/metrics.md");
    let shown = rows(below(&page, "## Events")).into_iter().map(|row| spans(&row[0]).remove(0));
    assert_eq!(shown.collect::<BTreeSet<_>>(), known, "docs/reference/metrics.md");
}
