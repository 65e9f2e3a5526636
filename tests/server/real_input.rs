//! Real words: the filter gets Debian's American English words, and is queried for the French ones.

use std::collections::HashSet;
use std::fs;

use crate::harness::{Server, info, madd, mexists, ok};

const ADDED: &str = "/usr/share/dict/american-english";
const QUERIED: &str = "/usr/share/dict/french";

fn words(path: &str) -> Vec<Vec<u8>> {
    let bytes = fs::read(path).unwrap_or_else(|error| {
        panic!("{path}: {error}; run `make setup`, which installs the word lists")
    });
    let words: Vec<_> =
        bytes.split(|&byte| byte == b'\n').filter(|word| !word.is_empty()).collect();
    assert!(words.len() > 50_000, "{path} has only {} words", words.len());
    words.into_iter().map(<[u8]>::to_vec).collect()
}

/// The largest allowed number of false positives of `n` queries to a filter of rate `p` whose first
/// layer has a capacity of `first` items.
///
/// The actual rate of a filter is a random number, because each seed sets other bits. Its mean over
/// all seeds is at most `p`. The first layer decides its relative deviation, because that layer has
/// the largest share of the rate and the fewest items. With k = log2(1/p) probes per item:
/// * one block (up to 32,768 bits): a share f of about 1/2 of the m = n k / ln 2 bits is set, with
///   a standard deviation of 0.277 / sqrt(m). The rate f^k has k times the relative deviation:
///   0.46 sqrt(k / n);
/// * many blocks: the load of a block is Poisson, and the rate grows with about the 0.7 k-th power
///   of the load. The mean over all blocks deviates like the n items themselves, by
///   0.7 k / sqrt(n); k / sqrt(n) leaves room for the curvature of the power.
///
/// At a given rate the queries are independent trials with a variance of n p (1 - p). Five standard
/// deviations of both together occur less than once in three million filters.
fn most_false_positives(n: usize, p: f64, first: usize) -> f64 {
    let (n, first, probes) = (n as f64, first as f64, -p.log2());
    let one_block = first * probes / std::f64::consts::LN_2 <= 32_768.0;
    let spread = if one_block { 0.46 * (probes / first).sqrt() } else { probes / first.sqrt() };
    n * p + 5.0 * (n * p * (1.0 - p) + (n * p * spread).powi(2)).sqrt()
}

#[test]
fn a_dictionary_is_found_and_another_language_is_not() {
    let server = Server::start();
    let client = &mut server.client();

    let english = words(ADDED);
    let known: HashSet<&[u8]> = english.iter().map(Vec::as_slice).collect();
    let mut others = words(QUERIED);
    others.retain(|word| !known.contains(word.as_slice()));
    assert!(others.len() > 50_000, "only {} words of {QUERIED} are not in {ADDED}", others.len());

    // One layer with exactly the capacity, and stacks that grew to it: 11 layers from 100 items, 4
    // layers from 10,000 items, and 11 equal layers of 10,000 items.
    let all = english.len();
    for (rate, capacity, options) in [
        (0.01, all, "NONSCALING"),
        (0.001, all, "NONSCALING"),
        (0.0001, all, ""),
        (0.01, 100, ""),
        (0.001, 100, ""),
        (0.01, 10_000, ""),
        (0.01, 10_000, "EXPANSION 1"),
    ] {
        let case = format!("{} % for {capacity} {options}", 100.0 * rate);
        client.run("DEL words");
        let reserve = format!("BF.RESERVE words {rate} {capacity} SEED 20261 {options}");
        assert_eq!(client.run(&reserve), ok(), "{case}");

        let new = count(&madd(client, "words", &english));
        let card = client.run("BF.CARD words").int();
        assert_eq!(card, new as i64, "{case}: BF.CARD is the number of new items");
        // A word that tests present when it is added is a false positive, too.
        let (not_new, most) = (all - new, most_false_positives(all, rate, capacity));
        assert!(
            not_new as f64 <= most,
            "{case}: {not_new} of {all} words were not new, more than {most:.0}"
        );

        let present = count(&mexists(client, "words", &english));
        assert_eq!(present, all, "{case}: a false negative");

        let positives = count(&mexists(client, "words", &others));
        let (n, most) = (others.len(), most_false_positives(others.len(), rate, capacity));
        let measured = 100.0 * positives as f64 / n as f64;
        println!(
            "{case}: {all} words in, {} bytes; {positives} of {n} others positive, {measured:.4} %",
            info(client, "words").size
        );
        assert!(
            positives as f64 <= most,
            "{case}: {positives} of {n} others positive, more than {most:.0}"
        );
    }
}

fn count(answers: &[bool]) -> usize {
    answers.iter().filter(|&&yes| yes).count()
}
