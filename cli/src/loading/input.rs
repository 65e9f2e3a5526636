//! The files of a load: how far an earlier load of each got, and its journal.

use std::{
    fs::{self, File},
    io::{self, Read, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    journal::{self, Identity, Journal, Position},
    ledger::Ledger,
};
use crate::{
    error::Error,
    items::{self, Batches, Live},
    name,
    output::Output,
};

/// The name of standard input.
const STDIN: &str = "-";

/// A file of the command line.
pub(crate) struct Input {
    /// For messages.
    pub(crate) name: String,
    path: PathBuf,
    /// `None` for standard input, pipes and devices.
    pub(crate) regular: Option<Regular>,
}

pub(crate) struct Regular {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    pub(crate) identity: Identity,
    pub(crate) start: Position,
}

/// The files that an earlier load began.
pub(crate) fn resumed(inputs: &[Input]) -> impl Iterator<Item = &Regular> {
    let files = inputs.iter().flat_map(|input| &input.regular);
    files.filter(|file| file.start.offset > 0)
}

/// Begins at the start of all files.
pub(crate) fn begin_again(inputs: &mut [Input]) {
    for file in inputs.iter_mut().flat_map(|input| &mut input.regular) {
        file.start = Position::default();
    }
}

impl Input {
    /// Opens a file. `load` says how it is loaded.
    pub(crate) fn open(path: &Path, load: String) -> Result<Self, Error> {
        let stdin = path == Path::new(STDIN);
        let name = if stdin { "stdin".to_owned() } else { path.display().to_string() };
        let mut input = Self { name, path: path.to_owned(), regular: None };
        if stdin {
            return Ok(input);
        }
        let metadata = fs::metadata(path).map_err(Error::file(path))?;
        if metadata.is_dir() {
            return Err(Error::file(path)(io::ErrorKind::IsADirectory.into()));
        }
        // A named pipe is opened once, when its turn comes: its writer notices when it is closed.
        if metadata.is_file() {
            let file = File::open(path).map_err(Error::file(path))?;
            let identity = Identity::of(&file, load).map_err(Error::file(path))?;
            let (path, start) = (path.to_owned(), Position::default());
            input.regular = Some(Regular { file, path, identity, start });
        }
        Ok(input)
    }

    /// The length of a regular file, and where to begin in it.
    pub(crate) fn extent(&self) -> (Option<u64>, u64) {
        match &self.regular {
            Some(regular) => (Some(regular.identity.size()), regular.start.offset),
            None => (None, 0),
        }
    }

    /// Whether the file has the size and the time that it had when it was opened.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.regular.as_ref().is_none_or(|regular| {
            let metadata = regular.file.metadata();
            metadata.is_ok_and(|metadata| regular.identity.is_unchanged(&metadata))
        })
    }

    /// Starts the journal of a file, if it can have one.
    pub(crate) fn journal(
        &self,
        ledger: &Ledger,
        every: Duration,
        output: &Output,
    ) -> Result<Option<Journal>, Error> {
        let Some(file) = &self.regular else { return Ok(None) };
        let path = journal::path_for(&file.path);
        let loaded = file.file.try_clone().map_err(Error::file(&file.path))?;
        let start = ledger.described(file.start.clone());
        match Journal::start(&file.path, (loaded, file.identity.clone()), start, every, output) {
            Ok(journal) => Ok(Some(journal)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => Err(Error::usage(
                    format!("{} is being loaded already", name::readable_path(&file.path)),
                    "Name each file once, and wait until another load of it has ended; or read it \
                     from standard input, without a journal.",
                )),
                io::ErrorKind::InvalidData => Err(journal::unusable(&path, error)),
                _ => {
                    output.remark(format_args!(
                        "{}: {error}; without a journal this load cannot be resumed",
                        path.display()
                    ));
                    Ok(None)
                }
            },
        }
    }

    pub(crate) fn batches(
        &self,
        options: &items::Options,
    ) -> Result<Batches<Box<dyn Read>>, Error> {
        let Some(regular) = &self.regular else {
            let path = self.path.clone();
            let live = match path == Path::new(STDIN) {
                true => Live::new(io::stdin()),
                false => Live::opened(|| File::open(path)),
            };
            return Ok(Batches::new(Box::new(live), options));
        };
        let (path, start) = (&regular.path, regular.start.offset);
        let mut file = regular.file.try_clone().map_err(Error::file(path))?;
        file.seek(SeekFrom::Start(start)).map_err(Error::file(path))?;
        Ok(Batches::new(Box::new(file) as Box<dyn Read>, options).from(start))
    }
}
