//! A cursor over untrusted bytes: every read is checked, and no read panics.

use super::Error;

/// The refusal of bytes that do not begin as they should.
pub(super) const OTHER_LAYOUT: Error = Error::Malformed("the magic of another layout");

/// The bytes that are not read yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    /// Opens sealed bytes: `magic`, [`VERSION`], a body, and a checksum of all of these.
    pub(super) fn sealed(bytes: &'a [u8], magic: &'static str) -> Result<Self, Error> {
        let (body, seal) = bytes.split_last_chunk::<8>().ok_or(Error::Truncated)?;
        let mut reader = Self(body);
        if reader.bytes(magic.len())? != magic.as_bytes() {
            return Err(OTHER_LAYOUT);
        }
        version(reader.u16()?, VERSION)?;
        if crate::filter::checksum(body) != u64::from_le_bytes(*seal) {
            return Err(Error::Malformed("a wrong checksum: the bytes are damaged"));
        }
        Ok(reader)
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (head, tail) = self.0.split_at_checked(count).ok_or(Error::Truncated)?;
        self.0 = tail;
        Ok(head)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(Error::Truncated)?;
        self.0 = tail;
        Ok(*head)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Error> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Error> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn f64(&mut self) -> Result<f64, Error> {
        self.array().map(f64::from_le_bytes)
    }

    /// Refuses bytes that are not read yet.
    pub(super) fn end(self) -> Result<(), Error> {
        if self.0.is_empty() { Ok(()) } else { Err(Error::Malformed("bytes behind the end")) }
    }
}

/// The version of sealed bytes.
const VERSION: u16 = 1;

/// Refuses other versions.
pub(super) fn version(found: u16, known: u16) -> Result<(), Error> {
    if found == known { Ok(()) } else { Err(Error::Version(found)) }
}

/// Starts sealed bytes with magic and version.
pub(super) fn open(magic: &str) -> Vec<u8> {
    [magic.as_bytes(), &VERSION.to_le_bytes()].concat()
}

/// Ends sealed bytes with their checksum.
pub(super) fn seal(mut out: Vec<u8>) -> Vec<u8> {
    let checksum = crate::filter::checksum(&out);
    out.extend(checksum.to_le_bytes());
    out
}
