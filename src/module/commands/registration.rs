//! What the server must know of a command: flags, arity, keys, ACL categories, documentation.
//!
//! ACL permissions, COMMAND GETKEYS and cluster routing find the keys of a call by the key specs.

use std::{
    ffi::{CStr, CString, c_int},
    iter::once,
};

use redis_module::commands::{BeginSearch, FindKeys, KeySpec, KeySpecFlags as Flags};

use super::{
    super::api::{Context, raw},
    Call,
};
use crate::command::{
    options::{Argument, Kind, Place, taken},
    refusal::Refusal,
};

pub(super) struct Command {
    pub(super) name: &'static CStr,
    /// Runs it and replies, or refuses without having replied.
    pub(super) run: fn(&Call) -> Result<(), Refusal>,
    /// Flags of `RedisModule_CreateCommand`.
    pub(super) flags: &'static CStr,
    /// The number of words, including the name; negative for "at least".
    pub(super) arity: c_int,
    pub(super) uses: Uses,
    /// ACL categories in addition to `CATEGORY`.
    pub(super) categories: &'static CStr,
    pub(super) summary: &'static CStr,
    pub(super) complexity: &'static CStr,
    /// The first release of RedisBloom with the command; [`OWN_SINCE`] if RedisBloom lacks it.
    pub(super) since: &'static CStr,
    /// Hints for clients, such as `dont_cache`.
    pub(super) tips: Option<&'static CStr>,
    /// The arguments after the key, which is the first argument of every command.
    pub(super) arguments: &'static [Argument],
}

impl Command {
    /// A command that reads.
    pub(super) const READS: Self = Self {
        name: c"",
        run: |_| Err(Refusal::INTERNAL),
        flags: c"readonly fast",
        arity: 2,
        uses: Uses::Reads,
        categories: c"read",
        summary: c"",
        complexity: c"",
        since: OWN_SINCE,
        tips: None,
        arguments: &[],
    };
    /// A command that creates a filter, or adds to one, and whose answer reveals data of its items.
    pub(super) const ADDS: Self = Self {
        flags: c"write deny-oom",
        arity: -3,
        uses: Uses::Adds,
        categories: c"write",
        ..Self::READS
    };
    /// A command that creates a filter, and whose answer reveals nothing of its items.
    pub(super) const FILLS: Self = Self { uses: Uses::Fills, ..Self::ADDS };
    /// A command that makes no filter larger.
    pub(super) const DELETES: Self = Self { flags: c"write", uses: Uses::Deletes, ..Self::ADDS };
}

/// What a command does with its key. ACL key permissions depend on it: all but `Fills` reveal data
/// of the key, so they need read permission.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Uses {
    Reads,
    Adds,
    Fills,
    Deletes,
}

/// The first release of this module with the commands and arguments that RedisBloom lacks.
const OWN_SINCE: &CStr = c"0.1.0";

/// The ACL category of the commands that RedisBloom has too. Modules can add categories since
/// Redis 7.4 and Valkey 8.
pub(super) const CATEGORY: &CStr = c"bloom";

impl Command {
    /// Registers the command. The error is a line for the log.
    pub(super) fn register(
        &self,
        ctx: Context,
        entry: raw::RedisModuleCmdFunc,
    ) -> Result<(), String> {
        let is_redisblooms = self.since != OWN_SINCE;
        let mut kept = Kept::default();
        let mut key = kept.describe(&Argument::new(c"key", Kind::Key));
        key.key_spec_index = 0;
        let mut arguments = vec![key];
        for argument in self.arguments {
            if !matches!(argument.kind, Kind::Options | Kind::ReserveOptions) {
                arguments.push(kept.describe(argument));
                continue;
            }
            for (place, option) in taken(argument.kind == Kind::ReserveOptions) {
                if *place == Place::Valkeys {
                    continue;
                }
                let mut described = kept.describe(&Argument { optional: true, ..*option });
                if *place == Place::Own && is_redisblooms {
                    described.since = OWN_SINCE.as_ptr();
                }
                arguments.push(described);
            }
        }
        arguments.push(END_OF_ARGUMENTS);
        let keys = |position, last, flags| {
            let (begin, range) =
                (BeginSearch::new_index(position), FindKeys::new_range(last, 1, 0));
            raw::RedisModuleCommandKeySpec::from(&KeySpec::new(None, flags, begin, range))
        };
        // All words after the first key are keys, too, or none is.
        let many_keys = self.arguments.iter().any(|argument| argument.kind == Kind::Key);
        let first = keys(1, 0, self.uses.key_flags());
        let second =
            if many_keys { keys(2, -1, Uses::Reads.key_flags()) } else { END_OF_KEY_SPECS };
        let mut key_specs = [first, second, END_OF_KEY_SPECS];
        let info = raw::RedisModuleCommandInfo {
            version: &raw const VERSION,
            summary: self.summary.as_ptr(),
            complexity: self.complexity.as_ptr(),
            since: self.since.as_ptr(),
            history: std::ptr::null_mut(),
            tips: self.tips.map_or(std::ptr::null(), CStr::as_ptr),
            arity: self.arity,
            key_specs: key_specs.as_mut_ptr(),
            args: arguments.as_mut_ptr(),
        };
        // `bloom` is left out on a server that does not know the category, and for commands that
        // RedisBloom lacks: RedisBloom's tests expect only its own commands there.
        let own = self.categories;
        let bloom = [own.to_bytes(), CATEGORY.to_bytes()].join(&b' ');
        let bloom = CString::new(bloom).unwrap_or_default();
        let categories = if is_redisblooms { &[&bloom, own][..] } else { &[own] };
        let last: c_int = if many_keys { -1 } else { 1 };
        // SAFETY: the pointers in `arguments` point into `kept`.
        if unsafe { ctx.create_command(self.name, entry, self.flags, last, categories, &info) } {
            Ok(())
        } else {
            Err(format!("the server refuses {}", self.name.to_string_lossy()))
        }
    }
}

impl Uses {
    fn key_flags(self) -> Flags {
        match self {
            Self::Reads => Flags::READ_ONLY | Flags::ACCESS,
            Self::Adds => Flags::READ_WRITE | Flags::ACCESS | Flags::INSERT,
            Self::Fills => Flags::READ_WRITE | Flags::INSERT,
            Self::Deletes => Flags::READ_WRITE | Flags::ACCESS | Flags::DELETE,
        }
    }
}

/// What the descriptions of arguments point to.
#[derive(Default)]
struct Kept {
    names: Vec<CString>,
    lists: Vec<Box<[raw::RedisModuleCommandArg]>>,
}

impl Kept {
    /// Converts an argument for the server. A token with a value is a block.
    fn describe(&mut self, argument: &Argument) -> raw::RedisModuleCommandArg {
        use raw::{REDISMODULE_CMD_ARG_MULTIPLE, REDISMODULE_CMD_ARG_OPTIONAL};
        let name = argument.name.or(argument.token).unwrap_or_default();
        let name = CString::new(name.to_bytes().to_ascii_lowercase()).unwrap_or_default();
        let mut described = raw::RedisModuleCommandArg {
            name: name.as_ptr(),
            type_: argument.kind as u32,
            token: argument.token.map_or(std::ptr::null(), CStr::as_ptr),
            flags: (u32::from(argument.optional) * REDISMODULE_CMD_ARG_OPTIONAL
                + u32::from(argument.multiple) * REDISMODULE_CMD_ARG_MULTIPLE)
                as c_int,
            // Key spec 0 is that of the first key.
            key_spec_index: if argument.kind == Kind::Key { 1 } else { -1 },
            ..END_OF_ARGUMENTS
        };
        let value = Argument::new(argument.token.unwrap_or_default(), argument.kind);
        let mut parts = argument.parts;
        if argument.token.is_some() && !matches!(argument.kind, Kind::Token | Kind::Block) {
            described.type_ = Kind::Block as u32;
            parts = std::slice::from_ref(&value);
        }
        if !parts.is_empty() {
            let parts = parts.iter().map(|part| self.describe(part));
            let mut list: Box<[_]> = parts.chain(once(END_OF_ARGUMENTS)).collect();
            described.subargs = list.as_mut_ptr();
            self.lists.push(list);
        }
        self.names.push(name);
        described
    }
}

/// Sizes of the structures above. The server steps through the arrays by them, because its own
/// version may have other sizes.
static VERSION: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
    version: 1,
    sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
    sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
    sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
};

/// Ends an array of arguments.
// SAFETY: null pointers and zero numbers are valid in every field.
const END_OF_ARGUMENTS: raw::RedisModuleCommandArg =
    raw::RedisModuleCommandArg { key_spec_index: -1, ..unsafe { std::mem::zeroed() } };

/// Ends an array of key specs.
// SAFETY: null pointers and zero numbers are valid in every field, including the unions.
const END_OF_KEY_SPECS: raw::RedisModuleCommandKeySpec = unsafe { std::mem::zeroed() };
