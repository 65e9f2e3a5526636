//! The allocations of a paged filter: their size, and how an allocator moves them, some at a time.

use super::{Paged, Part, Rest};
use crate::filter::pages::Page;

impl Paged {
    /// Bytes that the allocator spends on all that the filter has. `size` gives those of an
    /// allocation but a page's, which fills its class (`pages/memory.rs`).
    pub fn memory(&self, size: impl Fn(*const u8) -> usize) -> usize {
        let Some(rest) = self.rest.as_deref() else {
            return self.pages.bytes() as usize;
        };
        let part = match &rest.part {
            Part::Nothing => 0,
            Part::Base(base) => size(base.bits().words().as_ptr().cast()),
            Part::Window(window) => size(window.generations.as_ptr().cast()),
        };
        let rest = size(std::ptr::from_ref(rest).cast());
        part + rest + (self.pages.bytes() + self.leaving_bytes()) as usize
    }

    /// Bytes of pages that were forgotten and are not freed yet.
    pub fn leaving_bytes(&self) -> u64 {
        self.rest.as_deref().map_or(0, |rest| rest.leaving.iter().map(Page::bytes).sum())
    }

    /// Lets an allocator move allocations, from number `from` on, until `stop` says so. Returns the
    /// number of the next. `mover` gets address and bytes, and returns the new address, or null.
    ///
    /// # Safety
    /// A new address must point to an allocation of the same allocator and layout with the same
    /// content, and `mover` must have freed the old one. If `mover` returns null, the old
    /// allocation must be untouched.
    pub unsafe fn relocate(
        &mut self,
        from: u64,
        mut mover: impl FnMut(*mut u8, usize) -> *mut u8,
        stop: impl FnMut() -> bool,
    ) -> Option<u64> {
        if from == 0
            && let Some(Rest { part: Part::Base(base), .. }) = self.rest.as_deref_mut()
        {
            let bytes = size_of_val(base.bits().words());
            // SAFETY: the caller's promise.
            unsafe { base.relocate(|words| mover(words.cast(), bytes).cast()) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.pages.relocate(from, mover, stop) }
    }
}
