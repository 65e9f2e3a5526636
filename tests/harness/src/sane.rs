//! Checks of a server that received damaged bytes: it still runs, and every value that it accepted
//! behaves as a filter.

use std::time::{Duration, Instant};

use super::bloom::numbered;
use super::client::Client;
use super::pieces::dump;
use super::reply::{Reply, bulk, int, null};
use super::server::Server;
use super::wait::wait_until;

/// Time limit of all checks of one filter. They take milliseconds; the limit allows for a busy
/// machine, and for AddressSanitizer, which marks each page of a layer of 10 GB.
const AT_ONCE: Duration = Duration::from_secs(60);

/// Words that are in a log only after a crash or a panic.
const CRASHES: [&str; 6] = [
    "panic",
    "BUG REPORT",
    "crashed by signal",
    "Segmentation",
    "ASSERTION FAILED",
    "Out Of Memory",
];

/// Asserts that the server answers and that its log shows no crash.
#[track_caller]
pub fn assert_unharmed(server: &Server) {
    server.client().assert_in_step();
    assert_no_crash(&server.log());
}

#[track_caller]
pub fn assert_no_crash(log: &str) {
    for crash in CRASHES {
        assert!(!log.contains(crash), "the log shows a crash ({crash}):\n{log}");
    }
}

/// Waits until all other connections are closed and nothing is left to free; returns `used_memory`,
/// which then includes no buffers of other connections.
#[track_caller]
pub fn settled_memory(server: &Server) -> i64 {
    let mut used = 0;
    wait_until("the other connections are closed", || {
        // The server gives other buffers to a connection that is some seconds old.
        let mut client = server.client();
        let settled = client.run("CLIENT LIST TYPE normal").text().lines().count() == 1
            && client.memory("lazyfree_pending_objects") == 0;
        used = client.memory("used_memory");
        settled
    });
    used
}

/// Asserts that every command answers for the filter, whatever its origin, and that the answers are
/// consistent. Deletes the key.
#[track_caller]
pub fn assert_sane(client: &mut Client, key: &str, what: &str) {
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
        // A half-loaded filter answers with this error until its last chunk arrives.
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
            assert!(reply.answers().iter().all(|&there| there), "{what}: an added item is missing");
        }
        let more = client.cmd(&["BF.CARD", key]).int();
        // A window may forget.
        let forgets = client.cmd(&["BF.INFO", key, "GENERATIONS"]).elements()[0] != null();
        assert!(
            if forgets { more >= 0 } else { more >= card.int() },
            "{what}: the count went from {card:?} to {more}"
        );
        let counts = client.cmd(&["BF.INFO", key, "SATURATED"]).elements()[0] != null();
        if counts && !there.is_empty() {
            let deleted = client.call("BF.DEL", key, &there).answers();
            assert_eq!(deleted.len(), there.len(), "{what}: BF.DEL");
            assert!(client.cmd(&["BF.CARD", key]).int() >= 0, "{what}");
        }
    }
    client.assert_in_step();
    assert_eq!(client.cmd(&["DEL", key, "twin"]), int(2), "{what}");
    assert!(begin.elapsed() < AT_ONCE, "{what}: the answers took {:?}", begin.elapsed());
    assert_eq!(client.cmd(&["ECHO", "in step"]), bulk("in step"), "{what}");
}
