//! The commands as clients know them: names, arities, keys, releases. This table is independent of
//! the module's own specifications, because clients of RedisBloom rely on these values.
//!
//! A new command needs a row here and a section in docs/reference/commands.md: `commands.rs` and
//! `reference.rs` compare both with the server's list. Tests of every command iterate over this
//! table.

use super::client::Client;

/// A command, and what COMMAND INFO and COMMAND DOCS must return for it.
pub struct Command {
    /// A complete call with the key `k`.
    pub call: &'static str,
    /// The number of words, including the name; negative for "at least".
    pub arity: i64,
    /// The flags among `write`, `readonly`, `denyoom` and `fast`.
    pub flags: &'static [&'static str],
    /// Flags of the key's spec.
    pub key: &'static [&'static str],
    /// The first release with the command, of RedisBloom or of this module.
    pub since: &'static str,
    /// Names of the arguments in order, without `seed`, `counting`, `shard` and those of a window,
    /// which RedisBloom lacks.
    pub arguments: &'static str,
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
/// The answer reveals data of the filter.
pub const READS: &[&str] = &["RO", "access"];
/// The answer reveals nothing.
pub const CREATES: &[&str] = &["RW", "insert"];
/// The answer reveals data of the filter, so the command also needs the permission to read.
pub const ADDS: &[&str] = &["RW", "access", "insert"];
pub const DELETES: &[&str] = &["RW", "access", "delete"];

/// The commands that RedisBloom has, as RedisBloom 8 documents them.
pub const REDISBLOOMS: [Command; 11] = [
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
    // Not `fast` as in RedisBloom, because it copies up to 16 MiB.
    command("BF.SCANDUMP k 0", 3, &["readonly"], READS, "1.0.0", "key iterator"),
    command("BF.LOADCHUNK k 1 data", 4, WRITE, CREATES, "1.0.0", "key iterator data"),
];

/// The commands that RedisBloom lacks.
pub const OWN: [Command; 9] = [
    command("BF.DEL k a", -3, &["write"], DELETES, "0.1.0", "key item"),
    command("BF.FORGET k", 2, &["write"], DELETES, "0.1.0", "key"),
    command("BF.SHIFT k SWEEP 1", 4, &["write"], CREATES, "0.1.0", "key shift"),
    command("BF.COUNT k a", 3, READ, READS, "0.1.0", "key item"),
    // The filter with itself: each call of this table has one key.
    command("BF.MERGE k k", -3, WRITE, ADDS, "0.1.0", "key source"),
    command(
        "BF.BULKADD k LINES a",
        -4,
        WRITE,
        ADDS,
        "0.1.0",
        "key capacity error expansion nocreate nonscaling format blob",
    ),
    // Not `fast`, because a blob may have millions of items.
    command("BF.BULKEXISTS k LINES a", -4, &["readonly"], READS, "0.1.0", "key format blob"),
    command("BF.LOAD k data", 3, WRITE, CREATES, "0.1.0", "key blob"),
    command("BF.IMPORT k GUAVA data", 4, WRITE, CREATES, "0.1.0", "key guava"),
];

/// All commands of the module.
pub fn commands() -> impl Iterator<Item = &'static Command> {
    REDISBLOOMS.iter().chain(&OWN)
}

impl Command {
    /// The name in lower case, as the server lists it.
    pub fn name(&self) -> String {
        self.call.split(' ').next().unwrap_or_default().to_lowercase()
    }

    /// The complete call, with another key.
    pub fn call_for(&self, key: &str) -> String {
        let words = self.call.split(' ').map(|word| if word == "k" { key } else { word });
        words.collect::<Vec<_>>().join(" ")
    }
}

/// The names of the module's commands that the server lists, sorted.
#[track_caller]
pub fn listed(client: &mut Client) -> Vec<String> {
    let reply = client.run("COMMAND LIST FILTERBY MODULE bf");
    let mut names: Vec<_> =
        reply.elements().iter().map(|name| name.text().to_lowercase()).collect();
    names.sort();
    names
}
