//! The descriptor: the hash at the filter's name, which lists the keys of the shards.
//!
//! ```text
//!   rule crc32   state ready   poll 10
//!   shards 2   generation 1   error 0.001   capacity 1000000   0 {urls:5968}:1   1 {urls:1796}:1
//!   next.shards ... next.0 ...    another generation that takes additions, while there is one
//!   base urls-old                 a filter that answers for what was added before the shards
//! ```

use std::{collections::HashMap, str::FromStr};

use super::{
    MAX_SHARDS, RULE,
    keys::{NameError, shard_keys},
    shard_of,
};

/// `poll` for a descriptor that does not say after how many seconds it is read again.
pub const POLL: u64 = 10;

/// The state of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The shards are being reserved: the descriptor is half-written.
    Creating,
    /// The filter can be used.
    Ready,
}

impl State {
    /// The value of the field `state`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Ready => "ready",
        }
    }
}

/// A sharded filter as its descriptor says.
#[derive(Clone, Debug, PartialEq)]
pub struct Descriptor {
    /// The generation that answers queries, and takes additions.
    pub current: Generation,
    /// The generation that takes the same additions, while the filter is rebuilt: the new one, or,
    /// if its number is below the current one, the old one, which is about to go.
    ///
    /// An error if there are fields `next.…` that do not make a generation. Queries may continue
    /// then. Additions must not: a client that can read the fields may be filling that generation,
    /// and what is missing there is lost when it becomes the current one.
    pub next: Result<Option<Generation>, Malformed>,
    /// A filter in one key that is queried for items that their shard does not have.
    pub base: Option<Vec<u8>>,
    /// A client reads the descriptor again after this many seconds. [`POLL`] if the field is
    /// missing or no such number.
    pub poll: u64,
}

/// The shards of a sharded filter.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// The number of the generation, from 1. It ends each key.
    pub number: u64,
    /// The error rate of each shard, and of the whole filter, because a query goes to one shard.
    pub error_rate: f64,
    /// Items that all shards together are made for.
    pub capacity: u64,
    /// The keys of the shards, shard 0 first. As many as there are shards.
    pub keys: Vec<Vec<u8>>,
}

/// A field of a descriptor: its name and its value.
pub type Field = (Vec<u8>, Vec<u8>);

/// Why a hash is no descriptor that a client can use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// There is no field: the key does not exist.
    #[error("there is no descriptor")]
    Missing,
    /// The state is `creating`, or absent.
    #[error("the descriptor is half-written: the filter is being created, or that failed")]
    HalfWritten,
    /// Only a newer client knows the rule or the state.
    #[error("{0}")]
    Unknown(String),
    /// A field is absent, or its value is impossible.
    #[error("field {0}")]
    Field(String),
}

impl Descriptor {
    /// The descriptor of a new filter.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn new(
        name: &[u8],
        shards: u16,
        error_rate: f64,
        capacity: u64,
        poll: u64,
    ) -> Result<Self, NameError> {
        let current = Generation::new(name, shards, 1, error_rate, capacity)?;
        Ok(Self { current, next: Ok(None), base: None, poll })
    }

    /// Reads the fields of the hash, in any order. Ignores unknown fields.
    ///
    /// # Errors
    /// [`Malformed`]. A client must neither add nor query then. An error in `next` alone is not
    /// returned here: see [`Self::next`].
    pub fn parse<'a>(
        fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<Self, Malformed> {
        let fields = Fields(fields.into_iter().collect());
        if fields.0.is_empty() {
            return Err(Malformed::Missing);
        }
        // A newer rule may come with other states, so it is read first.
        fields.check_rule("rule")?;
        match fields.get("state") {
            Some(b"ready") => {}
            None | Some(b"creating") => return Err(Malformed::HalfWritten),
            Some(state) => {
                return Err(Malformed::Unknown(format!("state '{}' is unknown", shown(state))));
            }
        }
        fields.need("rule")?;
        let current = fields.generation("")?;
        Ok(Self {
            next: fields.next(current.number),
            current,
            base: fields.get("base").map(<[u8]>::to_vec),
            poll: fields.number("poll", |poll| *poll > 0).unwrap_or(POLL),
        })
    }

    /// The generations that additions go to: the current one, whose answer counts, then the next
    /// one, if there is one.
    ///
    /// # Errors
    /// That of [`Self::next`]: nothing may be added.
    pub fn filled(&self) -> Result<impl Iterator<Item = &Generation>, &Malformed> {
        let next = self.next.as_ref()?;
        Ok(std::iter::once(&self.current).chain(next))
    }

    /// The fields of the hash, in the order in which they are written: `state` is the last one, so
    /// that a reader of fewer fields finds a descriptor that is half-written. Leaves out a next
    /// generation that could not be read.
    #[must_use]
    pub fn fields(&self, state: State) -> Vec<Field> {
        let mut fields = Vec::new();
        push(&mut fields, "rule", RULE);
        push(&mut fields, "poll", &self.poll.to_string());
        if let Some(base) = &self.base {
            fields.push((b"base".to_vec(), base.clone()));
        }
        self.current.push_fields(&mut fields, "");
        if let Ok(Some(next)) = &self.next {
            fields.extend(next.next_fields());
        }
        push(&mut fields, "state", state.name());
        fields
    }

    /// The exchange at the end of a rebuild: the fields to set and the names of those to delete in
    /// one transaction. After it the next generation is the current one, the old one is the next,
    /// so that additions go to both as before, and there is no base.
    ///
    /// `None` if there is no next generation, or if it is the older one: an exchange is not undone.
    #[must_use]
    pub fn exchange(&self) -> Option<(Vec<Field>, Vec<Vec<u8>>)> {
        let next = self.next.as_ref().ok()?.as_ref()?;
        if next.number < self.current.number {
            return None;
        }
        let mut set = Vec::new();
        next.push_fields(&mut set, "");
        set.extend(self.current.next_fields());
        let indices = |from: &Generation, to: &Generation| from.shards()..to.shards();
        let mut delete = vec![b"base".to_vec()];
        delete.extend(indices(next, &self.current).map(|index| index.to_string().into()));
        delete.extend(indices(&self.current, next).map(|index| format!("next.{index}").into()));
        Some((set, delete))
    }
}

impl Generation {
    /// A generation of the filter `name`, with the keys that its shards have.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn new(
        name: &[u8],
        shards: u16,
        number: u64,
        error_rate: f64,
        capacity: u64,
    ) -> Result<Self, NameError> {
        let keys = shard_keys(name, shards, number)?;
        Ok(Self { number, error_rate, capacity, keys })
    }

    /// The fields that make this the next generation of a descriptor. Set all of them in one step.
    #[must_use]
    pub fn next_fields(&self) -> Vec<Field> {
        let mut fields = Vec::new();
        self.push_fields(&mut fields, "next.");
        fields
    }

    /// The number of shards.
    #[must_use]
    pub fn shards(&self) -> u16 {
        // `parse` and `shard_keys` make at most MAX_SHARDS keys.
        u16::try_from(self.keys.len()).unwrap_or(u16::MAX)
    }

    /// The key of the shard that `item` belongs to. Empty if there are no keys.
    #[must_use]
    pub fn key_of(&self, item: &[u8]) -> &[u8] {
        let shard = shard_of(item, self.shards());
        self.keys.get(usize::from(shard)).map_or(&[], Vec::as_slice)
    }

    fn push_fields(&self, fields: &mut Vec<Field>, prefix: &str) {
        let mut push = |name: &str, value: &str| push(fields, &format!("{prefix}{name}"), value);
        push("shards", &self.keys.len().to_string());
        push("generation", &self.number.to_string());
        push("error", &self.error_rate.to_string());
        push("capacity", &self.capacity.to_string());
        for (index, key) in self.keys.iter().enumerate() {
            fields.push((format!("{prefix}{index}").into(), key.clone()));
        }
    }
}

fn push(fields: &mut Vec<Field>, name: &str, value: &str) {
    fields.push((name.into(), value.into()));
}

/// The fields of a hash, by their names.
struct Fields<'a>(HashMap<&'a [u8], &'a [u8]>);

impl<'a> Fields<'a> {
    fn get(&self, field: &str) -> Option<&'a [u8]> {
        self.0.get(field.as_bytes()).copied()
    }

    fn need(&self, field: &str) -> Result<&'a [u8], Malformed> {
        self.get(field).ok_or_else(|| Malformed::Field(format!("'{field}' is missing")))
    }

    /// The number in a field, if it is `possible`.
    fn number<T: FromStr>(
        &self,
        field: &str,
        possible: impl FnOnce(&T) -> bool,
    ) -> Result<T, Malformed> {
        let value = self.need(field)?;
        let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        let bad = || Malformed::Field(format!("'{field}' is '{}'", shown(value)));
        number.filter(possible).ok_or_else(bad)
    }

    fn check_rule(&self, field: &str) -> Result<(), Malformed> {
        let unknown = self.get(field).filter(|rule| *rule != RULE.as_bytes());
        unknown.map_or(Ok(()), |rule| {
            let rule = shown(rule);
            Err(Malformed::Unknown(format!("rule '{rule}' is unknown: this client knows '{RULE}'")))
        })
    }

    /// The next generation beside the current one with the number `current`, if there is one.
    fn next(&self, current: u64) -> Result<Option<Generation>, Malformed> {
        if !self.0.keys().any(|name| name.starts_with(b"next.")) {
            return Ok(None);
        }
        self.check_rule("next.rule")?;
        self.number("next.generation", |&number: &u64| number != current)?;
        self.generation("next.").map(Some)
    }

    /// The generation whose fields begin with `prefix`.
    fn generation(&self, prefix: &str) -> Result<Generation, Malformed> {
        let named = |name: &str| format!("{prefix}{name}");
        let shards = self.number(&named("shards"), |count| (1..=MAX_SHARDS).contains(count))?;
        let key = |index: u16| self.need(&named(&index.to_string())).map(<[u8]>::to_vec);
        Ok(Generation {
            number: self.number(&named("generation"), |number| *number > 0)?,
            error_rate: self.number(&named("error"), |&rate: &f64| rate > 0.0 && rate < 1.0)?,
            capacity: self.number(&named("capacity"), |capacity| *capacity > 0)?,
            keys: (0..shards).map(key).collect::<Result<_, _>>()?,
        })
    }
}

/// A value as an error text shows it: escaped, and its start only.
fn shown(value: &[u8]) -> String {
    value.get(..64).unwrap_or(value).escape_ascii().to_string()
}
