//! Pages that a child process gives back while it saves, so that the server need not copy them.
//!
//! BGSAVE, a rewrite of the AOF and a full sync fork a child, which shares every page with the
//! server until one of the two writes to it: then the kernel copies the page. The child writes a
//! filter out once and never looks at it again, but as long as it holds the old page the server
//! still pays for a copy. So the child gives the pages back piece by piece, as it has written them
//! (`MADV_DONTNEED`). The server is then the only owner of a page and writes to it in place; and a
//! page that was copied before is freed. An addition copies a page only if it comes before the
//! child has.
//!
//! The server does the same for strings, lists and the other types of its own (`dismissObject`),
//! and not for types of modules.
//!
//! After it the pages read as zeros in the child, so all depends on nobody's reading them there:
//! * **Only in a child that saves.** The server says in the child itself that it begins to save
//!   (the events `RDB_START` and `AOF_START`); in its own process it says otherwise, or for DUMP,
//!   COPY and DEBUG DIGEST nothing. A child that says nothing gives nothing back: another module's
//!   fork, or a slot on its way to another node where that is none of the two. That a process is a
//!   child at all (`IS_CHILD`) is asked once more, when it begins.
//! * **Only what the server's walk over the keys writes.** It comes to each key once, writes it to
//!   a file, or to all replicas at a time, and leaves by `_exit`, which frees nothing. What has no
//!   key (`SaveDataTypeToString`, by which one module has another's value as a string) is left
//!   alone. Another module that would DUMP a filter from inside its own callback in the child, or
//!   fork and save twice in that child, would read zeros; of the server's types, too, in the second
//!   case.
//! * **Only what the codec is done with**: it says so after the words are in a buffer of their own
//!   (`codec/io.rs`). A child that fails or panics (`panic_guard.rs`) after that ends, and its file
//!   with it.
//! * **Only whole pages inside of an array of words.** These hold nothing else, whichever allocator
//!   they are from.
//!
//! Where the server keeps huge pages (it turns them off for itself unless `disable-thp no`), the
//! kernel takes a part of one from the child, and the server copies small pages until the child has
//! given all of it back. Where the kernel refuses, everything is as before. On other systems than
//! Linux the call means something else, and nothing is given back.
//!
//! A piece ends anywhere in a page, so where the last one ended is kept: the page between is given
//! back with the next.
//!
//! Measured (`make bench BENCH=persistence`): 20,000 additions spread over a BGSAVE of 1 GiB copy
//! 47 MiB, where one page each would be 78, and the child holds 28 MiB at most. The time does not
//! change: 3.0 s for 3.2 s, by turns.

use std::{
    ffi::c_int,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use super::{
    api::{Context, call, raw},
    panic_guard::guarded,
};

/// Whether this process is a child that saves.
static SAVES: AtomicBool = AtomicBool::new(false);

/// Asks to be told when a child begins to save.
pub(super) fn watch(ctx: Context) {
    ctx.subscribe(raw::REDISMODULE_EVENT_PERSISTENCE, told);
}

unsafe extern "C" fn told(
    ctx: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    what: u64,
    _: *mut std::ffi::c_void,
) {
    // SAFETY: the server's own context, for this call.
    let ctx = unsafe { Context::new(ctx) };
    guarded("persistence event", (), || {
        let begins = [
            raw::REDISMODULE_SUBEVENT_PERSISTENCE_RDB_START,
            raw::REDISMODULE_SUBEVENT_PERSISTENCE_AOF_START,
        ];
        let child = ctx.flags() & raw::REDISMODULE_CTX_FLAGS_IS_CHILD as c_int != 0;
        SAVES.store(child && begins.contains(&what), Relaxed);
    });
}

/// Words of a value that have been written, in order.
pub(super) struct Written {
    /// The size of a page where they are given back.
    page: Option<usize>,
    /// Address of the first byte that was written and not given back.
    from: usize,
    /// Address after the last byte that was written.
    to: usize,
}

impl Written {
    /// None as yet of the value that `io` takes.
    pub(super) fn to(io: *mut raw::RedisModuleIO) -> Self {
        let key: *const raw::RedisModuleString = if SAVES.load(Relaxed) {
            call!(RedisModule_GetKeyNameFromIO(io))
        } else {
            std::ptr::null()
        };
        let page = if key.is_null() { None } else { page_size() };
        Self { page, from: 0, to: 0 }
    }

    /// These too. In a child that saves nobody may read them again.
    pub(super) fn add(&mut self, words: &[u64]) {
        let Some(page) = self.page else {
            return;
        };
        let span = words.as_ptr_range();
        if span.start.addr() != self.to {
            self.from = span.start.addr();
        }
        self.to = span.end.addr();
        let Some(first) = self.from.checked_next_multiple_of(page) else {
            return;
        };
        let past = self.to - self.to % page;
        if first < past {
            give_back(first, past - first);
            self.from = past;
        }
    }
}

#[cfg(target_os = "linux")]
fn page_size() -> Option<usize> {
    // SAFETY: it answers a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()
}

/// Gives back whole pages.
#[cfg(target_os = "linux")]
fn give_back(address: usize, bytes: usize) {
    let pages = std::ptr::without_provenance_mut(address);
    // SAFETY: the pages lie inside arrays of words that are alive, and nothing else lies there.
    // From here on they are zeros to this process; that nobody reads them again, the essay of this
    // file argues. A refusal changes nothing.
    unsafe { libc::madvise(pages, bytes, libc::MADV_DONTNEED) };
}

#[cfg(not(target_os = "linux"))]
fn page_size() -> Option<usize> {
    None
}

#[cfg(not(target_os = "linux"))]
fn give_back(_: usize, _: usize) {}
