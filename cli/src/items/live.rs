//! Inputs that may be idle for hours.

use std::{
    io::{self, Read},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    thread,
    time::{Duration, Instant},
};

/// Bytes that are read at a time.
const PIECE: usize = 256 << 10;
/// How long a live input may be idle before the items that came are used.
const IDLE: Duration = Duration::from_millis(100);

/// An input that may be idle for hours: a pipe or a terminal. A thread reads it, so that the
/// program sees Ctrl-C in the meantime, and sends what came before the idle time.
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
