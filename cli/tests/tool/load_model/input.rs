//! The files of a round.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::setup::{Form, Setup};
use crate::harness::Random;

pub(super) struct Input {
    pub(super) files: Vec<PathBuf>,
    /// The items of all files, in order.
    pub(super) items: Vec<Vec<u8>>,
    bytes: usize,
}

impl Input {
    /// Writes the files into a directory.
    pub(super) fn write(setup: &Setup, random: &mut Random, dir: &Path) -> Self {
        let mut input = Self { files: Vec::new(), items: Vec::new(), bytes: 0 };
        for (number, &count) in setup.files.iter().enumerate() {
            let first = input.items.len();
            for _ in 0..count {
                let item = input.item(setup, random);
                input.items.push(item);
            }
            let mut text = setup.form.text(&input.items[first..]);
            if setup.form == Form::LinesUnended
                && input.items[first..].last().is_some_and(|it| !it.is_empty())
            {
                text.pop();
            }
            let path = dir.join(format!("items-{number}"));
            fs::write(&path, &text).expect("a file that can be written");
            input.bytes += text.len();
            input.files.push(path);
        }
        input
    }

    fn item(&self, setup: &Setup, random: &mut Random) -> Vec<u8> {
        let (known, chance) = (self.items.len(), random.below(1_000));
        if known > 0 && chance < 10 * setup.repeats {
            // A line that comes again is near, or anywhere before.
            let far = if chance % 2 == 0 { known } else { known.min(50) };
            self.items[known - 1 - random.below(far)].clone()
        } else if chance > 997 {
            Vec::new()
        } else {
            let filler = "x".repeat(random.below(12));
            format!("item-{known}{filler}").into_bytes()
        }
    }

    /// About so many commands add all items.
    pub(super) fn steps(&self, setup: &Setup) -> usize {
        (self.bytes / setup.batch).max(setup.files.len()).max(1)
    }
}

impl Form {
    /// The option of the tool.
    pub(super) fn option(self) -> &'static [&'static str] {
        match self {
            Self::Lines | Self::LinesUnended => &[],
            Self::Zeros => &["-0"],
        }
    }

    fn text(self, items: &[Vec<u8>]) -> Vec<u8> {
        match self {
            Self::Lines | Self::LinesUnended => ended(items, b'\n'),
            Self::Zeros => ended(items, 0),
        }
    }
}

fn ended(items: &[Vec<u8>], end: u8) -> Vec<u8> {
    items.iter().flat_map(|item| item.iter().copied().chain([end])).collect()
}
