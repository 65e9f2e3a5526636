//! What a shard had when it was looked at: which filter it is, and how many items it counted.
//!
//! Items are only added, so a shard that is the same filter and counts no fewer has all that it
//! had. A key that was deleted, evicted, flushed or recreated holds no filter or another one, and
//! an older copy counts fewer items. An older copy that has since taken as many new items as it
//! lacks is not noticed: nothing in a filter shows that.

use crate::sharding::Generation;
use redis::Value;

use crate::{
    connection::Connection,
    error::Error,
    loading::not_shard,
    refusal::Refusal,
    reply::{number, only, text},
    sharded,
};

/// What a shard had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// `BF.INFO key IDENTITY`.
    identity: String,
    /// Items, as BF.CARD counts them.
    items: u64,
}

impl Stamp {
    /// Looks at shard `place` of a generation; `None` if its key does not hold it.
    ///
    /// # Errors
    /// Those of the connection and of the user's rights.
    pub(crate) fn of_shard(
        server: &mut Connection,
        generation: &Generation,
        place: usize,
    ) -> Result<Option<Self>, Error> {
        let Some(shard) = sharded::shard_at(place, generation.keys.len()) else { return Ok(None) };
        let key = &generation.keys[place];
        let Some(own) = ask(server, key, "SHARD")? else { return Ok(None) };
        if not_shard(&own, shard).is_some() {
            return Ok(None);
        }
        let Some(items) = ask(server, key, "ITEMS")? else { return Ok(None) };
        let items = number(only(&items)).ok_or_else(|| Error::reply("BF.INFO", &items))?;
        // The identity is read last: a filter that replaces this one in between has another.
        Ok(identity(server, key)?.map(|identity| Self { identity, items }))
    }

    /// Whether a shard with this stamp has all that it had at an earlier one.
    pub(crate) fn has_all_of(&self, earlier: &Self) -> bool {
        self.identity == earlier.identity && self.items >= earlier.items
    }

    /// The value of a field.
    pub(crate) fn text(&self) -> String {
        format!("{} {}", self.identity, self.items)
    }

    /// Reads the value of a field.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let (identity, items) = str::from_utf8(text).ok()?.split_once(' ')?;
        Some(Self { identity: identity.to_owned(), items: items.parse().ok()? })
    }
}

/// `BF.INFO key IDENTITY`; `None` if there is no filter.
pub(crate) fn identity(server: &mut Connection, key: &[u8]) -> Result<Option<String>, Error> {
    let Some(reply) = ask(server, key, "IDENTITY")? else { return Ok(None) };
    match text(only(&reply)) {
        Some(identity) => Ok(Some(identity.to_owned())),
        None => Err(Error::reply("BF.INFO", &reply)),
    }
}

/// A field of BF.INFO; `None` if there is no filter.
fn ask(server: &mut Connection, key: &[u8], word: &str) -> Result<Option<Value>, Error> {
    match server.call_for_key(redis::cmd("BF.INFO").arg(key).arg(word)) {
        Err(error) if error.refusal().is_some_and(Refusal::is_no_filter) => Ok(None),
        reply => reply.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_has_what_an_earlier_one_of_the_same_filter_had() {
        let stamp = |text: &str| Stamp::parse(text.as_bytes()).expect("a stamp");
        let earlier = stamp("00ff 7");
        assert_eq!(earlier.text(), "00ff 7");
        for (text, has) in
            [("00ff 7", true), ("00ff 8", true), ("00ff 6", false), ("00fe 9", false)]
        {
            assert_eq!(stamp(text).has_all_of(&earlier), has, "{text}");
        }
        for text in ["", "00ff", "00ff x", "00ff -1"] {
            assert_eq!(Stamp::parse(text.as_bytes()), None, "{text}");
        }
    }
}
