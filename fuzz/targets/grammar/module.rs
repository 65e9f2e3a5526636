//! The files of `src/module` that need no server, under the names by which they know each other.

#[path = "commands.rs"]
pub(crate) mod commands;
#[path = "create.rs"]
pub(crate) mod create;
#[path = "../../../src/module/number.rs"]
#[allow(clippy::allow_attributes, dead_code, reason = "numbers as they are shown")]
pub(crate) mod number;
#[path = "../../../src/module/reply.rs"]
#[allow(clippy::allow_attributes, dead_code, reason = "the other commands' refusals")]
pub(crate) mod reply;
