//! `plan --window`: the size of a filter that forgets, by the number of its generations.

use bloom::{
    command::number,
    filter::{CellKind, Params, Rules, Span, paged::expected_bytes},
};
use serde::Serialize;

use super::{Arguments, bits_per_item, growth, lowest_rate, refused, too_small};
use crate::{
    amount,
    error::Error,
    memory::Need,
    output::{Column, Style, Table},
    window::{self, Window},
};

/// Numbers of generations that are shown beside the one of the options.
const OTHERS: [u8; 3] = [2, 4, 12];

/// What is planned.
#[derive(Debug, Serialize)]
pub(super) struct Planned {
    items: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_memory_bytes: Option<u64>,
    filters: Vec<Choice>,
    /// Makes the chosen filter.
    command: String,
}

/// A filter that could be made.
#[derive(Debug, Serialize)]
struct Choice {
    chosen: bool,
    window: Window,
    /// Whether it takes more items than it is reserved for.
    grows: bool,
    error_rate: f64,
    /// Bytes with as many items as it is reserved for; of a window of items, as many as it
    /// remembers at most.
    bytes: u64,
    bits_per_item: f64,
    /// Milliseconds, or items, after which an item is surely forgotten.
    forgotten_after: u64,
    #[serde(skip)]
    span: Span,
}

impl Choice {
    fn forgotten_after(&self) -> String {
        match self.span {
            Span::Time(_) => amount::readable_time(self.forgotten_after),
            Span::Items => format!("{} items", amount::readable_items(self.forgotten_after)),
        }
    }
}

impl Arguments {
    /// The table of `--window`.
    pub(super) fn planned_window(&self, rules: Rules) -> Result<Planned, Error> {
        let counts = rules.span == Span::Items;
        let grows = !self.nonscaling && !counts;
        let mut choices = vec![(rules.generations, grows)];
        if !counts {
            choices.push((rules.generations, !grows));
        }
        choices.extend(OTHERS.iter().map(|&generations| (generations, grows)));
        let mut planned = Planned {
            items: self.items,
            max_memory_bytes: self.max_memory,
            filters: Vec::new(),
            command: String::new(),
        };
        for (place, (generations, grows)) in choices.into_iter().enumerate() {
            let rules = Rules { generations, ..rules };
            let known = |choice: &Choice| choice.window == rules.into() && choice.grows == grows;
            // A window of a few milliseconds has not as many generations.
            if planned.filters.iter().any(known) || (place > 0 && rules.check(grows).is_err()) {
                continue;
            }
            match self.choice_of(rules, grows)? {
                Some(choice) => planned.filters.push(Choice { chosen: place == 0, ..choice }),
                None if place > 0 => {}
                None => return Err(too_small(self.max_memory.unwrap_or(0), self.items)),
            }
        }
        if let Some(chosen) = planned.filters.first() {
            planned.command = self.command(chosen, rules);
        }
        Ok(planned)
    }

    /// A filter; `None` if none of this kind fits into the memory.
    fn choice_of(&self, rules: Rules, grows: bool) -> Result<Option<Choice>, Error> {
        let (capacity, expansion, cells) = (self.items, growth(grows), CellKind::Bits);
        let mut params = Params { error_rate: 0.5, capacity, expansion, seed: 0, cells };
        let items = window::most_items(Some(rules), capacity);
        let forgotten_after = match rules.span {
            Span::Time(span) => span.saturating_add(span.div_ceil(rules.generations.into())),
            // The next generation starts with the item that fills the last.
            Span::Items => items - 1,
        };
        let bytes = |params: &Params| expected_bytes(params, Some(rules), items);
        match (self.error, self.max_memory) {
            (Some(rate), _) => params.error_rate = rate,
            (None, Some(memory)) => match lowest_rate(params, Some(rules), memory, bytes)? {
                Some(rate) => params.error_rate = rate,
                None => return Ok(None),
            },
            (None, None) => {}
        }
        let bytes = bytes(&params).map_err(|error| refused(&error, &params))?;
        Ok(Some(Choice {
            chosen: false,
            window: rules.into(),
            grows,
            error_rate: params.error_rate,
            bytes,
            bits_per_item: bits_per_item(bytes, self.items),
            forgotten_after,
            span: rules.span,
        }))
    }

    /// The command that makes the chosen filter.
    fn command(&self, chosen: &Choice, rules: Rules) -> String {
        let mut words = vec![
            "BF.RESERVE NAME".to_owned(),
            number::shortest(chosen.error_rate),
            self.items.to_string(),
        ];
        words.extend(window::words(rules));
        if !chosen.grows && rules.span != Span::Items {
            words.push("NONSCALING".to_owned());
        }
        words.join(" ")
    }
}

impl Planned {
    pub(super) fn need(&self) -> Need {
        Need::of(self.filters.iter().filter(|choice| choice.chosen).map(|choice| choice.bytes))
    }

    pub(super) fn text(&self, coloured: bool) -> String {
        let mut table = Table::new(&[
            Column::Text(" "),
            Column::Number("GENERATIONS"),
            Column::Text("GROWS"),
            Column::Number("RATE"),
            Column::Number("MEMORY"),
            Column::Number("BITS/ITEM"),
            Column::Number("FORGOTTEN AFTER"),
        ]);
        for choice in &self.filters {
            let cells = vec![
                if choice.chosen { "*" } else { " " }.to_owned(),
                choice.window.rules().generations.to_string(),
                if choice.grows { "yes" } else { "no" }.to_owned(),
                number::shortest(choice.error_rate),
                amount::readable_bytes(choice.bytes),
                format!("{:.2}", choice.bits_per_item),
                choice.forgotten_after(),
            ];
            table.row(cells, Style::Plain);
        }
        format!("{}\n{}", table.text(coloured), self.command)
    }
}
