//! What a run of `rebuild` does next: a pure function of the step in the descriptor and of what the
//! run is to do. `rebuild.rs` does it.
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

/// The options of a run.
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
    /// The run has done what its options say.
    Stop,
    Refuse(Refusal),
}

/// Why a run cannot continue.
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
    use super::*;

    /// The table above: no option, --from, --commit, --from --commit, --abort.
    #[test]
    fn what_a_run_does_at_each_step() {
        use Action::{
            AwaitAdders, AwaitReaders, Begin, Bury, Exchange, Fill, FillAgain, Refuse, Reserve,
            Retire, Stop,
        };
        let [answers, unfilled] = [Refusal::Exchanged, Refusal::Unfilled].map(Refuse);
        let [goes_on, ends] = [false, true].map(|last| Bury { last });
        let none = Refuse(Refusal::NoRebuild);
        for (step, filled, actions) in [
            (None, false, [Begin, Begin, unfilled, Begin, none]),
            (Some(Step::Reserving), false, [Reserve, Reserve, unfilled, Reserve, Retire]),
            (Some(Step::Waiting), false, [AwaitAdders, AwaitAdders, unfilled, AwaitAdders, Retire]),
            (Some(Step::Filling), false, [Stop, Fill, unfilled, Fill, Retire]),
            (Some(Step::Filled), false, [Stop, FillAgain, Exchange, FillAgain, Retire]),
            (Some(Step::Filled), true, [Stop, Stop, Exchange, Exchange, Retire]),
            (Some(Step::Exchanged), true, [answers, answers, AwaitReaders, AwaitReaders, answers]),
            (Some(Step::Committed), true, [goes_on, goes_on, ends, ends, answers]),
            (Some(Step::Aborted), false, [goes_on, goes_on, unfilled, goes_on, ends]),
        ] {
            for (place, action) in actions.into_iter().enumerate() {
                let (files, commit, abort) = (place % 2 == 1, place / 2 == 1, place == 4);
                let asked = Asked { files, commit, abort };
                assert_eq!(next(step, false, filled, asked), action, "{step:?}, {asked:?}");
            }
        }
        // A next generation that another program made can only be given up.
        for abort in [false, true] {
            let action = next(None, true, false, Asked { abort, ..Asked::default() });
            assert_eq!(action, if abort { Retire } else { Refuse(Refusal::Foreign) });
        }
    }
}
