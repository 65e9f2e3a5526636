//! The patterns of the server's SCAN and KEYS, where the tool must match names itself: the key of a
//! shard is not the name of its filter.

/// A pattern: `*`, `?`, `[a-z]`, `[^a]`, and `\\` before a character that means itself.
#[derive(Clone, Debug)]
pub(crate) struct Glob(Vec<u8>);

impl Glob {
    pub(crate) fn new(pattern: &[u8]) -> Self {
        Self(pattern.to_vec())
    }

    /// Whether the whole name matches.
    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        // The last `*` takes one byte more when what follows it does not match: no other `*` has
        // to be tried again, so the time is at most the product of both lengths.
        let (mut pattern, mut left) = (&self.0[..], name);
        let mut again: Option<(&[u8], &[u8])> = None;
        loop {
            if let Some(rest) = pattern.strip_prefix(b"*") {
                again = Some((rest, left));
                pattern = rest;
                continue;
            }
            let matched = left.split_first().and_then(|(byte, after)| {
                let (fits, rest) = first(pattern, *byte)?;
                fits.then_some((rest, after))
            });
            (pattern, left) = match (matched, again) {
                (Some(both), _) => both,
                _ if pattern.is_empty() && left.is_empty() => return true,
                (None, Some((rest, [_, more @ ..]))) => {
                    again = Some((rest, more));
                    (rest, more)
                }
                (None, _) => return false,
            };
        }
    }
}

/// Whether the first part of the pattern, which is no `*`, fits this byte, and what follows it;
/// `None` at the end of the pattern.
fn first(pattern: &[u8], byte: u8) -> Option<(bool, &[u8])> {
    Some(match pattern {
        [] => return None,
        [b'?', rest @ ..] => (true, rest),
        [b'[', b'^', class @ ..] => {
            let (inside, rest) = in_class(class, byte);
            (!inside, rest)
        }
        [b'[', class @ ..] => in_class(class, byte),
        [b'\\', own, rest @ ..] | [own, rest @ ..] => (*own == byte, rest),
    })
}

/// Whether a byte is in the class behind `[`, and what follows the class. One without `]` reaches
/// to the end, as on the server.
fn in_class(mut class: &[u8], byte: u8) -> (bool, &[u8]) {
    let mut inside = false;
    loop {
        let (low, high, rest) = match class {
            [] => return (inside, class),
            [b']', rest @ ..] => return (inside, rest),
            [b'\\', own, rest @ ..] => (*own, *own, rest),
            [low, b'-', high, rest @ ..] => (*low.min(high), *low.max(high), rest),
            [own, rest @ ..] => (*own, *own, rest),
        };
        inside |= (low..=high).contains(&byte);
        class = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, names, others) in [
            ("*", &["", "a", "urls:1"][..], &[][..]),
            ("urls", &["urls"], &["", "url", "urls:1"]),
            ("urls:*", &["urls:", "urls:1"], &["urls", "aurls:1"]),
            ("*a*b", &["ab", "xaybzb"], &["ba", "abc"]),
            ("?", &["a", "\u{7f}"], &["", "ab"]),
            ("[a-c]x", &["ax", "bx"], &["dx", "x"]),
            ("[^a-c]x", &["dx"], &["ax"]),
            ("[c-a]", &["b"], &["d"]),
            ("\\*", &["*"], &["a", ""]),
            ("[\\]]", &["]"], &["\\"]),
            ("[ab", &["a"], &["c", "[ab"]),
            ("", &[""], &["a"]),
        ] {
            let glob = Glob::new(pattern.as_bytes());
            for name in names {
                assert!(glob.matches(name.as_bytes()), "{pattern} {name}");
            }
            for name in others {
                assert!(!glob.matches(name.as_bytes()), "{pattern} {name}");
            }
        }
        // Not exponential.
        let glob = Glob::new("a*".repeat(200).as_bytes());
        assert!(!glob.matches("b".repeat(10_000).as_bytes()));
        assert!(glob.matches("a".repeat(10_000).as_bytes()));
    }
}
