//! The bit array of a layer: 64-bit words, which the kernel zeroes on first touch.
//!
//! Bit i of the array is bit i % 64 of word i / 64, least significant first (Lsb0). Stored words
//! are little-endian, so byte i / 8 holds bit i % 8 on every machine.
//!
//! Only `count_ones` uses `bitvec`: docs/internals/design.md.

use std::alloc::{Layout, alloc_zeroed};

#[cfg(target_pointer_width = "64")]
use bitvec::{order::Lsb0, view::BitView};

use crate::filter::error::Error;

/// The most words of one bit array: the number of a bit has at most 61 bits.
pub(in crate::filter) const MAX_WORDS: u64 = (u64::MAX >> 3) / 64;

/// The refusal of a layer whose bits cannot be addressed.
pub(in crate::filter) const NOT_ADDRESSABLE: Error =
    Error::Ceiling { wanted: u64::MAX, ceiling: MAX_WORDS * 8 };

/// Arrays up to this many words (128 KiB) stay in the processor's caches.
const CACHED_WORDS: usize = 16_384;

/// Words that a union handles at once, all of them in the fastest cache.
const CHUNK: usize = 64;

/// A fixed number of bits, all zero at first.
#[derive(Debug)]
pub struct Bits(Box<[u64]>);

impl Bits {
    /// Allocates `words` * 64 zero bits, without touching their pages. `Error::OutOfMemory` if the
    /// allocator refuses, or `words` is not in [1, `MAX_WORDS`].
    pub fn zeroed(words: u64) -> Result<Self, Error> {
        let refused = Error::OutOfMemory(words.saturating_mul(8));
        let len = usize::try_from(words).ok().filter(|_| (1..=MAX_WORDS).contains(&words));
        let len = len.ok_or(refused)?;
        let layout = Layout::array::<u64>(len).map_err(|_| refused)?;
        // SAFETY: the layout is not of size zero, since `len` is at least 1.
        let memory = unsafe { alloc_zeroed(layout) };
        if memory.is_null() {
            return Err(refused);
        }
        let words = std::ptr::slice_from_raw_parts_mut(memory.cast::<u64>(), len);
        // SAFETY: 1. `memory` was just allocated by the global allocator with the layout of an
        // array of `len` words, which is what `Box<[u64]>` frees. 2. All `len` words are
        // initialised: zero is a valid `u64`. 3. No other pointer to the memory exists.
        Ok(Self(unsafe { Box::from_raw(words) }))
    }

    /// The words, in order.
    pub fn words(&self) -> &[u64] {
        &self.0
    }

    /// The words, in order, mutable.
    pub fn words_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }

    /// Copies the array into one of `words` words, at least as many; the new words are zero. Pages
    /// without a set bit stay untouched in the copy.
    pub(in crate::filter) fn extended(&self, words: u64) -> Result<Self, Error> {
        // Not `realloc`: it also copies pages without a set bit.
        let mut copy = Self::zeroed(words)?;
        let pages = copy.words_mut().chunks_mut(512).zip(self.words().chunks(512));
        for (to, from) in pages.filter(|(_, from)| from.iter().any(|&word| word != 0)) {
            to[..from.len()].copy_from_slice(from);
        }
        Ok(copy)
    }

    /// Sets the bits of `words` from word `from` on. Returns false when `words` ends before the
    /// array.
    #[inline]
    pub fn merge(&mut self, from: usize, words: &mut impl Iterator<Item = u64>) -> bool {
        for word in self.words_mut().iter_mut().skip(from) {
            match words.next() {
                // Zero sets nothing, and writing it would make an untouched page resident.
                Some(0) => {}
                Some(bits) => *word |= bits,
                None => return false,
            }
        }
        true
    }

    /// Sets the bits of the `others`, which are as long as this array.
    pub(in crate::filter) fn unite(&mut self, others: &[&Self]) {
        let mut buffer = [0; CHUNK];
        let mut start = 0;
        for words in self.words_mut().chunks_mut(CHUNK) {
            let chunk = &mut buffer[..words.len()];
            chunk.copy_from_slice(words);
            for other in others {
                let other = &other.words()[start..start + chunk.len()];
                chunk.iter_mut().zip(other).for_each(|(to, from)| *to |= from);
            }
            // A write that changes nothing would copy the page during a fork, or make it resident.
            if chunk != words {
                words.copy_from_slice(chunk);
            }
            start += chunk.len();
        }
    }

    /// The number of set bits, in each array and in their union. The arrays are equally long.
    pub(in crate::filter) fn count_union(arrays: &[&Self]) -> (Vec<u64>, u64) {
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx2,popcnt")]
            fn compiled(arrays: &[&Bits]) -> (Vec<u64>, u64) {
                count_union(arrays)
            }
            if crate::filter::allows_extensions()
                && is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("popcnt")
            {
                // SAFETY: the processor has the instructions.
                return unsafe { compiled(arrays) };
            }
        }
        count_union(arrays)
    }

    /// Lets an allocator move the words: `mover` gets their address and bytes, and returns their
    /// address.
    ///
    /// # Safety
    /// Another address must point to an allocation of the same allocator and layout with the same
    /// content, and `mover` must have freed the old one.
    pub unsafe fn relocate(&mut self, mover: impl FnOnce(*mut u8, usize) -> *mut u8) {
        let (len, bytes) = (self.0.len(), size_of_val(&*self.0));
        let old: *mut u64 = Box::into_raw(std::mem::take(&mut self.0)).cast();
        let at: *mut u64 = mover(old.cast(), bytes).cast();
        let words = std::ptr::slice_from_raw_parts_mut(at, len);
        // SAFETY: the old allocation, given up just above, or one equal to it, as the caller
        // guarantees.
        self.0 = unsafe { Box::from_raw(words) };
    }

    /// The number of set bits. Reads every page.
    pub fn count_ones(&self) -> u64 {
        #[cfg(target_pointer_width = "64")]
        return self.0.view_bits::<Lsb0>().count_ones() as u64;
        // There `bitvec` has no words of 64 bits.
        #[cfg(not(target_pointer_width = "64"))]
        count_ones(&self.0)
    }

    /// Whether the array is too large for the processor's caches, so that prefetches pay.
    pub fn is_uncached(&self) -> bool {
        self.words().len() > CACHED_WORDS
    }

    /// Prefetches the cache line of word `index`. Any index is allowed; nothing is read.
    #[inline]
    pub fn prefetch(&self, index: usize) {
        prefetch(self.words().as_ptr().wrapping_add(index));
    }
}

#[inline(always)]
fn count_ones(words: &[u64]) -> u64 {
    words.iter().map(|word| u64::from(word.count_ones())).sum()
}

/// [`Bits::count_union`], for the instructions of the caller.
#[inline(always)]
fn count_union(arrays: &[&Bits]) -> (Vec<u64>, u64) {
    let (mut each, mut union, mut buffer) = (vec![0; arrays.len()], 0, [0; CHUNK]);
    let len = arrays.first().map_or(0, |array| array.words().len());
    for start in (0..len).step_by(CHUNK) {
        let chunk = &mut buffer[..CHUNK.min(len - start)];
        chunk.fill(0);
        for (array, each) in arrays.iter().zip(&mut each) {
            let words = &array.words()[start..start + chunk.len()];
            *each += count_ones(words);
            chunk.iter_mut().zip(words).for_each(|(to, from)| *to |= from);
        }
        union += count_ones(chunk);
    }
    (each, union)
}

/// Prefetches the cache line of a word. Any address is allowed; nothing is read.
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
        // SAFETY: a prefetch is a hint: it never faults, whatever the address, and changes no
        // register or flag.
        unsafe {
            std::arch::asm!(
                "prfm pldl1keep, [{0}]",
                in(reg) word,
                options(nostack, readonly, preserves_flags)
            )
        };
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = word;
}
