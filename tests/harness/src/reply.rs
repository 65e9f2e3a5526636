//! A reply of a server with its wire type, so that a test can distinguish `:1` from `#t`, and
//! `+Capacity` from a bulk string.
//!
//! It has the RESP2 and RESP3 types of the Redis serialization protocol specification. `decode.rs`
//! reads them from bytes.

use std::fmt;

/// Bytes of a bulk string that a failing test prints; a 1 MB item must not hide the message.
const SHOWN_BYTES: usize = 120;
/// Number of elements of a list that a failing test prints.
const SHOWN_ELEMENTS: usize = 24;

/// A reply as received. `Null` stands for both `$-1` of RESP2 and `_` of RESP3.
#[derive(Clone, PartialEq)]
pub enum Reply {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Null,
    NullArray,
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    Bool(bool),
    Double(f64),
    Set(Vec<Reply>),
    Push(Vec<Reply>),
    Verbatim(String),
    BigNumber(String),
}

impl Reply {
    /// The elements of an array or set; panics on another type.
    #[track_caller]
    pub fn elements(&self) -> &[Reply] {
        match self {
            Reply::Array(elements) | Reply::Set(elements) => elements,
            other => panic!("expected an array, got {other:?}"),
        }
    }

    /// The integer; panics on another type.
    #[track_caller]
    pub fn int(&self) -> i64 {
        match self {
            Reply::Int(value) => *value,
            other => panic!("expected an integer, got {other:?}"),
        }
    }

    /// The bytes of a bulk string; panics on another type.
    #[track_caller]
    pub fn payload(self) -> Vec<u8> {
        match self {
            Reply::Bulk(bytes) => bytes,
            other => panic!("expected bytes, got {other:?}"),
        }
    }

    /// The text of a simple, bulk or verbatim string; panics on another type or on bytes that are
    /// not UTF-8.
    #[track_caller]
    pub fn text(&self) -> String {
        match self {
            Reply::Simple(text) | Reply::Verbatim(text) => text.clone(),
            Reply::Bulk(bytes) => String::from_utf8(bytes.clone()).expect("the reply is text"),
            other => panic!("expected a string, got {other:?}"),
        }
    }

    /// The text of an error; panics on another type.
    #[track_caller]
    pub fn error(&self) -> &str {
        match self {
            Reply::Error(text) => text,
            other => panic!("expected an error, got {other:?}"),
        }
    }

    /// Whether the whole reply is an error (an error inside an array is not).
    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_))
    }

    /// The value under `key` of a map, or of the flat key-value array that RESP2 sends for a map.
    pub fn get(&self, key: &str) -> Option<&Reply> {
        match self {
            Reply::Map(pairs) => {
                pairs.iter().find(|(name, _)| name.text() == key).map(|(_, value)| value)
            }
            Reply::Array(flat) => {
                flat.chunks_exact(2).find(|pair| pair[0].text() == key).map(|pair| &pair[1])
            }
            other => panic!("expected a map, got {other:?}"),
        }
    }

    /// Whether each element is a yes (1 or true); panics on an element that is neither yes nor no
    /// (0 or false).
    #[track_caller]
    pub fn answers(&self) -> Vec<bool> {
        self.elements()
            .iter()
            .map(|element| match element {
                Reply::Int(0) | Reply::Bool(false) => false,
                Reply::Int(1) | Reply::Bool(true) => true,
                other => panic!("expected yes or no, got {other:?}"),
            })
            .collect()
    }
}

pub fn ok() -> Reply {
    simple("OK")
}

pub fn simple(text: &str) -> Reply {
    Reply::Simple(text.to_owned())
}

/// The error of a key whose filter this server could not make.
pub const NO_COPY: &str = "ERR this server could not make its copy of the filter, see its log; do \
                           not delete the key on the primary";

/// An error; the text includes the code.
pub fn err(text: &str) -> Reply {
    Reply::Error(text.to_owned())
}

pub fn int(value: i64) -> Reply {
    Reply::Int(value)
}

pub fn bulk(text: impl AsRef<[u8]>) -> Reply {
    Reply::Bulk(text.as_ref().to_vec())
}

/// A null value, not a null array.
pub fn null() -> Reply {
    Reply::Null
}

pub fn array(elements: impl IntoIterator<Item = Reply>) -> Reply {
    Reply::Array(elements.into_iter().collect())
}

pub fn ints(values: impl IntoIterator<Item = i64>) -> Reply {
    array(values.into_iter().map(Reply::Int))
}

/// A RESP3 map whose keys are simple strings.
pub fn map<'a>(pairs: impl IntoIterator<Item = (&'a str, Reply)>) -> Reply {
    Reply::Map(pairs.into_iter().map(|(name, value)| (simple(name), value)).collect())
}

impl fmt::Debug for Reply {
    /// Prints a form close to the wire: `:1`, `#t`, `+OK`, `"bytes"`, `[…]`, `{…}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Simple(text) => write!(f, "+{text}"),
            Reply::Error(text) => write!(f, "-{text}"),
            Reply::Int(value) => write!(f, ":{value}"),
            Reply::Bulk(bytes) => {
                let shown = &bytes[..bytes.len().min(SHOWN_BYTES)];
                write!(f, "\"{}\"", shown.escape_ascii())?;
                if bytes.len() > SHOWN_BYTES {
                    write!(f, "… ({} bytes)", bytes.len())
                } else {
                    Ok(())
                }
            }
            Reply::Null => f.write_str("null"),
            Reply::NullArray => f.write_str("null array"),
            Reply::Array(elements) => list(f, "", elements),
            Reply::Map(pairs) => {
                f.debug_map().entries(pairs.iter().map(|(name, value)| (name, value))).finish()
            }
            Reply::Bool(value) => f.write_str(if *value { "#t" } else { "#f" }),
            Reply::Double(value) => write!(f, ",{value}"),
            Reply::Set(elements) => list(f, "~", elements),
            Reply::Push(elements) => list(f, ">", elements),
            Reply::Verbatim(text) => write!(f, "={text}"),
            Reply::BigNumber(digits) => write!(f, "({digits}"),
        }
    }
}

/// Prints at most `SHOWN_ELEMENTS` elements of a list.
fn list(f: &mut fmt::Formatter<'_>, sign: &str, elements: &[Reply]) -> fmt::Result {
    f.write_str(sign)?;
    f.debug_list().entries(elements.iter().take(SHOWN_ELEMENTS)).finish()?;
    if elements.len() > SHOWN_ELEMENTS {
        write!(f, "… ({} elements)", elements.len())
    } else {
        Ok(())
    }
}
