//! What the module tells the server when it loads: commands, data types, settings, callbacks.

use std::ffi::{CStr, c_int, c_uint};

use super::{Context, raw};

impl Context<'_> {
    /// Sets the module's options (`REDISMODULE_OPTION*`).
    pub(crate) fn set_options(self, options: u32) {
        call!(RedisModule_SetModuleOptions(self.0, options as c_int));
    }

    /// Subscribes to the server's events of the kind `id` (`REDISMODULE_EVENT_*`).
    pub(crate) fn subscribe(self, id: u64, callback: raw::RedisModuleEventCallback) {
        let event = raw::RedisModuleEvent { id, dataver: 1 };
        call!(RedisModule_SubscribeToServerEvent(self.0, event, callback));
    }

    /// Calls `ring` once, after `milliseconds`.
    pub(crate) fn set_timer(self, milliseconds: i64, ring: raw::RedisModuleTimerProc) {
        let no_data = std::ptr::null_mut();
        let _: u64 = call!(RedisModule_CreateTimer(self.0, milliseconds, ring, no_data));
    }

    /// Registers the callback that fills the module's section of INFO.
    pub(crate) fn register_info(self, info: raw::RedisModuleInfoFunc) {
        call!(RedisModule_RegisterInfoFunc(self.0, info));
    }

    /// Adds an ACL category, where the server can.
    pub(crate) fn add_category(self, name: &CStr) {
        call!(RedisModule_AddACLCategory(self.0, name.as_ptr()));
    }

    /// Registers a data type; null if the server refuses, because the name is taken.
    pub(crate) fn create_type(
        self,
        name: &CStr,
        version: i32,
        mut methods: raw::RedisModuleTypeMethods,
    ) -> *mut raw::RedisModuleType {
        call!(RedisModule_CreateDataType(self.0, name.as_ptr(), version, &raw mut methods))
    }

    /// Registers a setting that is kept as text, with its default; false if the server refuses.
    /// `flags` are `REDISMODULE_CONFIG_*`. The callbacks get `setting` as a pointer.
    pub(crate) fn register_setting<T: Sync>(
        self,
        name: &CStr,
        default: &CStr,
        flags: u32,
        get: raw::RedisModuleConfigGetStringFunc,
        set: raw::RedisModuleConfigSetStringFunc,
        setting: &'static T,
    ) -> bool {
        let status: c_int = call!(RedisModule_RegisterStringConfig(
            self.0,
            name.as_ptr(),
            default.as_ptr(),
            flags as c_uint,
            get,
            set,
            None,
            std::ptr::from_ref(setting).cast_mut().cast()
        ));
        status == raw::REDISMODULE_OK as c_int
    }

    /// Lets the server set every setting; false if a line of its file is not valid.
    pub(crate) fn load_settings(self) -> bool {
        let status: c_int = call!(RedisModule_LoadConfigs(self.0));
        status == raw::REDISMODULE_OK as c_int
    }

    /// Registers a command whose keys are the words from the first to the `last`. `categories` has
    /// lists of ACL categories: the command gets the first list of which the server knows every
    /// category. On a server without categories for modules it gets none. Also sets the
    /// documentation, which the server copies. Returns false if the server refuses the command.
    ///
    /// # Safety
    /// All pointers in `info` are alive or null, and each list has its end.
    pub(crate) unsafe fn create_command(
        self,
        name: &CStr,
        entry: raw::RedisModuleCmdFunc,
        flags: &CStr,
        last: c_int,
        categories: &[&CStr],
        info: &raw::RedisModuleCommandInfo,
    ) -> bool {
        let (name, flags) = (name.as_ptr(), flags.as_ptr());
        let ok = |status: c_int| status == raw::REDISMODULE_OK as c_int;
        let created = ok(call!(RedisModule_CreateCommand(self.0, name, entry, flags, 1, last, 1)));
        let command: *mut raw::RedisModuleCommand = call!(RedisModule_GetCommand(self.0, name));
        if !created || command.is_null() {
            return false;
        }
        let set =
            |list: &&CStr| ok(call!(RedisModule_SetCommandACLCategories(command, list.as_ptr())));
        let _ = categories.iter().any(set);
        ok(call!(RedisModule_SetCommandInfo(command, std::ptr::from_ref(info))))
    }
}
