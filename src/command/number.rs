//! Reads numbers from arguments and writes numbers for replies.
//!
//! As strict as the server's own parsers: an integer has no plus sign, no leading zeros and no
//! blanks, so its text is the only text for that number. A float may have an exponent (`1.0E-4`
//! from Java, `1E-05` from .NET) and is never NaN.

use std::str::FromStr;

/// Reads an integer that fits into its type.
pub fn integer<T: FromStr + ToString>(text: &[u8]) -> Option<T> {
    let text = str::from_utf8(text).ok()?;
    let number: T = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// Writes the shortest text that reads back as the same double; below 1e-5 and from 1e15 on with an
/// exponent.
pub fn shortest(number: f64) -> String {
    if (1e-5..1e15).contains(&number.abs()) || number == 0.0 {
        number.to_string()
    } else {
        format!("{number:e}")
    }
}

/// Writes a finite number like C's `%g`: six significant digits without trailing zeros; below 1e-4
/// and from 1e6 on with an exponent of at least two digits.
pub fn six_digits(number: f64) -> String {
    let rounded = format!("{number:.5e}");
    let (digits, exponent) = rounded.split_once('e').unwrap_or((&rounded, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |digits: &str| match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => digits.to_owned(),
    };
    if (-4..6).contains(&exponent) {
        let places = usize::try_from(5 - exponent).unwrap_or(0);
        return trimmed(&format!("{number:.places$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(digits), exponent.unsigned_abs())
}

/// Reads a double that is not NaN. Infinities are accepted; the caller checks the range.
pub fn float(text: &[u8]) -> Option<f64> {
    str::from_utf8(text).ok()?.parse().ok().filter(|number: &f64| !number.is_nan())
}
