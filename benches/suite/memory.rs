//! Bits per item of filters that are exactly full, as `BF.INFO` tells them, by number of layers.
//!
//! Each filter starts at 1,000 items (100 for 17 layers, which would be 131 million items) and
//! doubles. So most items lie in the last layers, and the figures show what a late layer costs.

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
        "Bits per item at capacity, `BF.INFO` Size over Capacity, by the number of layers. A filter starts at 1,000 items (at \
         100 for 17 layers) and doubles. A classic filter that was sized right needs 9.6 bits at 1 % and 14.4 at 0.1 %, and \
         cannot grow. A filter that counts has four bits for each of these.",
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
    // What the layers before the last hold, and 3 % for those that test positive and are not
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
        "{} has grown otherwise",
        contender.name
    );
    field("Size") * 8.0 / field("Capacity")
}

fn text(value: &redis::Value) -> Option<String> {
    redis::from_redis_value_ref(value).ok()
}
