//! Whether code for AVX2, AVX-512 and BMI2 may run.

use std::sync::LazyLock;

/// Whether such code may run, if the processor has the instructions. In a build with debug
/// assertions the environment variable `REDIS_BLOOM_PORTABLE` forbids it, so that tests run the
/// portable code on every processor.
#[inline(always)]
pub(in crate::filter) fn allows_extensions() -> bool {
    static PORTABLE: LazyLock<bool> =
        LazyLock::new(|| std::env::var_os("REDIS_BLOOM_PORTABLE").is_some());
    !cfg!(debug_assertions) || !*PORTABLE
}
