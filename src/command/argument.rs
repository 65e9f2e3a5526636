//! The arguments of a command, as COMMAND DOCS and the hints of `redis-cli` show them.

use std::ffi::CStr;

/// An argument of a command.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// Its name in the documentation.
    pub name: &'static CStr,
    /// What it is.
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

/// What an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of COMMAND DOCS")]
pub enum Kind {
    String,
    Integer,
    Double,
    /// A key after the first one, which is only read.
    Key,
    Token,
    /// All parts, after the token.
    Block,
    OneOf,
    /// Not one argument, but the options of a new filter (`options.rs`).
    Options {
        /// Whether the command is BF.RESERVE.
        reserve: bool,
    },
}

impl Argument {
    /// An argument that must be there once.
    pub const fn new(name: &'static CStr, kind: Kind) -> Self {
        Self { name, kind, token: None, optional: false, multiple: false, parts: &[] }
    }

    /// A word.
    pub const fn token(name: &'static CStr, token: &'static CStr) -> Self {
        Self { token: Some(token), ..Self::new(name, Kind::Token) }
    }

    /// A word with values.
    pub const fn block(name: &'static CStr, token: &'static CStr, parts: &'static [Self]) -> Self {
        Self { token: Some(token), parts, ..Self::new(name, Kind::Block) }
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

    /// The most words that it takes, without repetition.
    pub fn words(&self) -> usize {
        let parts = self.parts.iter().map(Self::words);
        match self.kind {
            Kind::Block => 1 + parts.sum::<usize>(),
            Kind::OneOf => parts.max().unwrap_or(0),
            _ => 1,
        }
    }
}
