//! Too few or too many arguments: the error is the server's own, with the command in lower case.

use crate::harness::{Protocol, Server, check, err, listed};

/// Calls with a wrong number of words that the arity of the command allows.
const WITHIN_THE_ARITY: [&str; 9] = [
    "bf.insert k NOCREATE ITEMS",
    "bf.bulkadd k LINES x x",
    "bf.bulkadd k WIDTH 1",
    "bf.bulkadd k NOCREATE COUNTING",
    "bf.bulkadd k NOCREATE LINES",
    "bf.bulkexists k LINES x x",
    "bf.bulkexists k WIDTH 1",
    "bf.info k ITEMS x",
    "bf.info k CAPACITY ITEMS",
];

#[test]
fn the_wrong_number_of_arguments_is_refused() {
    let server = Server::start();
    let mut lines: Vec<_> = WITHIN_THE_ARITY.map(str::to_owned).to_vec();
    let client = &mut server.client();
    for name in listed(client) {
        let info = client.cmd(&["COMMAND", "INFO", &name]);
        let arity = info.elements()[0].elements()[1].int();
        let least = usize::try_from(arity.abs()).expect("a small number");
        // A command with a fixed number of words is also called with one word more.
        let more = (arity > 0).then_some(least + 1);
        lines.extend((1..least).chain(more).map(|words| name.clone() + &" 1".repeat(words - 1)));
    }
    for protocol in Protocol::BOTH {
        let client = &mut server.speak(protocol);
        for line in &lines {
            let name = line.split(' ').next().unwrap_or_default();
            let text = err(&format!("ERR wrong number of arguments for '{name}' command"));
            let upper = line.replacen(name, &name.to_uppercase(), 1);
            check(client, &[(line.as_str(), text.clone()), (&upper, text)]);
        }
    }
}
