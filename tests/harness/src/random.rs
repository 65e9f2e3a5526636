//! A seeded random number generator, so that a failing run can be repeated: SplitMix64 (Steele, Lea
//! and Flood, "Fast Splittable Pseudorandom Number Generators", 2014).

/// A generator; equal seeds give equal numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts at `seed`; every value is a good seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number, uniform over `u64`.
    #[expect(
        clippy::should_implement_trait,
        reason = "the numbers do not end, so no caller iterates"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, by multiply-shift, with a negligible bias of at most `end` / 2^64.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).expect("a usize has at most 64 bits");
        let high = (u128::from(self.next()) * u128::from(end)) >> 64;
        usize::try_from(high).expect("less than `end`, which is a usize")
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
