//! Commands that the module sends to its own server, and their replies.

use std::{
    ffi::{CStr, c_char, c_int},
    marker::PhantomData,
    ptr::NonNull,
};

use super::{Context, OwnedStr, call, raw};

/// The reply to a command. Drop frees it.
pub(crate) struct CallReply(NonNull<raw::RedisModuleCallReply>);

/// A reply, or an element of one, which lives as long as the whole reply.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a>(NonNull<raw::RedisModuleCallReply>, PhantomData<&'a CallReply>);

impl Context<'_> {
    /// Runs a command; `None` if the server refuses it, for example because it was renamed.
    pub(crate) fn run(self, command: &CStr, arguments: &[&str]) -> Option<CallReply> {
        let arguments: Vec<OwnedStr> =
            arguments.iter().filter_map(|argument| OwnedStr::new(argument.as_bytes())).collect();
        // `OwnedStr` is transparent over the pointer that the format `v` takes.
        let reply: *mut raw::RedisModuleCallReply = call!(RedisModule_Call(
            self.0,
            command.as_ptr(),
            c"v".as_ptr(),
            arguments.as_ptr(),
            arguments.len()
        ));
        NonNull::new(reply).map(CallReply)
    }
}

impl CallReply {
    pub(crate) fn whole(&self) -> Part<'_> {
        Part(self.0, PhantomData)
    }
}

impl Part<'_> {
    /// The text of a string; `None` for other kinds of replies.
    pub(crate) fn text(self) -> Option<String> {
        let mut len = 0;
        let start: *const c_char =
            call!(RedisModule_CallReplyStringPtr(self.0.as_ptr(), &raw mut len));
        if start.is_null() {
            return None;
        }
        // SAFETY: the server returns the start and length of bytes that live as long as the reply.
        let bytes = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), len) };
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    /// Whether this is an array.
    pub(crate) fn is_array(self) -> bool {
        let kind: c_int = call!(RedisModule_CallReplyType(self.0.as_ptr()));
        kind == raw::REDISMODULE_REPLY_ARRAY as c_int
    }

    /// The elements of an array; none for other kinds of replies.
    pub(crate) fn elements(self) -> impl Iterator<Item = Self> {
        (0..).map_while(move |index| {
            let element: *mut raw::RedisModuleCallReply =
                call!(RedisModule_CallReplyArrayElement(self.0.as_ptr(), index));
            NonNull::new(element).map(|element| Self(element, PhantomData))
        })
    }
}

impl Drop for CallReply {
    fn drop(&mut self) {
        call!(RedisModule_FreeCallReply(self.0.as_ptr()));
    }
}
