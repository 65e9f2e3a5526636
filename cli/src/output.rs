//! What the user sees: data on stdout, as text or JSON; remarks, progress and errors on stderr.

use std::{
    env,
    fmt::Display,
    io::{self, IsTerminal as _, Write as _},
};

use comfy_table::{CellAlignment, presets};
use serde::Serialize;

use crate::error::{Error, Exit};

/// Options of the output, for all subcommands.
#[derive(clap::Args, Clone, Copy, Debug)]
#[group(skip)]
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

    /// Whether data are printed with colours: a person reads them, and did not set NO_COLOR.
    pub(crate) fn coloured(&self) -> bool {
        let set =
            |name| env::var_os(name).is_some_and(|value: std::ffi::OsString| !value.is_empty());
        io::stdout().is_terminal() && !set("NO_COLOR") && obeys_codes()
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
        self.try_data(value, text).or_else(ended_by_reader)
    }

    /// Prints data, and leaves it to the caller what an error means.
    pub(crate) fn try_data(&self, value: &impl Serialize, text: impl Display) -> io::Result<()> {
        if self.json() {
            let line = serde_json::to_string(value).map_err(io::Error::from);
            line.and_then(|line| writeln!(io::stdout(), "{line}"))
        } else {
            writeln!(io::stdout(), "{text}")
        }
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

/// Whether the terminal, if there is one, obeys codes for colours and the cursor.
pub(crate) fn obeys_codes() -> bool {
    env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Whether a field of JSON says nothing.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// How a line is shown on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Bold,
    Yellow,
    Red,
}

impl Style {
    /// The line in this style; without colours, the line as it is.
    pub(crate) fn apply(self, line: &str, coloured: bool) -> String {
        let code = match self {
            _ if !coloured => return line.to_owned(),
            Self::Plain => return line.to_owned(),
            Self::Bold => "1",
            Self::Yellow => "33",
            Self::Red => "31",
        };
        format!("\x1b[{code}m{line}\x1b[0m")
    }
}

/// A column of a [`Table`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Column {
    /// Text, to the left.
    Text(&'static str),
    /// Numbers, to the right.
    Number(&'static str),
}

/// A table of lines: a header, and columns with two blanks between them. On a terminal and in a
/// pipe the text is the same.
pub(crate) struct Table {
    table: comfy_table::Table,
    styles: Vec<Style>,
}

impl Table {
    pub(crate) fn new(columns: &[Column]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_preset(presets::NOTHING);
        table.set_header(columns.iter().map(|column| match column {
            Column::Text(title) | Column::Number(title) => *title,
        }));
        for (shown, column) in table.column_iter_mut().zip(columns) {
            shown.set_padding((0, 2));
            if matches!(column, Column::Number(_)) {
                shown.set_cell_alignment(CellAlignment::Right);
            }
        }
        Self { table, styles: vec![Style::Bold] }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: Vec<String>, style: Style) {
        self.table.add_row(cells);
        self.styles.push(style);
    }

    /// The header and the rows.
    pub(crate) fn lines(&self, coloured: bool) -> Vec<String> {
        let lines = self.table.lines();
        lines
            .zip(&self.styles)
            .map(|(line, style)| style.apply(line.trim_end(), coloured))
            .collect()
    }

    /// The lines as one text.
    pub(crate) fn text(&self, coloured: bool) -> String {
        self.lines(coloured).join("\n")
    }
}

/// If the reader closes the pipe early, as `head` does, the program exits without a message. It
/// exits as a program that SIGPIPE ended. No script takes this status for an answer.
pub(crate) fn ended_by_reader(error: io::Error) -> Result<(), Error> {
    if error.kind() == io::ErrorKind::BrokenPipe {
        std::process::exit(Exit::ReaderGone as i32);
    }
    Err(Error::file("stdout")(error))
}
