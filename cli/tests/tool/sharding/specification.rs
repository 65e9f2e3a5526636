//! `docs/reference/sharding.md` is written for people who implement it elsewhere: its vectors are
//! those of these tests.

use crate::sharding::{Descriptor, State};

use super::{
    capacity::BOUNDS,
    keys::{DIGESTS, NUMBERS},
};

const PAGE: &str = include_str!("../../../../docs/reference/sharding.md");

/// The first `count` cells of the rows of tables, without backquotes.
fn rows() -> Vec<Vec<String>> {
    let rows = PAGE.lines().filter(|line| line.starts_with('|'));
    let cells = |row: &str| -> Vec<String> {
        row.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect()
    };
    rows.map(cells).collect()
}

#[test]
fn the_page_has_the_vectors_of_the_keys() {
    let rows = rows();
    for (name, numbers) in NUMBERS {
        let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
        let row = vec![name.to_owned(), numbers.len().to_string(), numbers.join(" ")];
        assert!(rows.contains(&row), "{row:?}");
    }
    for (count, digest) in DIGESTS {
        let row = vec![count.to_string(), digest.to_owned()];
        assert!(rows.contains(&row), "{row:?}");
    }
}

#[test]
fn the_page_has_the_probabilities_of_the_capacity() {
    let rows = rows();
    for (mean, bound) in BOUNDS {
        let thousands = match mean as u64 {
            mean if mean < 1_000 => mean.to_string(),
            mean => format!("{},{:03}", mean / 1_000, mean % 1_000),
        };
        let row = vec![thousands, format!("{bound:e}")];
        assert!(rows.contains(&row), "{row:?}");
    }
}

/// The page shows the fields of a descriptor as they are written.
#[test]
fn the_page_has_a_descriptor() {
    let urls = Descriptor::new(b"urls", 2, 0.001, 1_000_000, 10).expect("no braces");
    let words = urls.fields(State::Ready).into_iter().flat_map(|(name, value)| [name, value]);
    let words: Vec<String> = words.map(|word| String::from_utf8(word).expect("text")).collect();
    assert!(PAGE.contains(&format!("HSET urls {}", words.join(" "))), "{words:?}");
}
