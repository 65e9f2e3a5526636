//! What is in the replies of a server. A map is a flat array in RESP2, and a map in RESP3.

use redis::Value;

/// The text of a string.
pub(crate) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::SimpleString(text) => Some(text),
        Value::BulkString(bytes) => str::from_utf8(bytes).ok(),
        _ => None,
    }
}

/// A number that is not negative.
pub(crate) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

/// A fraction: a string in RESP2.
pub(crate) fn double(value: &Value) -> Option<f64> {
    match value {
        Value::Double(number) => Some(*number),
        Value::Int(number) => Some(*number as f64),
        value => text(value)?.parse().ok(),
    }
}

/// Yes or no: 1 or 0 in RESP2.
pub(crate) fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::Boolean(truth) => Some(*truth),
        Value::Int(number) => Some(*number != 0),
        _ => None,
    }
}

/// A field of a map.
pub(crate) fn field<'v>(map: &'v Value, name: &str) -> Option<&'v Value> {
    match map {
        Value::Array(values) => {
            let mut pairs = values.chunks_exact(2);
            pairs.find(|pair| text(&pair[0]) == Some(name)).map(|pair| &pair[1])
        }
        Value::Map(pairs) => {
            pairs.iter().find(|(label, _)| text(label) == Some(name)).map(|(_, value)| value)
        }
        _ => None,
    }
}

/// The value in a reply to `BF.INFO key word`. valkey-bloom answers without an array.
pub(crate) fn only(reply: &Value) -> &Value {
    match reply {
        Value::Array(values) if values.len() == 1 => &values[0],
        value => value,
    }
}
