//! What a run of `rebuild` does next: a pure function of the step in the descriptor and of what the
//! run was asked for. `rebuild.rs` does it.
//!
//! ```text
//!   step        no option        --from        --commit    --from --commit   --abort
//!   (none)      Begin            Begin         refused     Begin             refused
//!   reserving   Reserve          Reserve       refused     Reserve           Retire
//!   waiting     AwaitAdders      AwaitAdders   refused     AwaitAdders       Retire
//!   filling     Stop             Fill          refused     Fill              Retire
//!   filled      Stop             FillAgain, or Exchange    FillAgain, or     Retire
//!                                Stop, if this             Exchange, if this
//!                                run filled it             run filled it
//!   exchanged   refused          refused       AwaitReaders, in both         refused
//!   committed   Bury             Bury          Bury and end, in both         refused
//!   aborted     Bury             Bury          refused     Bury              Bury and end
//! ```

use serde::Serialize;

/// How far a rebuild is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Step {
    Reserving,
    Waiting,
    Filling,
    Filled,
    Exchanged,
    Committed,
    Aborted,
}

/// What a run was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// Whether files are named.
    pub(super) files: bool,
    pub(super) commit: bool,
    pub(super) abort: bool,
}

/// What is done next. All but `Bury { last: true }`, `Stop` and `Refuse` lead to another step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Chooses a generation.
    Begin,
    /// Reserves its shards.
    Reserve,
    /// Waits until all clients add to it.
    AwaitAdders,
    /// Loads the files into it, and checks that their items are in it.
    Fill,
    /// Goes back to the step before.
    FillAgain,
    /// Lets it answer.
    Exchange,
    /// Waits until most clients query it, and retires the old generation.
    AwaitReaders,
    /// Gives the new generation up.
    Retire,
    /// Puts tombstones in the places of retired shards, and removes the step. `last`: the run ends
    /// then.
    Bury {
        last: bool,
    },
    /// The run has done what it was asked for.
    Stop,
    Refuse(Refusal),
}

/// Why a run cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is nothing to give up.
    NoRebuild,
    /// The new generation answers already.
    Exchanged,
    /// Another program made a next generation.
    Foreign,
    /// No file was named, and nothing is filled.
    Unfilled,
}

/// What a run does at this step. `foreign`: without a step, there is a next generation. `filled`:
/// this run has filled the new generation.
pub(super) fn next(step: Option<Step>, foreign: bool, filled: bool, asked: Asked) -> Action {
    let Asked { files, commit, abort } = asked;
    match step {
        Some(Step::Exchanged | Step::Committed) if abort => Action::Refuse(Refusal::Exchanged),
        None if abort && !foreign => Action::Refuse(Refusal::NoRebuild),
        Some(Step::Aborted) if abort => Action::Bury { last: true },
        _ if abort => Action::Retire,
        None if foreign => Action::Refuse(Refusal::Foreign),
        Some(Step::Filled) if files && !filled => Action::FillAgain,
        Some(Step::Filled) if commit => Action::Exchange,
        Some(Step::Filled) => Action::Stop,
        Some(Step::Exchanged) if !commit => Action::Refuse(Refusal::Exchanged),
        Some(Step::Exchanged) => Action::AwaitReaders,
        Some(Step::Committed) => Action::Bury { last: commit },
        _ if commit && !files => Action::Refuse(Refusal::Unfilled),
        None => Action::Begin,
        Some(Step::Reserving) => Action::Reserve,
        Some(Step::Waiting) => Action::AwaitAdders,
        Some(Step::Filling) if files => Action::Fill,
        Some(Step::Filling) => Action::Stop,
        Some(Step::Aborted) => Action::Bury { last: false },
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    /// The step after an action that was done; `None` inside: the run ends.
    fn after(step: Option<Step>, action: Action) -> Option<Option<Step>> {
        Some(match action {
            Action::Begin => Some(Step::Reserving),
            Action::Reserve => Some(Step::Waiting),
            Action::AwaitAdders | Action::FillAgain => Some(Step::Filling),
            Action::Fill => Some(Step::Filled),
            Action::Exchange => Some(Step::Exchanged),
            Action::AwaitReaders => Some(Step::Committed),
            Action::Retire => Some(Step::Aborted),
            Action::Bury { last: false } => None,
            Action::Bury { last: true } | Action::Stop | Action::Refuse(_) => return None,
        })
        .filter(|next: &Option<Step>| *next != step || step.is_none())
    }

    /// Every step and every command line: the run ends, what it does fits the step, and a step
    /// behind the exchange is reached from a filled generation alone.
    #[test]
    fn every_run_ends_and_no_action_is_out_of_order() {
        let steps = [None].into_iter().chain(Step::value_variants().iter().copied().map(Some));
        let asked = (0..8).map(|bits| Asked {
            files: bits & 1 > 0,
            commit: bits & 2 > 0,
            abort: bits & 4 > 0,
        });
        // clap refuses --abort beside the other two.
        let asked: Vec<_> =
            asked.filter(|asked| !asked.abort || !asked.files && !asked.commit).collect();
        assert_eq!(asked.len(), 5);
        let mut runs = 0;
        for first in steps {
            for &asked in &asked {
                for foreign in [false, true] {
                    runs += 1;
                    let (mut step, mut filled, mut done) = (first, false, 0);
                    loop {
                        let action = next(step, foreign && step == first, filled, asked);
                        let fits = match action {
                            Action::Begin => step.is_none() && !asked.abort,
                            Action::Reserve => step == Some(Step::Reserving),
                            Action::AwaitAdders => step == Some(Step::Waiting),
                            Action::Fill => step == Some(Step::Filling) && asked.files,
                            Action::FillAgain => step == Some(Step::Filled) && !filled,
                            Action::Exchange => step == Some(Step::Filled) && asked.commit,
                            Action::AwaitReaders => step == Some(Step::Exchanged) && asked.commit,
                            Action::Retire => {
                                asked.abort
                                    && ![Some(Step::Exchanged), Some(Step::Committed)]
                                        .contains(&step)
                            }
                            Action::Bury { .. } => {
                                [Some(Step::Committed), Some(Step::Aborted)].contains(&step)
                            }
                            // Only a run that has changed nothing is refused.
                            Action::Refuse(_) => done == 0 || step.is_none(),
                            Action::Stop => !asked.abort,
                        };
                        assert!(fits, "{first:?}, {asked:?}: {action:?} at {step:?}");
                        filled |= action == Action::Fill;
                        let Some(next) = after(step, action) else { break };
                        (step, done) = (next, done + 1);
                        assert!(done < 10, "{first:?}, {asked:?}: without an end");
                    }
                }
            }
        }
        assert_eq!(runs, 8 * 5 * 2);
    }
}
