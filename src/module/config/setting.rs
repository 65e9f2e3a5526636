//! A setting: its value, how the value is written, and which values it takes.
//!
//! Every kind of value is kept as 64 bits and goes to and from the server as text. The server has
//! numbers of its own for settings, but refuses or wraps some of them before it asks the module,
//! differently from version to version.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::command::number;

/// A setting. The server reads and sets settings in its main thread alone.
pub(super) struct Setting {
    kind: Kind,
    bits: AtomicU64,
    /// While the alias was set last: the value before it was. [`NOTHING`] otherwise.
    covered: AtomicU64,
}

/// No value of any kind has these bits.
const NOTHING: u64 = u64::MAX;

/// How a value is written, and its range.
pub(super) enum Kind {
    /// A number in (0, 1); its bits are those of the double.
    Rate,
    /// An integer in a closed range.
    Integer(u64, u64),
    /// A number of bytes in [0, 2^63), perhaps with a unit as the server writes them (`1gb`).
    Bytes,
    /// `yes` or `no`; its bits are 1 or 0.
    Switch,
}

impl Setting {
    pub(super) const fn new(kind: Kind, default: u64) -> Self {
        Self { kind, bits: AtomicU64::new(default), covered: AtomicU64::new(NOTHING) }
    }

    /// The value.
    pub(super) fn bits(&self) -> u64 {
        self.bits.load(Relaxed)
    }

    /// The value as CONFIG GET shows it.
    pub(super) fn text(&self) -> String {
        self.written(self.bits())
    }

    /// A value as text.
    pub(super) fn written(&self, bits: u64) -> String {
        match self.kind {
            Kind::Rate => number::shortest(f64::from_bits(bits)),
            Kind::Integer(..) | Kind::Bytes => bits.to_string(),
            Kind::Switch => if bits == 0 { "no" } else { "yes" }.to_owned(),
        }
    }

    /// The value that a text stands for; `name` is for the error.
    ///
    /// # Errors
    /// Why the text is refused.
    fn read(&self, text: &[u8], name: &str) -> Result<u64, String> {
        let invalid = || format!("Invalid value for `{name}`");
        let (min, max, number) = match self.kind {
            Kind::Rate => {
                let rate = number::float(text).ok_or_else(invalid)?;
                if rate > 0.0 && rate < 1.0 {
                    return Ok(rate.to_bits());
                }
                return Err(format!("{name} must be in the range (0.000000, 1.000000)"));
            }
            Kind::Switch if text.eq_ignore_ascii_case(b"yes") => return Ok(1),
            Kind::Switch if text.eq_ignore_ascii_case(b"no") => return Ok(0),
            Kind::Switch => return Err(format!("{name} must be 'yes' or 'no'")),
            Kind::Integer(min, max) => (min, max, number::wide(text)),
            Kind::Bytes => (0, i64::MAX.unsigned_abs(), bytes(text)),
        };
        u64::try_from(number.ok_or_else(invalid)?)
            .ok()
            .filter(|number| (min..=max).contains(number))
            .ok_or_else(|| format!("{name} must be in the range [{min}, {max}]"))
    }

    /// Sets it under its own name or its alias; `name` is for the error.
    ///
    /// The last writer wins. If a CONFIG SET fails at another setting, the server sets each name to
    /// the text that it showed before: that is the value in force, or, of an alias that was not set
    /// last, an empty text, which takes back what was set under it.
    ///
    /// # Errors
    /// Why the text is refused; the value is as before.
    pub(super) fn set(&self, text: &[u8], alias: bool, name: &str) -> Result<(), String> {
        let own = alias.then(|| self.covered().unwrap_or(self.bits()));
        let (bits, covered) = match own {
            Some(own) if text.is_empty() => (own, NOTHING),
            own => (self.read(text, name)?, own.unwrap_or(NOTHING)),
        };
        self.bits.store(bits, Relaxed);
        self.covered.store(covered, Relaxed);
        Ok(())
    }

    /// While the alias was set last: the value before it was.
    pub(super) fn covered(&self) -> Option<u64> {
        Some(self.covered.load(Relaxed)).filter(|&bits| bits != NOTHING)
    }
}

/// A number of bytes, perhaps with one of the server's units: `k` is 1,000 and `kb` 1,024, and so
/// on.
fn bytes(text: &[u8]) -> Option<i128> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, unit) = text.split_at_checked(digits)?;
    let factor: i128 = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1_000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    number::wide(digits)?.checked_mul(factor)
}
