//! docs/pictures/sizing-growth.svg: memory and rate of a filter that was not reserved, and of one
//! that holds more items than it was reserved for.

use plotters::{
    coord::{combinators::WithKeyPoints, types::RangedCoordf64},
    prelude::*,
};

use crate::{
    draw::{Area, BLUE, GREEN, INK, Outcome, RED, font, picture, style_mesh},
    measure::{Filling, filter, size, wrong},
    paged::{Stream, redisbloom_stack},
    tables::{item_text, rate_text},
};

const FROM: f64 = 100.0;
const TO: f64 = 1e7;
/// Points of a curve; every `ASKED_EVERY`th is also measured by queries.
const POINTS: u32 = 600;
const ASKED_EVERY: u32 = 40;
/// Items that the second filter is reserved for.
const RESERVED: u64 = 100_000;
/// 10,000 wrong answers at 1 % have a standard error of 1 %.
const QUERIES: u64 = 1_000_000;

type Curve = Vec<(f64, f64)>;
type Chart<'a, 'b> =
    ChartContext<'a, SVGBackend<'b>, Cartesian2d<WithKeyPoints<LogCoord<f64>>, RangedCoordf64>>;

/// The numbers of items at the points.
fn items() -> impl Iterator<Item = (u32, u64)> {
    let at = |i| FROM * (TO / FROM).powf(f64::from(i) / f64::from(POINTS));
    (0..=POINTS).map(move |i| (i, at(i).round() as u64))
}

/// Bits an item of a filter while it is filled, and if it `measures` rates, these.
fn follow(rate: f64, reserved: bool, measures: bool) -> (Curve, Curve) {
    let (mut bits, mut rates) = (Vec::new(), Vec::new());
    let mut plain = Filling::new(filter(rate, RESERVED, 2, 0));
    let mut stream =
        if reserved { Stream::overflowing(rate, RESERVED) } else { Stream::growing(rate) };
    for (point, items) in items() {
        let is_plain = reserved && items <= RESERVED;
        let of_item = if is_plain {
            size(rate, RESERVED, true) as f64 * 8.0 / items as f64
        } else {
            stream.up_to(items);
            stream.bits()
        };
        bits.push((items as f64, of_item));
        if measures && point % ASKED_EVERY == ASKED_EVERY / 2 {
            // Each point queries other items.
            let numbers = u64::from(point) * QUERIES..u64::from(point + 1) * QUERIES;
            let measured = if is_plain {
                plain.up_to(items);
                wrong(&plain.filter, numbers)
            } else {
                stream.wrong(numbers)
            };
            rates.push((items as f64, measured));
        }
    }
    (bits, rates)
}

pub(crate) fn draw() -> Outcome<String> {
    picture(
        (1600, 1460),
        "A filter that grows takes about 16 bits an item at 1 %, 20 at 0.1 %, and keeps its rate",
        "Memory: BF.INFO key SIZE, and RedisBloom's formula. Rate: measured with items that were \
         not added",
        |area| {
            let (first, rest) = area.split_vertically(440);
            let (second, third) = rest.split_vertically(440);
            let (growing, reserved) = (follow(0.01, false, true), follow(0.01, true, true));
            memory(&first, 0.01, &growing.0, &reserved.0)?;
            let of = |reserved| follow(0.001, reserved, false).0;
            memory(&second, 0.001, &of(false), &of(true))?;
            rates(&third, &growing.1, &reserved.1)
        },
    )
}

fn axes<'a, 'b>(
    area: &'a Area<'b>,
    top: f64,
    label: impl Fn(f64) -> String,
    description: &str,
) -> Outcome<Chart<'a, 'b>> {
    let ticks = (2..=7).map(|power| 10_f64.powi(power)).collect();
    let mut chart = ChartBuilder::on(area)
        .margin_top(20)
        .margin_right(80)
        .x_label_area_size(if description.is_empty() { 50 } else { 80 })
        .y_label_area_size(130)
        .build_cartesian_2d((FROM..TO).log_scale().with_key_points(ticks), 0.0..top)?;
    style_mesh(&mut chart.configure_mesh())
        .x_labels(20)
        .x_label_formatter(&|items| item_text(items.round() as u64))
        .x_desc(description)
        .y_labels(6)
        .y_label_formatter(&|value| label(*value))
        .draw()?;
    Ok(chart)
}

fn memory(area: &Area<'_>, rate: f64, growing: &Curve, reserved: &Curve) -> Outcome {
    const TOP: f64 = 80.0;
    let mut chart = axes(area, TOP, |bits| format!("{bits} bits"), "")?;
    let stack = items().map(|(_, items)| (items as f64, redisbloom_stack(rate, 100, items)));
    let stack = stack.filter(|at| at.1 <= TOP);
    chart.draw_series(LineSeries::new(stack, INK.stroke_width(2)))?;
    for (curve, color) in [(reserved, GREEN), (growing, BLUE)] {
        let curve = curve.iter().copied().filter(|at| at.1 <= TOP);
        chart.draw_series(LineSeries::new(curve, color.stroke_width(4)))?;
    }
    // Below all lines.
    for (text, items, color) in [
        (format!("at {}: not reserved", rate_text(rate)), 120.0, BLUE),
        ("reserved for 100,000 items".to_owned(), 6_000.0, GREEN),
        ("RedisBloom, reserved for 100 items".to_owned(), 130_000.0, INK),
    ] {
        chart.draw_series([Text::new(text, (items, 6.0), font(26, color))])?;
    }
    Ok(())
}

fn rates(area: &Area<'_>, growing: &Curve, reserved: &Curve) -> Outcome {
    const RATE: f64 = 0.01;
    let mut chart =
        axes(area, RATE * 1.25, |rate| format!("{:.2} %", rate * 100.0), "items in the filter")?;
    let line = [(FROM, RATE), (TO, RATE)];
    chart.draw_series(DashedLineSeries::new(line, 16, 10, RED.stroke_width(4)))?;
    for (points, color) in [(reserved, GREEN), (growing, BLUE)] {
        chart.draw_series(points.iter().map(|&at| Circle::new(at, 8, color.filled())))?;
    }
    for (text, level, color) in [
        ("the error rate you set: 1 %", 0.0112, RED),
        ("not reserved", 0.0075, BLUE),
        ("reserved for 100,000 items", 0.006, GREEN),
    ] {
        chart.draw_series([Text::new(text, (FROM * 1.2, level), font(26, color))])?;
    }
    Ok(())
}
