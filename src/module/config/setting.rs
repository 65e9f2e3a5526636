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
    default: AtomicU64,
}

/// How a value is written, and its range.
pub(super) enum Kind {
    /// A number in (0, 1); its bits are those of the double.
    Rate,
    /// An integer in a closed range.
    Integer(u64, u64),
    /// A number of bytes in [0, 2^63), perhaps with a unit as the server writes them (`1gb`).
    Bytes,
    /// One of two words; its bits are 0 or 1.
    Choice([&'static str; 2]),
}

impl Setting {
    pub(super) const fn new(kind: Kind, default: u64) -> Self {
        Self { kind, bits: AtomicU64::new(default), default: AtomicU64::new(default) }
    }

    /// The value.
    pub(super) fn bits(&self) -> u64 {
        self.bits.load(Relaxed)
    }

    /// The value where nobody has set one.
    pub(super) fn default(&self) -> u64 {
        self.default.load(Relaxed)
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
            Kind::Choice([no, yes]) => if bits == 0 { no } else { yes }.to_owned(),
        }
    }

    /// The value that a text stands for, or why it is refused; `name` is for the error.
    pub(super) fn read(&self, text: &[u8], name: &str) -> Result<u64, String> {
        let invalid = || format!("Invalid value for `{name}`");
        let (min, max, number) = match self.kind {
            Kind::Rate => {
                let rate = number::float(text).ok_or_else(invalid)?;
                if rate > 0.0 && rate < 1.0 {
                    return Ok(rate.to_bits());
                }
                return Err(format!("{name} must be in the range (0.000000, 1.000000)"));
            }
            Kind::Choice([no, yes]) => {
                let chosen =
                    [no, yes].iter().position(|word| text.eq_ignore_ascii_case(word.as_bytes()));
                let unknown = || format!("{name} must be '{yes}' or '{no}'");
                return chosen.map(|place| place as u64).ok_or_else(unknown);
            }
            Kind::Integer(min, max) => (min, max, number::integer::<i128>(text)),
            Kind::Bytes => (0, i64::MAX.unsigned_abs(), bytes(text)),
        };
        u64::try_from(number.ok_or_else(invalid)?)
            .ok()
            .filter(|number| (min..=max).contains(number))
            .ok_or_else(|| format!("{name} must be in the range [{min}, {max}]"))
    }

    pub(super) fn set(&self, bits: u64) {
        self.bits.store(bits, Relaxed);
    }

    /// Sets the value and the default.
    pub(super) fn set_default(&self, bits: u64) {
        self.default.store(bits, Relaxed);
        self.set(bits);
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
    number::integer::<i128>(digits)?.checked_mul(factor)
}
