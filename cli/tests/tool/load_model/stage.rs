//! What the relays share: the servers, and the events that are to come.

use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicUsize, Ordering},
};

use super::world::{Act, World};

/// When an event happens, in the time of the command that it is counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// The server does not get the command before.
    Before,
    /// The server has executed the command and so many before it; the tool has no reply to them.
    Unanswered(usize),
    /// The tool has the reply.
    Answered,
}

/// Acts that follow each other without the tool in between.
#[derive(Clone, Debug)]
pub(super) struct Event {
    /// The number of the command, from 1 on.
    pub(super) at: usize,
    pub(super) moment: Moment,
    pub(super) acts: Vec<Act>,
}

/// What happens when a command was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// Nothing: the reply is passed.
    Pass,
    /// The reply waits for an event that is near.
    Withhold,
    /// The event comes before the reply is passed.
    Unanswered,
    /// The event comes when the reply was passed.
    Answered,
}

pub(super) struct Stage {
    world: Mutex<World>,
    /// Events of this run, the next one last.
    script: Mutex<Vec<Event>>,
    /// Commands of this run that were counted.
    steps: AtomicUsize,
}

impl Stage {
    pub(super) fn new(world: World) -> Self {
        Self { world: Mutex::new(world), script: Mutex::default(), steps: AtomicUsize::new(0) }
    }

    /// The servers. No event happens while the guard is there, and no connection is made.
    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("no event panicked")
    }

    /// The port that the address of a server leads to now.
    pub(super) fn port_of(&self, node: usize) -> u16 {
        self.world().port_of(node)
    }

    /// Begins a run with these events.
    pub(super) fn begin(&self, mut events: Vec<Event>) {
        events.sort_by_key(|event| std::cmp::Reverse(event.at));
        *self.script() = events;
        self.steps.store(0, Ordering::SeqCst);
    }

    /// Counts a command, and returns its number.
    pub(super) fn step(&self) -> usize {
        self.steps.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Plays the next event if it comes before this command. Returns whether that ends the
    /// connection.
    pub(super) fn before(&self, step: usize) -> bool {
        let due =
            self.script().last().is_some_and(|it| it.moment == Moment::Before && it.at <= step);
        due && self.play_now()
    }

    /// What is to happen after a command.
    pub(super) fn after(&self, step: usize) -> After {
        match self.script().last() {
            Some(&Event { at, moment: Moment::Unanswered(_), .. }) if at <= step => {
                After::Unanswered
            }
            Some(&Event { at, moment: Moment::Unanswered(more), .. }) if at <= step + more => {
                After::Withhold
            }
            Some(&Event { at, moment: Moment::Answered, .. }) if at <= step => After::Answered,
            _ => After::Pass,
        }
    }

    /// Plays the next event. Returns whether that ends the connection.
    pub(super) fn play_now(&self) -> bool {
        let mut world = self.world();
        let Some(event) = self.script().pop().filter(|_| !world.is_down()) else { return false };
        let step = self.steps.load(Ordering::SeqCst);
        world.note(format!("command {step}, {:?}:", event.moment));
        // All of them happen.
        event.acts.iter().fold(false, |ends, act| world.play(act) | ends)
    }

    fn script(&self) -> MutexGuard<'_, Vec<Event>> {
        self.script.lock().expect("no panic")
    }
}
