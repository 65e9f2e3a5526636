//! The specification of a command: flags, arity, keys, ACL categories, documentation. Each
//! command's file states its own. The server uses it for COMMAND INFO, COMMAND DOCS and the hints
//! of redis-cli.
//!
//! ACL permissions and COMMAND GETKEYS find the keys of a call by the key specs. Cluster routing
//! knows only the first key and the keys that follow it directly, unless the command has the flag
//! `getkeys-api`: then the server calls the command to get the positions of its keys
//! ([`CommandSpec::report_keys`]). The spec of a second key finds its word at any place, also where
//! the word is data, so it is flagged as incomplete: all of them ask the command then.

use std::{
    ffi::{CStr, CString, c_int},
    iter::once,
};

use super::super::api::{Context, Str, call, raw};
use crate::command::{
    argument::{Argument, Kind},
    options::{self, Place},
};

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
    /// The first release of RedisBloom with the command; [`OWN_SINCE`] if RedisBloom lacks it.
    pub(super) since: &'static CStr,
    /// Hints for clients, such as `dont_cache`.
    pub(super) tips: Option<&'static CStr>,
    /// The arguments after the key, which is the first argument of every command. A key in a block
    /// is a second key. Further keys without a token can only be the only argument.
    pub(super) arguments: &'static [Argument],
}

impl CommandSpec {
    /// A command that reads.
    pub(super) const READS: Self = Self {
        name: c"",
        flags: c"readonly fast",
        arity: 2,
        uses: Uses::Reads,
        categories: "read",
        summary: c"",
        complexity: c"",
        since: OWN_SINCE,
        tips: None,
        arguments: &[],
    };
    /// A command that creates a filter, or adds to one, and answers of its items.
    pub(super) const ADDS: Self = Self {
        flags: c"write deny-oom",
        arity: -3,
        uses: Uses::Adds,
        categories: "write",
        ..Self::READS
    };
    /// A command that creates a filter, and answers nothing of its items.
    pub(super) const FILLS: Self = Self { uses: Uses::Fills, ..Self::ADDS };
    /// A command that makes no filter larger.
    pub(super) const DELETES: Self = Self { flags: c"write", uses: Uses::Deletes, ..Self::ADDS };
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

/// The first release of this module with the commands and arguments that RedisBloom lacks.
pub(super) const OWN_SINCE: &CStr = c"0.1.0";

/// The ACL category of the commands that RedisBloom has too. Modules can add categories since
/// Redis 7.4 and Valkey 8.
const CATEGORY: &CStr = c"bloom";

/// Adds the category; call this once, before the commands are registered.
pub(super) fn add_category(ctx: Context) {
    call!(RedisModule_AddACLCategory(ctx.as_ptr(), CATEGORY.as_ptr()));
}

impl CommandSpec {
    /// Registers the command. The error is a line for the log.
    pub(super) fn register(
        &self,
        ctx: Context,
        entry: raw::RedisModuleCmdFunc,
    ) -> Result<(), String> {
        let name = self.name.as_ptr();
        let mut flags = self.flags.to_owned();
        if self.second_key().is_some() {
            let text = format!("{} getkeys-api", flags.to_string_lossy());
            flags = CString::new(text).unwrap_or_default();
        }
        let last: c_int = if self.has_only_keys() { -1 } else { 1 };
        let created: c_int =
            call!(RedisModule_CreateCommand(ctx.as_ptr(), name, entry, flags.as_ptr(), 1, last, 1));
        let command: *mut raw::RedisModuleCommand =
            call!(RedisModule_GetCommand(ctx.as_ptr(), name));
        if created != raw::REDISMODULE_OK as c_int || command.is_null() {
            return Err(format!("the server refuses the command {}", self.name.to_string_lossy()));
        }
        self.set_categories(command);
        if !self.describe(command) {
            return Err(format!(
                "the server refuses the description of {}",
                self.name.to_string_lossy()
            ));
        }
        Ok(())
    }

    /// Sets the ACL categories, on servers that have them for modules. Leaves out `bloom` if the
    /// server does not know this category, and of commands that RedisBloom lacks: its tests expect
    /// exactly its own commands there.
    fn set_categories(&self, command: *mut raw::RedisModuleCommand) {
        let set = |categories: &str| -> bool {
            let categories = format!("{categories}\0");
            let set: c_int =
                call!(RedisModule_SetCommandACLCategories(command, categories.as_ptr().cast()));
            set == raw::REDISMODULE_OK as c_int
        };
        let bloom = format!("{} {}", self.categories, CATEGORY.to_string_lossy());
        if !(self.is_redisblooms() && set(&bloom)) {
            set(self.categories);
        }
    }

    /// Whether RedisBloom has the command, too.
    fn is_redisblooms(&self) -> bool {
        self.since != OWN_SINCE
    }

    /// Whether every word after the first key is a key.
    const fn has_only_keys(&self) -> bool {
        matches!(self.arguments, [Argument { kind: Kind::Key, .. }])
    }

    /// The word before the second key, if the command has a second key.
    pub(super) const fn second_key(&self) -> Option<&'static CStr> {
        let mut arguments = self.arguments;
        while let [argument, rest @ ..] = arguments {
            if let [Argument { kind: Kind::Key, .. }] = argument.parts {
                return argument.token;
            }
            arguments = rest;
        }
        None
    }

    /// Reports the positions and flags of the keys of a call to the server.
    ///
    /// `words` is any call with the command's arity. Valkey calls this on its I/O threads too,
    /// while other commands run: it must read only its arguments.
    pub(super) fn report_keys(&self, ctx: Context, words: &[Str]) {
        let behind = self.second_key().and_then(|token| {
            let word = words.get(SECOND_KEY_WORD)?;
            let found = word.bytes().eq_ignore_ascii_case(token.to_bytes());
            found.then_some((SECOND_KEY_WORD + 1, SECOND_KEY_FLAGS))
        });
        for (position, flags) in once((1, self.uses.key_flags())).chain(behind) {
            if position < words.len() {
                ctx.report_key(position, flags);
            }
        }
    }

    fn describe(&self, command: *mut raw::RedisModuleCommand) -> bool {
        let mut lists = Vec::new();
        let mut key = describe(&Argument::new(c"key", Kind::Key), &mut lists);
        key.key_spec_index = 0;
        let mut arguments = vec![key];
        for argument in self.arguments {
            let Kind::Options { reserve } = argument.kind else {
                arguments.push(describe(argument, &mut lists));
                continue;
            };
            for option in options::taken(reserve).filter(|option| option.place != Place::Valkeys) {
                let mut described = describe(&option.argument, &mut lists);
                if option.place == Place::Own && self.is_redisblooms() {
                    described.since = OWN_SINCE.as_ptr();
                }
                arguments.push(described);
            }
        }
        arguments.push(END_OF_ARGUMENTS);
        let second = match self.second_key() {
            Some(word) => key_behind(word),
            None if self.has_only_keys() => keys_at(SECOND_KEY_WORD, -1, SECOND_KEY_FLAGS),
            None => END_OF_KEY_SPECS,
        };
        let mut key_specs = [keys_at(1, 0, self.uses.key_flags()), second, END_OF_KEY_SPECS];
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
        // The server copies everything. Pointers in `arguments` point into `lists`, which must live
        // until then.
        let set: c_int = call!(RedisModule_SetCommandInfo(command, &raw const info));
        drop(lists);
        set == raw::REDISMODULE_OK as c_int
    }
}

impl Uses {
    fn key_flags(self) -> u32 {
        match self {
            Self::Reads => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
            Self::Adds => {
                raw::REDISMODULE_CMD_KEY_RW
                    | raw::REDISMODULE_CMD_KEY_ACCESS
                    | raw::REDISMODULE_CMD_KEY_INSERT
            }
            Self::Fills => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_INSERT,
            Self::Deletes => {
                raw::REDISMODULE_CMD_KEY_RW
                    | raw::REDISMODULE_CMD_KEY_ACCESS
                    | raw::REDISMODULE_CMD_KEY_DELETE
            }
        }
    }
}

/// The flags of the keys after the first: they are only read.
const SECOND_KEY_FLAGS: u32 = raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS;

/// The position after the first key: of the word of a second key, or of the second of several keys.
const SECOND_KEY_WORD: usize = 2;

/// The spec of the keys from `position` up to `last`, counted from there, or from the end of the
/// command if negative.
fn keys_at(position: usize, last: c_int, flags: u32) -> raw::RedisModuleCommandKeySpec {
    let mut spec = END_OF_KEY_SPECS;
    spec.flags = u64::from(flags);
    spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    spec.bs.index.pos = position as c_int;
    spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
    spec.fk.range = raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
        lastkey: last,
        keystep: 1,
        limit: 0,
    };
    spec
}

/// The spec of the second key. It follows a word at any place, because no kind of spec can name one
/// place.
fn key_behind(word: &'static CStr) -> raw::RedisModuleCommandKeySpec {
    let mut spec = keys_at(0, 0, SECOND_KEY_FLAGS | raw::REDISMODULE_CMD_KEY_INCOMPLETE);
    spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_KEYWORD;
    spec.bs.keyword = raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_2 {
        keyword: word.as_ptr(),
        startfrom: SECOND_KEY_WORD as c_int,
    };
    spec
}

/// Converts an argument for the server; stores the lists that it points to in `lists`.
fn describe(
    argument: &Argument,
    lists: &mut Vec<Box<[raw::RedisModuleCommandArg]>>,
) -> raw::RedisModuleCommandArg {
    use raw::{
        REDISMODULE_CMD_ARG_MULTIPLE as MULTIPLE, REDISMODULE_CMD_ARG_OPTIONAL as OPTIONAL,
        RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK as BLOCK,
        RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_DOUBLE as DOUBLE,
        RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER as INTEGER,
        RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY as KEY,
        RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF as ONE_OF,
        RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN as TOKEN,
        RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING as STRING,
    };
    let mut described = raw::RedisModuleCommandArg {
        name: argument.name.as_ptr(),
        type_: match argument.kind {
            Kind::String => STRING,
            Kind::Integer => INTEGER,
            Kind::Double => DOUBLE,
            Kind::Key => KEY,
            Kind::Token => TOKEN,
            Kind::Block | Kind::Options { .. } => BLOCK,
            Kind::OneOf => ONE_OF,
        },
        token: argument.token.map_or(std::ptr::null(), CStr::as_ptr),
        flags: (if argument.optional { OPTIONAL } else { 0 }
            | if argument.multiple { MULTIPLE } else { 0 }) as c_int,
        ..END_OF_ARGUMENTS
    };
    if argument.kind == Kind::Key {
        // Key spec 0 is that of the first key.
        described.key_spec_index = 1;
    }
    if !argument.parts.is_empty() {
        let parts = argument.parts.iter().map(|part| describe(part, lists));
        let mut list: Box<[_]> = parts.chain(once(END_OF_ARGUMENTS)).collect();
        described.subargs = list.as_mut_ptr();
        lists.push(list);
    }
    described
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
