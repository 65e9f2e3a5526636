//! Packed batches: any bytes are refused as a whole, or read as a plain loop reads them; what is
//! read and packed again is read the same.
//!
//! The first two bytes choose the format: 0 LINES, 1 LENGTHS, 2 WIDTH, and the width.

#![no_main]

use std::num::NonZeroUsize;

use libfuzzer_sys::fuzz_target;
use redis_bloom::codec::packed::{BadByte, Format, Packed, pack};

/// Splits one item of LENGTHS from `blob`.
fn item(blob: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = blob.iter().position(|byte| byte & 0x80 == 0)?;
    let (length, behind) = blob.split_at(end + 1);
    let digits = length.iter().rev().map(|byte| u128::from(byte & 0x7F));
    let length = (end < 10).then(|| digits.fold(0, |length, digit| length << 7 | digit))?;
    behind.split_at_checked(usize::try_from(length).ok()?)
}

/// The items, or the offset of the first malformed one.
fn plain(format: Format, mut blob: &[u8]) -> Result<Vec<&[u8]>, BadByte> {
    let length = blob.len();
    let mut items = Vec::new();
    while !blob.is_empty() {
        let split = match format {
            Format::Lines => {
                let end = blob.iter().position(|&byte| byte == b'\n');
                Some(
                    end.map_or((blob, &blob[blob.len()..]), |end| (&blob[..end], &blob[end + 1..])),
                )
            }
            Format::Lengths => item(blob),
            Format::Width(width) => blob.split_at_checked(width.get()),
        };
        let Some((item, behind)) = split else {
            return Err(BadByte(length - blob.len()));
        };
        items.push(item);
        blob = behind;
    }
    Ok(items)
}

fuzz_target!(|data: &[u8]| {
    let [format, width, blob @ ..] = data else {
        return;
    };
    let format = match format % 3 {
        0 => Format::Lines,
        1 => Format::Lengths,
        _ => Format::Width(NonZeroUsize::MIN.saturating_add((*width).into())),
    };
    let read = Packed::new(format, blob).map(|packed| packed.items().collect::<Vec<_>>());
    assert_eq!(read, plain(format, blob));
    if let Ok(items) = read {
        let again = pack(items.iter().copied());
        let packed = Packed::new(Format::Lengths, &again).expect("LENGTHS");
        assert!(packed.items().eq(items));
    }
});
