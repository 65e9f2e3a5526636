//! A setting: its value, how the value is written, and which values it takes.
//!
//! Every kind of value is kept as 64 bits and goes to and from the server as text. The server has
//! numbers of its own for settings, but refuses or wraps some of them before it asks the module,
//! differently from version to version.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::command::number;

/// A setting. The server reads and sets settings in its main thread alone.
pub(super) struct Setting {
    kind: Kind,
    /// The value in force, for who only reads it.
    bits: AtomicU64,
    history: Mutex<History>,
}

/// What is in force, and under which name it was set.
#[derive(Clone, Copy)]
struct State {
    bits: u64,
    /// Where the alias is in force: the value under the setting's own name, which it covers.
    covered: Option<u64>,
}

struct History {
    now: State,
    /// What was before the first change since [`Setting::keep`].
    before: Option<State>,
    /// Which names were set since then: its own, the alias.
    own: bool,
    alias: bool,
}

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
        let now = State { bits: default, covered: None };
        let history = History { now, before: None, own: false, alias: false };
        Self { kind, bits: AtomicU64::new(default), history: Mutex::new(history) }
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value.
    pub(super) fn bits(&self) -> u64 {
        self.bits.load(Relaxed)
    }

    /// The value as CONFIG GET shows it under the setting's own name.
    pub(super) fn text(&self) -> String {
        self.written(self.bits())
    }

    /// The value as CONFIG GET shows it under the alias; `None` while the alias is not in force.
    pub(super) fn text_of_alias(&self) -> Option<String> {
        self.shown(self.history().now, true)
    }

    fn shown(&self, state: State, alias: bool) -> Option<String> {
        (!alias || state.covered.is_some()).then(|| self.written(state.bits))
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

    /// Sets it under its own name or its alias, where an empty text takes back what was set; `name`
    /// is for the error.
    ///
    /// A CONFIG SET that fails at another setting is undone by the server: it sets each name to the
    /// text that it had. The text does not say under which name the value was set. But no CONFIG
    /// SET names a setting twice: a second set of the same name, before the first was kept, to the
    /// text that it had before is such an undoing, and brings back all that was.
    ///
    /// # Errors
    /// Why the text is refused; the value is as before.
    pub(super) fn set(&self, text: &[u8], alias: bool, name: &str) -> Result<(), String> {
        let mut history = self.history();
        let now = history.now;
        let before = *history.before.get_or_insert(now);
        let again = match alias {
            true => std::mem::replace(&mut history.alias, true),
            false => std::mem::replace(&mut history.own, true),
        };
        let next = if again && self.shown(before, alias).unwrap_or_default().as_bytes() == text {
            before
        } else if alias && text.is_empty() {
            State { bits: now.covered.unwrap_or(now.bits), covered: None }
        } else {
            let covered = alias.then(|| now.covered.unwrap_or(now.bits));
            State { bits: self.read(text, name)?, covered }
        };
        history.now = next;
        self.bits.store(next.bits, Relaxed);
        Ok(())
    }

    /// What was set is not undone any more.
    pub(super) fn keep(&self) {
        let mut history = self.history();
        *history = History { now: history.now, before: None, own: false, alias: false };
    }

    /// Where the alias is in force: the value under the setting's own name.
    pub(super) fn covered(&self) -> Option<u64> {
        self.history().now.covered
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
