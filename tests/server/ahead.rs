//! Commands of one item guess the filter behind a name from what it held last (`src/module/ahead.rs`). Names whose filters
//! change hands prove that no answer depends on the guess: BF.MEXISTS, which guesses nothing, answers beside it.

use crate::harness::{Random, Server, int, ok};

/// More than are remembered, so that some share a slot.
const NAMES: usize = 150;

#[test]
fn no_answer_depends_on_what_a_name_held_before() {
    let server = Server::start();
    let client = &mut server.client();
    let mut random = Random::new(5);
    // Larger than 128 KiB but for the last kind: smaller ones are not remembered. One seed for many, another for each.
    let kinds = [
        "0.01 150000 SEED 7",
        "0.0001 80000 SEED 7",
        "0.01 150000",
        "0.01 100",
    ];
    for i in 0..NAMES {
        assert_eq!(client.run(&format!("BF.RESERVE k{i} {}", kinds[i % 4])), ok());
    }
    let mut added = 0;
    for step in 0..6_000 {
        let name = random.below(NAMES);
        match random.below(8) {
            0 => {
                let other = random.below(NAMES);
                client.run(&format!("RENAME k{name} passing"));
                client.run(&format!("RENAME k{other} k{name}"));
                client.run(&format!("RENAME passing k{other}"));
            }
            1 if step % 4 == 0 => {
                client.run(&format!("DEL k{name}"));
                assert_eq!(
                    client.run(&format!("BF.RESERVE k{name} {}", random.pick(&kinds))),
                    ok()
                );
            }
            _ => {}
        }
        // Twice each, so that what the first has remembered serves the second.
        for _ in 0..2 {
            let item = format!("item:{added}");
            added += 1;
            let new = client.run(&format!("BF.ADD k{name} {item}"));
            for item in [&item, "absent"] {
                let alone = client.run(&format!("BF.EXISTS k{name} {item}"));
                let batch = client.run(&format!("BF.MEXISTS k{name} {item}"));
                assert_eq!(
                    std::slice::from_ref(&alone),
                    batch.elements(),
                    "step {step}: {item} in k{name}"
                );
                assert!(
                    item == "absent" || alone == int(1),
                    "step {step}: {item} in k{name}, {new:?}"
                );
            }
        }
    }
}
