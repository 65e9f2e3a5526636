//! Names of filters and files: any bytes, shown without control sequences for a terminal.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, path::Path};

use crate::sharding::key_slot;
use serde::{Serialize, Serializer, ser::SerializeMap as _};

/// The bytes of a name from the command line.
pub(crate) fn bytes(name: &OsStr) -> &[u8] {
    name.as_bytes()
}

/// The name as text: `\n`, `\u{202e}` and `\xff` instead of what cannot be printed.
pub(crate) fn readable(name: &[u8]) -> String {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\'' | '"' => text.push(character),
                other => text.extend(other.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            text += &format!("\\x{byte:02x}");
        }
    }
    text
}

/// The name of a file as text, like that of a filter.
pub(crate) fn readable_path(path: &Path) -> String {
    readable(bytes(path.as_os_str()))
}

/// The name as a word of a command line that a shell reads, for hints.
pub(crate) fn typed(name: &[u8]) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-./:@%+,=".contains(byte);
    match str::from_utf8(name) {
        Ok(text) if !name.is_empty() && name.iter().all(plain) => text.to_owned(),
        Ok(text) if !text.contains(char::is_control) => {
            format!("'{}'", text.replace('\'', "'\\''"))
        }
        _ => format!("$'{}'", name.escape_ascii()),
    }
}

/// A name in the slot of `name`, so that a node has both: `name:word:K`, with the smallest K that
/// hashes alike. A name with a tag in braces gives its slot to all names that begin with it.
pub(crate) fn beside(name: &[u8], word: &str) -> Vec<u8> {
    let wanted = key_slot(name);
    let named = |number: u64| [name, format!(":{word}:{number}").as_bytes()].concat();
    // One of 16,384 numbers has the slot, so that a million are enough in any case.
    (0..1 << 20).map(named).find(|name| key_slot(name) == wanted).unwrap_or_else(|| named(0))
}

/// Bytes in JSON: the field `name`, or `name_hex` if they are not UTF-8.
#[derive(Debug)]
pub(crate) struct Named<'n> {
    field: &'static str,
    bytes: &'n [u8],
}

impl<'n> Named<'n> {
    /// The name of a filter.
    pub(crate) fn of(name: &'n [u8]) -> Self {
        Self::in_field("name", name)
    }

    pub(crate) fn in_field(field: &'static str, bytes: &'n [u8]) -> Self {
        Self { field, bytes }
    }
}

impl Serialize for Named<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match str::from_utf8(self.bytes) {
            Ok(text) => map.serialize_entry(self.field, text)?,
            Err(_) => {
                let hex: String = self.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                map.serialize_entry(&format!("{}_hex", self.field), &hex)?;
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_without_control_characters() {
        for (name, expected) in [
            (&b"urls:{1}'s \"x\""[..], "urls:{1}'s \"x\""),
            ("münchen".as_bytes(), "münchen"),
            (b"a\nb\x1b[2J\\", "a\\nb\\u{1b}[2J\\\\"),
            ("a\u{202e}b".as_bytes(), "a\\u{202e}b"),
            (b"\xff\x00", "\\xff\\0"),
        ] {
            assert_eq!(readable(name), expected);
        }
    }

    #[test]
    fn names_are_typed_as_a_shell_reads_them() {
        for (name, expected) in [
            (&b"urls:1"[..], "urls:1"),
            (b"", "''"),
            (b"it's {1}", "'it'\\''s {1}'"),
            ("m\u{fc}nchen".as_bytes(), "'m\u{fc}nchen'"),
            (b"a\n'", "$'a\\n\\''"),
            (b"\xff", "$'\\xff'"),
        ] {
            assert_eq!(typed(name), expected);
        }
    }

    #[test]
    fn names_beside_have_the_slot_of_the_filter() {
        for name in ["urls", "{urls:1}:2", "a{b", "a}b", "{}a", "a{}b{c}", "{", "", "x{y}z", "ü"] {
            let found = beside(name.as_bytes(), "restoring");
            assert!(found.starts_with(format!("{name}:restoring:").as_bytes()), "{name}");
            assert_eq!(key_slot(&found), key_slot(name.as_bytes()), "{name}");
        }
        assert_eq!(beside(b"{urls:1}:2", "wait"), b"{urls:1}:2:wait:0");
    }
}
