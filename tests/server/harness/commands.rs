//! The commands as their clients know them: names, arities, keys, releases. Stated without the
//! module's table of commands, because clients of RedisBloom rely on them.
//!
//! A new command needs a row here and a section in docs/commands.md: `commands.rs` and
//! `documentation.rs` compare both with what the server lists. The tests that hold for every
//! command take it from here.

use super::client::Client;

/// A command, and what COMMAND INFO and COMMAND DOCS must say of it.
pub(crate) struct Command {
    /// A call that is complete, with the key `k`.
    pub(crate) call: &'static str,
    /// As the server counts it: the name included, negative for "at least".
    pub(crate) arity: i64,
    /// Those of `write`, `readonly`, `denyoom` and `fast` that it has.
    pub(crate) flags: &'static [&'static str],
    /// Flags of the spec of its key.
    pub(crate) key: &'static [&'static str],
    /// The release that had it first: of RedisBloom, or of this module.
    pub(crate) since: &'static str,
    /// Names of its arguments in order, without `seed` and `counting`, which RedisBloom has not.
    pub(crate) arguments: &'static str,
}

const fn command(
    call: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    key: &'static [&'static str],
    since: &'static str,
    arguments: &'static str,
) -> Command {
    Command { call, arity, flags, key, since, arguments }
}

const READ: &[&str] = &["readonly", "fast"];
const WRITE: &[&str] = &["write", "denyoom"];
/// It shows what is in the filter.
pub(crate) const READS: &[&str] = &["RO", "access"];
/// It shows nothing.
pub(crate) const CREATES: &[&str] = &["RW", "insert"];
/// Its answer shows what is in the filter, so it needs the permission to read as well.
pub(crate) const ADDS: &[&str] = &["RW", "access", "insert"];
pub(crate) const DELETES: &[&str] = &["RW", "access", "delete"];

/// The commands that RedisBloom has, as RedisBloom 8 documents them.
pub(crate) const REDISBLOOMS: [Command; 11] = [
    command(
        "BF.RESERVE k 0.01 100 COUNTING",
        -4,
        WRITE,
        CREATES,
        "1.0.0",
        "key error_rate capacity expansion nonscaling",
    ),
    command("BF.ADD k a", 3, WRITE, ADDS, "1.0.0", "key item"),
    command("BF.MADD k a b", -3, WRITE, ADDS, "1.0.0", "key item"),
    command(
        "BF.INSERT k ITEMS a b",
        -4,
        WRITE,
        ADDS,
        "1.0.0",
        "key capacity error expansion nocreate nonscaling items item",
    ),
    command("BF.EXISTS k a", 3, READ, READS, "1.0.0", "key item"),
    command("BF.MEXISTS k a b", -3, READ, READS, "1.0.0", "key item"),
    command("BF.CARD k", 2, READ, READS, "2.4.4", "key"),
    command("BF.INFO k", -2, READ, READS, "1.0.0", "key single_value"),
    command("BF.DEBUG k", 2, READ, READS, "1.0.0", "key"),
    // RedisBloom calls it fast, although it copies up to 16 MiB.
    command("BF.SCANDUMP k 0", 3, &["readonly"], READS, "1.0.0", "key iterator"),
    command("BF.LOADCHUNK k 1 data", 4, WRITE, CREATES, "1.0.0", "key iterator data"),
];

/// The commands that RedisBloom has not.
pub(crate) const OWN: [Command; 4] = [
    command("BF.DEL k a", -3, &["write"], DELETES, "0.1.0", "key item"),
    command("BF.COUNT k a", 3, READ, READS, "0.1.0", "key item"),
    command("BF.LOAD k data", 3, WRITE, CREATES, "0.1.0", "key blob"),
    command(
        "BF.IMPORT k GUAVA data",
        -4,
        WRITE,
        CREATES,
        "0.1.0",
        "key guava bitmap strategy capacity error",
    ),
];

/// Every command.
pub(crate) fn commands() -> impl Iterator<Item = &'static Command> {
    REDISBLOOMS.iter().chain(&OWN)
}

impl Command {
    /// The name, in lower case as the server has it.
    pub(crate) fn name(&self) -> String {
        self.call.split(' ').next().unwrap_or_default().to_lowercase()
    }

    /// The complete call, with another key.
    pub(crate) fn call_for(&self, key: &str) -> String {
        self.call.replacen(" k", &format!(" {key}"), 1)
    }
}

/// The names of the commands that the server has of the module, sorted.
#[track_caller]
pub(crate) fn listed(client: &mut Client) -> Vec<String> {
    let reply = client.run("COMMAND LIST FILTERBY MODULE bf");
    let mut names: Vec<_> =
        reply.elements().iter().map(|name| name.text().to_lowercase()).collect();
    names.sort();
    names
}
