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
    fmt,
    fs::File,
    io::{self, Read, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    thread,
    time::{Duration, Instant},
};

use bloom::sharding::shard_of;
use memchr::{memchr, memchr_iter, memchr3, memrchr};

use crate::{amount, error::Error};

/// The longest item, in bytes: servers refuse longer arguments (`proto-max-bulk-len`).
const MAX_ITEM: usize = 512 << 20;
/// Bytes that are read at a time from what is no regular file.
const PIECE: usize = 256 << 10;
/// How long a live input may be idle before the items that came are used.
const IDLE: Duration = Duration::from_millis(100);

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

/// A column of CSV.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// The name in the first record.
    Named(String),
    /// The index, from 0.
    At(usize),
}

impl fmt::Display for Column {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => write!(formatter, "{name}"),
            Self::At(index) => write!(formatter, "{}", index + 1),
        }
    }
}

fn column(text: &str) -> Result<Column, String> {
    match text.parse::<usize>() {
        Ok(0) => Err("columns are counted from 1".to_owned()),
        Ok(number) => Ok(Column::At(number - 1)),
        Err(_) => Ok(Column::Named(text.to_owned())),
    }
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
            Some(Column::Named(name)) => format!("csv column named {name}"),
            Some(Column::At(index)) => format!("csv column {}", index + 1),
            None if self.null => "zero bytes".to_owned(),
            None => "lines".to_owned(),
        }
    }
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
    /// Number of items.
    pub(crate) count: u64,
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

    /// Removes the first `count` items, or all if there are fewer.
    pub(crate) fn skip(&mut self, count: u64) {
        let skipped = count.min(self.count);
        let size = match (self.packing, skipped) {
            (_, 0) => 0,
            (_, all) if all == self.count => self.blob.len(),
            (Packing::Lines, _) => memchr_iter(b'\n', &self.blob)
                .nth(usize::try_from(skipped - 1).unwrap_or(usize::MAX))
                .map_or(self.blob.len(), |end| end + 1),
            (Packing::Lengths, _) => {
                let mut rest = &self.blob[..];
                for _ in 0..skipped {
                    let Some((length, after)) = length_of(rest) else { break };
                    rest = &after[length..];
                }
                self.blob.len() - rest.len()
            }
        };
        self.blob.drain(..size);
        self.count -= skipped;
    }
}

impl Batch {
    /// The items by shard: a batch for each of so many shards, some of them empty. Calls `owned`
    /// with the shard of each item, in order.
    pub(crate) fn split(&self, shards: u16, mut owned: impl FnMut(u16)) -> Vec<Batch> {
        // A little more than the mean, so that few batches grow.
        let mean = self.blob.len() / usize::from(shards.max(1));
        let empty = |_| Batch {
            packing: self.packing,
            blob: Vec::with_capacity(mean + mean / 8 + 64),
            count: 0,
            end: self.end,
        };
        let mut batches: Vec<Batch> = (0..shards).map(empty).collect();
        let mut put = |item: &[u8], packed: &[u8], separator: &[u8]| {
            let shard = shard_of(item, shards);
            owned(shard);
            if let Some(batch) = batches.get_mut(usize::from(shard)) {
                batch.blob.extend_from_slice(packed);
                batch.blob.extend_from_slice(separator);
                batch.count += 1;
            }
        };
        match self.packing {
            Packing::Lines => {
                let mut start = 0;
                for end in memchr_iter(b'\n', &self.blob) {
                    put(&self.blob[start..end], &self.blob[start..=end], b"");
                    start = end + 1;
                }
                let last = &self.blob[start..];
                if !last.is_empty() {
                    put(last, last, b"\n");
                }
            }
            Packing::Lengths => {
                let mut rest = &self.blob[..];
                while let Some((length, after)) = length_of(rest) {
                    let size = rest.len() - after.len() + length;
                    put(&after[..length], &rest[..size], b"");
                    rest = &rest[size..];
                }
            }
        }
        batches
    }

    /// The items in batches of at most `most` items.
    pub(crate) fn cut(mut self, most: usize) -> Vec<Batch> {
        let most = most.max(1) as u64;
        let mut batches = Vec::new();
        while self.count > most {
            let mut front = Batch { blob: self.blob.clone(), ..self };
            let size = self.blob.len();
            self.skip(most);
            front.blob.truncate(size - self.blob.len());
            front.count = most;
            batches.push(front);
        }
        batches.push(self);
        batches
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

/// An input that may be idle for hours: a pipe or a terminal. A thread reads it, so that the
/// program sees Ctrl-C meanwhile, and sends what came before the idle time.
pub(crate) struct Live {
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: io::Cursor<Vec<u8>>,
    /// When the first byte was read after the last `WouldBlock`.
    since: Option<Instant>,
}

impl Live {
    /// Reads with `WouldBlock` for "nothing at the moment".
    pub(crate) fn new(input: impl Read + Send + 'static) -> Self {
        Self::opened(|| Ok(input))
    }

    /// Like [`Live::new`]. Opens the input in the thread: a named pipe is open when a writer comes.
    pub(crate) fn opened<R: Read>(open: impl FnOnce() -> io::Result<R> + Send + 'static) -> Self {
        let (sender, pieces) = sync_channel(4);
        thread::spawn(move || {
            let mut input = match open() {
                Ok(input) => input,
                // A reader that is gone does not need it.
                Err(error) => return drop(sender.send(Err(error))),
            };
            // A pipe gives a few KiB at a time, so each piece is copied to its own size.
            let mut buffer = vec![0; PIECE];
            loop {
                let read = input.read(&mut buffer).map(|size| buffer[..size].to_vec());
                if read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {
                    continue;
                }
                let ended = read.as_ref().map_or(true, Vec::is_empty);
                if sender.send(read).is_err() || ended {
                    return;
                }
            }
        });
        Self { pieces, piece: io::Cursor::default(), since: None }
    }
}

impl Read for Live {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let size = self.piece.read(buffer)?;
            if size > 0 || buffer.is_empty() {
                self.since.get_or_insert_with(Instant::now);
                return Ok(size);
            }
            // A slow input that is never idle has its items used, too.
            if self.since.is_some_and(|since| since.elapsed() >= IDLE) {
                self.since = None;
                return Err(io::ErrorKind::WouldBlock.into());
            }
            match self.pieces.recv_timeout(IDLE) {
                Ok(Ok(piece)) if piece.is_empty() => return Ok(0),
                Ok(piece) => self.piece = io::Cursor::new(piece?),
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
                Err(RecvTimeoutError::Timeout) => {
                    self.since = None;
                    return Err(io::ErrorKind::WouldBlock.into());
                }
            }
        }
    }
}

/// Reads an input, batch by batch.
pub(crate) struct Batches<R> {
    form: Form<R>,
    /// Bytes of a batch.
    size: usize,
    /// Items of a batch.
    most: usize,
    /// Bytes of the input in batches so far.
    end: u64,
}

/// Where items end.
enum Form<R> {
    /// At a byte.
    Separated { input: R, separator: u8, buffer: Buffer },
    /// With a record of CSV.
    Csv { input: R, column: Column, records: Box<Records> },
}

/// Bytes of the input that are in no batch yet.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    /// Bytes that are in batches.
    used: usize,
    exhausted: bool,
}

impl<R: Read> Batches<R> {
    /// The last item may lack its separator.
    pub(crate) fn new(input: R, options: &Options) -> Self {
        Self::at(input, options, options.csv.clone(), 0)
    }

    /// Goes on at an item, `end` bytes behind the start of the input. `input` is there already. A
    /// column is an index, unless `end` is 0.
    fn at(input: R, options: &Options, column: Option<Column>, end: u64) -> Self {
        let form = match column {
            None => Form::Separated {
                input,
                separator: if options.null { 0 } else { b'\n' },
                buffer: Buffer::default(),
            },
            Some(column) => Form::Csv { input, column, records: Box::new(Records::at(end)) },
        };
        let size = usize::try_from(options.batch).unwrap_or(usize::MAX).max(1);
        Self { form, size, most: usize::MAX, end }
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

    /// The next batch; `None` at the end of the input.
    ///
    /// # Errors
    /// `WouldBlock` if the input is [`Live`] and has nothing at the moment.
    pub(crate) fn next_batch(&mut self) -> io::Result<Option<Batch>> {
        let next = match &mut self.form {
            Form::Separated { input, separator, buffer } => {
                buffer.next(input, *separator, self.size, self.most)?
            }
            Form::Csv { input, column, records } => {
                records.next_batch(input, column, self.size, self.most)?
            }
        };
        Ok(next.map(|(packing, blob, count, bytes)| {
            self.end += bytes;
            Batch { packing, blob, count, end: self.end }
        }))
    }
}

impl Batches<Box<dyn Read>> {
    /// Goes on in a file at an item: the [`Batch::end`] of an earlier batch.
    pub(crate) fn resumed(mut file: File, options: &Options, offset: u64) -> io::Result<Self> {
        let mut column = options.csv.clone();
        if let Some(named @ Column::Named(_)) = &mut column
            && offset > 0
        {
            let mut records = Records::at(0);
            records.next_record(&mut file)?;
            *named = Column::At(index_of(named, &records)?);
        }
        file.seek(SeekFrom::Start(offset))?;
        Ok(Self::at(Box::new(file), options, column, offset))
    }
}

/// The packing, the blob, the number of items, and the bytes of the input that they take.
type Packed = (Packing, Vec<u8>, u64, u64);

impl Buffer {
    fn next(
        &mut self,
        input: &mut impl Read,
        separator: u8,
        size: usize,
        most: usize,
    ) -> io::Result<Option<Packed>> {
        // No separator is between `used` and `used + searched`.
        let mut searched = 0;
        let end = loop {
            let bytes = &self.bytes[self.used..];
            if self.exhausted && bytes.len() <= size {
                break bytes.len();
            }
            if bytes.len() >= size || self.exhausted {
                let near = &bytes[..size.min(bytes.len())];
                let last = memrchr(separator, &near[searched.min(near.len())..]);
                if let Some(last) = last {
                    break searched + last + 1;
                }
                searched = searched.max(near.len());
                if let Some(next) = memchr(separator, &bytes[searched..]) {
                    break searched + next + 1;
                }
                if self.exhausted {
                    break bytes.len();
                }
                searched = bytes.len();
            }
            if bytes.len() > MAX_ITEM {
                let text = format!("an item has more than {MAX_ITEM} bytes: other items, or -0?");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            match self.fill(input, size) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let bytes = &self.bytes[self.used..];
                    let last = memrchr(separator, &bytes[..size.min(bytes.len())]);
                    break last.ok_or(error)? + 1;
                }
                filled => filled?,
            }
        };
        if end == 0 {
            return Ok(None);
        }
        let bytes = &self.bytes[self.used..self.used + end];
        let mut count = memchr_iter(separator, bytes).count();
        let mut end = end;
        if count >= most {
            count = most;
            end = memchr_iter(separator, bytes).nth(most - 1).map_or(end, |last| last + 1);
        }
        let bytes = &bytes[..end];
        if bytes.last() != Some(&separator) {
            count += 1;
        }
        let packed = if separator == b'\n' {
            (Packing::Lines, bytes.to_vec(), count as u64, end as u64)
        } else {
            let mut blob = Vec::with_capacity(bytes.len() + bytes.len() / 8 + 16);
            let mut start = 0;
            for last in memchr_iter(separator, bytes) {
                push_item(&mut blob, &bytes[start..last]);
                start = last + 1;
            }
            if start < bytes.len() {
                push_item(&mut blob, &bytes[start..]);
            }
            (Packing::Lengths, blob, count as u64, end as u64)
        };
        self.used += end;
        Ok(Some(packed))
    }

    /// Reads on. An item that is longer than a batch is read in larger and larger steps.
    fn fill(&mut self, input: &mut impl Read, size: usize) -> io::Result<()> {
        self.bytes.drain(..self.used);
        self.used = 0;
        let wanted = size.max(self.bytes.len());
        self.bytes.reserve(wanted);
        let read = input.take(wanted as u64).read_to_end(&mut self.bytes)?;
        self.exhausted = read < wanted;
        Ok(())
    }
}

/// CSV in records, of any number of fields as long as each has the column. A record is used when it
/// is whole, so an input may pause anywhere.
///
/// ```text
///   bytes   ...,"x"\n  c,"d\n"\n  e,"f
///                     │          └ whole: the record here goes on
///                     └ used
/// ```
struct Records {
    bytes: Vec<u8>,
    /// Bytes that were parsed.
    used: usize,
    /// Where the record begins that is not whole, in bytes of the file.
    record: u64,
    /// Bytes of the file that were read.
    end: u64,
    /// Where the last batch ended, in bytes of the file.
    batched: u64,
    place: Place,
    /// Bytes of the longest record.
    longest: u64,
    exhausted: bool,
    parser: csv_core::Reader,
    /// The fields of a record, and where each of them ends.
    fields: Vec<u8>,
    ends: Vec<usize>,
    count: usize,
}

/// A place in CSV.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A field begins.
    Start,
    Plain,
    Quoted,
    /// Behind a quote inside of a quoted field: its end, or the first of two quotes.
    Quote,
}

impl Records {
    /// Records of an input that begins so many bytes behind the start of a file.
    fn at(base: u64) -> Self {
        Self {
            bytes: Vec::new(),
            used: 0,
            record: base,
            end: base,
            batched: base,
            place: Place::Start,
            longest: MAX_ITEM as u64,
            exhausted: false,
            parser: csv_core::Reader::new(),
            fields: vec![0; PIECE],
            ends: vec![0; 64],
            count: 0,
        }
    }

    /// The column of the next records. After `WouldBlock` nothing is lost.
    fn next_batch(
        &mut self,
        input: &mut impl Read,
        column: &mut Column,
        size: usize,
        most: usize,
    ) -> io::Result<Option<Packed>> {
        let (mut blob, mut count) = (Vec::new(), 0);
        while blob.len() < size && count < most {
            let at = self.position();
            match self.next_record(input) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && count > 0 => break,
                Err(error) => return Err(error),
            }
            let index = match column {
                Column::At(index) => *index,
                Column::Named(_) => {
                    *column = Column::At(index_of(column, self)?);
                    continue;
                }
            };
            let field = self.field(index).ok_or_else(|| {
                let text = format!("the record at byte {at} has no column {}", index + 1);
                io::Error::new(io::ErrorKind::InvalidData, text)
            })?;
            push_item(&mut blob, field);
            count += 1;
        }
        let bytes = self.position() - self.batched;
        self.batched += bytes;
        Ok((count > 0).then_some((Packing::Lengths, blob, count as u64, bytes)))
    }

    /// Where parsing is, in bytes of the file.
    fn position(&self) -> u64 {
        self.end - (self.bytes.len() - self.used) as u64
    }

    /// Parses the next record; `false` at the end of the input.
    fn next_record(&mut self, input: &mut impl Read) -> io::Result<bool> {
        loop {
            let rest = (self.end - self.record) as usize;
            let whole = if self.exhausted { self.bytes.len() } else { self.bytes.len() - rest };
            if self.used < whole && self.parse(whole) {
                return Ok(true);
            }
            if self.exhausted {
                return Ok(self.parse(whole));
            }
            self.fill(input)?;
        }
    }

    /// Parses a record of the bytes up to `whole`; `false` if only empty lines were left.
    fn parse(&mut self, whole: usize) -> bool {
        use csv_core::ReadRecordResult::{End, InputEmpty, OutputEndsFull, OutputFull, Record};
        let (mut written, mut ended) = (0, 0);
        loop {
            let input = &self.bytes[self.used..whole];
            // Without input the parser takes it for the end of all.
            if input.is_empty() && !self.exhausted {
                return false;
            }
            let (fields, ends) = (&mut self.fields[written..], &mut self.ends[ended..]);
            let (result, read, more, done) = self.parser.read_record(input, fields, ends);
            self.used += read;
            (written, ended) = (written + more, ended + done);
            match result {
                InputEmpty => {}
                OutputFull => self.fields.resize(2 * self.fields.len(), 0),
                OutputEndsFull => self.ends.resize(2 * self.ends.len(), 0),
                Record => {
                    self.count = ended;
                    return true;
                }
                End => return false,
            }
        }
    }

    /// A field of the record that was parsed.
    fn field(&self, index: usize) -> Option<&[u8]> {
        let ends = &self.ends[..self.count];
        let start = if index == 0 { 0 } else { *ends.get(index - 1)? };
        Some(&self.fields[start..*ends.get(index)?])
    }

    /// Reads a piece of the input. A quote without an end, which would take all that follows for
    /// one field, is refused, and so are records of any length.
    fn fill(&mut self, input: &mut impl Read) -> io::Result<()> {
        self.bytes.drain(..self.used);
        self.used = 0;
        let before = self.bytes.len();
        self.bytes.resize(before + PIECE, 0);
        let read = input.read(&mut self.bytes[before..]);
        self.bytes.truncate(before + *read.as_ref().unwrap_or(&0));
        let wrong = |text: String| Err(io::Error::new(io::ErrorKind::InvalidData, text));
        let record = self.record;
        match read {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Ok(0) if self.place == Place::Quoted => {
                return wrong(format!("the record at byte {record} has a quote without an end"));
            }
            read => self.exhausted = read? == 0,
        }
        self.follow(before);
        if self.end - self.record > self.longest {
            let (record, longest) = (self.record, self.longest);
            return wrong(format!("the record at byte {record} has more than {longest} bytes"));
        }
        Ok(())
    }

    /// Finds the ends of records in the bytes behind the first `at`.
    fn follow(&mut self, mut at: usize) {
        let start = self.end - at as u64;
        while let Some(&byte) = self.bytes.get(at) {
            let rest = &self.bytes[at..];
            let (skipped, place) = match (self.place, byte) {
                (Place::Start | Place::Quote, b'"') => (0, Place::Quoted),
                (Place::Quoted, _) => match memchr(b'"', rest) {
                    Some(quote) => (quote, Place::Quote),
                    None => (rest.len(), Place::Quoted),
                },
                _ => match memchr3(b',', b'\n', b'\r', rest) {
                    Some(end) => {
                        if rest[end] != b',' {
                            self.record = start + (at + end) as u64 + 1;
                        }
                        (end, Place::Start)
                    }
                    None => (rest.len(), Place::Plain),
                },
            };
            self.place = place;
            at += skipped + 1;
        }
        self.end = start + self.bytes.len() as u64;
    }
}

/// The index of a column, by its name in the first record.
fn index_of(column: &Column, first: &Records) -> io::Result<usize> {
    let name = match column {
        Column::At(index) => return Ok(*index),
        Column::Named(name) => name.as_bytes(),
    };
    let names: Vec<_> = (0..first.count).filter_map(|index| first.field(index)).collect();
    let mut found = (0..names.len()).filter(|&index| names[index] == name);
    let wrong = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
    match (found.next(), found.next()) {
        (Some(index), None) => Ok(index),
        (Some(one), Some(other)) => Err(wrong(format!(
            "columns {} and {} are both named {column}: name one by its number",
            one + 1,
            other + 1
        ))),
        _ => {
            let names: Vec<_> = names.into_iter().map(String::from_utf8_lossy).collect();
            Err(wrong(format!("there is no column {column}, only {}", names.join(", "))))
        }
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
    fn a_quote_without_an_end_and_a_long_record_are_refused() {
        let wrong = |text: &[u8], piece: usize, longest: u64| {
            let mut records = Records::at(0);
            records.longest = longest;
            let mut input = Pieces { text, piece };
            loop {
                match records.next_record(&mut input) {
                    Ok(false) => return None,
                    Ok(true) => {}
                    Err(error) => return Some(error.to_string()),
                }
            }
        };
        let (open, long) = ("has a quote without an end", "has more than 9 bytes");
        for piece in 1..40 {
            for (text, why) in [
                (&b"url\na\nb \"x\"\n\"c\nd\ne\n"[..], Some((12, open))),
                (b"a,\"b\n", Some((0, open))),
                (b"\"a\"\"\n", Some((0, open))),
                (b"\"a\"\"\"\n\"\",\"b,\n\"\n", None),
                (b"\"a\"b\"\nc\"\n", None),
                (b"a\r\n123456789", None),
                (b"a\n1234,67890abc", Some((2, long))),
            ] {
                let why = why.map(|(at, why)| format!("the record at byte {at} {why}"));
                let longest = if text.ends_with(b"e\n") { 99 } else { 9 };
                assert_eq!(wrong(text, piece, longest), why);
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

    /// Every item is in the batch of its shard, in order, whatever bytes it has.
    #[test]
    fn a_batch_is_split_by_shard_and_cut() {
        let texts: [(&[u8], bool); 6] = [
            (b"a\nb\n\nc", false),
            (b"a\nb\n\nc\n\n", false),
            (b"one", false),
            (b"", false),
            (b"x\ny\0\0z\0", true),
            (b"\0", true),
        ];
        for (text, null) in texts {
            let options = Options { null, ..options(1 << 20) };
            let Some(batch) = Batches::new(text, &options).next_batch().unwrap() else {
                assert!(text.is_empty());
                continue;
            };
            for shards in [1, 2, 7, 1024] {
                let mut owners = Vec::new();
                let parts = batch.split(shards, |shard| owners.push(shard));
                assert_eq!(parts.len(), usize::from(shards));
                let mut expected = vec![Vec::new(); parts.len()];
                for (item, owner) in batch.items().into_iter().zip(&owners) {
                    assert_eq!(*owner, shard_of(item, shards));
                    expected[usize::from(*owner)].push(item);
                }
                assert_eq!(owners.len() as u64, batch.count);
                for (part, expected) in parts.into_iter().zip(expected) {
                    assert_eq!(
                        (part.items(), part.count),
                        (expected.clone(), expected.len() as u64)
                    );
                    for most in [1, 2, 100] {
                        let again = Batch { blob: part.blob.clone(), ..part };
                        let cut = again.cut(most);
                        assert!(cut.iter().all(|cut| cut.count <= most as u64));
                        let items: Vec<_> = cut.iter().flat_map(Batch::items).collect();
                        assert_eq!(items, expected, "{most}");
                    }
                }
            }
        }
    }

    #[test]
    fn items_are_skipped_within_a_batch() {
        let text = [&b"a"[..], b"", &[b'x'; 200], b"last"];
        for null in [false, true] {
            let separator = if null { 0 } else { b'\n' };
            let joined = text.join(&separator);
            for skipped in 0..6 {
                let options = Options { null, ..options(1000) };
                let mut batch = Batches::new(&joined[..], &options).next_batch().unwrap().unwrap();
                batch.skip(skipped as u64);
                assert_eq!(batch.items(), text[skipped.min(4)..]);
                assert_eq!(batch.count, 4_u64.saturating_sub(skipped as u64));
            }
        }
    }
}
