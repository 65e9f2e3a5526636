//! What a name stands for: a filter in one key, or a sharded filter, whose descriptor lists its
//! keys (docs/sharding.md).

use bloom::sharding::{Descriptor, Malformed};
use redis::{Cmd, Value};

use crate::{connection::Connection, error::Error, name};

/// What a name stands for.
#[derive(Debug)]
pub(crate) enum Filter {
    /// A filter in one key; or nothing, or a key of another type: the next command says so.
    Key,
    Sharded(Descriptor),
}

/// Finds out what `name` stands for.
///
/// # Errors
/// `Error::Incomplete` for a descriptor that is half-written or damaged, `Error::Refused` for one
/// that only a newer release understands.
pub(crate) fn find(server: &mut Connection, name: &[u8]) -> Result<Filter, Error> {
    match server.call_for_key(Cmd::new().arg("HGETALL").arg(name)) {
        Ok(reply) => read(name, &reply),
        // A filter in one key, or a user of such filters alone.
        Err(Error::Refused { text, .. })
            if ["WRONGTYPE", "NOPERM"].iter().any(|code| text.starts_with(code)) =>
        {
            Ok(Filter::Key)
        }
        Err(error) => Err(error),
    }
}

fn read(name: &[u8], reply: &Value) -> Result<Filter, Error> {
    let wrong = || Error::Reply { command: "HGETALL".to_owned(), reply: format!("{reply:?}") };
    let Value::Array(values) = reply else { return Err(wrong()) };
    let mut fields = Vec::new();
    for pair in values.chunks(2) {
        let [Value::BulkString(field), Value::BulkString(value)] = pair else {
            return Err(wrong());
        };
        fields.push((&field[..], &value[..]));
    }
    match Descriptor::parse(fields) {
        Ok(descriptor) => Ok(Filter::Sharded(descriptor)),
        Err(Malformed::Missing) => Ok(Filter::Key),
        Err(malformed) => Err(explained(name, &malformed)),
    }
}

pub(crate) fn explained(name: &[u8], malformed: &Malformed) -> Error {
    let what = format!("{}: {malformed}", name::readable(name));
    match malformed {
        Malformed::Rule(_) | Malformed::State(_) => Error::RefusedPartly {
            what,
            hint: "A newer redis-bloom created this filter: use that one.".to_owned(),
        },
        Malformed::HalfWritten => Error::Incomplete {
            what,
            hint: "Wait for it, or finish it by `create --resume`, or remove it by `drop`."
                .to_owned(),
        },
        _ => Error::Incomplete {
            what,
            hint: "Is this hash a sharded filter at all? docs/sharding.md says what it must have."
                .to_owned(),
        },
    }
}
