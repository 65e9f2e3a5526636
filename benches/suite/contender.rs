//! The contenders: the floor, this module, the filter that clients build in a string by SETBIT and
//! GETBIT, and the peers that the environment names.

use std::path::PathBuf;

use crate::{
    payload::{self, Items, MEMBERS, Op, Speech},
    server::{Cost, Server},
};

/// The name of this module in tables.
pub(crate) const OURS: &str = "redis-bloom";
/// The name of the floor.
pub(crate) const FLOOR: &str = "floor";
/// The name of the filter in a string.
pub(crate) const BY_HAND: &str = "SETBIT/GETBIT";

/// Whether the contender of this name is a peer.
pub(crate) fn is_peer(name: &str) -> bool {
    peers().iter().any(|peer| peer.name == name)
}

/// A contender. Each part starts servers with it as often as it needs.
#[derive(Clone, Debug)]
pub(crate) struct Contender {
    pub(crate) name: String,
    module: Option<(PathBuf, Vec<String>)>,
}

impl Contender {
    /// Starts a server with the contender.
    pub(crate) fn start(&self, extra: &[&str]) -> Server {
        Server::start(
            self.module.as_ref().map(|(path, arguments)| (path, arguments.as_slice())),
            extra,
        )
    }

    /// Whether it is a filter in a module.
    pub(crate) fn is_filter(&self) -> bool {
        self.module.is_some() && self.name != FLOOR
    }
}

/// All contenders: the floor first, this module second.
pub(crate) fn all() -> Vec<Contender> {
    let by_hand = Contender { name: BY_HAND.into(), module: None };
    [given(FLOOR, "FLOOR_SO"), ours(), by_hand].into_iter().chain(peers()).collect()
}

/// This module.
pub(crate) fn ours() -> Contender {
    given(OURS, "REDIS_BLOOM_SO")
}

/// This module and the peers.
pub(crate) fn filters() -> Vec<Contender> {
    all().into_iter().filter(Contender::is_filter).collect()
}

fn given(name: &str, variable: &str) -> Contender {
    let path = std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set: run `make bench`"));
    with_module(name, &path)
}

/// `PEERS="name=path.so[,argument...] ..."`.
fn peers() -> Vec<Contender> {
    let text = std::env::var("PEERS").unwrap_or_default();
    let peer = |peer: &str| {
        let (name, module) = peer.split_once('=')?;
        Some(with_module(name, module))
    };
    text.split_whitespace()
        .map(|text| peer(text).unwrap_or_else(|| panic!("PEERS: {text} is not name=path.so")))
        .collect()
}

/// A contender with the module `path[,argument...]`. The path is made absolute, because the server
/// runs in another directory.
fn with_module(name: &str, module: &str) -> Contender {
    let mut parts = module.split(',').map(String::from);
    let path = parts.next().unwrap_or_default();
    let absolute =
        std::fs::canonicalize(&path).unwrap_or_else(|error| panic!("{name}: {path}: {error}"));
    Contender { name: name.into(), module: Some((absolute, parts.collect())) }
}

/// A contender with a filter in it, under the key `k`.
pub(crate) struct Rival {
    pub(crate) name: String,
    pub(crate) speech: Speech,
    pub(crate) server: Server,
}

impl Rival {
    /// Starts a server of the contender, with an empty filter for `capacity` items at 1 % that
    /// doubles when it is full.
    pub(crate) fn with_filter(contender: &Contender, capacity: u64, extra: &[&str]) -> Self {
        let mut server = contender.start(extra);
        let speech = if contender.module.is_some() {
            server.run::<()>(&format!("BF.RESERVE k 0.01 {capacity} EXPANSION 2"));
            Speech::Commands
        } else {
            Speech::by_hand(capacity, 0.01)
        };
        Self { name: contender.name.clone(), speech, server }
    }

    /// A field of `BF.INFO`, or of `CF.INFO`.
    pub(crate) fn info(&mut self, name: &str) -> f64 {
        let command = if self.speech == Speech::Cuckoo { "CF.INFO k" } else { "BF.INFO k" };
        let fields: Vec<redis::Value> = self.server.run(command);
        let text = |value| redis::from_redis_value_ref::<String>(value).ok();
        let at = fields.iter().position(|field| text(field).is_some_and(|text| text == name));
        match at.and_then(|at| fields.get(at + 1)) {
            Some(redis::Value::Int(number)) => *number as f64,
            _ => panic!("{}: {command} has no {name}", self.name),
        }
    }

    /// Prepares commands, sends them, and returns their cost.
    pub(crate) fn work(&mut self, op: Op, items: &Items, batch: u64) -> Cost {
        let commands = payload::commands(self.speech, op, "k", items, batch);
        self.server.stream(&commands)
    }
}

/// Items that `fill` sends in one stream.
const STREAM: u64 = 500_000;

/// Adds the members `from..to` to the filter of each contender.
pub(crate) fn fill(rivals: &mut [Rival], from: u64, to: u64) {
    for rival in rivals.iter_mut() {
        if let Speech::Bits { bits, probes } = rival.speech {
            // The string is made here and sent whole: bit by bit it would take most of the run.
            const PIECE: usize = 32 << 20;
            let string = payload::string_of_members(to, bits, probes);
            for (i, piece) in string.chunks(PIECE).enumerate() {
                let start = (i * PIECE).to_string();
                let outcome =
                    rival.server.call::<u64>("SETRANGE", &[b"k", start.as_bytes(), piece]);
                outcome.expect("a string this long");
            }
        }
    }
    for start in (from..to).step_by(STREAM as usize) {
        let numbers = start..to.min(start + STREAM);
        let items = Items::InTurn { set: MEMBERS, numbers };
        let commands = payload::commands(Speech::Commands, Op::Add, "k", &items, 1000);
        for rival in rivals
            .iter_mut()
            .filter(|rival| rival.speech == Speech::Commands && rival.name != FLOOR)
        {
            rival.server.stream(&commands);
        }
    }
}
