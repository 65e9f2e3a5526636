//! The option grammars of BF.RESERVE, BF.INSERT and BF.IMPORT, and the numbers in them: words at random, parted by zero bytes.
//!
//! The grammar lives in the module half, which needs a server; it does not need one itself, so `grammar/` takes its files
//! as they are.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redis_bloom::{codec, filter};

#[path = "grammar/module.rs"]
mod module;

fn check(options: module::create::Options) {
    if let (Some(error_rate), Some(capacity)) = (options.error_rate, options.capacity) {
        // The factors of valkey-bloom are its own.
        if options.valkey.is_some() {
            return;
        }
        let params = filter::Params {
            error_rate,
            capacity,
            expansion: options.expansion.unwrap_or(filter::Expansion::NONSCALING),
            seed: options.seed.unwrap_or(0),
            cells: options.cells,
        };
        assert_eq!(params.check(), Ok(()), "what the grammar accepts is in range");
        // Whatever is asked: made, or refused.
        let _ = filter::Filter::new(&params, 1 << 20);
    }
}

fuzz_target!(|data: &[u8]| {
    let words = || data.split(|&byte| byte == 0);
    match module::commands::reserve(words()) {
        Ok(options) => check(options),
        Err(refusal) => assert!(!refusal.text(words()).is_empty()),
    }
    match module::commands::import(words()) {
        Ok(purpose) => {
            assert!(purpose.is_none_or(|purpose| purpose.capacity > 0 && purpose.error_rate < 1.0))
        }
        Err(refusal) => assert!(!refusal.text(words()).is_empty()),
    }
    let mut rest = words();
    match module::commands::insert(&mut rest) {
        Ok(options) => check(options),
        Err(refusal) => assert!(!refusal.text(words()).is_empty()),
    }
    let taken = [
        module::commands::replayed_reserve(words()),
        module::commands::replayed_insert(&mut words()),
    ];
    taken.into_iter().flatten().for_each(check);
});
