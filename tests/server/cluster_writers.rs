//! Clients that write to a cluster while something happens to it, and what they were told is in.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::harness::{ClusterClient, Reply, wait_until};

/// Items that were acknowledged, by key.
pub(crate) type Told = Vec<(String, Vec<String>)>;

#[track_caller]
pub(crate) fn assert_all_there(client: &mut ClusterClient, told: &Told) {
    for (key, items) in told {
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

/// What a test and its writers tell each other.
#[derive(Default)]
pub(crate) struct Writing {
    /// Additions that were acknowledged so far.
    acknowledged: AtomicUsize,
    over: AtomicBool,
}

impl Writing {
    /// Waits until the writers have been told of so many more additions, however slow the machine
    /// is.
    #[track_caller]
    pub(crate) fn wait_for_more(&self, count: usize) {
        let goal = self.acknowledged.load(Relaxed) + count;
        wait_until("the clients write", || self.acknowledged.load(Relaxed) >= goal);
    }
}

/// Tells writers to stop when it goes, also in a test that fails: nobody would wait for its writers
/// else.
pub(crate) struct Stop<'a>(pub(crate) &'a Writing);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Relaxed);
    }
}

/// Adds to the keys, one after another, until told to stop; what was acknowledged, by a replica too
/// if that is asked.
pub(crate) fn write(
    mut client: ClusterClient,
    name: &str,
    keys: &[String],
    replicated: bool,
    writing: &Writing,
) -> (Told, ClusterClient) {
    let mut told: Told = keys.iter().map(|key| (key.clone(), Vec::new())).collect();
    let mut number = 0;
    while !writing.over.load(Relaxed) {
        let at = number % keys.len();
        let (key, items) = &mut told[at];
        let item = format!("{name}-{number}");
        number += 1;
        let reply = client.call(key, &["BF.ADD", key, &item]);
        assert!(matches!(reply, Reply::Int(0 | 1)), "BF.ADD {key} {item}: {reply:?}");
        if !replicated || client.wait(key) >= 1 {
            items.push(item);
            writing.acknowledged.fetch_add(1, Relaxed);
        }
    }
    (told, client)
}
