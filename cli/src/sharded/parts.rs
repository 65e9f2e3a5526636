//! Which keys belong to a sharded filter, even if its descriptor is incomplete, and what the key of
//! a shard says.

/// The keys of all shards that a descriptor names: of the current and the next generation, of one
/// that is being reserved, and of one that becomes tombstones (descriptor.rs).
pub(crate) fn named_keys<'f>(
    fields: impl IntoIterator<Item = (&'f Vec<u8>, &'f Vec<u8>)>,
) -> Vec<Vec<u8>> {
    let is_key = |field: &[u8]| {
        let number = ["next.", "spare.", "retired."]
            .iter()
            .find_map(|prefix| field.strip_prefix(prefix.as_bytes()))
            .unwrap_or(field);
        !number.is_empty() && number.iter().all(u8::is_ascii_digit)
    };
    let keys = fields.into_iter().filter(|(field, _)| is_key(field));
    let mut keys: Vec<_> = keys.map(|(_, key)| key.clone()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// The name and the generation in the key of a shard, `{<name>:<k>}:<generation>`; `None` for other
/// keys.
pub(crate) fn shard_name(key: &[u8]) -> Option<(&[u8], u64)> {
    let number = |digits: &[u8]| -> Option<u64> { str::from_utf8(digits).ok()?.parse().ok() };
    let close = key.iter().rposition(|&byte| byte == b'}')?;
    let tag = key.get(..close)?.strip_prefix(b"{")?;
    let generation = number(key.get(close..)?.strip_prefix(b"}:")?)?;
    let colon = tag.iter().rposition(|&byte| byte == b':')?;
    number(tag.get(colon + 1..)?)?;
    tag.get(..colon).zip(Some(generation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sharding::Generation;

    #[test]
    fn the_keys_of_shards_are_recognized() {
        for key in Generation::new(b"a:b", 3, 7, 0.1, 1).unwrap().keys {
            assert_eq!(shard_name(&key), Some((&b"a:b"[..], 7)), "{}", key.escape_ascii());
        }
        for key in Generation::new(b"", 1, 1, 0.1, 1).unwrap().keys {
            assert_eq!(shard_name(&key), Some((&b""[..], 1)), "{}", key.escape_ascii());
        }
        for key in ["", "a", "{a}:1", "{a:1}", "{a:1}:", "{a:x}:1", "{a:1}:x", "a:1}:1", "{:}:1"] {
            assert_eq!(shard_name(key.as_bytes()), None, "{key}");
        }
    }
}
