//! Packed batches: all items of a command in one string, all answers in a string of bits.
//! docs/reference/commands.md has the format LENGTHS, at BF.BULKADD.

use redis::{Cmd, ConnectionLike, RedisResult, cmd};

/// Items of a command, a multiple of 8, so that the bits of batches follow each other.
const BATCH: usize = 10_000;

/// The answers of a batch, in the order of the items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// How many items were answered.
    pub count: usize,
    /// The most significant bit of byte 0 is the answer for item 0; unused bits are 0.
    pub bits: Vec<u8>,
}

impl Answers {
    /// The answers as booleans.
    pub fn iter(&self) -> impl Iterator<Item = bool> {
        (0..self.count).map(|i| self.bits[i / 8] & (0x80 >> (i % 8)) != 0)
    }

    /// How many answers are yes.
    pub fn ones(&self) -> u64 {
        self.bits.iter().map(|byte| u64::from(byte.count_ones())).sum()
    }
}

/// Of replies to batches: redis-rs makes an error behind the answers the error of the call.
impl FromIterator<(usize, Vec<u8>)> for Answers {
    fn from_iter<T: IntoIterator<Item = (usize, Vec<u8>)>>(replies: T) -> Self {
        let mut all = Answers::default();
        for (count, bits) in replies {
            all.count += count;
            all.bits.extend(bits);
        }
        all
    }
}

/// Items with their lengths in front: the format LENGTHS.
pub fn pack(items: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Vec<u8> {
    let mut packed = Vec::new();
    for item in items {
        let item = item.as_ref();
        let mut rest = item.len();
        while rest > 127 {
            packed.push((rest & 127) as u8 | 128);
            rest >>= 7;
        }
        packed.push(rest as u8);
        packed.extend(item);
    }
    packed
}

/// A function for blocking connections, and its twin for those of tokio.
macro_rules! twins {
    ($(#[$does:meta])* $sync:ident, $tokio:ident($command:literal $(, $options:ident)?)) => {
        $(#[$does])*
        pub fn $sync(
            redis: &mut impl ConnectionLike,
            key: &str,
            items: impl IntoIterator<Item = impl AsRef<[u8]>>,
            $($options: &[&str],)?
        ) -> RedisResult<Answers> {
            let options = <[&[&str]]>::concat(&[$($options)?]);
            batches($command, key, items, &options).map(|batch| batch.query(redis)).collect()
        }

        #[doc = concat!("[`", stringify!($sync), "`] for tokio.")]
        #[cfg(feature = "tokio")]
        pub async fn $tokio(
            redis: &mut (impl redis::aio::ConnectionLike + Send),
            key: &str,
            items: impl IntoIterator<Item = impl AsRef<[u8]>>,
            $($options: &[&str],)?
        ) -> RedisResult<Answers> {
            let options = <[&[&str]]>::concat(&[$($options)?]);
            let mut replies = Vec::new();
            for batch in batches($command, key, items, &options) {
                replies.push(batch.query_async(redis).await?);
            }
            Ok(replies.into_iter().collect())
        }
    };
}

twins! {
    /// Adds items; of each whether it was new. `options` are words of BF.INSERT, such as
    /// "NOCREATE". If it fails, some items may be in: send all again, but not to a COUNTING filter.
    add, aadd("BF.BULKADD", options)
}

twins! {
    /// Of each item whether it was probably added; no is certain.
    exists, aexists("BF.BULKEXISTS")
}

fn batches(
    command: &str,
    key: &str,
    items: impl IntoIterator<Item = impl AsRef<[u8]>>,
    options: &[&str],
) -> impl Iterator<Item = Cmd> {
    let mut items = items.into_iter();
    std::iter::from_fn(move || {
        let packed = pack(items.by_ref().take(BATCH));
        let batch = || cmd(command).arg(key).arg(options).arg("LENGTHS").arg(&packed).to_owned();
        (!packed.is_empty()).then(batch)
    })
}
