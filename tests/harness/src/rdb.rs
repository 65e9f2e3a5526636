//! Parses and encodes RDB bytes, so that a test can damage them and compute every checksum again.
//!
//! ```text
//!   DUMP:    ┌──────┬───────────────┬───┬────────┬───┬────────┬ ─ ─ ┬───┬─────────────┬──────────┐
//!            │ type │ module id,    │ 5 │ string │ 5 │ string │     │ 0 │ RDB version │ CRC-64   │
//!            │ = 7  │ encoding vers.│   │        │   │        │     │   │ 2 bytes     │ of all   │
//!            └──────┴───────────────┴───┴────────┴───┴────────┴ ─ ─ ┴───┴─────────────┴──────────┘
//!            1      0x81 + 8 bytes   each string: length, bytes
//! ```
//!
//! A length has 6 bits (`00……`), 14 bits (`01……`), 32 bits after 0x80, or 64 bits after 0x81,
//! big-endian. A dump file also ends with a CRC-64 of all bytes before it. Servers must run with
//! `rdbcompression no`, because compressed strings are not parsed.

use super::client::Client;
use super::reply::Reply;

/// CRC-64/Jones, as the server computes it: polynomial 0xad93d23594c935a9, reflected, no inversion.
pub fn crc64(bytes: &[u8]) -> u64 {
    const REFLECTED: u64 = 0xad93_d235_94c9_35a9_u64.reverse_bits();
    let step = |crc: u64| {
        if crc & 1 == 1 { crc >> 1 ^ REFLECTED } else { crc >> 1 }
    };
    let table: [u64; 256] =
        std::array::from_fn(|byte| (0..8).fold(byte as u64, |crc, _| step(crc)));
    bytes.iter().fold(0, |crc: u64, &byte| crc >> 8 ^ table[usize::from(crc as u8 ^ byte)])
}

/// Appends the correct checksum to the bytes.
pub fn sealed(bytes: &[u8]) -> Vec<u8> {
    [bytes, &crc64(bytes).to_le_bytes()].concat()
}

/// The parts of a DUMP payload of a module's value.
#[derive(Clone)]
pub struct Payload {
    /// Type and module id.
    pub head: Vec<u8>,
    /// The strings that the module saved.
    pub strings: Vec<Vec<u8>>,
    /// The end mark and the RDB version.
    pub tail: Vec<u8>,
}

impl Payload {
    /// Sends DUMP for the key and parses the payload.
    #[track_caller]
    pub fn of(client: &mut Client, key: &str) -> Payload {
        let Reply::Bulk(bytes) = client.cmd(&["DUMP", key]) else {
            panic!("DUMP {key} answered no payload")
        };
        let payload = Payload::parse(&bytes);
        assert_eq!(payload.bytes(), bytes, "encoding the parsed payload gives the same bytes");
        payload
    }

    fn parse(bytes: &[u8]) -> Payload {
        const HEAD: usize = 10;
        const TAIL: usize = 3;
        let (head, mut rest) = bytes.split_at(HEAD);
        assert_eq!(head[..2], [7, 0x81], "a module's value");
        let mut strings = Vec::new();
        while rest[0] == 5 {
            let (len, skip) = match rest[1] >> 6 {
                0 => (usize::from(rest[1]), 2),
                1 => (usize::from(rest[1] & 0x3f) << 8 | usize::from(rest[2]), 3),
                _ => {
                    assert_eq!(rest[1], 0x80, "a plain string: is `rdbcompression no` set?");
                    let len = u32::from_be_bytes(rest[2..6].try_into().expect("four bytes"));
                    (usize::try_from(len).expect("a length"), 6)
                }
            };
            strings.push(rest[skip..skip + len].to_vec());
            rest = &rest[skip + len..];
        }
        Payload { head: head.to_vec(), strings, tail: rest[..TAIL].to_vec() }
    }

    /// Everything before the checksum.
    pub fn body(&self) -> Vec<u8> {
        let mut bytes = self.head.clone();
        for string in &self.strings {
            bytes.push(5);
            let len = string.len();
            match len {
                0..0x40 => bytes.push(len as u8),
                0x40..0x4000 => bytes.extend([0x40 | (len >> 8) as u8, len as u8]),
                _ => {
                    bytes.push(0x80);
                    bytes.extend(u32::try_from(len).expect("a short string").to_be_bytes());
                }
            }
            bytes.extend(string);
        }
        bytes.extend(&self.tail);
        bytes
    }

    /// The payload for RESTORE, with the correct checksum.
    pub fn bytes(&self) -> Vec<u8> {
        sealed(&self.body())
    }
}

#[test]
fn the_checksum_is_that_of_the_server() {
    // The check value of the server's crc64.c.
    assert_eq!(crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
}
