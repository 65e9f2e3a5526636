//! Tabulates the results that benches/filter (criterion) left in `target/criterion`.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;

use crate::report::{Section, target_dir};

/// Nanoseconds by (case, operation), then by rival.
type Figures = BTreeMap<(String, String), BTreeMap<String, f64>>;

const RIVALS: [&str; 4] = ["redis-bloom", "redis-bloom, batches", "fastbloom", "bloomfilter"];

pub(crate) fn run() -> Option<Section> {
    let mut figures = Figures::new();
    collect(&target_dir().join("criterion"), &mut figures);
    if figures.is_empty() {
        eprintln!("bench: benches/filter has left no results to tabulate");
        return None;
    }
    let mut section = Section::new("In process");
    section.say(&format!(
        "Nanoseconds per item in one process, by criterion. The hash is included. Items have 16 \
         bytes unless the row says otherwise. Batches have 100 items. Hits and misses are measured \
         at capacity, additions from half of it on. `fastbloom` {} and `bloomfilter` {} are \
         crates; their filters have one layer.",
        version("fastbloom"),
        version("bloomfilter"),
    ));
    let head: Vec<&str> = ["filter", "operation"].into_iter().chain(RIVALS).collect();
    let rows: Vec<Vec<String>> = figures
        .iter()
        .map(|((case, op), by_rival)| {
            let cells = RIVALS
                .iter()
                .map(|rival| by_rival.get(*rival).map_or("-".into(), |ns| format!("{ns:.1}")));
            [case.clone(), op.clone()].into_iter().chain(cells).collect()
        })
        .collect();
    section.table(&head, &rows);
    Some(section)
}

/// The version of a crate in Cargo.lock.
fn version(name: &str) -> &'static str {
    let lock = include_str!("../../Cargo.lock");
    let package = lock.split_once(&format!("name = \"{name}\"\nversion = \""));
    package.and_then(|(_, rest)| rest.split('"').next()).unwrap_or("?")
}

/// Reads every `new/benchmark.json` with its `estimates.json` below a directory.
fn collect(directory: &Path, figures: &mut Figures) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()) {
        if path.ends_with("new") {
            figures.extend(read(&path, figures));
        } else {
            collect(&path, figures);
        }
    }
}

/// The row of one benchmark, merged with the figures that the row has already.
fn read(directory: &Path, figures: &Figures) -> Option<((String, String), BTreeMap<String, f64>)> {
    let json = |name: &str| -> Option<Value> {
        serde_json::from_slice(&fs::read(directory.join(name)).ok()?).ok()
    };
    let (benchmark, estimates) = (json("benchmark.json")?, json("estimates.json")?);
    let (op, rival) = benchmark["function_id"].as_str()?.split_once('/')?;
    let row = (benchmark["group_id"].as_str()?.to_owned(), op.to_owned());
    let mut by_rival = figures.get(&row).cloned().unwrap_or_default();
    by_rival.insert(rival.to_owned(), estimates["median"]["point_estimate"].as_f64()?);
    Some((row, by_rival))
}
