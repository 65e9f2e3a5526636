//! The bit array of a layer: 64-bit words, zeroed lazily, on memory that may be refused. The only
//! file that names `bitvec`, and with `layer/blocked/simd.rs` the only one of the pure half with
//! `unsafe` code.
//!
//! ```text
//!   word 0                     word 1
//!   ┌─┬─┬─┬ ─ ─ ─ ┬──┬──┐      ┌─┬ ─ ─        bit i of the array is bit i % 64 of word i / 64, counted from the
//!   │0│1│2│       │62│63│      │64│           least significant (Lsb0); on disk words are little-endian, so byte
//!   └─┴─┴─┴ ─ ─ ─ ┴──┴──┘      └─┴ ─ ─        i / 8 holds bit i % 8 on every machine
//! ```
//!
//! Memory comes from `alloc_zeroed`, never from an allocation and a memset: the kernel hands out
//! zero pages when they are first touched, so a filter of 1 GiB is made in microseconds and costs
//! only the pages it uses. A null from the allocator is an error for the caller, not an abort.
//! Alignment is that of `u64`: blocks that start on a cache line are likely (large arrays are page
//! aligned plus a header), never assumed.
//!
//! The probe path reads plain words; `bitvec` sees them as bits where they are counted. A hit and a
//! miss of single items at 1 % are 164 and 136 instructions so (`make compare COUNT=1`, 2 M items,
//! hash included), seven more each where the words are taken out of a `BitBox`, and some 30 and 10
//! more again with `bitvec`'s own indexing.

use std::alloc::{Layout, alloc_zeroed};

use bitvec::{order::Lsb0, view::BitView};

use crate::filter::{error::Error, geometry::MAX_WORDS};

/// Arrays up to this many words (128 KiB) stay in the processor's own caches: a prefetch would only
/// cost its instructions.
const CACHED_WORDS: usize = 16_384;

/// A fixed number of bits, all zero at first.
#[derive(Debug)]
pub struct Bits(Box<[u64]>);

impl Bits {
    /// `words` times 64 zero bits, the pages untouched. `words` must be in [1, `MAX_WORDS`].
    ///
    /// # Errors
    /// `Error::OutOfMemory` when the allocator refuses or `words` is out of range.
    pub fn zeroed(words: u64) -> Result<Self, Error> {
        let refused = Error::OutOfMemory(words.saturating_mul(8));
        let Ok(len) = usize::try_from(words) else {
            return Err(refused);
        };
        let Ok(layout) = Layout::array::<u64>(len) else {
            return Err(refused);
        };
        if len == 0 || words > MAX_WORDS {
            return Err(refused);
        }
        // SAFETY: the layout is not of size zero, since `len` is at least 1.
        let memory = unsafe { alloc_zeroed(layout) };
        if memory.is_null() {
            return Err(refused);
        }
        // SAFETY: 1. `memory` was just allocated by the global allocator with the layout of `[u64;
        // len]`, which is what `Box<[u64]>` frees. 2. All `len` words are initialised: zero is a
        // `u64`. 3. Nobody else holds it.
        let words =
            unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(memory.cast::<u64>(), len)) };
        Ok(Self(words))
    }

    /// The words, in order.
    #[inline]
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.0
    }

    /// The words, in order, to write to.
    #[inline]
    pub fn words_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }

    /// A copy. Pages without a bit stay untouched in it.
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    pub(in crate::filter) fn duplicate(&self) -> Result<Self, Error> {
        self.extended(self.words().len() as u64)
    }

    /// Becomes `words` times 64 bits long, with zeros behind the bits that there are; never
    /// shorter.
    ///
    /// # Errors
    /// `Error::OutOfMemory`; the array is unchanged then.
    pub(in crate::filter) fn grow(&mut self, words: u64) -> Result<(), Error> {
        if words > self.words().len() as u64 {
            *self = self.extended(words)?;
        }
        Ok(())
    }

    /// A copy of at least the same length, with zeros behind.
    fn extended(&self, words: u64) -> Result<Self, Error> {
        // Not `realloc`: it copies pages without a bit too, and they need no memory until they are
        // touched.
        let mut copy = Self::zeroed(words)?;
        let pages = copy.words_mut().chunks_mut(512).zip(self.words().chunks(512));
        for (to, from) in pages.filter(|(_, from)| from.iter().any(|&word| word != 0)) {
            to[..from.len()].copy_from_slice(from);
        }
        Ok(copy)
    }

    /// Sets the bits of `words` from word `from` on, and keeps those that are set; false when there
    /// are no more words. `seen` is told each word that was not zero, before and after.
    #[inline]
    pub(in crate::filter) fn merge(
        &mut self,
        from: usize,
        words: &mut impl Iterator<Item = u64>,
        mut seen: impl FnMut(u64, u64),
    ) -> bool {
        for word in self.words_mut().iter_mut().skip(from) {
            match words.next() {
                // Zero sets nothing, and writing it would make a page resident that nobody has
                // touched yet.
                Some(0) => {}
                Some(bits) => {
                    seen(*word, *word | bits);
                    *word |= bits;
                }
                None => return false,
            }
        }
        true
    }

    /// Lets an allocator move the words: `mover` is given their address, and answers the new one,
    /// or null for no move.
    ///
    /// # Safety
    /// A new address points to an allocation of the same allocator and layout with the same
    /// content, and the old one has been freed; with null, the old one is untouched.
    pub unsafe fn relocate(&mut self, mover: impl FnOnce(*mut u64) -> *mut u64) {
        let words = std::mem::take(&mut self.0);
        let len = words.len();
        let old = Box::into_raw(words).cast::<u64>();
        let new = mover(old);
        let at = if new.is_null() { old } else { new };
        // SAFETY: `at` is the old allocation, given up just above, or by the caller's promise one
        // equal to it.
        self.0 = unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(at, len)) };
    }

    /// How many bits are set. Touches every page.
    #[must_use]
    pub fn count_ones(&self) -> u64 {
        self.0.view_bits::<Lsb0>().count_ones() as u64
    }

    /// Whether it is too large for the processor's own caches, and a prefetch so worth its
    /// instructions.
    #[inline]
    #[must_use]
    pub fn is_uncached(&self) -> bool {
        self.words().len() > CACHED_WORDS
    }

    /// Asks the processor for the cache line of word `index`, without waiting. Any index is
    /// allowed; nothing is read.
    #[inline]
    pub fn prefetch(&self, index: usize) {
        prefetch(self.words().as_ptr().wrapping_add(index));
    }
}

/// Asks the processor for the cache line of a word, without waiting. Any address is allowed;
/// nothing is read.
#[inline]
pub(in crate::filter) fn prefetch(word: *const u64) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint: it never faults, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(word.cast()) };
    }
    #[cfg(target_arch = "aarch64")]
    {
        // SAFETY: a prefetch is a hint: it never faults, whatever the address, and touches no
        // register or flag.
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) word, options(nostack, readonly, preserves_flags))
        };
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = word;
}
