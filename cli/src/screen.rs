//! A terminal that is redrawn in place, and the keys pressed there.
//!
//! The screen is the alternate one, so the terminal shows again what it showed before when the
//! [`Screen`] is dropped: at the end, after an error, and in a panic.

use std::{
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr},
};

use crate::output::obeys_codes;

/// Opens the alternate screen, hides the cursor, and cuts long lines at the edge.
const OPEN: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
/// Undoes [`OPEN`].
const CLOSE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// The first byte of the codes of keys without a letter.
const ESC: u8 = 0x1b;
/// The size of a terminal that does not report its own, as rows and columns.
const USUAL_SIZE: (usize, usize) = (24, 80);

/// The terminal, taken over.
pub(crate) struct Screen {
    /// How the terminal was set before.
    before: Termios,
    /// What was typed and not yet taken.
    typed: Vec<u8>,
}

impl Screen {
    /// Whether a person reads stdout and can press keys, on a terminal that can be redrawn.
    pub(crate) fn possible() -> bool {
        io::stdin().is_terminal() && io::stdout().is_terminal() && obeys_codes()
    }

    /// Takes the terminal over: keys arrive one by one, and are not shown.
    pub(crate) fn open() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        // Ctrl-C arrives as a key, so it cannot end the program before the terminal is restored.
        raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        let screen = Self { before, typed: Vec::new() };
        write(OPEN)?;
        Ok(screen)
    }

    /// Rows and columns.
    pub(crate) fn size(&self) -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_row > 0 && size.ws_col > 0 => {
                (size.ws_row.into(), size.ws_col.into())
            }
            _ => USUAL_SIZE,
        }
    }

    /// Shows the lines, and nothing else.
    pub(crate) fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        // The terminal begins each line in the first column: its output is still processed.
        let mut text = "\x1b[H".to_owned();
        text += &lines.iter().map(|line| format!("{line}\x1b[K")).collect::<Vec<_>>().join("\n");
        text += "\x1b[J";
        write(&text)
    }

    /// The next key, as the terminal encodes it, if one is pressed before the time is over; empty
    /// if the terminal is gone.
    pub(crate) fn key(&mut self, timeout: Duration) -> io::Result<Option<Vec<u8>>> {
        if let Some(key) = self.take_key() {
            return Ok(Some(key));
        }
        let stdin = io::stdin();
        let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        match poll(&mut ready, Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        // Not through the buffer of `Stdin`, where `poll` would not see a second key.
        let mut bytes = [0; 16];
        match rustix::io::read(&stdin, &mut bytes) {
            Ok(0) | Err(_) => return Ok(Some(Vec::new())),
            Ok(length) => self.typed.extend(&bytes[..length]),
        }
        Ok(self.take_key())
    }

    /// Takes the first key of what was typed: a byte, `ESC O` and a byte, or `ESC [` up to a letter
    /// or a tilde.
    fn take_key(&mut self) -> Option<Vec<u8>> {
        let length = match &self.typed[..] {
            [] => return None,
            [ESC, b'O', ..] => 3,
            [ESC, b'[', code @ ..] => {
                code.iter().position(|byte| (0x40..0x7f).contains(byte)).unwrap_or(code.len()) + 3
            }
            _ => 1,
        };
        Some(self.typed.drain(..length.min(self.typed.len())).collect())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // It fails if the terminal is gone.
        let _ = write(CLOSE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
