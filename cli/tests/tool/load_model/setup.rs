//! What a round is about: the filter, the servers, the input, the options of the tool. And the
//! events of a run. The seed chooses all of it. Weights favour the cases in which a fault comes
//! while the tool has state to lose.

use super::{
    stage::{Event, Moment},
    world::{Act, From, Primary},
};
use crate::harness::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    Growing,
    Counting,
    /// Made for half of the items, and refuses the others.
    Full,
    /// Remembers items for a day or an hour.
    Time {
        generations: u8,
        refresh: bool,
    },
    /// Remembers more items than all clients add.
    Last {
        generations: u8,
    },
}

impl Kind {
    /// The words of BF.RESERVE behind the capacity.
    pub(super) fn words(self) -> String {
        let refresh = |refresh| if refresh { "" } else { " NOREFRESH" };
        match self {
            Self::Plain => String::new(),
            Self::Growing => "EXPANSION 2".to_owned(),
            Self::Counting => "COUNTING".to_owned(),
            Self::Full => "NONSCALING".to_owned(),
            Self::Time { generations, refresh: again } if generations % 2 == 0 => {
                format!("WINDOW EX 86400 GENERATIONS {generations}{}", refresh(again))
            }
            Self::Time { generations, refresh: again } => {
                format!("WINDOW PX 3600000 GENERATIONS {generations}{}", refresh(again))
            }
            Self::Last { generations } => format!("WINDOW COUNT GENERATIONS {generations}"),
        }
    }
}

/// What the user of the tool may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rights {
    All,
    /// Without these commands.
    Without(&'static [&'static str]),
}

impl Rights {
    /// Words of an ACL.
    pub(super) fn words(self) -> String {
        match self {
            Self::All => String::new(),
            Self::Without(commands) => commands.join(" "),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Lines,
    /// Lines, and no line feed at the end.
    LinesUnended,
    Zeros,
}

/// What happens in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Theme {
    /// Nothing that hinders a load.
    Calm,
    /// Connections break, and the tool is killed.
    Broken,
    /// A server loses items during a run.
    Loss,
    /// The tool is killed, and a server loses items before the next run.
    LossBetween,
    /// Another filter takes the place of the filter.
    Replaced,
    /// A replica takes the place of a server.
    Failover,
    /// All of it.
    Anything,
}

#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) theme: Theme,
    pub(super) kind: Kind,
    pub(super) servers: usize,
    /// 0 for a filter in one key.
    pub(super) shards: u16,
    pub(super) replicas: bool,
    pub(super) aof: bool,
    pub(super) rights: Rights,
    /// Items of each file.
    pub(super) files: Vec<usize>,
    /// Percent of the items that come before, too.
    pub(super) repeats: usize,
    pub(super) form: Form,
    pub(super) stdin: bool,
    /// Bytes of a batch.
    pub(super) batch: usize,
    pub(super) acks: Option<u64>,
    pub(super) journal_every: &'static str,
    pub(super) retry_for: &'static str,
}

/// One of some values, each as often as its weight says.
fn weighted<T: Clone>(random: &mut Random, choices: &[(usize, T)]) -> T {
    let mut at = random.below(choices.iter().map(|choice| choice.0).sum());
    for (weight, choice) in choices {
        match at.checked_sub(*weight) {
            None => return choice.clone(),
            Some(rest) => at = rest,
        }
    }
    unreachable!("the weights sum up")
}

fn percent(random: &mut Random, chance: usize) -> bool {
    random.below(100) < chance
}

impl Setup {
    /// Chooses a round.
    pub(super) fn choose(random: &mut Random) -> Self {
        let theme = weighted(
            random,
            &[
                (12, Theme::Calm),
                (10, Theme::Broken),
                (30, Theme::Loss),
                (20, Theme::LossBetween),
                (10, Theme::Replaced),
                (12, Theme::Failover),
                (10, Theme::Anything),
            ],
        );
        let generations = weighted(random, &[(1, 1), (1, 2), (1, 3), (2, 4)]);
        let refresh = percent(random, 70);
        let mut kind = weighted(
            random,
            &[
                (30, Kind::Plain),
                (15, Kind::Growing),
                (15, Kind::Counting),
                (5, Kind::Full),
                (12, Kind::Time { generations, refresh }),
                (8, Kind::Last { generations }),
            ],
        );
        let shards = weighted(random, &[(75, 0), (25, 2 + random.clone().below(4) as u16)]);
        if shards > 0 && kind == Kind::Counting {
            kind = Kind::Plain;
        }
        let rights = weighted(
            random,
            &[
                (75, Rights::All),
                (4, Rights::Without(&["-bf.card"])),
                (4, Rights::Without(&["-bf.bulkadd"])),
            ],
        );
        let servers = if shards == 0 { 1 } else { 1 + random.below(3) };
        let replicas = theme == Theme::Failover || percent(random, 15);
        let aof = percent(random, 15);
        let acks = match replicas {
            true => weighted(random, &[(3, None), (4, Some(1)), (1, Some(0))]),
            false => weighted(random, &[(8, None), (2, Some(0))]),
        };
        let files = weighted(random, &[(6, 1), (2, 2), (1, 3)]);
        let items = weighted(random, &[(1, 40), (3, 400), (3, 2_000), (1, 5_000)]);
        let form = weighted(random, &[(6, Form::Lines), (2, Form::LinesUnended), (1, Form::Zeros)]);
        Self {
            theme,
            kind,
            servers,
            shards,
            replicas,
            aof,
            rights,
            files: (0..files).map(|_| random.below(2 * items / files + 1)).collect(),
            repeats: weighted(random, &[(2, 0), (2, 20), (1, 60)]),
            form,
            stdin: files == 1 && percent(random, 12),
            batch: weighted(random, &[(1, 256), (3, 1_000), (2, 4_000), (1, 256_000)]),
            acks,
            // What can succeed must not fail because the machine is slow.
            retry_for: match theme {
                Theme::Calm | Theme::Broken => "60s",
                _ => *random.pick(&["5s", "300ms"]),
            },
            journal_every: weighted(random, &[(8, "2ms"), (1, "50ms"), (1, "1s")]),
        }
    }

    /// The items that the filter is made for, if the input has so many. Loads are repeated, and
    /// other clients add as many items again; a window of items must remember all of them.
    pub(super) fn capacity(&self, items: usize) -> u64 {
        let items = items as u64;
        match self.kind {
            Kind::Growing => 100,
            Kind::Full => items / 2 + 1,
            Kind::Last { .. } => 100 * items + 100_000,
            _ => 10 * items + 1_000,
        }
    }

    /// The error rate. A lost item that tests present by chance hides a fault, and an item that
    /// tests known by chance is not counted. In a round a few thousand items may be lost, so one
    /// round in a few hundred has a single false positive, and a fault loses many items.
    pub(super) fn error(&self) -> &'static str {
        "0.000001"
    }

    /// Whether a load from the beginning ends with exit 0 if nothing happens.
    pub(super) fn can_succeed(&self) -> bool {
        let waits = self.acks.unwrap_or(1) > 0 && (self.replicas || self.shards > 0);
        self.kind != Kind::Full && (!waits || self.is_patient())
    }

    /// Whether it does so after connections broke.
    pub(super) fn can_reconnect(&self) -> bool {
        self.can_succeed() && self.rights == Rights::All && self.is_patient()
    }

    /// Whether the tool tries again for long enough: a replica reports once a second what it has.
    fn is_patient(&self) -> bool {
        self.retry_for != "300ms"
    }

    /// Whether an interrupted load leaves journals.
    pub(super) fn can_resume(&self) -> bool {
        !self.stdin
    }

    /// The number of a server.
    fn server(&self, random: &mut Random) -> usize {
        random.below(self.servers)
    }

    /// What another client does.
    fn addition(&self, random: &mut Random, items: usize) -> Act {
        match random.below(3) {
            0 => Act::Same(random.below(items + 1), random.below(items / 2 + 1)),
            _ => Act::Others(random.below(items / 2 + 10)),
        }
    }

    /// What hides a loss from those who count.
    fn cover(&self, random: &mut Random, items: usize) -> Vec<Act> {
        let near = (items / 10 + 1) as i64;
        let more = random.below(2 * items / 10 + 2) as i64 - near;
        let addition = self.addition(random, items);
        weighted(
            random,
            &[
                (2, Vec::new()),
                (1, vec![addition]),
                (3, vec![Act::Refill(more)]),
                (3, vec![Act::Refill(0)]),
                (1, vec![Act::Refill(items as i64)]),
            ],
        )
    }

    /// A server that comes back with less.
    fn restart(&self, random: &mut Random) -> Act {
        let server = self.server(random);
        let older = 1 + random.below(2);
        let again = percent(random, 70);
        let from = weighted(
            random,
            &[(6, From::Last), (2, From::Older(older)), (1, From::Nothing(again))],
        );
        Act::Restart(server, from)
    }

    /// Another filter in the place of this one.
    fn replacement(&self, random: &mut Random, items: usize) -> Act {
        let at = random.below(16);
        match random.below(4) {
            0 => Act::Delete(at, percent(random, 70)),
            1 => Act::Rename(at, random.below(items + 1)),
            _ => Act::Rename(at, items + random.below(items + 100)),
        }
    }

    /// Acts that lose items, and those that hide it.
    fn loss(&self, random: &mut Random, items: usize) -> Vec<Act> {
        let server = self.server(random);
        let act = match self.theme {
            Theme::Replaced => self.replacement(random, items),
            Theme::Failover if percent(random, 80) => {
                Act::Failover(server, *random.pick(&[Primary::Dies, Primary::Stays]))
            }
            Theme::Failover => Act::Failback(server),
            Theme::Anything => match random.below(5) {
                0 => self.replacement(random, items),
                1 => Act::Failover(server, Primary::Stays),
                2 => Act::Failback(server),
                _ => self.restart(random),
            },
            _ => self.restart(random),
        };
        [vec![act], self.cover(random, items)].concat()
    }

    /// A moment of a run that sends about so many commands.
    fn event(&self, random: &mut Random, steps: usize, acts: Vec<Act>) -> Event {
        let any = 1 + random.below(steps);
        let late = steps - random.below(steps.min(3));
        let at = weighted(random, &[(6, any), (3, late), (1, steps)]);
        let moment = weighted(
            random,
            &[
                (1, Moment::Before),
                (2, Moment::Unanswered(0)),
                (3, Moment::Unanswered(random.clone().below(30))),
                (4, Moment::Answered),
            ],
        );
        // The reply to the last command would let the tool look at the other shards before the act.
        let moment = match moment {
            Moment::Answered if self.shards > 0 => Moment::Unanswered(0),
            moment => moment,
        };
        Event { at, moment, acts }
    }

    /// The events of a run over so many items in about so many commands.
    pub(super) fn events(&self, random: &mut Random, items: usize, steps: usize) -> Vec<Event> {
        let mut acts: Vec<Vec<Act>> = Vec::new();
        for _ in 0..random.below(4) {
            let snapshot = Act::Snapshot(self.server(random));
            let addition = self.addition(random, items);
            acts.push(weighted(random, &[(2, vec![snapshot]), (2, vec![addition])]));
        }
        let kill = if percent(random, 70) { Act::Kill } else { Act::Interrupt };
        let cut = Act::Cut(self.server(random));
        match self.theme {
            Theme::Calm => {}
            Theme::Broken => {
                acts.extend((0..=random.below(3)).map(|_| vec![cut.clone()]));
                if percent(random, 50) {
                    acts.push(vec![kill]);
                }
            }
            Theme::LossBetween => acts.push(vec![kill]),
            Theme::Loss | Theme::Replaced | Theme::Failover | Theme::Anything => {
                if self.theme == Theme::Failover && percent(random, 40) {
                    acts.push(vec![Act::Detach(self.server(random))]);
                }
                acts.extend((0..=random.below(2)).map(|_| self.loss(random, items)));
                if percent(random, 35) {
                    acts.push(vec![kill]);
                }
                if percent(random, 25) {
                    acts.push(vec![cut]);
                }
                if percent(random, 10) {
                    acts.push(vec![Act::NoMemory(self.server(random))]);
                }
                // The tool tries for as long.
                if self.retry_for == "300ms" && percent(random, 40) {
                    acts.push(vec![Act::Down(self.server(random))]);
                }
            }
        }
        if self.shards == 0 && self.theme != Theme::Calm && percent(random, 6) {
            acts.push(vec![Act::Copy]);
        }
        let mut events: Vec<_> =
            acts.into_iter().map(|acts| self.event(random, steps, acts)).collect();
        events.sort_by_key(|event| event.at);
        // A snapshot before the first loss is what makes the loss a part.
        if percent(random, 60) {
            let snapshots = (0..self.servers).map(Act::Snapshot).collect();
            let first = events.first().map_or(steps, |event| event.at);
            let at = 1 + random.below(first);
            events.push(Event { at, moment: Moment::Unanswered(0), acts: snapshots });
        }
        events
    }

    /// What happens between two runs.
    pub(super) fn between(&self, random: &mut Random, items: usize) -> Vec<Act> {
        let loses = match self.theme {
            Theme::Calm | Theme::Broken => false,
            Theme::LossBetween => percent(random, 85),
            _ => percent(random, 40),
        };
        let mut acts = Vec::new();
        // A snapshot directly before it would leave nothing to lose.
        if !loses && percent(random, 50) {
            acts.push(Act::Snapshot(self.server(random)));
        }
        if loses {
            acts.extend(self.loss(random, items));
        }
        if percent(random, 30) {
            acts.push(self.addition(random, items));
        }
        if loses && self.shards == 0 && percent(random, 15) {
            acts.extend([Act::OtherDatabase, Act::Refill(0)]);
        }
        acts
    }
}
