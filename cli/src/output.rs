//! What the user sees: data on stdout, as text or JSON; talk, progress and errors on stderr.

use std::{
    fmt::Display,
    io::{self, IsTerminal as _, Write as _},
};

use serde::Serialize;

use crate::error::{Error, Exit};

/// Options of the output, for all subcommands.
#[derive(clap::Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct Options {
    /// Prints data as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Prints no progress and no remarks
    #[arg(long, global = true)]
    pub(crate) quiet: bool,
}

/// Writes what the user sees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    options: Options,
}

impl Output {
    pub(crate) fn new(options: Options) -> Self {
        Self { options }
    }

    /// Whether data are printed as JSON.
    pub(crate) fn json(&self) -> bool {
        self.options.json
    }

    /// Whether a person reads stdout.
    pub(crate) fn on_terminal(&self) -> bool {
        io::stdout().is_terminal()
    }

    /// Whether progress is drawn as a bar: a person reads stderr.
    pub(crate) fn progress_on_terminal(&self) -> bool {
        !self.options.quiet && io::stderr().is_terminal()
    }

    /// Whether remarks and progress are printed.
    pub(crate) fn talks(&self) -> bool {
        !self.options.quiet
    }

    /// Prints data: `value` as one line of JSON, or `text`.
    pub(crate) fn data(&self, value: &impl Serialize, text: impl Display) -> Result<(), Error> {
        if self.json() {
            let line = serde_json::to_string(value).map_err(io::Error::from);
            line.and_then(|line| writeln!(io::stdout(), "{line}"))
        } else {
            writeln!(io::stdout(), "{text}")
        }
        .or_else(ended_by_reader)
    }

    /// Prints a remark.
    pub(crate) fn remark(&self, text: impl Display) {
        if self.talks() {
            // There is nowhere to report a stderr that cannot be written.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    /// Prints an error: what happened, then what to do.
    pub(crate) fn error(&self, error: &Error) {
        let _ = writeln!(io::stderr(), "redis-bloom: {error}\n  {}", error.hint());
    }
}

/// A reader that has seen enough, such as `head`, ends the program without a message.
pub(crate) fn ended_by_reader(error: io::Error) -> Result<(), Error> {
    if error.kind() == io::ErrorKind::BrokenPipe {
        std::process::exit(Exit::Done as i32);
    }
    Err(Error::file("stdout")(error))
}
