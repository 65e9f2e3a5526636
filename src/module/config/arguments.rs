//! The load arguments: pairs of a name and a value, as RedisBloom has them. What is not known is
//! refused: a server that starts with a setting that nobody heeds is worse than one that does not
//! start.

use super::{ERROR_RATE, INITIAL_SIZE};
use crate::{
    command::number,
    module::api::{Context, Str},
};

/// Takes them as the defaults of the settings.
///
/// # Errors
/// A line for the log.
pub(super) fn take(ctx: Context, arguments: &[Str]) -> Result<(), String> {
    // Tools that template the line leave an empty argument where they have none.
    let arguments = match arguments {
        [only] if only.bytes().is_empty() => &[],
        arguments => arguments,
    };
    for pair in arguments.chunks(2) {
        let name = pair
            .first()
            .map_or(String::new(), |name| String::from_utf8_lossy(name.bytes()).into_owned());
        let Some(value) = pair.get(1).map(|value| value.bytes()) else {
            return Err(format!("load argument {name} has no value"));
        };
        let bad = |why| format!("bad load argument: {why}");
        match name.to_ascii_uppercase().as_str() {
            "ERROR_RATE" | "BF-ERROR-RATE" => ERROR_RATE.set(value, false, &name).map_err(bad)?,
            "INITIAL_SIZE" | "BF-INITIAL-SIZE" => {
                INITIAL_SIZE.set(value, false, &name).map_err(bad)?;
            }
            cuckoo if cuckoo.starts_with("CF_") || cuckoo.starts_with("CF-") => {
                if number::integer(value).is_none() {
                    return Err(bad(format!("Invalid value for `{name}`")));
                }
                ctx.warn(&format!(
                    "load argument {name} is ignored: there are no cuckoo filters here"
                ));
            }
            _ => return Err(format!("load argument {name} is not known")),
        }
    }
    Ok(())
}
