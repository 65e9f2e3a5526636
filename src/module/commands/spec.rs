//! The specification of a command: flags, arity, keys, ACL categories, documentation. Each
//! command's file states its own; `registration.rs` passes it to the server.

use std::ffi::{CStr, c_int};

/// The specification of a command.
pub(super) struct CommandSpec {
    pub(super) name: &'static CStr,
    /// Flags of `RedisModule_CreateCommand`.
    pub(super) flags: &'static CStr,
    /// The number of words, including the name; negative for "at least".
    pub(super) arity: c_int,
    /// What the command does with its key.
    pub(super) uses: Uses,
    /// ACL categories in addition to `CATEGORY`.
    pub(super) categories: &'static str,
    pub(super) summary: &'static CStr,
    pub(super) complexity: &'static CStr,
    /// The first release of RedisBloom with the command; of this module if RedisBloom lacks the
    /// command.
    pub(super) since: &'static CStr,
    /// Hints for clients, such as `dont_cache`.
    pub(super) tips: Option<&'static CStr>,
    /// The arguments after the key, which is the first argument of every command. An
    /// [`Argument::Key`] in an [`Argument::Option`] is a second key. [`Argument::Keys`] can only be
    /// the first of them, and then is the only one.
    pub(super) arguments: &'static [Argument],
}

/// What a command does with its key. ACL key permissions depend on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Uses {
    /// The answer reveals data of the key: needs read permission.
    Reads,
    /// Creates or adds to the key, and the answer reveals its data: needs read and write.
    Adds,
    /// Creates or adds to the key, and the answer reveals nothing: needs write permission.
    Fills,
    /// Deletes items from the key, and the answer reveals its data: needs read and write.
    Deletes,
}

/// An argument of a command.
pub(super) enum Argument {
    String(&'static CStr),
    Integer(&'static CStr),
    Double(&'static CStr),
    /// A second key, which is only read; it is the value of an option.
    Key(&'static CStr),
    /// One or more keys, up to the last word, which are only read.
    Keys(&'static CStr),
    /// One or more strings.
    Items,
    /// An optional word.
    Flag(&'static CStr, &'static CStr),
    /// A required word.
    Token(&'static CStr, &'static CStr),
    /// An optional word with a value.
    Option(&'static CStr, &'static CStr, &'static Argument),
    /// An optional word with two integers.
    Pair(&'static CStr, &'static CStr, [&'static CStr; 2]),
    /// An argument that RedisBloom's command lacks.
    Own(&'static Argument),
    /// Optionally, one of several words: name and words.
    OneOf(&'static CStr, &'static [(&'static CStr, &'static CStr)]),
    /// One of several arguments; it is required, also if its members are optional elsewhere.
    Choice(&'static CStr, &'static [Argument]),
}

impl CommandSpec {
    /// Whether every word after the first key is a key.
    pub(super) const fn has_only_keys(&self) -> bool {
        matches!(self.arguments, [Argument::Keys(_)])
    }

    /// The word before the second key, if the command has a second key.
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
