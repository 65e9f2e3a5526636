//! Registers a command: passes its `CommandSpec` to the server, which uses it for COMMAND INFO,
//! COMMAND DOCS and the hints of redis-cli.
//!
//! A server finds the keys of a call in two ways, and both follow from the spec. ACL permissions
//! and COMMAND GETKEYS use the key specs. Cluster routing knows only the first key, unless the
//! command has the flag `getkeys-api`: then the server calls the command to get the positions of
//! its keys ([`CommandSpec::report_keys`]).
//! Keys that follow the first key directly need no flag: the server joins the key specs of adjacent
//! words.
//! The spec of a second key finds its word at any place, also where the word is data. So that spec
//! is flagged as incomplete: ACL permissions and COMMAND GETKEYS then ask the command too.

use std::{
    ffi::{CStr, CString, c_int},
    iter::once,
};

use super::{
    super::api::{Context, Str, call, raw},
    spec::{Argument, CommandSpec, Uses},
};

/// The first release of this module with the arguments that RedisBloom lacks.
const OWN_SINCE: &CStr = c"0.1.0";

/// The ACL category of the commands that RedisBloom has too. Modules can add categories since
/// Redis 7.4 and Valkey 8.
const CATEGORY: &CStr = c"bloom";

/// Adds the category; call this once, before the commands are registered.
pub(super) fn add_category(ctx: Context) {
    call!(RedisModule_AddACLCategory(ctx.as_ptr(), CATEGORY.as_ptr()));
}

impl CommandSpec {
    /// Registers the command.
    ///
    /// # Errors
    /// The reason, as a line for the log.
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
        let last: c_int = if self.has_only_keys() { -1 } else { 1 };
        let created: c_int =
            call!(RedisModule_CreateCommand(ctx.as_ptr(), name, entry, flags.as_ptr(), 1, last, 1));
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

    /// Sets the ACL categories, on servers that have them for modules. Leaves out `bloom` if the
    /// server does not know this category.
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
        let mut parts = Vec::new();
        let mut arguments = vec![raw::RedisModuleCommandArg {
            name: c"key".as_ptr(),
            type_: raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
            key_spec_index: 0,
            ..END_OF_ARGUMENTS
        }];
        arguments.extend(self.arguments.iter().map(|argument| argument.describe(&mut parts)));
        arguments.push(END_OF_ARGUMENTS);
        let second = match self.second_key() {
            Some(word) => key_behind(word),
            None if self.has_only_keys() => keys_to_the_end(),
            None => END_OF_KEY_SPECS,
        };
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
        // The server copies everything. Pointers in `arguments` point into `parts`, which must live
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
        up_to(spec, 0)
    }
}

/// The flags of the keys after the first: they are only read.
const SECOND_KEY_FLAGS: u32 = raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS;

/// The position after the first key: of the word of a second key, or of the second of several keys.
const SECOND_KEY_WORD: usize = 2;

/// The spec of the second key. It follows a word at any place, because no kind of spec can name one
/// place.
fn key_behind(word: &'static CStr) -> raw::RedisModuleCommandKeySpec {
    let mut spec = END_OF_KEY_SPECS;
    spec.flags = u64::from(SECOND_KEY_FLAGS | raw::REDISMODULE_CMD_KEY_INCOMPLETE);
    spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_KEYWORD;
    spec.bs.keyword = raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_2 {
        keyword: word.as_ptr(),
        startfrom: SECOND_KEY_WORD as c_int,
    };
    up_to(spec, 0)
}

/// The spec of the keys after the first, up to the last word.
fn keys_to_the_end() -> raw::RedisModuleCommandKeySpec {
    let mut spec = END_OF_KEY_SPECS;
    spec.flags = u64::from(SECOND_KEY_FLAGS);
    spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    spec.bs.index.pos = SECOND_KEY_WORD as c_int;
    up_to(spec, -1)
}

/// Completes a spec: it finds the keys from where its search begins up to `last`, counted from
/// there, or from the end of the command if negative.
fn up_to(mut spec: raw::RedisModuleCommandKeySpec, last: c_int) -> raw::RedisModuleCommandKeySpec {
    spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
    spec.fk.range = raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
        lastkey: last,
        keystep: 1,
        limit: 0,
    };
    spec
}

impl Argument {
    /// Converts the argument for the server; stores the arrays that it points to in `parts`.
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
            // Key spec 0 is that of the first key.
            Self::Key(name) => {
                raw::RedisModuleCommandArg { key_spec_index: 1, ..leaf(name, KEY, None, 0) }
            }
            Self::Keys(name) => {
                raw::RedisModuleCommandArg { key_spec_index: 1, ..leaf(name, KEY, None, MULTIPLE) }
            }
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
            Self::Pair(name, token, values) => {
                let members = values.iter().map(|value| leaf(value, INTEGER, None, 0)).collect();
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
            Self::Choice(name, members) => {
                let members = members
                    .iter()
                    .map(|member| raw::RedisModuleCommandArg { flags: 0, ..member.describe(parts) })
                    .collect();
                raw::RedisModuleCommandArg {
                    subargs: group(parts, members),
                    ..leaf(name, ONE_OF, None, 0)
                }
            }
        }
    }
}

/// Stores the members of a block or choice in `parts`, and returns their address.
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
