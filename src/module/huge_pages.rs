//! Huge pages: a thread moves large bit arrays from pages of 4 KiB into pages of 2 MiB.
//!
//! An item of a large filter waits for the processor to find its page, more than for the content of
//! the page. In huge pages a filter of 133 MB has 64 pages in place of 32,500 (`docs/design.md`).
//!
//! ```text
//!   allocator ──watch, forget──▶ PLACES ──▶ the thread, once a second:
//!   each 2 MiB of an array ──is_full?──▶ MADV_COLLAPSE ──▶ PAGE_BYTES, for INFO
//! ```
//!
//! `MADV_COLLAPSE` (Linux 6.1) copies 512 small pages into a huge one.
//! * A sparse array stays sparse. The thread collapses 2 MiB only if all of its small pages are
//!   resident, so the memory of the server stays as it is, but for the 2 MiB that are being copied.
//!   `MADV_HUGEPAGE` would make a huge page of each 2 MiB with one resident page.
//! * A fork shares all pages. A write to a shared huge page splits it, and copies 4 KiB. A shared
//!   page does not count as resident, nor does the kernel's page of zeros: `/proc/self/pagemap`
//!   shows which pages belong to this process alone. So once the child has ended, the thread finds
//!   what was split, and collapses it again.
//! * If memory is short, of the machine or of a control group, the kernel reclaims, then refuses:
//!   it never calls its OOM killer for a huge page. The thread then waits for ten seconds.
//! * It never changes what memory holds. So it does no harm if the array is freed, moved or
//!   unmapped at that moment, whatever has its addresses then.
//!
//! No command waits for a lock of this module. While the kernel copies a page (0.6 ms, and 6 to 9
//! ms in a virtual machine whose host has to find the memory), a read of that 2 MiB waits, and so
//! do page faults in the same mapping, mmap, munmap and fork. So the thread mostly sleeps, and the
//! setting is off by default.
//!
//! The thread starts with the first large array, and runs until the process ends. A child of a fork
//! has no such thread.

use std::{
    collections::BTreeSet,
    ffi::c_void,
    fs::{self, File},
    io,
    mem::MaybeUninit,
    os::unix::fs::FileExt,
    ptr::{null_mut, with_exposed_provenance_mut},
    sync::atomic::{
        AtomicBool, AtomicI64, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    api::{self, Context, raw},
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
/// Pauses after a round that the system stopped. A change of the setting ends them.
const PAUSES: u32 = 10;
/// Milliseconds between two attempts to start the thread.
const RESTART: i64 = 10_000;
/// The thread looks at all pages again after this number of rounds, because the system may split
/// huge pages at any time, for example to swap them out.
const ROUNDS: u64 = 600;
/// After this time of work, the thread sleeps `REST` times as long as it worked, at most a `PAUSE`:
/// a process that was stopped meanwhile seems to have worked.
const WORK: Duration = Duration::from_micros(200);
const REST: u32 = 20;

/// `MADV_COLLAPSE`, which the C library may not know yet.
const MADV_COLLAPSE: i32 = 25;

/// The large arrays, packed; 0 is a free place. If there are more, the others keep small pages.
/// There is no lock that a fork could leave locked in the child.
static PLACES: [AtomicU64; 4096] = [const { AtomicU64::new(0) }; 4096];

/// Counts the arrays that got a place. Its last bits tell an array from the one before it at the
/// same address.
static ENTERED: AtomicU64 = AtomicU64::new(0);

/// Counts the children that began or ended: both may change which pages are shared.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Bytes in huge pages, as of the last look.
static PAGE_BYTES: AtomicU64 = AtomicU64::new(0);

/// In a packed array: the bits of `ENTERED`, above those of the number of pages.
const STAMP: u64 = 0xff << 20;

/// The whole huge pages inside an allocation, up to 2 TiB: the number of the first one in the
/// address space, 8 bits for a stamp, and in 20 bits how many they are.
fn pack(address: usize, bytes: usize) -> u64 {
    let first = address.div_ceil(HUGE);
    let count = (address.saturating_add(bytes) / HUGE).saturating_sub(first);
    (first as u64) << 28 | (count as u64).min((1 << 20) - 1)
}

/// The addresses of the huge pages that [`pack`] packed.
fn unpack(packed: u64) -> impl Iterator<Item = usize> {
    let (first, count) = ((packed >> 28) as usize, (packed & ((1 << 20) - 1)) as usize);
    (first..first.saturating_add(count)).map(|page| page.saturating_mul(HUGE))
}

/// Watches a zeroed allocation, if it is large. Any thread may call this.
#[inline]
pub(super) fn watch(pointer: *mut u8, bytes: usize) {
    if bytes >= LEAST_BYTES && !pointer.is_null() {
        replace(0, pack(pointer.addr(), bytes) | ENTERED.fetch_add(1, Relaxed) << 20 & STAMP);
    }
}

/// The allocation is about to be freed or moved. Any thread may call this.
#[inline]
pub(super) fn forget(pointer: *mut u8, bytes: usize) {
    if bytes >= LEAST_BYTES {
        replace(pack(pointer.addr(), bytes), 0);
    }
}

/// Puts `new` into the place of `old`, whatever its stamp is, if there is one.
#[cold]
fn replace(old: u64, new: u64) {
    for place in &PLACES {
        let now = place.load(Relaxed);
        if now & !STAMP == old && place.compare_exchange(now, new, Release, Relaxed).is_ok() {
            return;
        }
    }
}

/// The large arrays now.
fn arrays() -> impl Iterator<Item = u64> {
    PLACES.iter().map(|place| place.load(Acquire)).filter(|&array| array != 0)
}

/// Bytes in huge pages, as of the last look of the thread.
pub(super) fn bytes() -> u64 {
    PAGE_BYTES.load(Relaxed)
}

/// Subscribes to the events that start the thread, and that it has to know of.
pub(super) fn watch_events(ctx: Context) {
    if cfg!(target_os = "linux") {
        ctx.subscribe(raw::REDISMODULE_EVENT_CRON_LOOP, cron);
        ctx.subscribe(raw::REDISMODULE_EVENT_FORK_CHILD, forked);
    } else if config::huge_pages() {
        warn(ctx, "they need Linux");
    }
}

/// When the thread may start, in milliseconds of the server's clock; never, once it runs.
static START_AT: AtomicI64 = AtomicI64::new(0);

/// Whether a start has failed: that of the next attempts is not logged again.
static FAILED: AtomicBool = AtomicBool::new(false);

/// Runs some ten times a second, in the main thread. It starts the thread, rather than the load of
/// the module: a server that refuses a setting in MODULE LOADEX unloads the module at once.
unsafe extern "C" fn cron(
    ctx: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    _: u64,
    _: *mut c_void,
) {
    guarded("cron event", (), || {
        let now = api::milliseconds();
        if !config::huge_pages() || now < START_AT.load(Relaxed) || arrays().next().is_none() {
            return;
        }
        match start() {
            Ok(()) => START_AT.store(i64::MAX, Relaxed),
            Err(why) => {
                START_AT.store(now.saturating_add(RESTART), Relaxed);
                if !FAILED.swap(true, Relaxed) {
                    // SAFETY: the server's own context, for this call.
                    warn(unsafe { Context::new(ctx) }, &why);
                }
            }
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
    FORKS.fetch_add(1, Release);
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
    let started = thread.spawn(|| guarded("huge pages", (), run));
    started.map(drop).map_err(|error| format!("no thread: {error}"))
}

/// Keeps this library mapped to the end of the process: some servers unload all modules when they
/// shut down, and the thread would go on in memory that is gone.
fn stay_loaded() -> bool {
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    let inside = (&raw const PLACES).cast();
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

/// The life of the thread.
fn run() {
    // The huge pages that it has made or found, by address, and the arrays in which it has looked.
    let (mut pages, mut known) = (BTreeSet::new(), BTreeSet::new());
    let (mut number, mut forks, mut logged) = (0_u64, 0, None);
    loop {
        let now: BTreeSet<u64> = arrays().collect();
        for gone in known.difference(&now) {
            for page in unpack(*gone) {
                pages.remove(&page);
            }
        }
        known = now;
        let mut stopped = None;
        if config::huge_pages() {
            let forked = FORKS.load(Acquire);
            if forked != forks || number.is_multiple_of(ROUNDS) {
                pages.clear();
            }
            forks = forked;
            number = number.wrapping_add(1);
            stopped = round(&known, &mut pages).err();
            if let Some(why) = stopped.as_ref().filter(|_| stopped != logged) {
                // SAFETY: the server's log accepts a null context, and any thread may use it.
                warn(unsafe { Context::new(null_mut()) }, why);
            }
        }
        PAGE_BYTES.store(bytes_of(&pages), Relaxed);
        thread::sleep(PAUSE);
        for _ in 1..if stopped.is_some() { PAUSES } else { 1 } {
            if config::huge_pages() {
                thread::sleep(PAUSE);
            }
        }
        logged = stopped;
    }
}

fn bytes_of(pages: &BTreeSet<usize>) -> u64 {
    (pages.len() as u64).saturating_mul(HUGE as u64)
}

/// Collapses the full parts of `known` arrays, and adds them to `pages`.
///
/// # Errors
/// What stopped the round, for the log.
fn round(known: &BTreeSet<u64>, pages: &mut BTreeSet<usize>) -> Result<(), String> {
    if known.is_empty() {
        return Ok(());
    }
    let pagemap = pagemap()?;
    let (mut refused, mut begin) = (None, Instant::now());
    for &array in known {
        let is_there = || arrays().any(|now| now == array);
        for address in unpack(array) {
            if !config::huge_pages() || !is_there() {
                break;
            }
            if !pages.contains(&address)
                && is_full(&pagemap, address).map_err(|error| format!("{PAGEMAP}: {error}"))?
            {
                match collapse(address).map_err(|error| (error.raw_os_error(), error)) {
                    Ok(()) => {
                        pages.insert(address);
                        // After a fork, the last number is shown until there are more.
                        PAGE_BYTES.fetch_max(bytes_of(pages), Relaxed);
                    }
                    Err((Some(libc::EAGAIN), _)) => {}
                    Err(_) if !is_there() => {}
                    Err((Some(libc::ENOMEM | libc::EBUSY), _)) => {
                        return Err("the system or the container has no 2 MiB for one".into());
                    }
                    Err((_, error)) => refused = Some(error),
                }
            }
            let work = begin.elapsed();
            if work > WORK {
                thread::sleep(work.saturating_mul(REST).min(PAUSE));
                begin = Instant::now();
            }
        }
    }
    // A single page may be refused for good, for example because two mappings meet in it.
    match refused {
        Some(error) if pages.is_empty() => Err(format!(
            "the kernel refuses: {error}; Linux before 6.1, or an allocator without huge pages"
        )),
        _ => Ok(()),
    }
}

/// Shows which small pages belong to this process.
const PAGEMAP: &str = "/proc/self/pagemap";

/// Opens `PAGEMAP`.
///
/// # Errors
/// Why this process has no huge pages, for the log.
fn pagemap() -> Result<File, String> {
    let path = |name| format!("/sys/kernel/mm/transparent_hugepage/{name}");
    let size = path("hpage_pmd_size");
    let huge = fs::read_to_string(&size).map_err(|error| format!("{size}: {error}"))?;
    // SAFETY: this reads a constant of the system.
    let small = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    if (huge.trim().parse(), usize::try_from(small)) != (Ok(HUGE), Ok(SMALL)) {
        let huge = huge.trim();
        return Err(format!("pages have {small} and {huge} bytes, not {SMALL} and {HUGE}"));
    }
    let enabled = path("enabled");
    if fs::read_to_string(&enabled).unwrap_or_default().contains("[never]") {
        return Err(format!("{enabled} says never"));
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if status.lines().any(|line| line.split_whitespace().eq(["THP_enabled:", "0"])) {
        return Err("they are turned off for this process (set the system's mode to madvise and \
                    restart the server)"
            .into());
    }
    File::open(PAGEMAP).map_err(|error| format!("{PAGEMAP}: {error}"))
}

/// Makes a huge page of 512 small ones, or does nothing if they are one already.
fn collapse(address: usize) -> io::Result<()> {
    let page = with_exposed_provenance_mut::<c_void>(address);
    // SAFETY: `MADV_COLLAPSE` changes no content, whatever is at the address; where nothing is, it
    // is refused.
    match unsafe { libc::madvise(page, HUGE, MADV_COLLAPSE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether all small pages of a huge one belong to this process, and to it alone.
///
/// # Errors
/// `pagemap` cannot be read.
fn is_full(pagemap: &File, address: usize) -> io::Result<bool> {
    /// In the eight bytes that describe a page: it is mapped once.
    const EXCLUSIVE: u64 = 1 << 56;
    /// Pages that are looked at together: in a sparse array, most often the first ones show it.
    const PART: usize = 64;
    for part in (address..address.saturating_add(HUGE)).step_by(PART * SMALL) {
        let mut entries = [0; PART * 8];
        pagemap.read_exact_at(&mut entries, (part / SMALL * 8) as u64)?;
        let (entries, _) = entries.as_chunks();
        if !entries.iter().all(|&entry| u64::from_ne_bytes(entry) & EXCLUSIVE != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}
