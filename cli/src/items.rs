//! Items of files and of standard input, in batches as `BF.BULKADD` and `BF.BULKEXISTS` take them.
//!
//! ```text
//!   file     https://a.example/\nhttps://b.example/\nhttps://c.ex
//!            └───────────────── batch ──────────────┘└ carried to the next batch
//! ```
//!
//! Lines travel as they are. Other items are packed with their lengths before them (unsigned
//! LEB128). Memory is bounded by the size of a batch, or by the longest item where that is larger.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use memchr::{memchr_iter, memrchr};

use crate::{amount, error::Error};

/// Options of subcommands that read items.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Items")]
pub(crate) struct Options {
    /// Items end with a zero byte, not with a line feed
    #[arg(short = '0', long)]
    pub(crate) null: bool,
    /// Bytes of items in one command
    #[arg(long, value_name = "BYTES", default_value = "256kb", value_parser = amount::bytes)]
    pub(crate) batch: u64,
}

/// How the items of a batch are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// Items separated by line feeds.
    Lines,
    /// Each item after its length, in unsigned LEB128.
    Lengths,
}

impl Packing {
    /// The word of `BF.BULKADD` for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Lines => "LINES",
            Self::Lengths => "LENGTHS",
        }
    }
}

/// Whole items, packed.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) packing: Packing,
    pub(crate) blob: Vec<u8>,
    /// Bytes of the input up to and with the last item of this batch.
    pub(crate) end: u64,
}

impl Batch {
    /// The items, one by one: for servers without packed commands.
    pub(crate) fn items(&self) -> Vec<&[u8]> {
        match self.packing {
            Packing::Lines => {
                let mut items: Vec<_> = self.blob.split(|&byte| byte == b'\n').collect();
                if self.blob.last().is_none_or(|&byte| byte == b'\n') {
                    items.pop();
                }
                items
            }
            Packing::Lengths => {
                let mut items = Vec::new();
                let mut rest = &self.blob[..];
                while let Some((length, after)) = length_of(rest) {
                    let (item, after) = after.split_at(length);
                    items.push(item);
                    rest = after;
                }
                items
            }
        }
    }
}

/// Where items come from.
pub(crate) enum Source {
    File(PathBuf),
    Stdin,
}

impl Source {
    /// A file; `-` is standard input.
    pub(crate) fn named(name: &Path) -> Self {
        if name == Path::new("-") { Self::Stdin } else { Self::File(name.to_owned()) }
    }

    /// For messages.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Stdin => "stdin".to_owned(),
        }
    }

    /// Opens it. The length is `None` for what is no regular file.
    pub(crate) fn open(&self) -> Result<(Box<dyn Read>, Option<u64>), Error> {
        match self {
            Self::Stdin => Ok((Box::new(io::stdin().lock()), None)),
            Self::File(path) => {
                let file = File::open(path).map_err(Error::file(path))?;
                let metadata = file.metadata().map_err(Error::file(path))?;
                let length = metadata.is_file().then_some(metadata.len());
                Ok((Box::new(file), length))
            }
        }
    }
}

/// Reads an input, batch by batch.
pub(crate) struct Batches<R> {
    input: R,
    separator: u8,
    /// Bytes of a batch.
    size: usize,
    /// The start of an item whose end was not read yet.
    carried: Vec<u8>,
    /// Bytes of the input in batches so far.
    end: u64,
    exhausted: bool,
}

impl<R: Read> Batches<R> {
    /// Items that end with `separator`; the last one may lack it.
    pub(crate) fn new(input: R, options: &Options) -> Self {
        Self {
            input,
            separator: if options.null { 0 } else { b'\n' },
            size: usize::try_from(options.batch).unwrap_or(usize::MAX).max(1),
            carried: Vec::new(),
            end: 0,
            exhausted: false,
        }
    }

    /// The next batch; `None` at the end of the input.
    pub(crate) fn next_batch(&mut self) -> io::Result<Option<Batch>> {
        let mut blob = std::mem::take(&mut self.carried);
        // Up to here there is no separator.
        let mut searched = 0;
        while !self.exhausted {
            // An item that is longer than a batch is read in larger and larger steps.
            let wanted = self.size.max(blob.len());
            blob.reserve(wanted);
            let read = (&mut self.input).take(wanted as u64).read_to_end(&mut blob)?;
            self.exhausted = read < wanted;
            if self.exhausted {
                break;
            }
            if let Some(last) = memrchr(self.separator, &blob[searched..]) {
                self.carried = blob.split_off(searched + last + 1);
                break;
            }
            searched = blob.len();
        }
        if blob.is_empty() {
            return Ok(None);
        }
        self.end += blob.len() as u64;
        Ok(Some(self.packed(blob)))
    }

    fn packed(&self, blob: Vec<u8>) -> Batch {
        if self.separator == b'\n' {
            return Batch { packing: Packing::Lines, blob, end: self.end };
        }
        let mut packed = Vec::with_capacity(blob.len() + blob.len() / 8 + 16);
        let mut start = 0;
        for end in memchr_iter(self.separator, &blob) {
            push_item(&mut packed, &blob[start..end]);
            start = end + 1;
        }
        if start < blob.len() {
            push_item(&mut packed, &blob[start..]);
        }
        Batch { packing: Packing::Lengths, blob: packed, end: self.end }
    }
}

/// Appends an item after its length.
pub(crate) fn push_item(blob: &mut Vec<u8>, item: &[u8]) {
    let mut length = item.len();
    while length >= 0x80 {
        blob.push(length as u8 | 0x80);
        length >>= 7;
    }
    blob.push(length as u8);
    blob.extend_from_slice(item);
}

/// The length at the start of `packed`, and what follows it; `None` at the end.
fn length_of(packed: &[u8]) -> Option<(usize, &[u8])> {
    let size = packed.iter().position(|byte| byte & 0x80 == 0)? + 1;
    let (digits, after) = packed.split_at(size);
    let length = digits.iter().rev().fold(0, |sum, byte| sum << 7 | usize::from(byte & 0x7f));
    Some((length, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items_of(text: &[u8], null: bool, batch: u64) -> Vec<Vec<u8>> {
        let mut batches = Batches::new(text, &Options { null, batch });
        let mut items = Vec::new();
        let mut end = 0;
        while let Some(batch) = batches.next_batch().unwrap() {
            assert!(batch.end > end, "each batch goes on in the input");
            end = batch.end;
            items.extend(batch.items().into_iter().map(<[u8]>::to_vec));
        }
        assert_eq!(end, text.len() as u64, "the batches cover the input");
        items
    }

    #[test]
    fn every_size_of_batch_gives_the_same_items() {
        let long = vec![b'x'; 300];
        let mut text = b"a\n\nbb\r\n".to_vec();
        text.extend(&long);
        text.extend(b"\nlast");
        let expected = [&b"a"[..], b"", b"bb\r", &long, b"last"];
        for batch in 1..400 {
            assert_eq!(items_of(&text, false, batch), expected, "batches of {batch} bytes");
            let null: Vec<_> =
                text.iter().map(|&byte| if byte == b'\n' { 0 } else { byte }).collect();
            assert_eq!(items_of(&null, true, batch), expected, "batches of {batch} bytes");
        }
    }

    #[test]
    fn a_separator_at_the_end_ends_the_last_item() {
        for batch in 1..6 {
            assert_eq!(items_of(b"a\nb\n", false, batch), [b"a", b"b"]);
            assert_eq!(items_of(b"a\nb\n\n", false, batch), [&b"a"[..], b"b", b""]);
            assert_eq!(items_of(b"", false, batch), [] as [&[u8]; 0]);
            assert_eq!(items_of(b"\n", false, batch), [b""]);
        }
    }
}
