//! The patterns of the server's SCAN and KEYS, where the tool must match names itself: the key of a
//! shard is not the name of its filter.

/// A pattern: `*`, `?`, `[a-z]`, `[^a]`, and `\\` before a character that means itself.
#[derive(Clone, Debug)]
pub(crate) struct Glob(Vec<Part>);

#[derive(Clone, Debug)]
enum Part {
    /// Any number of any bytes.
    Any,
    /// One byte: each range has its first and its last; `except` inverts them.
    One { ranges: Vec<(u8, u8)>, except: bool },
}

impl Glob {
    pub(crate) fn new(pattern: &[u8]) -> Self {
        let mut parts = Vec::new();
        let mut rest = pattern;
        while let Some((&first, after)) = rest.split_first() {
            rest = after;
            match first {
                b'*' => parts.push(Part::Any),
                b'?' => parts.push(Part::One { ranges: Vec::new(), except: true }),
                b'[' => {
                    let (part, after) = class(rest);
                    parts.push(part);
                    rest = after;
                }
                _ => {
                    let mut byte = first;
                    if first == b'\\'
                        && let Some((&escaped, after)) = rest.split_first()
                    {
                        (byte, rest) = (escaped, after);
                    }
                    parts.push(Part::One { ranges: vec![(byte, byte)], except: false });
                }
            }
        }
        Self(parts)
    }

    /// Whether the whole name matches.
    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        // The last `*` takes one byte more when what follows it does not match: no other `*` has
        // to be tried again, so the time is at most the product of both lengths.
        let (mut part, mut place) = (0, 0);
        let mut again: Option<(usize, usize)> = None;
        loop {
            let fits = match (self.0.get(part), name.get(place)) {
                (None, None) => return true,
                (Some(Part::Any), _) => {
                    again = Some((part, place));
                    part += 1;
                    continue;
                }
                (Some(Part::One { ranges, except }), Some(byte)) => {
                    let inside = ranges.iter().any(|(first, last)| (first..=last).contains(&byte));
                    inside != *except
                }
                _ => false,
            };
            if fits {
                (part, place) = (part + 1, place + 1);
            } else {
                let Some((any, from)) = again else { return false };
                if from >= name.len() {
                    return false;
                }
                again = Some((any, from + 1));
                (part, place) = (any + 1, from + 1);
            }
        }
    }
}

/// The class behind `[`, and what follows it. A class without `]` reaches to the end, as on the
/// server.
fn class(mut rest: &[u8]) -> (Part, &[u8]) {
    let mut ranges = Vec::new();
    let except = rest.first() == Some(&b'^');
    if except {
        rest = rest.get(1..).unwrap_or_default();
    }
    loop {
        match *rest {
            [] => break,
            [b']', ref after @ ..] => {
                rest = after;
                break;
            }
            [b'\\', byte, ref after @ ..] => {
                ranges.push((byte, byte));
                rest = after;
            }
            [first, b'-', last, ref after @ ..] => {
                ranges.push((first.min(last), first.max(last)));
                rest = after;
            }
            [byte, ref after @ ..] => {
                ranges.push((byte, byte));
                rest = after;
            }
        }
    }
    (Part::One { ranges, except }, rest)
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
