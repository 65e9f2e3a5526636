//! Too few or too many arguments: the server's own text with the command's name in lower case.

use crate::harness::{Protocol, Server, check, err};

#[test]
fn the_wrong_number_of_arguments_is_refused() {
    let server = Server::start();
    let wrong = [
        // The longest form has ten words: key, rate, capacity, EXPANSION n, NONSCALING, SEED s,
        // COUNTING, and its name.
        (
            "bf.reserve",
            &["", "k", "k 0.01", "k 0.01 100 EXPANSION 0 NONSCALING SEED 1 COUNTING x"][..],
        ),
        ("bf.add", &["", "k", "k a b"]),
        ("bf.madd", &["", "k"]),
        ("bf.insert", &["", "k", "k ITEMS"]),
        ("bf.exists", &["", "k", "k a b"]),
        ("bf.del", &["", "k"]),
        ("bf.count", &["", "k", "k a b"]),
        ("bf.mexists", &["", "k"]),
        ("bf.info", &["", "k ITEMS x", "k CAPACITY ITEMS"]),
        ("bf.card", &["", "k x"]),
        ("bf.debug", &["", "k x"]),
        ("bf.scandump", &["", "k", "k 0 x"]),
        ("bf.loadchunk", &["", "k", "k 1", "k 1 data x"]),
        ("bf.load", &["", "k", "k data x"]),
        (
            "bf.import",
            &[
                "",
                "k",
                "k GUAVA",
                "k GUAVA x CAPACITY",
                "k GUAVA x CAPACITY 1",
                "k GUAVA x ERROR 0.1",
                "k BITMAP x",
                "k BITMAP x GUAVA64",
                "k BITMAP x CAPACITY 1",
                "k BITMAP x CAPACITY 1 ERROR",
            ],
        ),
    ];
    for protocol in Protocol::BOTH {
        let client = &mut server.speak(protocol);
        for (command, arguments) in wrong {
            let text = format!("ERR wrong number of arguments for '{command}' command");
            let lower: Vec<_> = arguments.iter().map(|rest| format!("{command} {rest}")).collect();
            let upper: Vec<_> =
                lower.iter().map(|line| line.replace(command, &command.to_uppercase())).collect();
            let rows: Vec<_> =
                lower.iter().chain(&upper).map(|line| (line.as_str(), err(&text))).collect();
            check(client, &rows);
        }
    }
}
