//! Names of filters and files: any bytes, shown without what a terminal would obey.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, path::Path};

use bloom::sharding::key_slot;
use serde::Serialize;

/// The bytes of a name from the command line.
pub(crate) fn bytes(name: &OsStr) -> &[u8] {
    name.as_bytes()
}

/// The name as text: `\n`, `\u{202e}` and `\xff` in place of what cannot be printed.
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

/// A name in JSON: `"name"`, or `"name_hex"` if it is not UTF-8.
#[derive(Debug, Serialize)]
pub(crate) struct Named<'n> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'n str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_hex: Option<String>,
}

impl<'n> Named<'n> {
    pub(crate) fn of(name: &'n [u8]) -> Self {
        let (name, name_hex) = text_or_hex(name);
        Self { name, name_hex }
    }
}

/// A key of a server in JSON: `"key"`, or `"key_hex"` if it is not UTF-8.
#[derive(Debug, Serialize)]
pub(crate) struct Key<'k> {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'k str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
}

impl<'k> Key<'k> {
    pub(crate) fn of(key: &'k [u8]) -> Self {
        let (key, key_hex) = text_or_hex(key);
        Self { key, key_hex }
    }
}

fn text_or_hex(bytes: &[u8]) -> (Option<&str>, Option<String>) {
    match str::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(_) => (None, Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())),
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
