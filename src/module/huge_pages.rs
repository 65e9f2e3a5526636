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
//!   resident, so the memory of the server stays as it is. While a page is copied, both copies
//!   exist: 2 MiB. `MADV_HUGEPAGE` would make a huge page of each 2 MiB with one resident page, and
//!   it would stay with the addresses, which the allocator uses again for other keys.
//! * A fork shares all pages. A write to a shared huge page splits it, and copies 4 KiB. A shared
//!   page does not count as resident, nor does the kernel's page of zeros (an empty page that was
//!   read): `/proc/self/pagemap` shows which pages belong to this process alone. So once the child
//!   has ended, the thread finds what was split, and collapses it again. The kernel's own daemon
//!   would take ten seconds for 16 MiB.
//! * If memory is short, of the machine or of a control group, the kernel reclaims, then refuses:
//!   it never calls its OOM killer for a huge page. The thread then waits for ten seconds.
//!
//! `MADV_COLLAPSE` never changes what memory holds. So it does no harm if the array is freed, moved
//! or unmapped at that moment, whatever has its addresses then.
//!
//! No command waits for a lock of this module. While the kernel copies a page, these wait: a read
//! of that 2 MiB, page faults in the same mapping, mmap, munmap and madvise (growth, DEL), and
//! fork. A copy takes 0.6 ms, or 6 to 9 ms in a virtual machine whose host has to find the memory
//! first, and longer if all processors are busy. So the thread mostly sleeps, and the setting is
//! off by default.
//!
//! The thread starts with the first large array, and runs until the process ends. A child of a fork
//! has no such thread.

use std::{
    collections::{BTreeMap, BTreeSet},
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
/// Milliseconds from a thread that failed to the start of another.
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

/// The place of a large array. There is no lock that a fork could leave locked in the child.
struct Place {
    /// The array, packed; 0 if the place is free.
    array: AtomicU64,
    /// Arrays that have left the place.
    left: AtomicU64,
}

/// The large arrays. If there are more, the others keep small pages.
static PLACES: [Place; 4096] =
    [const { Place { array: AtomicU64::new(0), left: AtomicU64::new(0) } }; 4096];

/// Counts the children that began or ended: both may change which pages are shared.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Bytes in huge pages, as of the last look.
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
        enter(pack(pointer.addr(), bytes));
    }
}

/// The allocation is about to be freed or moved.
#[inline]
pub(super) fn forget(pointer: *mut u8, bytes: usize) {
    if bytes >= LEAST_BYTES {
        leave(pack(pointer.addr(), bytes));
    }
}

/// Gives an array a place, if there is one. Any thread may call this.
#[cold]
fn enter(packed: u64) {
    let mut free = PLACES.iter().map(|place| &place.array);
    free.find(|array| {
        array.load(Relaxed) == 0 && array.compare_exchange(0, packed, Release, Relaxed).is_ok()
    });
}

/// Frees the place of an array, if it has one. Any thread may call this: only the owner of the
/// array does.
#[cold]
fn leave(packed: u64) {
    if let Some(place) = PLACES.iter().find(|place| place.array.load(Relaxed) == packed) {
        place.left.fetch_add(1, Release);
        place.array.store(0, Release);
    }
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

/// Runs some ten times a second, in the main thread. It starts the thread, rather than the load of
/// the module: a server that refuses a setting in MODULE LOADEX unloads the module at once.
unsafe extern "C" fn cron(
    ctx: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    _: u64,
    _: *mut c_void,
) {
    guarded("cron event", (), || {
        if !config::huge_pages()
            || api::milliseconds() < START_AT.load(Relaxed)
            || PLACES.iter().all(|place| place.array.load(Relaxed) == 0)
        {
            return;
        }
        START_AT.store(i64::MAX, Relaxed);
        let started = start();
        let failed_before = FAILED.swap(started.is_err(), Relaxed);
        if let Err(why) = started {
            START_AT.store(api::milliseconds().saturating_add(RESTART), Relaxed);
            if !failed_before {
                // SAFETY: the server's own context, for this call.
                warn(unsafe { Context::new(ctx) }, &why);
            }
        }
    });
}

/// When a thread may start, in milliseconds of the server's clock; never, while there is one.
static START_AT: AtomicI64 = AtomicI64::new(0);

/// Whether the last start failed: that of the next attempts is not logged again.
static FAILED: AtomicBool = AtomicBool::new(false);

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
    let run = || {
        leave_the_watchdog_to_the_server();
        guarded("huge pages", (), run);
        // Only a panic ends it.
        START_AT.store(api::milliseconds().saturating_add(RESTART), Relaxed);
    };
    thread.spawn(run).map(drop).map_err(|error| format!("no thread: {error}"))
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

/// Blocks SIGALRM in this thread, as the server's background threads do: the watchdog prints the
/// stack of the thread that gets it. The handlers of other signals work in any thread, and a crash
/// report has the stacks of the threads that accept SIGUSR2.
fn leave_the_watchdog_to_the_server() {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: this fills the set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the set is filled.
    unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGALRM) };
    // SAFETY: the set is filled, and concerns this thread alone.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), null_mut()) };
}

/// The life of the thread.
fn run() {
    let mut found = Found::default();
    let (mut number, mut forks, mut logged) = (0_u64, 0, None);
    loop {
        found.forget_what_left();
        if !config::huge_pages() {
            thread::sleep(PAUSE);
            continue;
        }
        let forked = FORKS.load(Acquire);
        if forked != forks || number.is_multiple_of(ROUNDS) {
            found.pages.clear();
        }
        forks = forked;
        number = number.wrapping_add(1);
        let stopped = round(&mut found.pages).err();
        show(&found.pages);
        if let Some(why) = &stopped
            && stopped != logged
        {
            // SAFETY: the server's log accepts a null context, and any thread may use it.
            warn(unsafe { Context::new(null_mut()) }, why);
        }
        thread::sleep(PAUSE);
        for _ in 1..if stopped.is_some() { PAUSES } else { 1 } {
            if config::huge_pages() {
                thread::sleep(PAUSE);
            }
        }
        logged = stopped;
    }
}

/// Makes the number of pages known to INFO.
fn show(pages: &BTreeSet<usize>) {
    PAGE_BYTES.store(bytes_of(pages), Relaxed);
}

fn bytes_of(pages: &BTreeSet<usize>) -> u64 {
    (pages.len() as u64).saturating_mul(HUGE as u64)
}

/// What the thread knows.
#[derive(Default)]
struct Found {
    /// The addresses of the huge pages that it has made or found.
    pages: BTreeSet<usize>,
    /// The arrays in which it has looked, by their place, with the number of those that had left.
    arrays: BTreeMap<usize, (u64, u64)>,
}

impl Found {
    /// Forgets the pages of arrays that have left their places; notes the others.
    fn forget_what_left(&mut self) {
        let mut gone = false;
        for (at, place) in PLACES.iter().enumerate() {
            // In this order: if another array gets the place meanwhile, the next call sees it.
            let left = place.left.load(Acquire);
            let now = (place.array.load(Acquire), left);
            let before =
                if now.0 == 0 { self.arrays.remove(&at) } else { self.arrays.insert(at, now) };
            if let Some(before) = before.filter(|before| *before != now) {
                for page in unpack(before.0) {
                    gone |= self.pages.remove(&page);
                }
            }
        }
        if gone {
            show(&self.pages);
        }
    }
}

/// Collapses the full parts of all arrays, and adds them to `pages`.
///
/// # Errors
/// What stopped the round, for the log.
fn round(pages: &mut BTreeSet<usize>) -> Result<(), String> {
    if PLACES.iter().all(|place| place.array.load(Relaxed) == 0) {
        return Ok(());
    }
    let pagemap = pagemap()?;
    let (mut refused, mut begin) = (None, Instant::now());
    for Place { array, .. } in &PLACES {
        let packed = array.load(Relaxed);
        for address in unpack(packed) {
            if array.load(Relaxed) != packed || !config::huge_pages() {
                break;
            }
            let full = !pages.contains(&address)
                && is_full(&pagemap, address).map_err(|error| format!("{PAGEMAP}: {error}"))?;
            if !full {
                // It is done, or another round may find it full.
            } else if let Err(error) = collapse(address) {
                match error.raw_os_error() {
                    Some(libc::EAGAIN) => {}
                    Some(libc::ENOMEM | libc::EBUSY) if array.load(Relaxed) == packed => {
                        return Err("the system or the container has no 2 MiB for one".into());
                    }
                    _ if array.load(Relaxed) == packed => refused = Some(error),
                    _ => {}
                }
            } else {
                pages.insert(address);
                // After a fork, the last number is shown until the thread has found more.
                PAGE_BYTES.fetch_max(bytes_of(pages), Relaxed);
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
            PLACES.iter().filter(|place| place.array.load(Relaxed) == packed).count()
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

    #[test]
    fn an_array_that_leaves_takes_only_its_own_pages_along() {
        let [one, other] = [0x7f22_3440_0000, 0x7f32_3440_0000];
        let mut found = Found::default();
        let array = |address| with_exposed_provenance_mut::<u8>(address);
        watch(array(one), LEAST_BYTES);
        watch(array(other), LEAST_BYTES);
        found.forget_what_left();
        found.pages = BTreeSet::from([one, one + HUGE, other]);
        found.forget_what_left();
        assert_eq!(found.pages.len(), 3);
        // Another array may be at the address, in small pages.
        forget(array(one), LEAST_BYTES);
        watch(array(one), LEAST_BYTES);
        found.forget_what_left();
        assert_eq!(found.pages, BTreeSet::from([other]));
        forget(array(one), LEAST_BYTES);
        forget(array(other), LEAST_BYTES);
        found.forget_what_left();
        assert_eq!(found.pages, BTreeSet::new());
    }
}
