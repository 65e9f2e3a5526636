//! `redis-bloom top`: a line about each filter of a server or a cluster. Live on a terminal, once
//! elsewhere.

mod fold;

use std::{cmp::Ordering, time::Duration};

use glob::Pattern;

use crate::{
    amount,
    connection::Options,
    error::{Error, Exit},
    filter_info::FilterInfo,
    interrupt,
    memory::Need,
    name,
    output::{Column, Output, Style, Table},
    scan::{Search, State},
    screen::Screen,
};
use fold::{Line, Shards};

/// Time between two looks at the keyboard.
const TICK: Duration = Duration::from_millis(50);
/// The codes of keys without a letter. The arrows have two each.
const CTRL_C: &[u8] = b"\x03";
const PAGE_UP: &[u8] = b"\x1b[5~";
const PAGE_DOWN: &[u8] = b"\x1b[6~";
/// Columns of the screen that the numbers need.
const NUMBERS_WIDTH: usize = 70;
/// Further columns for the numbers of shards.
const SHARDS_WIDTH: usize = 15;

/// Shows all filters of a server or a cluster; live on a terminal, where q ends it
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Shows only filters whose names match, such as 'urls:*'; shards match by the filter's name
    #[arg(long = "match", value_name = "GLOB", value_parser = Pattern::new)]
    pattern: Option<Pattern>,
    /// Time between two readings, such as 500ms or 2s
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = amount::positive_time)]
    every: Duration,
    /// Order of the lines, largest first
    #[arg(long, value_name = "COLUMN", default_value = "memory")]
    sort: Sort,
    /// Prints the filters once, also on a terminal
    #[arg(long)]
    once: bool,
}

/// The column that decides the order. Equal filters are ordered by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Sort {
    Memory,
    Fill,
    Rate,
    Items,
}

impl Sort {
    /// The larger first; what a server does not report is last.
    fn compare(self, one: &FilterInfo, other: &FilterInfo) -> Ordering {
        let known = |value: Option<f64>| value.unwrap_or(-1.0);
        match self {
            Self::Memory => other.bytes.cmp(&one.bytes),
            Self::Items => other.items.cmp(&one.items),
            Self::Fill => known(other.fill).total_cmp(&known(one.fill)),
            Self::Rate => known(other.rate_now).total_cmp(&known(one.rate_now)),
        }
    }
}

impl Arguments {
    /// The arguments of a run that prints all filters once.
    pub(super) fn once() -> Self {
        Self { pattern: None, every: Duration::ZERO, sort: Sort::Memory, once: true }
    }

    pub(crate) fn run(&self, connection: &Options, output: &Output) -> Result<Exit, Error> {
        let live = !self.once && !output.json() && Screen::possible();
        let search = Search { pattern: self.pattern.clone(), every: live.then_some(self.every) };
        let state = State::start(&connection.target()?, search, output)?;
        if live { self.watch(state, output) } else { self.print(state, output) }
    }

    /// Prints all filters once.
    fn print(&self, mut state: State, output: &Output) -> Result<Exit, Error> {
        while !state.complete() {
            state.wait(TICK)?;
        }
        let lines = lines(&state, self.sort);
        if output.json() {
            for line in &lines {
                output.data(line, "")?;
            }
        } else {
            output.data(&(), table(&lines, None).text(output.coloured()))?;
        }
        if let Some(remark) = unread(&state) {
            output.remark(remark);
        }
        if lines.len() > 1 && !output.json() {
            output.remark(format_args!("All: {}", need(&lines).text()));
        }
        Ok(Exit::Done)
    }

    /// Shows the filters until the user has seen enough.
    fn watch(&self, mut state: State, output: &Output) -> Result<Exit, Error> {
        // The terminal must be restored, however many signals come.
        interrupt::register_polled();
        let coloured = output.coloured();
        let mut view = View { sort: self.sort, first: 0, size: (0, 0) };
        let mut screen = Screen::open().map_err(Error::file("the terminal"))?;
        let mut drawn = None;
        loop {
            let news = state.wait(Duration::ZERO)?;
            view.size = screen.size();
            if news || drawn != Some(view) {
                let lines = frame(&state, &mut view, coloured);
                drawn = Some(view);
                screen.draw(&lines).map_err(Error::file("the terminal"))?;
            }
            let page = view.room().max(1);
            let key = screen.key(TICK).map_err(Error::file("the terminal"))?;
            match key.as_deref() {
                Some(b"" | b"q" | b"Q") => return Ok(Exit::Done),
                Some(CTRL_C) => return Ok(Exit::Interrupted),
                Some(b"m") => view.by(Sort::Memory),
                Some(b"f") => view.by(Sort::Fill),
                Some(b"r") => view.by(Sort::Rate),
                Some(b"i") => view.by(Sort::Items),
                Some(b"\x1b[A" | b"\x1bOA" | b"k") => view.first = view.first.saturating_sub(1),
                Some(b"\x1b[B" | b"\x1bOB" | b"j") => view.first += 1,
                Some(PAGE_UP) => view.first = view.first.saturating_sub(page),
                Some(PAGE_DOWN | b" ") => view.first += page,
                _ => {}
            }
            if interrupt::requested() {
                return Ok(Exit::Interrupted);
            }
        }
    }
}

/// Which part of the list of filters is on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct View {
    sort: Sort,
    /// The first line that is shown.
    first: usize,
    /// Rows and columns.
    size: (usize, usize),
}

impl View {
    /// How many filters fit. Four lines are taken: the title, the header of the table, a line about
    /// what is left out, and the keys.
    fn room(&self) -> usize {
        self.size.0.saturating_sub(4)
    }

    /// Shows the first lines in another order.
    fn by(&mut self, sort: Sort) {
        (self.sort, self.first) = (sort, 0);
    }
}

/// All filters, in order.
fn lines(state: &State, sort: Sort) -> Vec<Line<'_>> {
    let mut lines = fold::lines(state);
    lines.sort_by(|one, other| {
        sort.compare(&one.info, &other.info).then_with(|| one.shown.cmp(&other.shown))
    });
    lines
}

/// What all filters need. The shards of a filter are rebuilt together.
fn need(lines: &[Line<'_>]) -> Need {
    Need::of_allocated(lines.iter().map(|line| line.allocated))
}

/// The lines as a table, with columns for shards if there are any. Names are cut so that a line
/// has `width` characters, if given.
fn table(lines: &[Line<'_>], width: Option<usize>) -> Table {
    let sharded = lines.iter().any(|line| line.shards.is_some());
    let mut columns = vec![Column::Text("NAME")];
    if sharded {
        columns.push(Column::Number("SHARDS"));
    }
    let numbers = ["ITEMS", "OF", "FILL", "RATE NOW", "ERROR RATE", "MEMORY", "LAYERS"];
    columns.extend(numbers.map(Column::Number));
    let room = NUMBERS_WIDTH + if sharded { SHARDS_WIDTH } else { 0 };
    let width = width.map(|width| width.saturating_sub(room).max(12));
    let mut table = Table::new(&columns);
    for line in lines {
        let info = &line.info;
        let mut name = line.shown.clone();
        if let Some(width) = width
            && name.chars().count() > width
        {
            name = name.chars().take(width - 1).chain(['…']).collect();
        }
        let mut cells = vec![name];
        if sharded {
            cells.push(line.shards.as_ref().map_or_else(|| "-".to_owned(), Shards::count));
        }
        cells.extend([
            amount::readable_items(info.items),
            amount::readable_items(info.capacity),
            amount::known_rate(info.fill),
            amount::known_rate(info.rate_now),
            amount::known_rate(info.error_rate),
            amount::readable_bytes(info.bytes),
            // More than the reservation.
            format!("{}{}", info.layer_count, if info.layer_count > 1 { "+" } else { "" }),
        ]);
        table.row(cells, style(line));
    }
    table
}

/// Red: the rate exceeds the configured one by more than the error of an estimate, or a shard is
/// lost. Yellow: a filter that does not grow is nearly full. A `+` after the layers: the filter
/// has outgrown its reservation.
fn style(line: &Line<'_>) -> Style {
    let wrong = |(now, configured): (f64, f64)| now > 1.1 * configured;
    if line.worst_rate.zip(line.info.error_rate).is_some_and(wrong) || line.lacks {
        Style::Red
    } else if line.nearly_full {
        Style::Yellow
    } else {
        Style::Plain
    }
}

/// What the screen shows: a title, as many filters as there is room for, and the keys.
fn frame(state: &State, view: &mut View, coloured: bool) -> Vec<String> {
    let (View { sort, .. }, (rows, columns)) = (*view, view.size);
    let lines = lines(state, sort);
    let servers = match &state.nodes[..] {
        [node] => node.name.clone(),
        nodes => format!("{} nodes", nodes.len()),
    };
    let count = filters(lines.len());
    let order = format!("{sort:?}").to_lowercase();
    let mut title = format!("redis-bloom  {servers}  {count} by {order}");
    if !state.complete() {
        title += "  scanning";
    }
    let failed = state.nodes.iter().find_map(|node| node.failed.as_ref());
    if let Some(error) = failed {
        title += &format!("  {error}");
    }
    let mut frame = vec![title];
    view.first = view.first.min(lines.len().saturating_sub(view.room()));
    let end = lines.len().min(view.first + view.room());
    frame.extend(table(&lines[view.first..end], Some(columns)).lines(coloured));
    match (view.first, lines.len() - end) {
        (0, 0) => frame.extend(unread(state)),
        (0, left) => frame.push(format!("... and {left} more")),
        (first, _) => frame.push(format!("{} to {end} of {}", first + 1, lines.len())),
    }
    frame.push("q quit   sort by m memory  f fill  r rate  i items   scroll by arrows".to_owned());
    frame.truncate(rows);
    frame
}

fn filters(count: usize) -> String {
    if count == 1 { "1 filter".to_owned() } else { format!("{count} filters") }
}

/// A remark about the filters that could not be read.
fn unread(state: &State) -> Option<String> {
    let all = state.nodes.iter().flat_map(|node| &node.seen.filters);
    let all: Vec<_> = all.filter_map(|(name, info)| Some((name, info.as_ref().err()?))).collect();
    let (first, text) = all.first()?;
    let (count, name) = (filters(all.len()), name::readable(first));
    Some(format!("{count} not shown, such as {name}: {text}"))
}

#[cfg(test)]
mod tests {
    use bloom::filter::{Rules, Span};

    use super::*;
    use crate::{
        filter_info::{Cells, Module},
        scan::{Node, Seen},
        window::Window,
    };

    fn info(bytes: u64) -> FilterInfo {
        FilterInfo {
            module: Module::RedisBloom,
            cells: Cells::Bits,
            layout: None,
            items: 123_456_789,
            capacity: 987_654_321,
            bytes,
            fill: Some(0.123),
            error_rate: Some(0.000_123),
            rate_now: Some(1.23e-9),
            expansion: Some(2),
            shard: None,
            window: None,
            layer_count: 1,
        }
    }

    fn state(names: &[&str]) -> State {
        let names = names.iter().enumerate();
        state_of(names.map(|(at, name)| (name.as_bytes().to_vec(), info(at as u64 + 1))))
    }

    fn state_of(filters: impl IntoIterator<Item = (Vec<u8>, FilterInfo)>) -> State {
        let filters = filters.into_iter().map(|(name, info)| (name, Ok(info))).collect();
        let seen = Seen { filters, complete: true, ..Seen::default() };
        State::of(vec![Node::new("a:1".to_owned(), seen)])
    }

    /// A filter of 100 items that does not grow.
    fn fixed(span: Option<Span>, items: u64) -> FilterInfo {
        FilterInfo {
            items,
            capacity: 100,
            expansion: None,
            window: span.map(|span| Window(Rules { span, generations: 4, refresh: true })),
            ..info(1)
        }
    }

    #[test]
    fn a_filter_that_is_nearly_full_is_yellow() {
        let time = Some(Span::Time(1_000));
        for (info, style_of_it) in [
            (fixed(None, 89), Style::Plain),
            (fixed(None, 90), Style::Yellow),
            (FilterInfo { expansion: Some(2), ..fixed(None, 90) }, Style::Plain),
            (fixed(time, 90), Style::Yellow),
            (fixed(time, 89), Style::Plain),
            (FilterInfo { expansion: Some(2), ..fixed(time, 100) }, Style::Plain),
            (fixed(Some(Span::Items), 125), Style::Plain),
        ] {
            let text = format!("{info:?}");
            // Alone, and as a shard.
            let shard = FilterInfo { shard: Some((0, 1)), ..info.clone() };
            let state = state_of([(b"one".to_vec(), info), (b"{all:0}:1".to_vec(), shard)]);
            let lines = lines(&state, Sort::Items);
            let styles: Vec<_> = lines.iter().map(style).collect();
            assert_eq!(styles, [style_of_it; 2], "{text}");
        }
    }

    #[test]
    fn shards_are_rebuilt_together() {
        let shard = |index| FilterInfo { shard: Some((index, 2)), ..info(1_000) };
        let shards = [(b"{all:0}:1".to_vec(), shard(0)), (b"{all:1}:1".to_vec(), shard(1))];
        let state = state_of(shards.into_iter().chain([(b"one".to_vec(), info(1_100))]));
        let need = need(&lines(&state, Sort::Memory));
        assert_eq!((need.allocated, need.largest), (2 * 1_024 + 1_280, 2 * 1_024));
    }

    #[test]
    fn the_shards_of_a_node_that_fails_from_the_start_are_missing() {
        let shard = FilterInfo { shard: Some((0, 2)), ..info(1) };
        let mut state = state_of([(b"{all:0}:1".to_vec(), shard)]);
        state.nodes.push(Node::new("b:1".to_owned(), Seen::default()));
        for is_down in [false, true] {
            assert_eq!(lines(&state, Sort::Memory)[0].lacks, is_down);
            state.nodes[1].failed = Some(Error::incomplete("b:1 is down", ""));
        }
    }

    #[test]
    fn a_frame_fits_the_screen() {
        let names: Vec<_> = (0..50).map(|number| format!("filter-{number:04}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        for rows in [1, 2, 4, 5, 24, 60] {
            let mut view = View { sort: Sort::Memory, first: 99, size: (rows, 80) };
            let frame = frame(&state(&names), &mut view, false);
            assert!(frame.len() <= rows, "{rows} rows: {frame:#?}");
        }
    }

    #[test]
    fn long_names_are_cut_on_a_screen() {
        let long = "x".repeat(300);
        for columns in [1, 20, 80, 200] {
            let mut view = View { sort: Sort::Memory, first: 0, size: (24, columns) };
            let frame = frame(&state(&[&long]), &mut view, false);
            let width = frame[2].chars().count();
            assert!(width <= columns.max(12 + NUMBERS_WIDTH), "{columns} columns: {}", frame[2]);
            assert!(frame[2].contains('…'), "{}", frame[2]);
        }
    }
}
