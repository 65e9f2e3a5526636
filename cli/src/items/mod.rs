//! Items of files and of standard input, in batches as `BF.BULKADD` and `BF.BULKEXISTS` take them.
//!
//! ```text
//!   file     https://a.example/\nhttps://b.example/\nhttps://c.ex
//!            └───────────────── batch ──────────────┘└ carried to the next batch
//! ```
//!
//! Memory is bounded by the size of a batch, or by the longest item where that is larger.

mod batch;
mod csv;
mod live;

use std::{
    fs::File,
    io::{self, Read, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use memchr::{memchr, memchr_iter, memrchr};

pub(crate) use batch::{Batch, Packing};
pub(crate) use csv::Column;
pub(crate) use live::Live;

use crate::{amount, error::Error};
use batch::push_item;
use csv::{Record, column, index_of, wrong};

/// The longest item, in bytes: servers refuse longer arguments (`proto-max-bulk-len`).
const MAX_ITEM: usize = 512 << 20;
/// Bytes of CSV that are read at a time.
const PIECE: usize = 256 << 10;
/// Options of subcommands that read items.
#[derive(clap::Args, Debug)]
#[group(skip)]
#[command(next_help_heading = "Items")]
pub(crate) struct Options {
    /// Items end with a zero byte, not with a line feed
    #[arg(short = '0', long, conflicts_with = "csv")]
    pub(crate) null: bool,
    /// Items are a column of CSV: its name in the first record, or its number from 1 (then the
    /// first record is an item like all others)
    #[arg(long, value_name = "COLUMN", value_parser = column)]
    pub(crate) csv: Option<Column>,
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
        match &self.csv {
            Some(column) => format!("csv column {column}"),
            None if self.null => "zero bytes".to_owned(),
            None => "lines".to_owned(),
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
    form: Form,
    /// Bytes of a batch.
    size: usize,
    /// Items of a batch.
    most: usize,
    /// What was read, and is in no batch yet behind the first `used` bytes.
    bytes: Vec<u8>,
    used: usize,
    exhausted: bool,
    /// Bytes of the input up to `used`.
    end: u64,
}

/// Where items end.
enum Form {
    /// At a byte.
    Separated(u8),
    /// With a record of CSV.
    Csv { column: Column, record: Box<Record> },
}

impl<R: Read> Batches<R> {
    /// The last item may lack its separator.
    pub(crate) fn new(input: R, options: &Options) -> Self {
        let form = match options.csv.clone() {
            Some(column) => Form::Csv { column, record: Box::default() },
            None => Form::Separated(if options.null { 0 } else { b'\n' }),
        };
        let size = usize::try_from(options.batch).unwrap_or(usize::MAX).max(1);
        let (bytes, used, exhausted, end) = (Vec::new(), 0, false, 0);
        Self { input, form, size, most: usize::MAX, bytes, used, exhausted, end }
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
        match self.form {
            Form::Separated(separator) => self.next_separated(separator),
            Form::Csv { .. } => self.next_fields(),
        }
    }

    fn next_separated(&mut self, separator: u8) -> io::Result<Option<Batch>> {
        let mut end = loop {
            let bytes = &self.bytes[self.used..];
            let (near, far) = bytes.split_at(self.size.min(bytes.len()));
            let size = near.len();
            if self.exhausted && far.is_empty() {
                break size;
            }
            if self.exhausted || size == self.size {
                let next = || memchr(separator, far).map(|next| size + next);
                match memrchr(separator, near).or_else(next) {
                    Some(last) => break last + 1,
                    None if self.exhausted => break bytes.len(),
                    None => {}
                }
            }
            if bytes.len() > MAX_ITEM {
                return Err(wrong(format!(
                    "an item has more than {MAX_ITEM} bytes: other items, or -0?"
                )));
            }
            // An item that is longer than a batch is read in larger and larger steps.
            let wanted = self.size.max(bytes.len());
            if let Err(error) = self.fill(wanted) {
                let bytes = &self.bytes[self.used..];
                match memrchr(separator, &bytes[..self.size.min(bytes.len())]) {
                    Some(last) if error.kind() == io::ErrorKind::WouldBlock => break last + 1,
                    _ => return Err(error),
                }
            }
        };
        if end == 0 {
            return Ok(None);
        }
        let bytes = &self.bytes[self.used..];
        if let Some(last) = memchr_iter(separator, &bytes[..end]).nth(self.most - 1) {
            end = last + 1;
        }
        let bytes = &bytes[..end];
        let open = bytes.last() != Some(&separator);
        let count = memchr_iter(separator, bytes).count() as u64 + u64::from(open);
        self.used += end;
        self.end += end as u64;
        let batch = match separator {
            b'\n' => Batch { packing: Packing::Lines, blob: bytes.to_vec(), count, end: self.end },
            _ => {
                let bytes = bytes.strip_suffix(&[separator]).unwrap_or(bytes);
                Batch { end: self.end, ..Batch::of(bytes.split(|&byte| byte == separator)) }
            }
        };
        Ok(Some(batch))
    }

    /// The column of the next records of CSV, of any number of fields as long as each has it.
    fn next_fields(&mut self) -> io::Result<Option<Batch>> {
        let mut batch = Batch::of([]);
        while batch.blob.len() < self.size && batch.count < self.most as u64 {
            match self.next_record() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && batch.count > 0 => break,
                Err(error) => return Err(error),
            }
            let Form::Csv { column, record } = &mut self.form else { break };
            let Column::At(index) = *column else {
                *column = Column::At(index_of(column, record)?);
                record.start = self.end;
                continue;
            };
            let field = record.field(index).ok_or_else(|| {
                wrong(format!("the record at byte {} has no column {}", record.start, index + 1))
            })?;
            push_item(&mut batch.blob, field);
            batch.count += 1;
            record.start = self.end;
            // A batch ends with a record, not within one.
            batch.end = self.end;
        }
        Ok((batch.count > 0).then_some(batch))
    }

    /// Parses the next record; `false` at the end of the input. A quote without an end, which would
    /// take all that follows for one field, is refused, and so are records of any length.
    fn next_record(&mut self) -> io::Result<bool> {
        loop {
            let Form::Csv { record, .. } = &mut self.form else { return Ok(false) };
            let (whole, size) = record.parse(&self.bytes[self.used..]);
            self.used += size;
            self.end += size as u64;
            if whole {
                return Ok(true);
            }
            let start = record.start;
            if self.exhausted {
                let (whole, _) = record.parse(b"\n");
                return match record.written {
                    // The line feed itself went into the field.
                    1.. if !whole => {
                        Err(wrong(format!("the record at byte {start} has a quote without an end")))
                    }
                    _ => Ok(whole),
                };
            }
            if self.end - start > MAX_ITEM as u64 {
                return Err(wrong(format!(
                    "the record at byte {start} has more than {MAX_ITEM} bytes"
                )));
            }
            self.fill(PIECE)?;
        }
    }

    /// Reads so many bytes more.
    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        self.bytes.drain(..self.used);
        self.used = 0;
        self.bytes.reserve(wanted);
        let read = (&mut self.input).take(wanted as u64).read_to_end(&mut self.bytes)?;
        self.exhausted = read < wanted;
        Ok(())
    }
}

impl Batches<Box<dyn Read>> {
    /// Goes on in a file at an item: the [`Batch::end`] of an earlier batch.
    pub(crate) fn resumed(mut file: File, options: &Options, offset: u64) -> io::Result<Self> {
        let mut column = options.csv.clone();
        if let Some(named @ Column::Named(_)) = &mut column
            && offset > 0
        {
            let mut first = Batches::new(&mut file, options);
            first.next_record()?;
            if let Form::Csv { record, .. } = &first.form {
                *named = Column::At(index_of(named, record)?);
            }
        }
        file.seek(SeekFrom::Start(offset))?;
        let mut batches = Self::new(Box::new(file), options);
        batches.end = offset;
        if let (Form::Csv { column: of, record }, Some(column)) = (&mut batches.form, column) {
            (*of, record.start) = (column, offset);
        }
        Ok(batches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(batch: u64) -> Options {
        Options { null: false, csv: None, batch }
    }

    /// Items of batches of at most `most` items, and that the batches cover the input.
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

    /// Gives so many bytes at a time.
    struct Pieces<'t> {
        text: &'t [u8],
        piece: usize,
    }

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let size = self.piece.min(self.text.len());
            buffer[..size].copy_from_slice(&self.text[..size]);
            self.text = &self.text[size..];
            Ok(size)
        }
    }

    /// An input of pieces, with `WouldBlock` before each of them.
    struct Idle<'t>(Pieces<'t>, bool);

    impl Read for Idle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 { Err(io::ErrorKind::WouldBlock.into()) } else { self.0.read(buffer) }
        }
    }

    #[test]
    fn csv_that_pauses_anywhere_gives_the_same_items() {
        let csv = Some(Column::Named("url".to_owned()));
        let options = Options { csv, ..options(1000) };
        let whole = items_of(TABLE, &options, 1000);
        for piece in 1..TABLE.len() + 1 {
            let idle = Idle(Pieces { text: TABLE, piece }, false);
            let mut batches = Batches::new(idle, &options);
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
            assert_eq!((items, end), (whole.clone(), TABLE.len() as u64), "{piece}");
        }
    }

    #[test]
    fn a_quote_without_an_end_is_refused() {
        for piece in 1..20 {
            for (text, at) in [
                (&b"url\na\nb \"x\"\n\"c\nd\ne\n"[..], Some(12)),
                (b"a,\"b\n", Some(0)),
                (b"\"a\"\"\n", Some(0)),
                (b"\"", Some(0)),
                (b"\"a\"\"\"\n\"\",\"b,\n\"\n", None),
                (b"\"a\"b\"\nc\"\n", None),
                (b"a\r\nb", None),
            ] {
                let options = Options { csv: Some(Column::At(0)), ..options(1000) };
                let mut batches = Batches::new(Pieces { text, piece }, &options);
                let error = loop {
                    match batches.next_batch() {
                        Ok(Some(_)) => {}
                        Ok(None) => break None,
                        Err(error) => break Some(error.to_string()),
                    }
                };
                let why = |at| format!("the record at byte {at} has a quote without an end");
                assert_eq!(error, at.map(why));
            }
        }
    }

    #[test]
    fn a_separator_at_the_end_ends_the_last_item() {
        for batch in 1..6 {
            let options = options(batch);
            assert_eq!(items_of(b"a\nb\n", &options, 9), [b"a", b"b"]);
            assert_eq!(items_of(b"a\nb\n\n", &options, 9), [&b"a"[..], b"b", b""]);
            assert_eq!(items_of(b"", &options, 9), [] as [&[u8]; 0]);
            assert_eq!(items_of(b"\n", &options, 9), [b""]);
        }
    }

    const TABLE: &[u8] =
        b"id,url,\"a \"\"name\"\"\"\n1,https://a,x\n2,\"two\nlines, \"\"quoted\"\"\",y\r\n3,,z\n";

    #[test]
    fn a_column_of_csv_is_found_by_name_or_number() {
        let urls = [&b"https://a"[..], b"two\nlines, \"quoted\"", b""];
        let names = [&b"x"[..], b"y", b"z"];
        for batch in [1, 3, 20, 1000] {
            for most in [1, 2, 1000] {
                let of = |text: &str| {
                    let csv = Some(column(text).unwrap());
                    items_of(TABLE, &Options { csv, ..options(batch) }, most)
                };
                assert_eq!(of("url"), urls);
                assert_eq!(of("a \"name\""), names);
                assert_eq!(of("2")[0], b"url", "the first record is an item like all others");
                assert_eq!(of("2")[1..], urls);
            }
        }
        let batches = |text: &str| {
            let csv = Some(column(text).unwrap());
            let mut batches = Batches::new(TABLE, &Options { csv, ..options(9) });
            batches.next_batch().unwrap_err().to_string()
        };
        assert!(batches("none").contains("no column none, only id, url"));
        assert!(batches("4").contains("the record at byte 0 has no column 4"));
        let csv = Some(column("url").unwrap());
        let twice = &b"url,id,url\na,b,c\n"[..];
        let error = Batches::new(twice, &Options { csv, ..options(9) }).next_batch().unwrap_err();
        assert!(error.to_string().contains("columns 1 and 3 are both named url"));
        assert!(column("0").is_err());
    }

    #[test]
    fn a_file_is_continued_behind_each_batch() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, TABLE).unwrap();
        for csv in [None, Some(Column::Named("url".to_owned())), Some(Column::At(0))] {
            let options = Options { csv, ..options(1) };
            let all = items_of(TABLE, &options, 1);
            let mut batches = Batches::new(TABLE, &options);
            let mut before = 0;
            while let Some(batch) = batches.next_batch().unwrap() {
                before += 1;
                let again = file.try_clone().unwrap();
                (&file).seek(SeekFrom::Start(0)).unwrap();
                let mut again = Batches::resumed(again, &options, batch.end).unwrap();
                let mut rest = Vec::new();
                while let Some(batch) = again.next_batch().unwrap() {
                    rest.extend(batch.items().into_iter().map(<[u8]>::to_vec));
                }
                assert_eq!(rest, all[before..], "{options:?} at {}", batch.end);
            }
        }
    }
}
