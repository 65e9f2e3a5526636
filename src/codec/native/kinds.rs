//! The two kinds of filters: of layers (`dump.rs`, `rdb.rs`) and of pages (`paged/`). A header says
//! which kind it describes.

use super::{
    dump::{self, Taken},
    header::{self, Described},
    paged, rdb,
};
use crate::{
    codec::{
        Error,
        io::{Sink, Source},
    },
    filter::{Demand, Error as FilterError, Filter, paged::Paged},
    sharding::Shard,
};

/// A stored filter: complete, or still being loaded by BF.LOADCHUNK.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one is made for each value that is read")]
pub enum Stored {
    /// A filter of layers with all its bits.
    Layers(Filter),
    /// A filter of pages with all of them.
    Pages(Paged),
    /// BF.LOADCHUNK has not sent everything yet.
    Partial(Load),
}

/// Reads the strings that [`rdb::save`], [`paged::rdb::save`] or [`Load::save`] wrote, into a
/// filter of at most `ceiling` bytes of bits or pages.
///
/// Memory is allocated as they arrive, so a forged size costs nothing. A filter that the allocator
/// refuses is read to its end all the same, so that what comes after it can be read.
///
/// # Errors
/// Any [`Error`]; nothing stays allocated.
pub fn load(source: &mut impl Source, ceiling: u64) -> Result<Stored, Error> {
    let header = source.next().ok_or(Error::Truncated)?;
    let (described, present) = header::decode(header.as_ref())?;
    drop(header);
    match described {
        Described::Layers(plan) => rdb::load(&plan, present, source, ceiling),
        Described::Pages(plan) => paged::rdb::load(plan, present, source, ceiling),
    }
}

/// A filter that BF.LOADCHUNK is filling. It answers no query yet.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a value has it in a box")]
pub enum Load {
    /// Of layers.
    Layers(dump::Load),
    /// Of pages.
    Pages(paged::dump::Load),
}

impl Load {
    /// Begins with the header of a dump, of a filter of at most `ceiling` bytes of bits. Memory is
    /// allocated as chunks arrive.
    ///
    /// # Errors
    /// `Error::Filter` with `Ceiling` or `OutOfMemory`, and any other [`Error`] for bad bytes.
    pub fn begin(data: &[u8], ceiling: u64) -> Result<Self, Error> {
        match header::decode(data) {
            Ok((Described::Pages(_), _)) => {
                paged::dump::Load::begin(data, ceiling).map(Self::Pages)
            }
            _ => dump::Load::begin(data, ceiling).map(Self::Layers),
        }
    }

    /// The shard that the filter is, if it is one.
    pub fn shard(&self) -> Option<Shard> {
        match self {
            Self::Layers(load) => load.filter().shard(),
            Self::Pages(load) => load.plan().below.shard,
        }
    }

    /// The identity of the filter.
    pub fn identity(&self) -> u64 {
        match self {
            Self::Layers(load) => load.filter().identity(),
            Self::Pages(load) => load.plan().identity(),
        }
    }

    /// Whether `data` is the header of this filter, which a client repeats if it got no reply.
    pub fn began_with(&self, data: &[u8]) -> bool {
        match self {
            Self::Layers(load) => load.began_with(data),
            Self::Pages(load) => load.began_with(data),
        }
    }

    /// Takes the next chunk, or one that was taken already. `ceiling` returns how many bytes the
    /// filter may take.
    ///
    /// # Errors
    /// `Error::Order` for a gap, `Error::OtherFilter`, `Error::Filter` with `Ceiling` or
    /// `OutOfMemory`, and any other [`Error`] for bad bytes; nothing changes then.
    pub fn take(
        &mut self,
        iterator: i64,
        data: &[u8],
        ceiling: impl FnOnce(Demand) -> u64,
    ) -> Result<Taken, Error> {
        match self {
            Self::Layers(load) => load.take(iterator, data, ceiling),
            Self::Pages(load) => load.take(iterator, data, ceiling),
        }
    }

    /// The header of a dump of what was received.
    pub fn header(&self) -> (i64, Vec<u8>) {
        match self {
            Self::Layers(load) => dump::header(load.filter()),
            Self::Pages(load) => load.header(),
        }
    }

    /// Returns the next iterator and the chunk for iterator `from`, from what was received.
    pub fn at(&self, from: i64) -> Option<(i64, Vec<u8>)> {
        match self {
            Self::Layers(load) => load.at(from),
            Self::Pages(load) => load.at(from),
        }
    }

    /// Writes what was received.
    pub fn save(&self, sink: &mut impl Sink) {
        match self {
            Self::Layers(load) => rdb::save_partial(load, sink),
            Self::Pages(load) => paged::rdb::save_partial(load, sink),
        }
    }

    /// Bytes of bits and pages that are allocated.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Layers(load) => load.room(),
            Self::Pages(load) => load.bytes(),
        }
    }

    /// The filter, after [`Self::take`] has returned [`Taken::Last`].
    ///
    /// # Errors
    /// `Error::Filter` with `OutOfMemory`, and others if the pages are not those of the header.
    pub fn finish(self) -> Result<Stored, Error> {
        match self {
            Self::Layers(load) => Ok(Stored::Layers(load.into_filter())),
            Self::Pages(mut load) => load.finish().map(Stored::Pages),
        }
    }

    /// Copies the incomplete filter.
    ///
    /// # Errors
    /// `FilterError::OutOfMemory`.
    pub fn duplicate(&self) -> Result<Self, FilterError> {
        match self {
            Self::Layers(load) => load.duplicate().map(Self::Layers),
            Self::Pages(load) => load.duplicate().map(Self::Pages),
        }
    }
}
