//! Pages that are copied because a server and its child share them, counted one by one.
//!
//! `rdb_last_cow_size` is what the child holds alone at its end. A child that gives pages back on
//! its way (`src/module/child.rs`) holds few then, also of those that had to be copied before. But
//! the kernel tells of each page of a process whether another shares it (bit 56 of its entry in
//! `/proc/PID/pagemap`). One that the server had when it forked, and that the child now has alone,
//! was copied. So the child is looked at again and again, and each page is counted once, wherever
//! it is at the end. What is copied and given back between two looks is missed: of the file there
//! are some hundred looks.

use std::{fs::File, io::Read, os::unix::fs::FileExt};

/// Bits of an entry.
const HERE: u64 = 1 << 63;
const ALONE: u64 = 1 << 56;
/// Bytes of an entry.
const ENTRY: usize = 8;

/// The pages of a server that it had when it forked.
pub(crate) struct Copies {
    page: u64,
    areas: Vec<Area>,
}

/// Pages side by side.
struct Area {
    /// The number of the first.
    first: u64,
    pages: Vec<Page>,
}

#[derive(Clone, Copy, PartialEq)]
enum Page {
    /// The server had none there: what the child has is its own.
    Absent,
    Shared,
    Copied,
}

impl Copies {
    /// To be made right before the fork of the server `pid`.
    pub(crate) fn before(pid: u32) -> Self {
        let page = page_size();
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let ours = |line: &str| {
            let mut words = line.split_whitespace();
            let (range, rights) = (words.next()?, words.next()?);
            let (from, to) = range.split_once('-')?;
            let number = |text| Some(u64::from_str_radix(text, 16).ok()? / page);
            (rights == "rw-p").then_some((number(from)?, number(to)?))
        };
        let area = |(first, past): (u64, u64)| {
            let entries = entries(&pid.to_string(), first, (past - first) as usize);
            let page = |entry| {
                if entry & HERE == 0 { Page::Absent } else { Page::Shared }
            };
            Area { first, pages: entries.into_iter().map(page).collect() }
        };
        let areas: Vec<_> = maps.lines().filter_map(ours).map(area).collect();
        if areas.iter().all(|area| area.pages.is_empty()) {
            eprintln!(
                "bench: /proc/{pid}/pagemap cannot be read: pages that were given back are not \
                 counted"
            );
        }
        Self { page, areas }
    }

    /// Counts what was copied since, as the child shows it.
    pub(crate) fn look(&mut self, child: &str) {
        for area in &mut self.areas {
            let entries = entries(child, area.first, area.pages.len());
            for (page, entry) in area.pages.iter_mut().zip(entries) {
                if *page == Page::Shared && entry & HERE != 0 && entry & ALONE != 0 {
                    *page = Page::Copied;
                }
            }
        }
    }

    /// Bytes of the pages that were copied.
    pub(crate) fn bytes(&self) -> f64 {
        let pages = self.areas.iter().flat_map(|area| &area.pages);
        (pages.filter(|&&page| page == Page::Copied).count() as u64 * self.page) as f64
    }
}

/// The entries of pages side by side; fewer, or none, of a process that is going.
fn entries(pid: &str, first: u64, count: usize) -> Vec<u64> {
    let mut bytes = vec![0; count * ENTRY];
    let read = File::open(format!("/proc/{pid}/pagemap"))
        .and_then(|file| file.read_exact_at(&mut bytes, first * ENTRY as u64));
    if read.is_err() {
        return Vec::new();
    }
    let (entries, _) = bytes.as_chunks::<ENTRY>();
    entries.iter().copied().map(u64::from_ne_bytes).collect()
}

/// What the kernel told this process at its start: pairs of a name and a number.
fn page_size() -> u64 {
    const PAGE_SIZE: u64 = 6;
    let mut told = Vec::new();
    let read = File::open("/proc/self/auxv").and_then(|mut file| file.read_to_end(&mut told));
    let (words, _) = told.as_chunks::<ENTRY>();
    let words: Vec<_> = words.iter().copied().map(u64::from_ne_bytes).collect();
    let (pairs, _) = words.as_chunks::<2>();
    let found = pairs.iter().find(|[name, _]| *name == PAGE_SIZE);
    read.ok().and(found).map_or(4096, |&[_, size]| size)
}
