//! What the server must know of a command before it runs, as the command's file states it: flags,
//! arity, keys, ACL categories, documentation. `registration.rs` passes it to the server.

use std::ffi::{CStr, c_int};

/// A command's registration.
pub(super) struct CommandSpec {
    pub(super) name: &'static CStr,
    /// Flags of the server's CreateCommand.
    pub(super) flags: &'static CStr,
    /// As the server counts it: the name included, negative for "at least".
    pub(super) arity: c_int,
    /// What it does with its key.
    pub(super) uses: Uses,
    /// ACL categories beside `CATEGORY`.
    pub(super) categories: &'static str,
    pub(super) summary: &'static CStr,
    pub(super) complexity: &'static CStr,
    /// The release of RedisBloom that had it first; of this module for a command that is not
    /// RedisBloom's.
    pub(super) since: &'static CStr,
    /// Hints for clients, such as `dont_cache`.
    pub(super) tips: Option<&'static CStr>,
    /// Behind the key, which every command has first. A [`Argument::Key`] behind a word is a second
    /// key.
    pub(super) arguments: &'static [Argument],
}

/// What a command does with its key; this is what ACL key permissions judge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Uses {
    /// Its data shows in the answer: needs read permission.
    Reads,
    /// It is made or added to, and what it held shows in the answer: needs both.
    Adds,
    /// It is made or added to, and shows nothing: needs write permission.
    Fills,
    /// Items are deleted from it, and what it held shows in the answer: needs both.
    Deletes,
}

/// An argument of a command.
pub(super) enum Argument {
    String(&'static CStr),
    Integer(&'static CStr),
    Double(&'static CStr),
    /// Another key, which is only read; the value of an option.
    Key(&'static CStr),
    /// One or more strings.
    Items,
    /// A word that may stand there.
    Flag(&'static CStr, &'static CStr),
    /// A word that must stand there.
    Token(&'static CStr, &'static CStr),
    /// A word with a value, which may stand there.
    Option(&'static CStr, &'static CStr, &'static Argument),
    /// One that RedisBloom's command has not.
    Own(&'static Argument),
    /// One of several words, which may stand there: name and words.
    OneOf(&'static CStr, &'static [(&'static CStr, &'static CStr)]),
}

impl CommandSpec {
    /// The word behind which the second key stands, in a command that has one.
    pub(super) const fn second_key(&self) -> Option<&'static CStr> {
        let mut arguments = self.arguments;
        while let [argument, rest @ ..] = arguments {
            if let Argument::Option(_, token, Argument::Key(_)) = argument {
                return Some(token);
            }
            arguments = rest;
        }
        None
    }
}
