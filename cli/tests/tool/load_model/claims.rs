//! What a run of the tool says is in the filter, and whether that is true.

use std::process::ExitStatus;

/// How a run began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// At the first item.
    First,
    /// `--resume`.
    Resumed,
    /// `--skip`.
    Skipped(usize),
}

/// A run that ended.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) begin: Begin,
    /// `None` if it was killed.
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Items of the input that are said to be in the filter: from one up to another.
pub(super) type Claim = std::ops::Range<usize>;

impl Run {
    pub(super) fn of(begin: Begin, status: ExitStatus, stdout: String, stderr: String) -> Self {
        Self { begin, code: status.code(), stdout, stderr }
    }

    /// Whether the message says that items may be lost, or that it is not known what is in.
    fn disclaims(&self) -> bool {
        ["may be lost", "are lost", "unknown", "not known", "nobody can", "unless the server lost"]
            .iter()
            .any(|words| self.stderr.contains(words))
    }

    /// The numbers before some words, digits grouped or not, one for each time they come.
    fn numbers_before(&self, words: &str) -> impl Iterator<Item = usize> {
        self.stderr.match_indices(words).filter_map(|(at, _)| {
            let digits: Vec<_> = self.stderr[..at]
                .chars()
                .rev()
                .take_while(|digit| digit.is_ascii_digit() || *digit == ',')
                .filter(|digit| *digit != ',')
                .collect();
            digits.into_iter().rev().collect::<String>().parse().ok()
        })
    }

    /// The number of the advice to go on by `--skip N`.
    pub(super) fn skip(&self) -> Option<usize> {
        let (_, after) = self.stderr.split_once("--skip ")?;
        let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    }

    /// Whether the advice is to go on by `--resume`.
    pub(super) fn advises_to_resume(&self) -> bool {
        self.stderr.contains("with --resume")
    }

    /// Whether it refused a file because of its journal.
    pub(super) fn refuses_journal(&self) -> bool {
        self.code == Some(2) && self.stderr.contains("its journal is of another load")
    }

    /// Whether it says that it went back to the first item of all.
    fn sends_all(&self) -> bool {
        ["all of them again", "earlier load: from the beginning"]
            .iter()
            .any(|words| self.stderr.contains(words))
    }

    /// The first item that this run sent.
    fn start(&self) -> usize {
        match self.begin {
            Begin::First => 0,
            Begin::Resumed if self.sends_all() => 0,
            // One remark for each file.
            Begin::Resumed => self.numbers_before(" items\n").sum(),
            Begin::Skipped(skipped) => skipped,
        }
    }

    /// What it says is in the filter, of an input of so many items.
    pub(super) fn claim(&self, items: usize) -> Claim {
        let start = self.start();
        match self.code {
            Some(0) if matches!(self.begin, Begin::Skipped(_)) => start.min(items)..items,
            Some(0) => 0..items,
            None => 0..0,
            Some(_) => {
                let are = ["items are in", "items are confirmed"];
                let said =
                    are.iter().find_map(|words| self.numbers_before(&format!(" {words}")).next());
                let said = said.filter(|_| !self.disclaims()).map_or(0, |said| start + said);
                // Whoever follows an advice has no other warning.
                let end = said.max(self.skip().unwrap_or(0)).min(items);
                // What was left out was said by the run before.
                let skipped = matches!(self.begin, Begin::Skipped(_));
                if skipped { start.min(end)..end } else { 0..end }
            }
        }
    }

    /// The number of items that the summary counts.
    fn counted(&self) -> Option<usize> {
        let summary: serde_json::Value = serde_json::from_str(self.stdout.lines().last()?).ok()?;
        usize::try_from(summary["items"].as_u64()?).ok()
    }

    /// What is wrong with a run that ended by itself; `None` if nothing is. `missing` are the
    /// places of the claim that the filter has not; `succeeds`: nothing hindered it.
    pub(super) fn fault(&self, items: usize, missing: &[usize], succeeds: bool) -> Option<String> {
        let claim = self.claim(items);
        if let Some(first) = missing.first() {
            let from = claim.start;
            return Some(format!(
                "{} of the items {from} to {} are not in the filter; the first is {first}",
                missing.len(),
                claim.end,
            ));
        }
        match self.code {
            Some(0) if self.counted() != Some(items.saturating_sub(self.start())) => {
                Some(format!("it counts {:?} of {items} items", self.counted()))
            }
            Some(code) if code != 0 && succeeds => Some("nothing hindered it".to_owned()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(begin: Begin, code: i32, stdout: &str, stderr: &str) -> Run {
        Run { begin, code: Some(code), stdout: stdout.to_owned(), stderr: stderr.to_owned() }
    }

    #[test]
    fn the_model_sees_lies() {
        let done = ran(Begin::First, 0, "{\"items\":10}\n", "");
        assert_eq!(done.claim(10), 0..10);
        assert_eq!(done.fault(10, &[], true), None);
        assert!(done.fault(10, &[3], true).is_some(), "an item is lost");
        assert!(done.fault(11, &[], true).is_some(), "an item is not counted");
        let part = "redis-bloom: load urls: broken; 1,004 items are in\n  ... with --resume.\n";
        let part = ran(Begin::First, 5, "", part);
        assert_eq!((part.claim(2_000), part.skip()), (0..1_004, None));
        assert!(part.advises_to_resume());
        assert_eq!(part.fault(2_000, &[], false), None);
        assert!(part.fault(2_000, &[], true).is_some(), "nothing hindered it");
        assert!(part.fault(2_000, &[7], false).is_some(), "an item is lost");
    }

    #[test]
    fn what_a_run_says_counts_from_where_it_began() {
        let text = "urls: 4 items are confirmed, the 2 after them perhaps\n  ... --skip 9.\n";
        assert_eq!(ran(Begin::Skipped(5), 5, "", text).claim(20), 5..9);
        assert_eq!(ran(Begin::Skipped(5), 0, "{\"items\":15}", "").claim(20), 5..20);
        let text = "a: continues at byte 70, after 1,000 items\n\
                    b: continues at byte 8, after 2 items\n\
                    redis-bloom: load urls: broken; 30 items are in\n";
        assert_eq!(ran(Begin::Resumed, 5, "", text).claim(2_000), 0..1_032);
        assert_eq!(ran(Begin::Resumed, 0, "{\"items\":998}", text).fault(2_000, &[], false), None);
        let text = "load urls: 7 items are in; items sent before may be lost\n";
        assert_eq!(ran(Begin::First, 5, "", text).claim(20), 0..0);
    }
}
