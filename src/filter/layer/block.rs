//! Inside one block: whether bits on a walk are set, and setting them.
//!
//! Probes are looked at in strides of four, without a branch between them. Half of the bits of a full layer are set, so a
//! branch after each probe of an absent item is a coin toss, and a toss that the processor loses costs more than three
//! probes; after four it is right 15 times of 16. Server CPU per item in batches of 100, with a branch each time and so,
//! in one run each, RedisBloom 2.8 beside it:
//!
//! | work                      | branches | strides | RedisBloom |
//! |---------------------------|----------|---------|------------|
//! | miss, 2 M items           | 101 ns   | 86 ns   | 215 ns     |
//! | hit, 2 M items            | 101 ns   | 85 ns   | 231 ns     |
//!
//! Most filters have blocks of one cache line, and those have a copy of the probing code of their own, in which the compiler
//! knows the length: a shift in place of each multiplication, and no bounds to check. An addition looks and sets on one walk:
//! strides that are set are left behind, and the first that is not tells that the item is new, so that all from there on is
//! set without another look. Instructions an item (`make compare COUNT=1`, batches of 100, 2 M items at 1 %, the hash among them):
//!
//! | code                                         | hit | miss | new |
//! |----------------------------------------------|-----|------|-----|
//! | words of a `BitBox`, look first and then set | 231 | 193  | 322 |
//! | plain words (`bits.rs`), one walk            | 220 | 182  | 252 |
//! | a copy for blocks of one line                | 197 | 169  | 243 |
//! | and the look inlined wherever it is taken    | 190 | 155  | 242 |
//!
//! Single misses in 12 layers take 1,039 instructions with the last, 1,310 without, and 0.93 of the time.

use crate::filter::probe::Walk;

/// Probes that are looked at together, without a branch between them (see the essay).
pub(super) const STRIDE: u8 = 4;

/// Words of a cache line, and of the blocks of filters of some thousand items and more at 0.4 to 10 %.
const LINE: usize = 8;

/// Whether the next `left` bits on a walk over a block are set.
#[inline(always)]
pub(super) fn all_set(block: &[u64], walk: Walk, left: u8) -> bool {
    match <&[u64; LINE]>::try_from(block) {
        Ok(line) => all_set_in(line, walk, left),
        Err(_) => all_set_in(block, walk, left),
    }
}

/// Sets the next `left` bits on a walk over a block; whether one was not set. Where all were, nothing is written.
#[inline]
pub(super) fn add(block: &mut [u64], walk: Walk, left: u8) -> bool {
    match <&mut [u64; LINE]>::try_from(&mut *block) {
        Ok(line) => add_to(line, walk, left),
        Err(_) => add_to(block, walk, left),
    }
}

/// Whether the next `left` bits on a walk over a block are set.
#[inline(always)]
fn all_set_in(block: &[u64], mut walk: Walk, mut left: u8) -> bool {
    let bits = block.len() as u64 * 64;
    let mut bit = || {
        let at = walk.next(bits);
        block[(at / 64) as usize] >> (at % 64)
    };
    while left >= STRIDE {
        if bit() & bit() & bit() & bit() & 1 == 0 {
            return false;
        }
        left -= STRIDE;
    }
    (0..left).fold(1, |all, _| all & bit()) == 1
}

/// Sets the next `left` bits on a walk over a block; whether one was not set.
#[inline(always)]
fn add_to(block: &mut [u64], mut walk: Walk, mut left: u8) -> bool {
    let bits = block.len() as u64 * 64;
    while left >= STRIDE {
        let at: [u64; STRIDE as usize] = std::array::from_fn(|_| walk.next(bits));
        left -= STRIDE;
        if at
            .iter()
            .fold(1, |all, at| all & block[(at / 64) as usize] >> (at % 64))
            == 0
        {
            at.iter()
                .for_each(|at| block[(at / 64) as usize] |= 1 << (at % 64));
            set(block, walk, left);
            return true;
        }
    }
    let absent = !all_set_in(block, walk, left);
    if absent {
        set(block, walk, left);
    }
    absent
}

/// Sets the next `left` bits on a walk over a block.
#[inline(always)]
fn set(block: &mut [u64], mut walk: Walk, left: u8) {
    let bits = block.len() as u64 * 64;
    for _ in 0..left {
        let at = walk.next(bits);
        block[(at / 64) as usize] |= 1 << (at % 64);
    }
}
