//! Huge pages: a thread moves large bit arrays from pages of 4 KiB into pages of 2 MiB.
//!
//! An item of a large filter waits for the processor to find its page, more than for the content of
//! the page. In huge pages a filter of 133 MB has 64 pages in place of 32,500 (`docs/design.md`).
//!
//! ```text
//!   allocator ──watch, forget──▶ ARRAYS ──▶ the thread, once a second:
//!   each 2 MiB of an array ──is_full?──▶ MADV_COLLAPSE ──▶ PAGE_BYTES, for INFO
//! ```
//!
//! `MADV_COLLAPSE` (Linux 6.1) copies 512 small pages into a huge one.
//! * A sparse array stays sparse. The thread collapses 2 MiB only if all of its small pages are
//!   resident, so the memory of the server stays as it is. While a page is copied, both copies
//!   exist: 2 MiB. `MADV_HUGEPAGE` would make a huge page of each 2 MiB with one resident page, and
//!   it would stay with the addresses, which the allocator uses again for other keys.
//! * A fork shares all pages. A write to a shared huge page splits it, and copies 4 KiB. A shared
//!   page does not count as resident, nor does the kernel's page of zeros (an empty page that was
//!   read): `/proc/self/pagemap` shows which pages belong to this process alone. So once the child
//!   has ended, the thread finds what was split, and collapses it again. The kernel's own daemon
//!   would take ten seconds for 16 MiB.
//! * If memory is short, of the machine or of a control group, the kernel refuses: it never calls
//!   its OOM killer for a huge page. The thread then waits for a minute.
//!
//! `MADV_COLLAPSE` never changes what memory holds. So it does no harm if the array is freed, moved
//! or unmapped at that moment, whatever has its addresses then.
//!
//! No command waits for the thread. But the kernel stops a page fault of the main thread while it
//! copies that page, and a fork while it copies any: 0.6 ms, or 6 to 9 ms in a virtual machine
//! whose host has to find the memory first, and longer if all processors are busy. So the thread
//! mostly sleeps, and the setting is off by default.
//!
//! The thread starts with the first large array, and runs until the process ends. A child of a fork
//! has no such thread.

use std::{
    collections::BTreeSet,
    ffi::c_void,
    fs::{self, File},
    mem::MaybeUninit,
    os::unix::fs::FileExt,
    ptr::{null_mut, with_exposed_provenance_mut},
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    api::{Context, raw},
    config,
    panic_guard::guarded,
};

/// Bytes of a huge page. Systems with others (some of arm64) are left alone.
const HUGE: usize = 2 << 20;
/// Bytes of a small page.
const SMALL: usize = 4 << 10;

/// Smaller arrays are not watched: a processor holds the places of some 2,000 small pages.
const LEAST_BYTES: usize = 8 << 20;

/// Pause between two rounds over all arrays.
const PAUSE: Duration = Duration::from_secs(1);
/// Pause after a round that the system stopped.
const LONG_PAUSE: Duration = Duration::from_secs(60);
/// The thread looks at all pages again after this number of rounds, because the system may split
/// huge pages at any time, for example to swap them out.
const ROUNDS: u64 = 600;
/// After this time of work, the thread sleeps `REST` times as long as it worked.
const WORK: Duration = Duration::from_micros(200);
const REST: u32 = 20;

/// `MADV_COLLAPSE`, which the C library may not know yet.
const MADV_COLLAPSE: i32 = 25;

/// The large arrays; 0 is a free place. If there are more, the others keep small pages. One atomic
/// value describes an array, so there is no lock that a fork could leave locked in the child.
static ARRAYS: [AtomicU64; 4096] = [const { AtomicU64::new(0) }; 4096];

/// Counts what may make small pages: a large array that comes or goes, a fork, the end of a child.
static CHANGES: AtomicU64 = AtomicU64::new(0);

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

/// Watches a zeroed allocation, if it is large.
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

/// Replaces one `old` in `ARRAYS`, if there is one. Any thread may call this.
#[cold]
fn replace(old: u64, new: u64) {
    let swap = |place: &AtomicU64| {
        place.load(Relaxed) == old && place.compare_exchange(old, new, Relaxed, Relaxed).is_ok()
    };
    if ARRAYS.iter().any(swap) {
        CHANGES.fetch_add(1, Release);
    }
}

/// Bytes in huge pages, at the last round of the thread.
pub(super) fn bytes() -> u64 {
    PAGE_BYTES.load(Relaxed)
}

/// Subscribes to the events that start the thread, and that it has to know of.
pub(super) fn watch_events(ctx: Context) {
    if cfg!(target_os = "linux") {
        ctx.subscribe(raw::REDISMODULE_EVENT_CRON_LOOP, cron);
        ctx.subscribe(raw::REDISMODULE_EVENT_FORK_CHILD, forked);
    }
}

/// Runs some ten times a second, in the main thread. It starts the thread, rather than the load of
/// the module: a server that refuses a setting in MODULE LOADEX unloads the module at once.
unsafe extern "C" fn cron(
    ctx: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    _: u64,
    _: *mut c_void,
) {
    static STARTED: AtomicBool = AtomicBool::new(false);
    if CHANGES.load(Relaxed) == 0 || !config::huge_pages() || STARTED.swap(true, Relaxed) {
        return;
    }
    guarded("cron event", (), || {
        if let Err(why) = start() {
            // SAFETY: the server's own context, for this call.
            warn(unsafe { Context::new(ctx) }, &why);
        }
    });
}

/// A child was forked, or has ended.
unsafe extern "C" fn forked(
    _: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    _: u64,
    _: *mut c_void,
) {
    // Only a large array makes the first change: it starts the thread.
    if CHANGES.load(Relaxed) > 0 {
        CHANGES.fetch_add(1, Release);
    }
}

fn warn(ctx: Context, why: &str) {
    ctx.warn(&format!("bf: large filters do without huge pages: {why}"));
}

/// Starts the thread.
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
    let inside = (&raw const ARRAYS).cast();
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

/// Blocks the signals of the server in this thread, as the server's own threads do: its watchdog
/// prints the stack of the thread that gets SIGALRM. Errors of this thread still make a crash
/// report.
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

/// The life of the thread.
fn run() {
    // The addresses of the huge pages that this thread has made or found, since the last change.
    let mut pages = BTreeSet::new();
    let (mut seen, mut logged) = (0, None);
    for number in 0_u64.. {
        let changes = CHANGES.load(Acquire);
        if changes != seen || number % ROUNDS == 0 || !config::huge_pages() {
            pages.clear();
        }
        seen = changes;
        let stopped = round(&mut pages).err();
        PAGE_BYTES.store((pages.len() as u64).saturating_mul(HUGE as u64), Relaxed);
        if let Some(why) = stopped
            && stopped != logged
        {
            // SAFETY: the server's log accepts a null context, and any thread may use it.
            warn(unsafe { Context::new(null_mut()) }, why);
            logged = stopped;
        }
        thread::sleep(if stopped.is_some() { LONG_PAUSE } else { PAUSE });
    }
}

/// Collapses the full parts of all arrays, and adds them to `pages`.
///
/// # Errors
/// What stopped the round, for the log.
fn round(pages: &mut BTreeSet<usize>) -> Result<(), &'static str> {
    if !config::huge_pages() || ARRAYS.iter().all(|array| array.load(Relaxed) == 0) {
        return Ok(());
    }
    let pagemap = pagemap()?;
    let (mut refused, mut begin) = (false, Instant::now());
    for array in &ARRAYS {
        let packed = array.load(Relaxed);
        for address in unpack(packed) {
            if array.load(Relaxed) != packed || !config::huge_pages() {
                break;
            }
            if pages.contains(&address) || !is_full(&pagemap, address) {
                // Another round may find it full.
            } else if let Err(error) = collapse(address) {
                match error.raw_os_error() {
                    Some(libc::EAGAIN) => {}
                    Some(libc::ENOMEM | libc::EBUSY) if array.load(Relaxed) == packed => {
                        return Err("the system or the container has no 2 MiB for one");
                    }
                    _ => refused |= array.load(Relaxed) == packed,
                }
            } else {
                pages.insert(address);
            }
            let work = begin.elapsed();
            if work > WORK {
                thread::sleep(work.saturating_mul(REST));
                begin = Instant::now();
            }
        }
    }
    // A single page may be refused for good, for example because two mappings meet in it.
    if refused && pages.is_empty() {
        return Err("the kernel refuses (it needs Linux 6.1)");
    }
    Ok(())
}

/// Opens what shows which pages belong to this process.
///
/// # Errors
/// Why this process has no huge pages, for the log.
fn pagemap() -> Result<File, &'static str> {
    let system = |name| {
        fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{name}"))
            .unwrap_or_default()
    };
    if system("hpage_pmd_size").trim().parse() != Ok(HUGE) {
        return Err("the system has none of 2 MiB");
    }
    if system("enabled").contains("[never]") {
        return Err("/sys/kernel/mm/transparent_hugepage/enabled says never");
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if status.lines().any(|line| line.split_whitespace().eq(["THP_enabled:", "0"])) {
        return Err("they are turned off for this process (in redis.conf: disable-thp no)");
    }
    File::open("/proc/self/pagemap").map_err(|_| "/proc/self/pagemap cannot be read")
}

/// Makes a huge page of 512 small ones, or does nothing if they are one already.
fn collapse(address: usize) -> std::io::Result<()> {
    let page = with_exposed_provenance_mut::<c_void>(address);
    // SAFETY: `MADV_COLLAPSE` changes no content, whatever is at the address; where nothing is, it
    // is refused.
    match unsafe { libc::madvise(page, HUGE, MADV_COLLAPSE) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Whether all small pages of a huge one belong to this process, and to it alone.
fn is_full(pagemap: &File, address: usize) -> bool {
    /// In the highest byte of the eight that describe a page: it is mapped once.
    const EXCLUSIVE: u8 = 1;
    /// Pages that are looked at together: in a sparse array, most often the first ones show it.
    const PART: usize = 64;
    (address..address.saturating_add(HUGE)).step_by(PART * SMALL).all(|part| {
        let mut entries = [0; PART * 8];
        let read = pagemap.read_exact_at(&mut entries, (part / SMALL * 8) as u64);
        let exclusive = |entry: &[u8]| matches!(entry, [.., high] if high & EXCLUSIVE != 0);
        read.is_ok() && entries.chunks_exact(8).all(exclusive)
    })
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
            ARRAYS.iter().filter(|place| place.load(Relaxed) == packed).count()
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
