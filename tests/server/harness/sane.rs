//! What must hold of a server that was given bad bytes: it lives, and whatever it accepted behaves
//! as a filter.

use std::time::{Duration, Instant};

use super::bloom::numbered;
use super::client::Client;
use super::pieces::dump;
use super::reply::{Reply, bulk, int, null};
use super::server::Server;
use super::wait::wait_until;

/// A filter of a few layers answers all of this in milliseconds; one that hangs never does.
/// Generous, for a busy machine.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Words that a log holds only after a crash or a panic.
const CRASHES: [&str; 6] = [
    "panic",
    "BUG REPORT",
    "crashed by signal",
    "Segmentation",
    "ASSERTION FAILED",
    "Out Of Memory",
];

/// The server is alive, and its log knows of no crash.
#[track_caller]
pub(crate) fn assert_unharmed(server: &Server) {
    server.client().assert_in_step();
    assert_no_crash(&server.log());
}

/// The log knows of no crash.
#[track_caller]
pub(crate) fn assert_no_crash(log: &str) {
    for crash in CRASHES {
        assert!(!log.contains(crash), "the log tells of a crash ({crash}):\n{log}");
    }
}

/// `used_memory` once all other connections, whose buffers it counts, are closed, and nothing is
/// left to free.
#[track_caller]
pub(crate) fn settled_memory(server: &Server) -> i64 {
    let mut client = server.client();
    wait_until("the other connections are closed", || {
        client.run("CLIENT LIST TYPE normal").text().lines().count() == 1
            && client.memory("lazyfree_pending_objects") == 0
    });
    client.memory("used_memory")
}

/// Every command answers for a filter that came from anywhere, and its answers fit together.
#[track_caller]
pub(crate) fn assert_sane(client: &mut Client, key: &str, what: &str) {
    let begin = Instant::now();
    assert_eq!(client.cmd(&["TYPE", key]).text(), "MBbloom--", "{what}");
    let card = client.cmd(&["BF.CARD", key]);
    let questions = [
        vec!["BF.INFO", key],
        vec!["BF.DEBUG", key],
        vec!["BF.EXISTS", key, "a"],
        vec!["BF.MEXISTS", key, "a", "b"],
        vec!["MEMORY", "USAGE", key],
        vec!["OBJECT", "ENCODING", key],
        vec!["DEBUG", "DIGEST-VALUE", key],
    ];
    let replies = client.pipeline(&questions);
    assert_eq!(client.cmd(&["COPY", key, "twin", "REPLACE"]), int(1), "{what}");
    let saved = client.cmd(&["DUMP", key]);
    assert_eq!(client.run("DUMP twin"), saved, "{what}");
    let Reply::Bulk(payload) = saved else { panic!("{what}: DUMP answered {saved:?}") };
    let restored = client.call("RESTORE", "twin", &[b"0", &payload[..], b"REPLACE"]);
    assert!(!restored.is_error(), "{what}: its own payload is refused: {restored:?}");
    if let Reply::Error(text) = card {
        // Half a filter: it says so to every question, and the next chunk would go on.
        assert_eq!(text, "ERR filter is being loaded by BF.LOADCHUNK", "{what}");
        assert!(client.cmd(&["BF.ADD", key, "a"]).is_error(), "{what}");
    } else {
        assert!(card.int() >= 0, "{what}: BF.CARD {card:?}");
        for (question, reply) in questions.iter().zip(replies) {
            assert!(!reply.is_error(), "{what}: {question:?} answered {reply:?}");
        }
        dump(client, key);
        let reply = client.call("BF.MADD", key, &numbered("sane", 300));
        let (last, answered) = reply.elements().split_last().expect("an answer");
        let refused = matches!(last, Reply::Error(_));
        let there = numbered("sane", answered.len() + usize::from(!refused));
        if !there.is_empty() {
            let reply = client.call("BF.MEXISTS", key, &there);
            assert!(reply.answers().iter().all(|&there| there), "{what}: what was added is there");
        }
        let more = client.cmd(&["BF.CARD", key]).int();
        assert!(more >= card.int(), "{what}: the count went from {card:?} to {more}");
        let counts = client.cmd(&["BF.INFO", key, "SATURATED"]).elements()[0] != null();
        if counts && !there.is_empty() {
            let deleted = client.call("BF.DEL", key, &there).answers();
            assert_eq!(deleted.len(), there.len(), "{what}: BF.DEL");
            assert!(client.cmd(&["BF.CARD", key]).int() >= 0, "{what}");
        }
    }
    client.assert_in_step();
    assert_eq!(client.cmd(&["DEL", key, "twin"]), int(2), "{what}");
    assert!(begin.elapsed() < AT_ONCE, "{what}: it answers, but takes {:?}", begin.elapsed());
    assert_eq!(client.cmd(&["ECHO", "in step"]), bulk("in step"), "{what}");
}
