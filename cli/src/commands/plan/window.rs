//! `plan --window`: the size of a filter that forgets, by the number of its generations.

use bloom::{
    command::number,
    filter::{CellKind, Expansion, Params, Rules, Span},
};
use serde::Serialize;

use super::{Arguments, bits_per_item, lowest_rate, refused, too_small};
use crate::{
    amount,
    error::Error,
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
    /// Size of each new layer over the size of the one before; null if generations do not grow.
    expansion: Option<u64>,
    error_rate: f64,
    /// Bytes when all generations that may be alive at once are there, each full.
    bytes: u64,
    bits_per_item: f64,
    /// Items that each generation is made for.
    generation_capacity: u64,
    /// Milliseconds, or items, after which an item is surely forgotten.
    forgotten_after: u64,
    /// Generations that a question about an absent item asks.
    asked: usize,
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
        let factor = if self.nonscaling || counts { 0 } else { self.expansion };
        let mut choices = vec![(rules.generations, factor)];
        if !counts {
            choices.push((rules.generations, if factor == 0 { self.expansion } else { 0 }));
        }
        choices.extend(OTHERS.iter().map(|&generations| (generations, factor)));
        let mut planned = Planned {
            items: self.items,
            max_memory_bytes: self.max_memory,
            filters: Vec::new(),
            command: String::new(),
        };
        for (place, (generations, factor)) in choices.into_iter().enumerate() {
            let rules = Rules { generations, ..rules };
            let known = |choice: &Choice| {
                choice.window == rules.into() && choice.expansion.unwrap_or(0) == factor
            };
            // A window of a few milliseconds has not as many generations.
            let scales = factor > 0;
            if planned.filters.iter().any(known) || (place > 0 && rules.check(scales).is_err()) {
                continue;
            }
            match self.choice_of(rules, factor)? {
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
    fn choice_of(&self, rules: Rules, factor: u64) -> Result<Option<Choice>, Error> {
        let expansion = Expansion::new(factor)
            .map_err(|error| Error::usage(error.to_string(), "Lower --expansion."))?;
        let (capacity, cells) = (self.items, CellKind::Bits);
        let mut params = Params { error_rate: 0.5, capacity, expansion, seed: 0, cells };
        let plan = |params: &Params| window::plan(params, rules, rules.most_generations());
        match (self.error, self.max_memory) {
            (Some(rate), _) => params.error_rate = rate,
            (None, Some(memory)) => match lowest_rate(params, memory, plan)? {
                Some(rate) => params.error_rate = rate,
                None => return Ok(None),
            },
            (None, None) => {}
        }
        let bytes = plan(&params).map_err(|error| refused(&error, &params))?.bytes();
        let generations = u64::from(rules.generations);
        let forgotten_after = match rules.span {
            Span::Time(span) => span.saturating_add(span.div_ceil(generations)),
            // The oldest generation goes when the newest of G + 1 is full.
            Span::Items => rules.generation_capacity(self.items).saturating_mul(generations + 1),
        };
        Ok(Some(Choice {
            chosen: false,
            window: rules.into(),
            expansion: expansion.factor().map(u64::from),
            error_rate: params.error_rate,
            bytes,
            bits_per_item: bits_per_item(bytes, self.items),
            generation_capacity: rules.generation_capacity(self.items),
            forgotten_after,
            asked: rules.most_generations(),
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
        match chosen.expansion {
            // The setting of the server, unless it was changed.
            Some(2) => {}
            Some(factor) => words.push(format!("EXPANSION {factor}")),
            None if rules.span == Span::Items => {}
            None => words.push("NONSCALING".to_owned()),
        }
        words.join(" ")
    }
}

impl Planned {
    pub(super) fn text(&self, coloured: bool) -> String {
        let mut table = Table::new(&[
            Column::Text(" "),
            Column::Number("GENERATIONS"),
            Column::Text("GROWS"),
            Column::Number("RATE"),
            Column::Number("MEMORY"),
            Column::Number("BITS/ITEM"),
            Column::Number("EACH FOR"),
            Column::Number("FORGOTTEN AFTER"),
            Column::Number("ASKED"),
        ]);
        for choice in &self.filters {
            let cells = vec![
                if choice.chosen { "*" } else { " " }.to_owned(),
                choice.window.rules().generations.to_string(),
                if choice.expansion.is_some() { "yes" } else { "no" }.to_owned(),
                number::shortest(choice.error_rate),
                amount::readable_bytes(choice.bytes),
                format!("{:.2}", choice.bits_per_item),
                amount::readable_items(choice.generation_capacity),
                choice.forgotten_after(),
                choice.asked.to_string(),
            ];
            table.row(cells, Style::Plain);
        }
        format!("{}\n{}", table.text(coloured), self.command)
    }
}
