//! BF.* replies as values, for tests of what a filter holds rather than of the protocol.

use super::client::Client;
use super::reply::Reply;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    pub capacity: i64,
    pub size: i64,
    pub filters: i64,
    pub items: i64,
    /// `None` for a non-scaling filter.
    pub expansion: Option<i64>,
}

/// The fields of BF.DEBUG for one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layer {
    pub bytes: i64,
    pub bits: i64,
    pub hashes: i64,
    pub hash_width: i64,
    pub capacity: i64,
    pub size: i64,
    pub ratio: f64,
}

#[track_caller]
pub fn info(client: &mut Client, key: &str) -> Info {
    let reply = client.cmd(&["BF.INFO", key]);
    let field = |name: &str| {
        reply.get(name).unwrap_or_else(|| panic!("BF.INFO has no {name:?}: {reply:?}"))
    };
    Info {
        capacity: field("Capacity").int(),
        size: field("Size").int(),
        filters: field("Number of filters").int(),
        items: field("Number of items inserted").int(),
        expansion: match field("Expansion rate") {
            Reply::Null => None,
            rate => Some(rate.int()),
        },
    }
}

/// Sends BF.DEBUG for a filter that exists; returns the item count of the first line, and the
/// layers, oldest first.
#[track_caller]
pub fn layers(client: &mut Client, key: &str) -> (i64, Vec<Layer>) {
    let reply = client.cmd(&["BF.DEBUG", key]);
    let mut lines = reply.elements().iter().map(Reply::text);
    let first = lines.next().unwrap_or_else(|| panic!("BF.DEBUG is empty"));
    let items = first.strip_prefix("size:").and_then(|count| count.parse().ok());
    (
        items.unwrap_or_else(|| panic!("first line of BF.DEBUG: {first:?}")),
        lines.map(|line| layer(&line)).collect(),
    )
}

/// Reads `bytes:N bits:N hashes:N hashwidth:64 capacity:N size:N ratio:%g`; ignores later words.
#[track_caller]
fn layer(line: &str) -> Layer {
    let mut words = line.split_whitespace();
    let mut field = |name: &str| {
        let word = words.next().and_then(|word| word.strip_prefix(name)?.strip_prefix(':'));
        word.unwrap_or_else(|| panic!("{name} is not at its place in the BF.DEBUG line {line:?}"))
            .to_owned()
    };
    let whole = |text: String| {
        text.parse().unwrap_or_else(|_| panic!("not a number: {text:?} in {line:?}"))
    };
    Layer {
        bytes: whole(field("bytes")),
        bits: whole(field("bits")),
        hashes: whole(field("hashes")),
        hash_width: whole(field("hashwidth")),
        capacity: whole(field("capacity")),
        size: whole(field("size")),
        ratio: field("ratio")
            .parse()
            .unwrap_or_else(|_| panic!("the ratio in {line:?} is not a number")),
    }
}

/// DEBUG DIGEST-VALUE of a key. Two filters have equal digests only if all numbers and bits of them
/// are equal.
#[track_caller]
pub fn digest(client: &mut Client, key: &str) -> String {
    client.cmd(&["DEBUG", "DIGEST-VALUE", key]).elements()[0].text()
}

/// Sends BF.MADD in batches of 1,000; returns for each item whether it was new.
#[track_caller]
pub fn madd<A: AsRef<[u8]>>(client: &mut Client, key: &str, items: &[A]) -> Vec<bool> {
    batches(client, "BF.MADD", key, items)
}

/// Sends BF.MEXISTS in batches of 1,000; returns for each item whether it may be in the filter.
#[track_caller]
pub fn mexists<A: AsRef<[u8]>>(client: &mut Client, key: &str, items: &[A]) -> Vec<bool> {
    batches(client, "BF.MEXISTS", key, items)
}

#[track_caller]
fn batches<A: AsRef<[u8]>>(
    client: &mut Client,
    command: &str,
    key: &str,
    items: &[A],
) -> Vec<bool> {
    let mut answers = Vec::with_capacity(items.len());
    for batch in items.chunks(1000) {
        let reply = client.call(command, key, batch);
        assert_eq!(reply.elements().len(), batch.len(), "{command} {key}: one answer per item");
        answers.extend(reply.answers());
    }
    answers
}

/// The answers of BF.BULKADD or BF.BULKEXISTS, of which none is an error.
#[track_caller]
pub fn bits(reply: &Reply) -> Vec<bool> {
    let [count, bits] = reply.elements() else { panic!("not two elements: {reply:?}") };
    let count = usize::try_from(count.int()).expect("a count of items");
    let bytes = bits.clone().payload();
    assert_eq!(bytes.len(), count.div_ceil(8), "{reply:?}");
    let mut bits = bytes.iter().flat_map(|byte| (0..8).map(move |at| byte << at & 0x80 != 0));
    let answers = bits.by_ref().take(count).collect();
    assert!(!bits.any(|unused| unused), "an unused bit is 1: {reply:?}");
    answers
}

/// Returns `count` different items: `prefix-0`, `prefix-1`, …
pub fn numbered(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}-{number}")).collect()
}

/// Adds `prefix-0`, `prefix-1`, … until an error refuses one; returns the items before it and the
/// error. Panics after a million items.
#[track_caller]
pub fn add_until_refused(client: &mut Client, key: &str, prefix: &str) -> (Vec<String>, String) {
    let mut added = numbered(prefix, 1_000_000);
    for start in (0..added.len()).step_by(100) {
        let reply = client.call("BF.MADD", key, &added[start..start + 100]);
        let answers = reply.elements();
        if let Some(last) = answers.last().filter(|last| last.is_error()) {
            added.truncate(start + answers.len() - 1);
            return (added, last.error().to_owned());
        }
    }
    panic!("{key} refuses no item")
}

/// Adds `prefix-0`, `prefix-1`, … until the filter counts exactly `card` items; returns all items
/// that were added. Their number may exceed `card`, because a false positive is not counted. Panics
/// if the filter is saturated: then it counts no further items.
#[track_caller]
pub fn add_until_card(client: &mut Client, key: &str, prefix: &str, card: i64) -> Vec<String> {
    let wanted = usize::try_from(card).expect("a count of items");
    let most = 20 * wanted + 1_000;
    let mut now = usize::try_from(client.cmd(&["BF.CARD", key]).int()).expect("a count of items");
    let mut tried = Vec::new();
    while now < wanted {
        assert!(
            tried.len() < most,
            "{key} counts {now} items after {most} additions: it is saturated"
        );
        // A batch of the missing number of items cannot exceed `card`.
        let batch = 1_000.min(wanted - now);
        let items: Vec<_> =
            (tried.len()..tried.len() + batch).map(|number| format!("{prefix}-{number}")).collect();
        now += madd(client, key, &items).iter().filter(|&&new| new).count();
        tried.extend(items);
    }
    tried
}
