//! Numbers as clients send them, and are sent.
//!
//! As strict as the server's own parsers: an integer has no plus sign, no leading zeros, no blanks, so that what is taken
//! is what was written. A float may have an exponent (`1.0E-4` from Java, `1E-05` from .NET), and is never NaN.

use std::str::FromStr;

/// A signed 64-bit integer.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    exact(text)
}

/// An unsigned 64-bit integer.
pub(crate) fn unsigned(text: &[u8]) -> Option<u64> {
    exact(text)
}

fn exact<T: FromStr + ToString>(text: &[u8]) -> Option<T> {
    let text = str::from_utf8(text).ok()?;
    let number: T = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// The shortest text that reads back as the same double, with an exponent where that is the usual way to write it.
pub(crate) fn shortest(number: f64) -> String {
    if (1e-5..1e15).contains(&number.abs()) || number == 0.0 {
        number.to_string()
    } else {
        format!("{number:e}")
    }
}

/// A double that is not NaN; infinities are taken, for the caller's range to refuse.
pub(crate) fn float(text: &[u8]) -> Option<f64> {
    str::from_utf8(text)
        .ok()?
        .parse()
        .ok()
        .filter(|number: &f64| !number.is_nan())
}
