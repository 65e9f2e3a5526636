//! BF.LOADCHUNK: any sequence of iterators and data is refused or gives a filter that works.

#![no_main]

#[path = "shared/sane.rs"]
mod sane;
#[path = "shared/strings.rs"]
mod strings;

use libfuzzer_sys::fuzz_target;
use redis_bloom::codec::native::{Load, Taken, dump};

/// Bytes of a chunk before the header of its filter.
const FRAME: usize = 20;

/// The header of the filter in a chunk.
fn header_of(chunk: &[u8]) -> Option<&[u8]> {
    let length = u32::from_le_bytes(chunk.get(16..FRAME)?.try_into().ok()?);
    chunk.get(FRAME..)?.get(..length as usize)
}

/// Replaces the checksum of the header in a chunk, and that of the chunk: a fuzzer cannot guess
/// them.
fn reseal(chunk: &mut [u8]) {
    let length = header_of(chunk).map_or(0, <[u8]>::len);
    strings::seal(&mut chunk[FRAME..FRAME + length]);
    strings::seal(chunk);
}

/// The iterators that may go with a piece. A chunk of pages ends where its records say: at the end
/// of all pages, or of the first half of them.
fn iterators(load: &Load, piece: &[u8]) -> Vec<i64> {
    let place = piece.get(8..16).and_then(|bytes| bytes.try_into().ok());
    let place = place.map_or(0, u64::from_le_bytes);
    let ends = match load.layered() {
        None => {
            let end = |positions| place.saturating_add(positions);
            vec![end(1 << 40), end(1 << 39), end(8)]
        }
        // The end of a native chunk follows from its frame. A RedisBloom chunk has no frame; it
        // begins at the received bytes.
        Some(_) if piece.starts_with(b"rbchnk") => {
            let around = FRAME + header_of(piece).map_or(0, <[u8]>::len) + 8;
            vec![place.wrapping_add(piece.len().saturating_sub(around) as u64)]
        }
        Some(_) => vec![load.received() + piece.len() as u64],
    };
    ends.into_iter().map(|end| end.wrapping_add(1).cast_signed()).collect()
}

fuzz_target!(|data: &[u8]| {
    let mut pieces = strings::split(data);
    let framed = |piece: &&mut Vec<u8>| piece.starts_with(b"rbchnk") && piece.len() >= FRAME;
    pieces.iter_mut().filter(framed).for_each(|piece| reseal(piece));
    let Some((header, rest)) = pieces.split_first() else {
        return;
    };
    let Ok(mut load) = Load::begin(header, sane::CEILING) else {
        return;
    };
    assert!(load.began_with(header));
    for piece in rest {
        for iterator in iterators(&load, piece) {
            let before = load.received();
            match load.take(iterator, piece, |_| sane::CEILING) {
                Ok(Taken::Last) => {
                    let stored = load.finish();
                    // It fails for forged numbers of copies.
                    if let Ok(stored) = &stored {
                        assert!(dump::repeat(stored, iterator, piece).is_ok());
                    }
                    return stored.into_iter().for_each(sane::check_stored);
                }
                Ok(Taken::Next) => assert!(load.received() >= before),
                Ok(Taken::Repeated) | Err(_) => assert_eq!(load.received(), before),
            }
            assert_eq!(dump::at(&load, 1).is_some(), load.received() > 0);
        }
    }
});
