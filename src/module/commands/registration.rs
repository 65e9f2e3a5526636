//! Registers a command: passes its `CommandSpec` to the server, which uses it for COMMAND INFO,
//! COMMAND DOCS and the hints of redis-cli.
//!
//! A server finds the keys of a call in two ways, and both follow from the spec. ACL permissions
//! and COMMAND GETKEYS use the key specs. Cluster routing knows the first key alone, unless the
//! command has the flag `getkeys-api`: then the server calls the command to ask where its keys are
//! ([`CommandSpec::report_keys`]). The spec of a second key finds its word at any place, also where
//! the word is data. So that spec is flagged as incomplete, and ACL permissions and COMMAND GETKEYS
//! then ask the command too.

use std::{
    ffi::{CStr, CString, c_int},
    iter::once,
};

use super::{
    super::api::{Context, Str, call, raw},
    spec::{Argument, CommandSpec, Uses},
};

/// The release of this module that first had what RedisBloom has not.
const OWN_SINCE: &CStr = c"0.1.0";

/// The ACL category of the commands that RedisBloom has too, on servers that let a module have one
/// (Redis 7.4, Valkey 8).
const CATEGORY: &CStr = c"bloom";

/// Adds the category, once, before the commands.
pub(super) fn add_category(ctx: Context) {
    call!(RedisModule_AddACLCategory(ctx.as_ptr(), CATEGORY.as_ptr()));
}

impl CommandSpec {
    /// Registers the command.
    ///
    /// # Errors
    /// A line for the log.
    pub(super) fn register(
        &self,
        ctx: Context,
        entry: raw::RedisModuleCmdFunc,
        redisblooms: bool,
    ) -> Result<(), String> {
        let name = self.name.as_ptr();
        let mut flags = self.flags.to_owned();
        if self.second_key().is_some() {
            let text = format!("{} getkeys-api", flags.to_string_lossy());
            flags = CString::new(text).unwrap_or_default();
        }
        let created: c_int =
            call!(RedisModule_CreateCommand(ctx.as_ptr(), name, entry, flags.as_ptr(), 1, 1, 1));
        let command: *mut raw::RedisModuleCommand =
            call!(RedisModule_GetCommand(ctx.as_ptr(), name));
        if created != raw::REDISMODULE_OK as c_int || command.is_null() {
            return Err(format!("the server refuses the command {}", self.name.to_string_lossy()));
        }
        self.set_categories(command, redisblooms);
        if !self.describe(command) {
            return Err(format!(
                "the server refuses the description of {}",
                self.name.to_string_lossy()
            ));
        }
        Ok(())
    }

    /// Where the server has categories for modules: with `bloom`, or without where it does not know
    /// that one.
    fn set_categories(&self, command: *mut raw::RedisModuleCommand, redisblooms: bool) {
        let set = |categories: &str| -> bool {
            let categories = format!("{categories}\0");
            let set: c_int =
                call!(RedisModule_SetCommandACLCategories(command, categories.as_ptr().cast()));
            set == raw::REDISMODULE_OK as c_int
        };
        let bloom = format!("{} {}", self.categories, CATEGORY.to_string_lossy());
        if !(redisblooms && set(&bloom)) {
            set(self.categories);
        }
    }

    /// Answers the server that asks where the keys of a call are: the positions and flags of the
    /// key specs.
    ///
    /// `words` may be any call that has the command's arity. Valkey asks on its I/O threads too,
    /// while other commands run: this reads nothing but its arguments.
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
        let mut parts = Vec::new();
        let mut arguments = vec![raw::RedisModuleCommandArg {
            name: c"key".as_ptr(),
            type_: raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
            key_spec_index: 0,
            ..END_OF_ARGUMENTS
        }];
        arguments.extend(self.arguments.iter().map(|argument| argument.describe(&mut parts)));
        arguments.push(END_OF_ARGUMENTS);
        let second = self.second_key().map_or(END_OF_KEY_SPECS, key_behind);
        let mut key_specs = [self.uses.key_spec(), second, END_OF_KEY_SPECS];
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
        // The server copies all of it; `parts` holds what the pointers in `arguments` point to
        // until then.
        let set: c_int = call!(RedisModule_SetCommandInfo(command, &raw const info));
        drop(parts);
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

    fn key_spec(self) -> raw::RedisModuleCommandKeySpec {
        let mut spec = END_OF_KEY_SPECS;
        spec.flags = u64::from(self.key_flags());
        spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
        spec.bs.index.pos = 1;
        only_this(spec)
    }
}

/// A second key is only read.
const SECOND_KEY_FLAGS: u32 = raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS;

/// The position of the word of the second key: right behind the first key.
const SECOND_KEY_WORD: usize = 2;

/// The spec of the second key, behind a word at any place: no kind of spec is bound to one.
fn key_behind(word: &'static CStr) -> raw::RedisModuleCommandKeySpec {
    let mut spec = END_OF_KEY_SPECS;
    spec.flags = u64::from(SECOND_KEY_FLAGS | raw::REDISMODULE_CMD_KEY_INCOMPLETE);
    spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_KEYWORD;
    spec.bs.keyword = raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_2 {
        keyword: word.as_ptr(),
        startfrom: SECOND_KEY_WORD as c_int,
    };
    only_this(spec)
}

/// A spec of the one key where its search begins.
fn only_this(mut spec: raw::RedisModuleCommandKeySpec) -> raw::RedisModuleCommandKeySpec {
    spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
    spec.fk.range = raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
        lastkey: 0,
        keystep: 1,
        limit: 0,
    };
    spec
}

impl Argument {
    /// The server's form of it; arrays that it points to go to `parts`.
    fn describe(
        &self,
        parts: &mut Vec<Box<[raw::RedisModuleCommandArg]>>,
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
        let leaf =
            |name: &CStr, type_, token: Option<&CStr>, flags: u32| raw::RedisModuleCommandArg {
                name: name.as_ptr(),
                type_,
                token: token.map_or(std::ptr::null(), CStr::as_ptr),
                flags: flags as c_int,
                ..END_OF_ARGUMENTS
            };
        match self {
            Self::String(name) => leaf(name, STRING, None, 0),
            Self::Integer(name) => leaf(name, INTEGER, None, 0),
            Self::Double(name) => leaf(name, DOUBLE, None, 0),
            Self::Key(name) => raw::RedisModuleCommandArg {
                // The second spec: that of the first key is the first.
                key_spec_index: 1,
                ..leaf(name, KEY, None, 0)
            },
            Self::Items => leaf(c"item", STRING, None, MULTIPLE),
            Self::Flag(name, token) => leaf(name, TOKEN, Some(token), OPTIONAL),
            Self::Token(name, token) => leaf(name, TOKEN, Some(token), 0),
            // The block has the token, as in RedisBloom.
            Self::Option(name, token, value) => {
                let members = vec![value.describe(parts)];
                raw::RedisModuleCommandArg {
                    subargs: group(parts, members),
                    ..leaf(name, BLOCK, Some(token), OPTIONAL)
                }
            }
            Self::Own(argument) => {
                raw::RedisModuleCommandArg { since: OWN_SINCE.as_ptr(), ..argument.describe(parts) }
            }
            Self::OneOf(name, words) => {
                let members =
                    words.iter().map(|(name, token)| leaf(name, TOKEN, Some(token), 0)).collect();
                raw::RedisModuleCommandArg {
                    subargs: group(parts, members),
                    ..leaf(name, ONE_OF, None, OPTIONAL)
                }
            }
        }
    }
}

/// Keeps the members of a block or choice, and gives the address that the server reads them from.
fn group(
    parts: &mut Vec<Box<[raw::RedisModuleCommandArg]>>,
    mut members: Vec<raw::RedisModuleCommandArg>,
) -> *mut raw::RedisModuleCommandArg {
    members.push(END_OF_ARGUMENTS);
    let mut members = members.into_boxed_slice();
    let start = members.as_mut_ptr();
    parts.push(members);
    start
}

/// Sizes of the structures above, by which the server steps through the arrays: it may know other
/// versions.
static VERSION: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
    version: 1,
    sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
    sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
    sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
};

/// All zero: ends an array.
// SAFETY: null pointers and zero numbers are valid in every field.
const END_OF_ARGUMENTS: raw::RedisModuleCommandArg =
    raw::RedisModuleCommandArg { key_spec_index: -1, ..unsafe { std::mem::zeroed() } };

/// All zero: ends an array.
// SAFETY: null pointers and zero numbers are valid in every field, the unions included.
const END_OF_KEY_SPECS: raw::RedisModuleCommandKeySpec = unsafe { std::mem::zeroed() };
