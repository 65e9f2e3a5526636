//! Huge pages: a thread keeps large bit arrays in pages of 2 MiB instead of 4 KiB.
//!
//! An item of a large filter waits for the processor to find its page, more than for the page's
//! content. With huge pages a filter of 133 MB needs 64 entries of the processor's table in place
//! of 32,500 (`docs/design.md`).
//!
//! ```text
//!   allocator ──watch, forget──▶ WATCHED ──▶ the thread, once a second:
//!   each 2 MiB of a watched array ──in use?──▶ MADV_COLLAPSE ──▶ PAGE_BYTES for INFO
//! ```
//!
//! `MADV_COLLAPSE` (Linux 6.1) copies 512 small pages into a huge one, or does nothing if that was
//! done before. It has these advantages over the advice `MADV_HUGEPAGE`:
//! * It decides about memory that is in use, once. The advice would stay with the addresses, and
//!   the server's allocator uses them again for other keys.
//! * It takes no memory. The thread collapses only what has all of its small pages resident, so a
//!   sparse array stays sparse, and so does one that is swapped out. Only while one page is copied,
//!   both copies exist: 2 MiB.
//! * It repairs what a fork leaves behind. When the server writes to a huge page that it shares
//!   with a child, the kernel splits the page and copies 4 KiB. The thread collapses the page again
//!   once the child has ended.
//!
//! A page that is shared with a child, and the kernel's page of zeros (an empty page that was
//! read), do not count as resident: `/proc/self/pagemap` shows which pages belong to this process
//! alone.
//!
//! Memory limits: for a huge page the kernel never calls its OOM killer, whether the machine or the
//! control group is full; it refuses. The thread then waits for a minute (`LONG_PAUSE`), as after
//! every refusal, so that it does not make the kernel look for memory again and again.
//!
//! Commands never wait for this thread. The kernel may block a page fault of the main thread while
//! it copies a page, some 0.5 ms, and a fork or a mapping of memory while it waits for all
//! processors before that. To collapse never changes what memory holds, so a call that comes too
//! late, after an array was freed, is harmless.
//!
//! The thread starts when there is a large array. A module that a server loads and unloads in one
//! breath (a wrong setting in MODULE LOADEX) never has one.

use std::{
    ffi::c_void,
    fs::{self, File},
    mem::MaybeUninit,
    os::unix::fs::FileExt,
    ptr::{null_mut, with_exposed_provenance_mut},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use super::{
    api::{Context, raw},
    config,
    panic_guard::guarded,
};

/// Bytes of a huge page on x86-64, and on aarch64 with small pages of 4 KiB.
const HUGE: usize = 2 << 20;
/// Bytes of a small page.
const SMALL: usize = 4 << 10;
/// Small pages that a huge page replaces.
const PER_HUGE: usize = HUGE / SMALL;

/// Smaller arrays are not watched: the table of a processor covers some 8 MiB in small pages.
const LEAST_BYTES: usize = 8 << 20;

/// Pause between two rounds over all arrays.
const PAUSE: Duration = Duration::from_secs(1);
/// Pause after a round that the system stopped.
const LONG_PAUSE: Duration = Duration::from_secs(60);
/// After this time of work, at the end of a page, the thread sleeps `REST` times as long as it
/// worked. Without that, page faults of the main thread waited for many pages in a row.
const WORK: Duration = Duration::from_micros(200);
const REST: u32 = 20;

/// `MADV_COLLAPSE`, which the C library may not know yet.
const MADV_COLLAPSE: i32 = 25;

/// The watched arrays; 0 is a free place. One value describes an array, so that it is never read
/// half written: the threads of the server allocate and free, and a child of a fork may free while
/// no other thread exists, so there is no lock.
static WATCHED: [AtomicU64; 4096] = [const { AtomicU64::new(0) }; 4096];

/// Bytes in huge pages, as the last round found them.
static PAGE_BYTES: AtomicU64 = AtomicU64::new(0);

/// The whole huge pages inside an allocation: the number of the first one in the address space, and
/// in the lower 28 bits how many they are.
fn pack(address: usize, bytes: usize) -> u64 {
    let first = address.div_ceil(HUGE);
    let count = (address.saturating_add(bytes) / HUGE).saturating_sub(first);
    (first as u64) << 28 | count as u64
}

/// The addresses of the huge pages that [`pack`] packed.
fn unpack(packed: u64) -> impl Iterator<Item = usize> {
    let (first, count) = ((packed >> 28) as usize, (packed & ((1 << 28) - 1)) as usize);
    (first..first.saturating_add(count)).map(|page| page.saturating_mul(HUGE))
}

/// Watches a zeroed allocation, if it is large. With more than 4,096 large arrays, the others keep
/// small pages.
#[inline]
pub(super) fn watch(pointer: *mut u8, bytes: usize) {
    if bytes >= LEAST_BYTES && !pointer.is_null() {
        replace(0, pack(pointer.addr(), bytes));
    }
}

/// The allocation is about to be freed or moved.
#[inline]
pub(super) fn forget(pointer: *mut u8, bytes: usize) {
    if bytes >= LEAST_BYTES {
        replace(pack(pointer.addr(), bytes), 0);
    }
}

/// Replaces one `old` in `WATCHED`, if there is one.
#[cold]
fn replace(old: u64, new: u64) {
    for place in &WATCHED {
        if place.load(Relaxed) == old && place.compare_exchange(old, new, Relaxed, Relaxed).is_ok()
        {
            return;
        }
    }
}

/// Bytes in huge pages, at the last round of the thread.
pub(super) fn bytes() -> u64 {
    PAGE_BYTES.load(Relaxed)
}

/// Starts the thread once there is a large array.
pub(super) fn watch_events(ctx: Context) {
    ctx.subscribe(raw::REDISMODULE_EVENT_CRON_LOOP, cron);
}

/// Runs about ten times a second, in the main thread.
unsafe extern "C" fn cron(
    ctx: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    _: u64,
    _: *mut c_void,
) {
    static STARTED: AtomicBool = AtomicBool::new(false);
    if STARTED.load(Relaxed) || WATCHED.iter().all(|array| array.load(Relaxed) == 0) {
        return;
    }
    STARTED.store(true, Relaxed);
    guarded("cron event", (), || {
        if let Err(why) = start() {
            // SAFETY: the server's own context, for this call.
            let ctx = unsafe { Context::new(ctx) };
            ctx.warn(&format!("bf: large filters do without huge pages: {why}"));
        }
    });
}

/// Starts the thread, which runs as long as the server.
///
/// # Errors
/// Why it cannot run, for the log.
fn start() -> Result<(), String> {
    if !stay_loaded() {
        return Err("the library cannot be kept in memory".into());
    }
    let thread = thread::Builder::new().name("bf-huge-pages".into());
    let run = || {
        leave_signals_to_the_server();
        guarded("huge pages", (), run);
    };
    thread.spawn(run).map(drop).map_err(|error| format!("no thread: {error}"))
}

/// Keeps this library mapped to the end of the process: some servers unload all modules when they
/// shut down, and the thread would go on in memory that is gone.
fn stay_loaded() -> bool {
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    let inside = (&raw const WATCHED).cast();
    // SAFETY: this looks up an address, and fills `found` if it returns another value than 0.
    if unsafe { libc::dladdr(inside, found.as_mut_ptr()) } == 0 {
        return false;
    }
    // SAFETY: dladdr has filled it.
    let found = unsafe { found.assume_init() };
    let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: the name is that of this library, which is loaded, so that no code of it runs.
    !unsafe { libc::dlopen(found.dli_fname, flags) }.is_null()
}

/// Blocks the signals of the server in this thread, as its own threads do: its watchdog prints the
/// stack of the thread that gets SIGALRM. Errors of this thread still make a crash report.
fn leave_signals_to_the_server() {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: this fills the set.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT] {
        // SAFETY: the set is filled.
        unsafe { libc::sigdelset(set.as_mut_ptr(), signal) };
    }
    // SAFETY: the set is filled, and concerns this thread alone.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), null_mut()) };
}

fn run() {
    let mut last = None;
    loop {
        let (mut bytes, mut obstacle) = (0, None);
        if config::huge_pages() && WATCHED.iter().any(|array| array.load(Relaxed) != 0) {
            (bytes, obstacle) = round();
        }
        PAGE_BYTES.store(bytes, Relaxed);
        if let Some(why) = obstacle
            && obstacle != last
        {
            // SAFETY: the server's log accepts a null context, and any thread may use it.
            let server = unsafe { Context::new(null_mut()) };
            server.warn(&format!("bf: large filters do without huge pages: {why}"));
        }
        last = obstacle.or(last);
        thread::sleep(if obstacle.is_some() { LONG_PAUSE } else { PAUSE });
    }
}

/// Why this process has no huge pages, for the log; and what shows them.
fn pagemap() -> Result<File, &'static str> {
    let modes = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    if modes.map_or(true, |modes| modes.contains("[never]")) {
        return Err("/sys/kernel/mm/transparent_hugepage/enabled says never, or is missing");
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if status.lines().any(|line| line.split_whitespace().eq(["THP_enabled:", "0"])) {
        return Err("they are turned off for this process (in redis.conf: disable-thp no)");
    }
    File::open("/proc/self/pagemap").map_err(|_| "/proc/self/pagemap cannot be read")
}

/// Collapses the full parts of all watched arrays. Returns the bytes that are in huge pages, and
/// what stopped the round, for the log.
fn round() -> (u64, Option<&'static str>) {
    let pagemap = match pagemap() {
        Ok(pagemap) => pagemap,
        Err(why) => return (0, Some(why)),
    };
    let (mut huge, mut begin) = (0, Instant::now());
    for array in &WATCHED {
        let packed = array.load(Relaxed);
        for address in unpack(packed) {
            if !config::huge_pages() {
                return (huge, None);
            }
            if is_full(&pagemap, address) {
                match collapse(address) {
                    Ok(true) => huge += HUGE as u64,
                    // The array was freed at this moment.
                    Err(_) if array.load(Relaxed) != packed => break,
                    Err(why) => return (huge, Some(why)),
                    Ok(false) => {}
                }
            }
            let work = begin.elapsed();
            if work > WORK {
                thread::sleep(work.saturating_mul(REST));
                begin = Instant::now();
            }
        }
    }
    (huge, None)
}

/// Makes a huge page of 512 small ones; true if it is one now, false if another round may try.
///
/// # Errors
/// Why the system refuses, for the log.
fn collapse(address: usize) -> Result<bool, &'static str> {
    let page = with_exposed_provenance_mut::<c_void>(address);
    // SAFETY: `MADV_COLLAPSE` changes no content, whatever is at the address; where nothing is, it
    // is refused.
    if unsafe { libc::madvise(page, HUGE, MADV_COLLAPSE) } == 0 {
        return Ok(true);
    }
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::EAGAIN) => Ok(false),
        Some(libc::ENOMEM | libc::EBUSY) => Err("the system or the container has no 2 MiB for one"),
        _ => Err("the kernel refuses (it needs Linux 6.1)"),
    }
}

/// Whether all small pages of a huge one belong to this process, and to it alone.
fn is_full(pagemap: &File, address: usize) -> bool {
    /// In the highest byte of an entry: the page is mapped once.
    const EXCLUSIVE: u8 = 1;
    let mut entries = [0; PER_HUGE * 8];
    let read = pagemap.read_exact_at(&mut entries, (address / SMALL * 8) as u64);
    let exclusive = |entry: &[u8]| matches!(entry, [.., high] if high & EXCLUSIVE != 0);
    read.is_ok() && entries.chunks_exact(8).all(exclusive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_huge_pages_inside_an_allocation_are_watched() {
        let pages = |address, bytes| {
            let mut pages = unpack(pack(address, bytes));
            (pages.next(), pages.count())
        };
        let start = 0x7f12_3440_0000;
        assert_eq!(pages(start, 8 * HUGE), (Some(start), 7));
        assert_eq!(pages(start + 1, 8 * HUGE), (Some(start + HUGE), 6));
        assert_eq!(pages(start, 8 * HUGE - 1), (Some(start), 6));
        assert_eq!(pages(start - 64, 8 * HUGE), (Some(start), 6));
        assert_eq!(pages(start + 64, HUGE), (None, 0));
        // An address of 57 bits, and 128 TiB.
        let high = 1 << 56;
        assert_eq!(pages(high, 1 << 47), (Some(high), (1 << 26) - 1));
    }

    #[test]
    fn what_is_forgotten_is_watched_no_more() {
        let array = with_exposed_provenance_mut::<u8>(0x7f12_3440_0000);
        let times = || {
            let packed = pack(array.addr(), LEAST_BYTES);
            WATCHED.iter().filter(|place| place.load(Relaxed) == packed).count()
        };
        watch(array, LEAST_BYTES - 1);
        watch(null_mut(), LEAST_BYTES);
        assert_eq!(times(), 0);
        watch(array, LEAST_BYTES);
        assert_eq!(times(), 1);
        forget(array, LEAST_BYTES + HUGE);
        assert_eq!(times(), 1);
        forget(array, LEAST_BYTES);
        assert_eq!(times(), 0);
    }
}
