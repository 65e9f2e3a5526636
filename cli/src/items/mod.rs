//! Items of files and of standard input, in batches as `BF.BULKADD` and `BF.BULKEXISTS` take them.
//!
//! ```text
//!   file     https://a.example/\nhttps://b.example/\nhttps://c.ex
//!            └───────────────── batch ──────────────┘└ carried to the next batch
//! ```
//!
//! Memory is bounded by the size of a batch, or by the longest item where that is larger.

mod batch;
mod live;

use std::io::{self, Read};

use memchr::{memchr, memchr_iter, memrchr};

pub(crate) use batch::{Batch, Packing};
pub(crate) use live::Live;

use crate::amount;

/// The longest item, in bytes: servers refuse longer arguments (`proto-max-bulk-len`).
const MAX_ITEM: usize = 512 << 20;
/// Options of subcommands that read items.
#[derive(clap::Args, Debug)]
#[group(skip)]
#[command(next_help_heading = "Items")]
pub(crate) struct Options {
    /// Items end with a zero byte, not with a line feed
    #[arg(short = '0', long)]
    pub(crate) null: bool,
    /// Bytes of items in one command
    #[arg(long, value_name = "BYTES", default_value = "256kb", value_parser = batch_size)]
    pub(crate) batch: u64,
}

fn batch_size(text: &str) -> Result<u64, String> {
    let size = amount::bytes(text)?;
    let sane = (1..=64 << 20).contains(&size);
    sane.then_some(size).ok_or_else(|| format!("{text}: not a size from 1b to 64mb"))
}

impl Options {
    /// The form of the items in words: two equal forms read equal items.
    pub(crate) fn form(&self) -> String {
        if self.null { "zero bytes" } else { "lines" }.to_owned()
    }
}

/// Reads an input, batch by batch.
pub(crate) struct Batches<R> {
    input: R,
    /// The byte at which items end.
    separator: u8,
    /// Bytes of a batch.
    size: usize,
    /// Items of a batch.
    most: usize,
    /// What was read. The first `used` bytes were in batches; the others are in no batch yet.
    bytes: Vec<u8>,
    used: usize,
    exhausted: bool,
    /// Bytes of the input up to `used`.
    end: u64,
}

impl<R: Read> Batches<R> {
    /// The last item may lack its separator.
    pub(crate) fn new(input: R, options: &Options) -> Self {
        let separator = if options.null { 0 } else { b'\n' };
        let size = usize::try_from(options.batch).unwrap_or(usize::MAX).max(1);
        let (bytes, used, exhausted, end) = (Vec::new(), 0, false, 0);
        Self { input, separator, size, most: usize::MAX, bytes, used, exhausted, end }
    }

    /// Begins `end` bytes after the start of the input, where `input` is already.
    pub(crate) fn from(mut self, end: u64) -> Self {
        self.end = end;
        self
    }

    /// Sets the bytes of a batch.
    pub(crate) fn of_size(mut self, bytes: usize) -> Self {
        self.size = bytes.max(1);
        self
    }

    /// Limits the number of items in a batch.
    pub(crate) fn at_most(mut self, items: usize) -> Self {
        self.most = items.max(1);
        self
    }

    /// The next batch, of at least one item; `None` at the end of the input.
    ///
    /// # Errors
    /// `WouldBlock` if the input is [`Live`] and has nothing at the moment. Nothing is lost.
    pub(crate) fn next_batch(&mut self) -> io::Result<Option<Batch>> {
        let mut end = loop {
            let bytes = &self.bytes[self.used..];
            let (near, far) = bytes.split_at(self.size.min(bytes.len()));
            let size = near.len();
            if self.exhausted && far.is_empty() {
                break size;
            }
            if self.exhausted || size == self.size {
                let next = || memchr(self.separator, far).map(|next| size + next);
                match memrchr(self.separator, near).or_else(next) {
                    Some(last) => break last + 1,
                    None if self.exhausted => break bytes.len(),
                    None => {}
                }
            }
            if bytes.len() > MAX_ITEM {
                let text = format!("an item has more than {MAX_ITEM} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            // An item that is longer than a batch is read in larger and larger steps.
            let wanted = self.size.max(bytes.len());
            if let Err(error) = self.fill(wanted) {
                let bytes = &self.bytes[self.used..];
                match memrchr(self.separator, &bytes[..self.size.min(bytes.len())]) {
                    Some(last) if error.kind() == io::ErrorKind::WouldBlock => break last + 1,
                    _ => return Err(error),
                }
            }
        };
        if end == 0 {
            return Ok(None);
        }
        let bytes = &self.bytes[self.used..];
        let mut count = memchr_iter(self.separator, &bytes[..end]).count();
        if count >= self.most {
            count = self.most;
            let last = memchr_iter(self.separator, bytes).nth(self.most - 1);
            end = last.map_or(end, |last| last + 1);
        }
        let bytes = &bytes[..end];
        let open = bytes.last() != Some(&self.separator);
        let count = count as u64 + u64::from(open);
        self.used += end;
        self.end += end as u64;
        let batch = match self.separator {
            b'\n' => Batch { packing: Packing::Lines, blob: bytes.to_vec(), count, end: self.end },
            _ => {
                let bytes = bytes.strip_suffix(&[self.separator]).unwrap_or(bytes);
                Batch { end: self.end, ..Batch::of(bytes.split(|&byte| byte == self.separator)) }
            }
        };
        Ok(Some(batch))
    }

    /// Reads `wanted` bytes more.
    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        self.bytes.drain(..self.used);
        self.used = 0;
        self.bytes.reserve(wanted);
        let read = (&mut self.input).take(wanted as u64).read_to_end(&mut self.bytes)?;
        self.exhausted = read < wanted;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(batch: u64) -> Options {
        Options { null: false, batch }
    }

    /// The items, read in batches of at most `most`. Checks that the batches cover the input.
    fn items_of(text: &[u8], options: &Options, most: usize) -> Vec<Vec<u8>> {
        let mut batches = Batches::new(text, options).at_most(most);
        let mut items = Vec::new();
        let mut end = 0;
        while let Some(batch) = batches.next_batch().unwrap() {
            assert!(batch.end > end, "each batch goes on in the input");
            end = batch.end;
            assert_eq!(batch.items().len() as u64, batch.count);
            assert!((1..=most as u64).contains(&batch.count));
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
            for most in [1, 2, 3, usize::MAX] {
                let lines = options(batch);
                assert_eq!(items_of(&text, &lines, most), expected, "{batch} bytes, {most} items");
                let null: Vec<_> =
                    text.iter().map(|&byte| if byte == b'\n' { 0 } else { byte }).collect();
                let lines = Options { null: true, ..lines };
                assert_eq!(items_of(&null, &lines, most), expected, "{batch} bytes, {most} items");
            }
        }
    }

    /// Gives a byte at a time, with `WouldBlock` before each of them.
    struct Idle<'t>(&'t [u8], bool);

    impl Read for Idle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                Err(io::ErrorKind::WouldBlock.into())
            } else {
                self.0.read(&mut buffer[..1])
            }
        }
    }

    #[test]
    fn an_input_that_pauses_anywhere_gives_the_same_items() {
        let text = b"a\n\nbbb\ncc";
        let mut batches = Batches::new(Idle(text, false), &options(3));
        let (mut items, mut end) = (Vec::new(), 0);
        loop {
            match batches.next_batch() {
                Ok(Some(batch)) => {
                    items.extend(batch.items().into_iter().map(<[u8]>::to_vec));
                    end = batch.end;
                }
                Ok(None) => break,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}"),
            }
        }
        assert_eq!((items, end), (items_of(text, &options(3), 9), text.len() as u64));
    }
}
