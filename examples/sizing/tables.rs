//! The tables of docs/guide/sizing.md, as Markdown.

use redis_bloom::filter::{geometry, layer_rate};

use crate::{
    measure::{array_bits, both_wrong, full, optimum, rate_by_bits, redisbloom, size, spread},
    paged,
};

/// The name of a table (after `<!-- sizing:` in the document), and the function that makes it.
type Table = (&'static str, fn() -> String);

/// All tables.
pub(crate) const TABLES: [Table; 9] = [
    ("bytes", bytes),
    ("bits", bits),
    ("growing", paged::growing),
    ("overflow", paged::overflow),
    ("counting", paged::counting),
    ("windows", paged::windows),
    ("seeds", seeds),
    ("chain", chain),
    ("card", card),
];

/// A Markdown table: the cells of the head, then of each row.
pub(crate) fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        text.push_str(&format!("| {} |\n", row.join(" | ")));
    }
    text
}

/// Groups digits: 12345678 is 12,345,678.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.char_indices() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes as text: with three digits and a unit from 100,000 bytes on.
fn byte_text(bytes: u64) -> String {
    let (unit, size) = match bytes {
        0..100_000 => return grouped(bytes),
        100_000..1_000_000 => ("kB", 1e3),
        1_000_000..1_000_000_000 => ("MB", 1e6),
        _ => ("GB", 1e9),
    };
    let value = bytes as f64 / size;
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.decimals$} {unit}")
}

/// A rate as text: 25 %, 0.01 %, 1e-6.
pub(crate) fn rate_text(rate: f64) -> String {
    if rate < 1e-4 {
        format!("{rate:e}")
    } else {
        // Rounded, to drop the noise of the multiplication.
        format!("{} %", (rate * 1e6).round() / 1e4)
    }
}

/// A number of items as text: in words if it is round.
pub(crate) fn item_text(items: u64) -> String {
    match items {
        1_000_000_000.. if items.is_multiple_of(1_000_000_000) => {
            format!("{} billion", items / 1_000_000_000)
        }
        1_000_000.. if items.is_multiple_of(1_000_000) => format!("{} million", items / 1_000_000),
        _ => grouped(items),
    }
}

/// Bytes by items and rate.
fn bytes() -> String {
    let rates = [0.1, 0.05, 0.01, 0.001, 1e-4, 1e-6, 1e-9];
    let head: Vec<_> = std::iter::once("items".to_owned()).chain(rates.map(rate_text)).collect();
    let head: Vec<_> = head.iter().map(String::as_str).collect();
    let row = |items: u64| {
        let sizes = rates.map(|rate| byte_text(size(rate, items, true)));
        std::iter::once(item_text(items)).chain(sizes).collect()
    };
    table(&head, (3..10).map(|i| row(10_u64.pow(i))))
}

/// Bits per item by rate, and the geometry.
fn bits() -> String {
    const ITEMS: u64 = 1_000_000;
    let per_item = |rate, scales| array_bits(rate, ITEMS, scales) as f64 / ITEMS as f64;
    let row = |rate: f64| {
        let shape = geometry(ITEMS, layer_rate(rate, true)).expect("a few megabytes");
        vec![
            rate_text(rate),
            format!("{:.2}", optimum(rate)),
            format!("{:.2}", per_item(rate, false)),
            format!("{:.2}", per_item(rate, true)),
            format!("{:.2}", redisbloom(rate, 0, true)),
            shape.probes.to_string(),
            grouped(u64::from(shape.block_words) * 64),
        ]
    };
    let rates = [0.5, 0.25, 0.1, 0.05, 0.01, 0.001, 1e-4, 1e-6, 1e-9, 1e-12, 1e-30];
    table(
        &[
            "rate",
            "classic optimum",
            "NONSCALING",
            "scaling",
            "RedisBloom, scaling",
            "probes",
            "block, in bits",
        ],
        rates.map(row),
    )
}

/// Variation of the rate of a full filter with its seed.
///
/// By the bits that are set: queries would add noise several times larger than the variation.
fn seeds() -> String {
    const RATE: f64 = 0.01;
    let rates = |items, filters: u64, expansion| {
        let rate = |seed| rate_by_bits(&full(RATE, items, expansion, seed).filter);
        let mut rates: Vec<_> = (0..filters).map(rate).collect();
        rates.sort_by(f64::total_cmp);
        rates
    };
    let percent = |rate: f64| format!("{:.3} %", rate * 100.0);
    let above = |rates: &[f64]| {
        let above = rates.iter().filter(|&&rate| rate > RATE).count();
        format!("{:.1} %", above as f64 / rates.len() as f64 * 100.0)
    };
    let row = |(items, filters): (u64, u64)| {
        let plain = rates(items, filters, 0);
        let (mean, deviation) = spread(&plain);
        let at = |share: f64| plain[(share * (filters - 1) as f64).round() as usize];
        vec![
            item_text(items),
            grouped(filters),
            percent(mean),
            percent(deviation),
            format!("{} to {}", percent(at(0.025)), percent(at(0.975))),
            above(&plain),
            above(&rates(items, filters, 2)),
        ]
    };
    table(
        &[
            "items",
            "filters",
            "mean rate",
            "standard deviation",
            "95 in 100 filters",
            "NONSCALING filters above 1 %",
            "scaling filters above 1 %",
        ],
        [(100, 10_000), (1_000, 2_000), (10_000, 500), (1_000_000, 20)].map(row),
    )
}

/// The difference between BF.CARD and the number of distinct items.
fn card() -> String {
    const ITEMS: u64 = 20_000;
    const SEEDS: u64 = 3;
    let percent = |counted: u64, distinct: u64| {
        format!("{:.2} %", (distinct - counted) as f64 / distinct as f64 * 100.0)
    };
    let reserved = |rate: f64, expansion: u64| {
        let (mut counted, mut distinct) = (0, 0);
        for seed in 0..SEEDS {
            let filling = full(rate, ITEMS, expansion, seed);
            counted += filling.filter.items();
            distinct += filling.distinct;
        }
        percent(counted, distinct)
    };
    let pages = |mut stream: paged::Stream, items: u64| {
        stream.up_to(items);
        percent(items, stream.added)
    };
    let row = |rate: f64| {
        vec![
            rate_text(rate),
            reserved(rate, 0),
            reserved(rate, 2),
            pages(paged::Stream::overflowing(rate, ITEMS), 20 * ITEMS),
            pages(paged::Stream::growing(rate), 20 * ITEMS),
        ]
    };
    table(
        &[
            "rate",
            "NONSCALING, full",
            "reserved, full",
            "reserved, 20 times as many items",
            "not reserved, 20 times as many",
        ],
        [0.5, 0.25, 0.1, 0.05, 0.01, 0.001].map(row),
    )
}

/// False positives that two full filters share, under different seeds and under one.
fn chain() -> String {
    let head = [
        "rate",
        "items in each",
        "of them in both",
        "both wrong, if independent",
        "with different seeds",
        "with one seed",
    ];
    let row = |(rate, items, common)| {
        let different = both_wrong(rate, items, common, [1, 2]);
        let same = both_wrong(rate, items, common, [1, 1]);
        // Two digits: the precision of ten million queries.
        let part = |both: f64| {
            let one_in = 1.0 / both;
            let unit = 10_f64.powf(one_in.log10().floor() - 1.0);
            format!("1 in {}", grouped(((one_in / unit).round() * unit) as u64))
        };
        vec![
            rate_text(rate),
            item_text(items),
            item_text(common),
            part(different.product),
            part(different.both),
            format!("{}, {:.1} times as often", part(same.both), same.both / same.product),
        ]
    };
    let rows = [
        (0.05, 1_000, 500),
        (0.01, 1_000, 0),
        (0.01, 1_000, 100),
        (0.01, 1_000, 500),
        (0.01, 1_000, 900),
        (0.01, 1_000_000, 500_000),
    ];
    table(&head, rows.map(row))
}
