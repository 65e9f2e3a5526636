//! Clients that write while a test changes the servers, and the items acknowledged to them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::harness::{ClusterClient, Reply, wait_until};

/// Items that were acknowledged, by key.
pub(crate) type Added = Vec<(String, Vec<String>)>;

#[track_caller]
pub(crate) fn assert_all_there(client: &mut ClusterClient, added: &Added) {
    for (key, items) in added {
        let mut lost = Vec::new();
        for batch in items.chunks(1_000) {
            let words = ["BF.MEXISTS", key].into_iter().chain(batch.iter().map(String::as_str));
            let there = client.call(key, &words.collect::<Vec<_>>()).answers();
            lost.extend(batch.iter().zip(there).filter(|(_, there)| !there).map(|(item, _)| item));
        }
        assert!(
            lost.is_empty(),
            "{} of {} items of {key} are lost: {lost:.5?}",
            lost.len(),
            items.len()
        );
    }
}

/// State that a test and its writers share.
#[derive(Default)]
pub(crate) struct Writing {
    /// Additions acknowledged so far.
    acknowledged: AtomicUsize,
    over: AtomicBool,
}

impl Writing {
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    pub(crate) fn acknowledge(&self) {
        self.acknowledged.fetch_add(1, Relaxed);
    }

    /// Waits until `count` more additions are acknowledged.
    #[track_caller]
    pub(crate) fn wait_for_more(&self, count: usize) {
        let goal = self.acknowledged.load(Relaxed) + count;
        wait_until("the clients write", || self.acknowledged.load(Relaxed) >= goal);
    }
}

/// Stops the writers when it is dropped, also when the test panics: `thread::scope` would wait for
/// them forever.
pub(crate) struct Stop<'a>(pub(crate) &'a Writing);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Relaxed);
    }
}

/// Adds items to the keys in turn until the test stops the writers. Returns the acknowledged items;
/// with `replicated`, those that a replica acknowledged too.
pub(crate) fn write(
    mut client: ClusterClient,
    name: &str,
    keys: &[String],
    replicated: bool,
    writing: &Writing,
) -> (Added, ClusterClient) {
    let mut added: Added = keys.iter().map(|key| (key.clone(), Vec::new())).collect();
    let mut number = 0;
    while !writing.is_over() {
        let at = number % keys.len();
        let (key, items) = &mut added[at];
        let item = format!("{name}-{number}");
        number += 1;
        let reply = client.call(key, &["BF.ADD", key, &item]);
        assert!(matches!(reply, Reply::Int(0 | 1)), "BF.ADD {key} {item}: {reply:?}");
        if !replicated || client.wait(key) >= 1 {
            items.push(item);
            writing.acknowledge();
        }
    }
    (added, client)
}
