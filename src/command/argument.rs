//! The arguments of a command, as COMMAND DOCS and the hints of `redis-cli` show them.

use std::ffi::CStr;

/// An argument of a command.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// Its name in the documentation, if that is not the token in small letters.
    pub name: Option<&'static CStr>,
    /// What it is, or the value behind the token.
    pub kind: Kind,
    /// The word that it is, or begins with.
    pub token: Option<&'static CStr>,
    /// Whether it may be left out.
    pub optional: bool,
    /// Whether it may be repeated, up to the last word.
    pub multiple: bool,
    /// The arguments of a block, or those to choose from.
    pub parts: &'static [Self],
}

/// What an argument is, with the number that the server has for it (`RedisModuleCommandArgType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of COMMAND DOCS")]
pub enum Kind {
    String = 0,
    Integer = 1,
    Double = 2,
    /// A key after the first one, which is only read.
    Key = 3,
    Token = 6,
    OneOf = 7,
    /// All parts, after the token.
    Block = 8,
    /// Not one argument, but the options of a new filter (`options.rs`).
    Options,
    /// Those that BF.RESERVE takes.
    ReserveOptions,
}

impl Argument {
    const NONE: Self = Self {
        name: None,
        kind: Kind::Token,
        token: None,
        optional: false,
        multiple: false,
        parts: &[],
    };

    /// An argument that must be there once.
    pub const fn new(name: &'static CStr, kind: Kind) -> Self {
        Self { name: Some(name), kind, ..Self::NONE }
    }

    /// A word.
    pub const fn token(token: &'static CStr) -> Self {
        Self { token: Some(token), ..Self::NONE }
    }

    /// A word with a value of the same name.
    pub const fn valued(token: &'static CStr, kind: Kind) -> Self {
        Self { kind, ..Self::token(token) }
    }

    /// A word with values.
    pub const fn block(token: &'static CStr, parts: &'static [Self]) -> Self {
        Self { kind: Kind::Block, parts, ..Self::token(token) }
    }

    /// One of several arguments.
    pub const fn one_of(name: &'static CStr, parts: &'static [Self]) -> Self {
        Self { parts, ..Self::new(name, Kind::OneOf) }
    }

    /// This argument, which may be left out.
    pub const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    /// This argument, once or more.
    pub const fn multiple(self) -> Self {
        Self { multiple: true, ..self }
    }
}
