//! Bits per item of filters that are exactly full, by `BF.INFO`, by number of layers.
//!
//! Each filter starts at 1,000 items and doubles. (17 layers start at 100; from 1,000 they would
//! hold 131 million items.) Most items are in the last layers, so the figures show the cost of a
//! late layer.

use crate::{
    contender::{self, Contender, OURS, Rival},
    payload::{Items, MEMBERS, Op},
    plot::Plot,
    report::Section,
};

const LAYERS: [u32; 6] = [1, 2, 4, 8, 12, 17];
const RATES: [(&str, &str); 2] = [("0.01", "1 %"), ("0.001", "0.1 %")];

pub(crate) fn run() -> Option<Section> {
    let mut section = Section::new("Memory");
    section.say(
        "Bits per item at capacity (`BF.INFO` Size over Capacity), by the number of layers. A \
         filter starts at 1,000 items (at 100 for 17 layers) and doubles. A classic filter of the \
         right size needs 9.6 bits at 1 % and 14.4 at 0.1 %, and cannot grow. A filter made with \
         COUNTING has four bits in place of each bit.",
    );
    let mut rows = Vec::new();
    let mut lines = Vec::new();
    for contender in &contender::filters() {
        for (rate, title) in RATES {
            let bits: Vec<f64> =
                LAYERS.iter().map(|&layers| bits_per_item(contender, rate, layers, "")).collect();
            rows.push(row(&format!("{}, {title}", contender.name), &bits));
            let points = LAYERS.iter().map(|&layers| f64::from(layers)).zip(bits);
            lines.push((format!("{}, {title}", contender.name), points.collect()));
        }
    }
    for contender in contender::filters().iter().filter(|one| one.name == OURS) {
        for (rate, title) in RATES {
            let bits = LAYERS.map(|layers| bits_per_item(contender, rate, layers, "COUNTING"));
            rows.push(row(&format!("{OURS} COUNTING, {title}"), &bits));
        }
    }
    let head: Vec<String> =
        ["layers".to_owned()].into_iter().chain(LAYERS.map(|layers| layers.to_string())).collect();
    section.table(&head, &rows);
    section.plot(Plot {
        file: "memory",
        title: "Bits per item of a full filter".into(),
        x_label: "layers",
        y_label: "bits per item",
        lines,
    });
    Some(section)
}

fn row(title: &str, bits: &[f64]) -> Vec<String> {
    let cells = bits.iter().map(|bits| format!("{bits:.1}"));
    [title.to_owned()].into_iter().chain(cells).collect()
}

fn bits_per_item(contender: &Contender, rate: &str, layers: u32, option: &str) -> f64 {
    let first = if layers > 12 { 100 } else { 1000 };
    let mut rival = Rival::with_filter(contender, 1, &[]);
    rival.server.run::<()>("DEL k");
    rival.server.run::<()>(&format!("BF.RESERVE k {rate} {first} EXPANSION 2 {option}"));
    // The capacity of the layers before the last, and 3 % for items that test positive and are not
    // counted.
    let before = first * ((1_u64 << (layers - 1)) - 1);
    let wanted = before + before * 3 / 100;
    for start in (0..wanted).step_by(500_000) {
        let numbers = start..wanted.min(start + 500_000);
        rival.work(Op::Add, &Items::InTurn { set: MEMBERS, numbers }, 1000);
    }
    let fields: Vec<redis::Value> = rival.server.run("BF.INFO k");
    let field = |name: &str| {
        let at = fields.iter().position(|field| matches!(text(field), Some(text) if text == name));
        match at.and_then(|at| fields.get(at + 1)) {
            Some(redis::Value::Int(number)) => *number as f64,
            _ => panic!("{}: BF.INFO has no {name}", contender.name),
        }
    };
    assert_eq!(
        field("Number of filters"),
        f64::from(layers),
        "{} has another number of layers",
        contender.name
    );
    field("Size") * 8.0 / field("Capacity")
}

fn text(value: &redis::Value) -> Option<String> {
    redis::from_redis_value_ref(value).ok()
}
