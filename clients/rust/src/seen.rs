//! What was seen lately: a filter with a window, which this type creates and fills. And claims:
//! they make sure that a thing is done once.

use std::time::Duration;

use redis::{Cmd, cmd};

use crate::link::{Link, Result, Servers};
use crate::twins::twins;

const TIMEOUT: Duration = Duration::from_secs(1); // for each reply

/// How a filter of seen items works. `SeenOptions::new(capacity)` has the defaults.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SeenOptions {
    /// Different items to expect in 1.25 x `within`, or in all time without `within`.
    pub capacity: u64,
    /// The share of new items that count as seen: 0.001.
    pub error: f64,
    /// For how long an item is remembered; without it, nothing is forgotten.
    pub within: Option<Duration>,
    /// Whether an item that is added again is remembered from then on, not from its first addition
    /// on: yes.
    pub refresh: bool,
    /// How long a claim holds: 10 minutes. If its holder dies, nothing is lost. If its holder takes
    /// longer, another may do the same.
    pub lease: Duration,
}

impl SeenOptions {
    /// The defaults.
    pub fn new(capacity: u64) -> Self {
        let lease = Duration::from_secs(600);
        SeenOptions { capacity, error: 0.001, within: None, refresh: true, lease }
    }
}

struct Core {
    key: String,
    options: SeenOptions,
    link: Link,
}

impl Core {
    fn new(servers: &Servers, name: &str, is_async: bool, options: SeenOptions) -> Result<Self> {
        Ok(Core { key: name.into(), options, link: Link::new(servers, TIMEOUT, is_async)? })
    }

    async fn add<T: AsRef<[u8]>>(&self, item: T) -> Result<bool> {
        Ok(self.add_many([item]).await?[0])
    }

    async fn add_many(&self, items: impl IntoIterator<Item: AsRef<[u8]>>) -> Result<Vec<bool>> {
        let SeenOptions { capacity, error, within, refresh, .. } = self.options;
        // With these words, a filter that is lost is recreated with its window.
        let mut insert = cmd("BF.INSERT");
        insert.arg(&self.key).arg("CAPACITY").arg(capacity).arg("ERROR").arg(error);
        if let Some(within) = within {
            insert.arg("WINDOW").arg("PX").arg(within.as_millis() as u64);
            insert.arg((!refresh).then_some("NOREFRESH"));
        }
        self.send(insert.arg("ITEMS"), items).await
    }

    async fn has<T: AsRef<[u8]>>(&self, item: T) -> Result<bool> {
        Ok(self.has_many([item]).await?[0])
    }

    async fn has_many(&self, items: impl IntoIterator<Item: AsRef<[u8]>>) -> Result<Vec<bool>> {
        self.send(cmd("BF.MEXISTS").arg(&self.key), items).await
    }

    async fn send<T: AsRef<[u8]>>(
        &self,
        command: &mut Cmd,
        items: impl IntoIterator<Item = T>,
    ) -> Result<Vec<bool>> {
        let mut items = items.into_iter().peekable();
        if items.peek().is_none() {
            return Ok(Vec::new());
        }
        for item in items {
            command.arg(item.as_ref());
        }
        self.link.send(command).await
    }

    async fn claim<T: AsRef<[u8]>>(&self, items: impl IntoIterator<Item = T>) -> Result<Vec<T>> {
        let mut mine = Vec::new();
        let known = async {
            for item in items {
                let lease = self.options.lease.as_millis() as u64;
                let words = (self.claim_of(&item), "", "NX", "PX", lease);
                if self.link.send::<Option<String>>(cmd("SET").arg(words)).await?.is_some() {
                    mine.push(item);
                }
            }
            // After the claims: `done` adds the item before it ends the claim.
            self.has_many(&mine).await
        };
        let known = known.await;
        let mut new = Vec::new();
        for (i, item) in mine.into_iter().enumerate() {
            if known.as_ref().is_ok_and(|known| !known[i]) {
                new.push(item);
            } else {
                drop(self.release(item).await); // otherwise it ends with its lease
            }
        }
        known.map(|_| new)
    }

    async fn done<T: AsRef<[u8]>>(&self, item: T) -> Result<()> {
        self.add(&item).await?;
        self.release(item).await
    }

    async fn release<T: AsRef<[u8]>>(&self, item: T) -> Result<()> {
        self.link.query(cmd("UNLINK").arg(self.claim_of(&item))).await?;
        Ok(())
    }

    fn claim_of(&self, item: impl AsRef<[u8]>) -> Vec<u8> {
        [self.key.as_bytes(), b":claim:", item.as_ref()].concat()
    }
}

twins! {
    /// Items seen lately. docs/guide/windows.md says what a window promises.
    Seen, AsyncSeen, new(options: SeenOptions);

    /// Marks an item as seen. Returns whether it was new.
    fn add(&self, item: impl AsRef<[u8]>) -> Result<bool>;
    /// Marks items as seen. Returns for each whether it was new.
    fn add_many(&self, items: impl IntoIterator<Item: AsRef<[u8]>>) -> Result<Vec<bool>>;
    /// Whether the item was seen; no is certain. Nothing changes.
    fn has(&self, item: impl AsRef<[u8]>) -> Result<bool>;
    /// Returns for each item whether it was seen. Nothing changes.
    fn has_many(&self, items: impl IntoIterator<Item: AsRef<[u8]>>) -> Result<Vec<bool>>;
    /// Those of the items that nobody has done or has claimed: they are the caller's now.
    fn claim<T: AsRef<[u8]>>(&self, items: impl IntoIterator<Item = T>) -> Result<Vec<T>>;
    /// Marks a claimed item as seen, after its work is stored, and ends the claim.
    fn done(&self, item: impl AsRef<[u8]>) -> Result<()>;
    /// Ends a claim without marking the item.
    fn release(&self, item: impl AsRef<[u8]>) -> Result<()>;
}
