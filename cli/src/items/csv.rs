//! Records of CSV, parsed piece by piece, so that the input may pause anywhere.

use std::{fmt, io};

use csv_core::ReadRecordResult;

/// A column of CSV.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// The name in the first record. It is no number.
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

pub(super) fn column(text: &str) -> Result<Column, String> {
    match text.parse::<usize>() {
        Ok(0) => Err("columns are counted from 1".to_owned()),
        Ok(number) => Ok(Column::At(number - 1)),
        Err(_) => Ok(Column::Named(text.to_owned())),
    }
}

/// A record of CSV, parsed piece by piece.
pub(super) struct Record {
    parser: csv_core::Reader,
    /// Where it begins, in bytes of the input.
    pub(super) start: u64,
    /// The fields, and where each of them ends.
    fields: Vec<u8>,
    ends: Vec<usize>,
    /// How many bytes and ends of a record that is not whole are there.
    pub(super) written: usize,
    ended: usize,
    /// The number of fields of the record that is whole.
    count: usize,
}

impl Default for Record {
    fn default() -> Self {
        let (fields, ends) = (vec![0; 64 << 10], vec![0; 64]);
        let parser = csv_core::Reader::new();
        Self { parser, start: 0, fields, ends, written: 0, ended: 0, count: 0 }
    }
}

impl Record {
    /// Parses on: whether the record is whole, and how many bytes it took.
    pub(super) fn parse(&mut self, input: &[u8]) -> (bool, usize) {
        let mut used = 0;
        // An empty input would be the end of all.
        while used < input.len() {
            let (fields, ends) = (&mut self.fields[self.written..], &mut self.ends[self.ended..]);
            let (result, read, written, ended) =
                self.parser.read_record(&input[used..], fields, ends);
            used += read;
            self.written += written;
            self.ended += ended;
            match result {
                ReadRecordResult::InputEmpty | ReadRecordResult::End => {}
                ReadRecordResult::OutputFull => self.fields.resize(2 * self.fields.len(), 0),
                ReadRecordResult::OutputEndsFull => self.ends.resize(2 * self.ends.len(), 0),
                ReadRecordResult::Record => {
                    (self.count, self.written, self.ended) = (self.ended, 0, 0);
                    return (true, used);
                }
            }
        }
        (false, used)
    }

    /// A field of the record that is whole.
    pub(super) fn field(&self, index: usize) -> Option<&[u8]> {
        let ends = &self.ends[..self.count];
        let start = if index == 0 { 0 } else { *ends.get(index - 1)? };
        Some(&self.fields[start..*ends.get(index)?])
    }
}

/// The index of a column, by its name in the first record.
pub(super) fn index_of(column: &Column, first: &Record) -> io::Result<usize> {
    let name = match column {
        Column::At(index) => return Ok(*index),
        Column::Named(name) => name.as_bytes(),
    };
    let names: Vec<_> = (0..first.count).filter_map(|index| first.field(index)).collect();
    let mut found = (0..names.len()).filter(|&index| names[index] == name);
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

pub(super) fn wrong(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}
