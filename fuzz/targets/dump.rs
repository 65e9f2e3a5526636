//! BF.LOADCHUNK: any sequence of iterators and data is refused or gives a filter that works.

#![no_main]

#[path = "shared/sane.rs"]
mod sane;
#[path = "shared/strings.rs"]
mod strings;

use libfuzzer_sys::fuzz_target;
use redis_bloom::codec::native::dump::{self, Load, Taken};

fuzz_target!(|data: &[u8]| {
    let pieces = strings::split(data);
    let Some((header, rest)) = pieces.split_first() else {
        return;
    };
    let Ok(mut load) = Load::begin(header, sane::CEILING) else {
        return;
    };
    assert!(load.began_with(header));
    for piece in rest {
        // The end of a native chunk follows from its frame. A RedisBloom chunk has no frame; it
        // begins at the received bytes.
        let end = match piece.get(16..24).and_then(|bytes| bytes.try_into().ok()) {
            Some(first) if piece.starts_with(b"rbchnk") => {
                u64::from_le_bytes(first).wrapping_add(piece.len().saturating_sub(40) as u64)
            }
            _ => load.received() + piece.len() as u64,
        };
        let iterator = end.wrapping_add(1).cast_signed();
        let before = load.received();
        match load.take(iterator, piece) {
            Ok(Taken::Last) => {
                let mut filter = load.into_filter();
                assert!(dump::repeat(&filter, iterator, piece).is_ok());
                return sane::check(&mut filter);
            }
            Ok(Taken::Next) => assert!(load.received() >= before),
            Ok(Taken::Repeated) | Err(_) => assert_eq!(load.received(), before),
        }
        assert_eq!(load.at(1).is_some(), load.received() > 0);
    }
});
