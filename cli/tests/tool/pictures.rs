//! The pictures of docs/reference/cli.md: the tool in a pseudo-terminal, and its screen as an SVG.
//!
//! `make pictures` writes them. The tests of the other files check what the tool prints; these
//! pictures only show it.

use std::{fmt::Write as _, path::Path, process::Command, time::Duration};

use crate::{
    harness::Server,
    run::{command, command_at},
    terminal::in_terminal,
};

const COLUMNS: u16 = 92;
/// Width and height of a character, in pixels.
const CELL: (f64, f64) = (8.4, 18.0);
/// Space around the text, in pixels.
const MARGIN: f64 = 14.0;

#[test]
#[ignore = "writes docs/pictures/cli-*.svg: make pictures"]
fn write_the_pictures() {
    let mut plan = command();
    plan.args(["plan", "--items", "10M", "--error", "0.1%", "--initial", "10k"]);
    let (_, seen) = in_terminal(&plan, 12, COLUMNS).end();
    write_picture("plan", "redis-bloom plan --items 10M --error 0.1% --initial 10k", &seen);

    let server = Server::start();
    let dir = tempfile::tempdir().expect("a directory");
    let made = Command::new("bash")
        .args(["-c", "seq -f 'https://example.com/%.0f' 3000000 > urls.txt"])
        .current_dir(dir.path())
        .status();
    assert!(made.expect("bash runs").success());
    command_at(&server, "create urls --items 3M --error 0.1%").output().expect("the tool runs");
    let mut load = command_at(&server, "load urls urls.txt --rate 1M");
    load.current_dir(dir.path());
    let terminal = in_terminal(&load, 4, COLUMNS);
    std::thread::sleep(Duration::from_millis(1800));
    let half = terminal.seen();
    terminal.end();
    write_picture("load", "redis-bloom load urls urls.txt --rate 1M", &half);

    for words in [
        "create users --items 500k --error 1%",
        "create crawled --items 200k --error 0.01%",
        "create blocked --items 100k --error 0.1% --counting",
        "create once --items 1k --error 1% --nonscaling",
    ] {
        command_at(&server, words).output().expect("the tool runs");
    }
    let mut client = server.client();
    for (key, items) in
        [("users", 450_000), ("crawled", 700_000), ("blocked", 20_000), ("once", 950)]
    {
        for start in (0..items).step_by(10_000) {
            let batch: String =
                (start..items.min(start + 10_000)).map(|n| format!("{n}\n")).collect();
            client.cmd(&["BF.BULKADD", key, "NOCREATE", "LINES", &batch]);
        }
    }
    let mut terminal = in_terminal(&command_at(&server, "top"), 14, COLUMNS);
    terminal.wait_for("blocked");
    std::thread::sleep(Duration::from_millis(500));
    let shown = terminal.seen();
    terminal.press("q");
    terminal.end();
    write_picture("top", "redis-bloom top", &shown);
}

/// Writes `docs/pictures/cli-<name>.svg`: the command, and the screen after `output`.
fn write_picture(name: &str, command: &str, output: &str) {
    let mut parser = vt100::Parser::new(24, COLUMNS, 0);
    parser.process(format!("\x1b[32m$\x1b[0m {command}\r\n").as_bytes());
    // The alternate screen, which top uses, would begin without the command.
    parser.process(output.replace("\x1b[?1049h", "").replace("\x1b[H", "\x1b[2;1H").as_bytes());
    let screen = parser.screen();
    let rows =
        (0..24).rev().find(|&row| !row_text(screen, row).is_empty()).map_or(1, |row| row + 1);
    let width = f64::from(COLUMNS) * CELL.0 + 2.0 * MARGIN;
    let height = f64::from(rows) * CELL.1 + 2.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"14\">\n\
         <title>{command}</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#1e1e2e\"/>\n"
    );
    for row in 0..rows {
        write_row(&mut svg, screen, row);
    }
    svg += "</svg>\n";
    let pictures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/pictures");
    std::fs::write(pictures.join(format!("cli-{name}.svg")), svg).expect("docs can be written to");
}

fn row_text(screen: &vt100::Screen, row: u16) -> String {
    screen.rows(0, COLUMNS).nth(row.into()).unwrap_or_default()
}

/// The cells of a row, one element for each run of one style.
fn write_row(svg: &mut String, screen: &vt100::Screen, row: u16) {
    let y = MARGIN + CELL.1 * (f64::from(row) + 0.75);
    let mut column = 0;
    while column < COLUMNS {
        let style = style_of(screen, row, column);
        let start = column;
        let mut text = String::new();
        while column < COLUMNS && style_of(screen, row, column) == style {
            let cell = screen.cell(row, column).map_or("", |cell| cell.contents());
            text += if cell.is_empty() { " " } else { cell };
            column += 1;
        }
        let text = text.trim_end();
        if text.is_empty() {
            continue;
        }
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        let (colour, weight) = style;
        let x = MARGIN + CELL.0 * f64::from(start);
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{colour}\" font-weight=\"{weight}\" \
             xml:space=\"preserve\" textLength=\"{:.1}\">{text}</text>",
            CELL.0 * text.chars().count() as f64
        );
    }
}

/// Colour and weight of a cell.
fn style_of(screen: &vt100::Screen, row: u16, column: u16) -> (&'static str, &'static str) {
    let Some(cell) = screen.cell(row, column) else { return ("#cdd6f4", "normal") };
    let colour = match cell.fgcolor() {
        vt100::Color::Idx(1 | 9) => "#f38ba8",
        vt100::Color::Idx(2 | 10) => "#a6e3a1",
        vt100::Color::Idx(3 | 11) => "#f9e2af",
        _ => "#cdd6f4",
    };
    (colour, if cell.bold() { "bold" } else { "normal" })
}
