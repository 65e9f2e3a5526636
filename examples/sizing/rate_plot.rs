//! docs/sizing-rate.svg: the rate of a filter from its first items to the end of its fifth layer.

use plotters::{
    coord::{combinators::WithKeyPoints, types::RangedCoordf64},
    prelude::*,
};
use redis_bloom::filter::{Estimate, layer_rate};

use crate::{
    draw::{Align, Area, BAND, BLUE, GREEN, Outcome, RED, SOFT, font, picture, style_mesh},
    measure::{Filling, capacity_of, filter, wrong},
    tables::rate_text,
};

const CAPACITY: u64 = 100_000;
const EXPANSION: u64 = 2;
const LAYERS: usize = 5;
/// The first point, in items as a share of the capacity.
const FROM: f64 = 0.1;
/// Points of the curve; every `ASKED_EVERY`th is also measured by queries.
const POINTS: u32 = 400;
const ASKED_EVERY: u32 = 16;

/// A filter at one moment.
struct Point {
    /// Items as a multiple of the capacity reserved.
    load: f64,
    estimate: Estimate,
    measured: Option<f64>,
}

/// Fills one filter, and samples it on the way.
fn follow(rate: f64) -> Vec<Point> {
    // 10,000 wrong answers at the requested rate have a standard error of 1 %. Each point queries
    // other items.
    let queries = (10_000.0 / rate) as u64;
    let asked = |i: u32| u64::from(i) * queries..u64::from(i + 1) * queries;
    let last = capacity_of(LAYERS, CAPACITY, EXPANSION) as f64;
    let first = FROM * CAPACITY as f64;
    let mut filling = Filling::new(filter(rate, CAPACITY, EXPANSION, 1));
    (0..=POINTS)
        .map(|i| {
            let items = first * (last / first).powf(f64::from(i) / f64::from(POINTS));
            filling.up_to(items.round() as u64);
            Point {
                load: filling.filter.items() as f64 / CAPACITY as f64,
                estimate: filling.filter.estimate(),
                measured: (i % ASKED_EVERY == ASKED_EVERY / 2)
                    .then(|| wrong(&filling.filter, asked(i))),
            }
        })
        .collect()
}

/// Items at which the first `count` layers are full, as a multiple of the capacity reserved.
fn full(count: usize) -> f64 {
    capacity_of(count, CAPACITY, EXPANSION) as f64 / CAPACITY as f64
}

pub(crate) fn draw() -> Outcome<String> {
    picture(
        (1600, 1460),
        "The false positive rate of a filter that outgrows its plan",
        "Reserved for 100,000 items with EXPANSION 2, filled to 3.1 million",
        |area| {
            let (first, rest) = area.split_vertically(500);
            let (second, third) = rest.split_vertically(500);
            rates(&first, 0.01, &follow(0.01))?;
            let points = follow(0.001);
            rates(&second, 0.001, &points)?;
            fill(&third, &points)
        },
    )
}

type Chart<'a, 'b> =
    ChartContext<'a, SVGBackend<'b>, Cartesian2d<WithKeyPoints<LogCoord<f64>>, RangedCoordf64>>;

/// Axes: items on the x axis, values from 0 to `top` on the y axis, and a band for every second
/// layer.
fn axes<'a, 'b>(
    area: &'a Area<'b>,
    top: f64,
    label: impl Fn(f64) -> String,
    labels: usize,
    description: &str,
) -> Outcome<Chart<'a, 'b>> {
    let ticks = [0.1, 0.2, 0.5].into_iter().chain((1..=LAYERS).map(full));
    let mut chart = ChartBuilder::on(area)
        .margin_top(10)
        .margin_right(30)
        .x_label_area_size(if description.is_empty() { 50 } else { 80 })
        .y_label_area_size(130)
        .build_cartesian_2d(
            (FROM..full(LAYERS)).log_scale().with_key_points(ticks.collect()),
            0.0..top,
        )?;
    chart.draw_series((1..LAYERS).step_by(2).map(|index| {
        Rectangle::new([(full(index), 0.0), (full(index + 1), top)], BAND.filled())
    }))?;
    style_mesh(&mut chart.configure_mesh())
        .disable_x_mesh()
        .x_labels(20)
        .x_label_formatter(&|load| format!("{load}"))
        .x_desc(description)
        .y_labels(labels)
        .y_label_formatter(&|value| label(*value))
        .draw()?;
    Ok(chart)
}

/// The rate, as a share of the requested rate: shares of the layers, estimates, measurements.
fn rates(area: &Area<'_>, asked: f64, points: &[Point]) -> Outcome {
    let label = |share: f64| {
        if share == 0.0 { "0".to_owned() } else { rate_text(share * asked) }
    };
    let mut chart = axes(area, 1.19, label, 7, "")?;
    for index in 0..LAYERS {
        let from = if index == 0 { FROM } else { full(index) };
        let name = match index {
            0 => "1 layer".to_owned(),
            _ => format!("{} layers", index + 1),
        };
        let middle = (from * full(index + 1)).sqrt();
        chart.draw_series([Text::new(name, (middle, 1.13), font(26, SOFT, Align::Middle))])?;
        let promised: f64 = (0..=index).map(|layer| layer_rate(1.0, layer, true)).sum();
        let step = [(from, promised), (full(index + 1), promised)];
        chart.draw_series(LineSeries::new(step, SOFT.stroke_width(2)))?;
    }
    let line = [(FROM, 1.0), (full(LAYERS), 1.0)];
    chart.draw_series(DashedLineSeries::new(line, 16, 10, RED.stroke_width(4)))?;
    let estimates = points.iter().map(|point| (point.load, point.estimate.error_rate / asked));
    chart.draw_series(LineSeries::new(estimates, BLUE.stroke_width(4)))?;
    let dots = points.iter().filter_map(|point| Some((point.load, point.measured? / asked)));
    chart.draw_series(dots.map(|at| Circle::new(at, 8, BLUE.filled())))?;
    for (text, at, color) in [
        (format!("asked for: {}", rate_text(asked)), (FROM * 1.04, 1.06), RED),
        ("the shares of the layers so far".to_owned(), (FROM * 1.04, 0.81), SOFT),
        (
            "line: estimated from the bits that are set, BF.INFO key FPR".to_owned(),
            (1.25, 0.50),
            BLUE,
        ),
        ("dots: measured, by asking for items that were not added".to_owned(), (1.25, 0.41), BLUE),
    ] {
        chart.draw_series([Text::new(text, at, font(26, color, Align::Left))])?;
    }
    Ok(())
}

/// The share of bits set.
fn fill(area: &Area<'_>, points: &[Point]) -> Outcome {
    let label = |share: f64| format!("{:.0} %", share * 100.0);
    let mut chart = axes(
        area,
        0.59,
        label,
        4,
        "items, as a multiple of those that the filter was reserved for",
    )?;
    let fills = points.iter().map(|point| (point.load, point.estimate.fill));
    chart.draw_series(LineSeries::new(fills, GREEN.stroke_width(4)))?;
    let text = "bits set, of those of all layers, BF.INFO key FILL";
    chart.draw_series([Text::new(text, (FROM * 1.04, 0.51), font(26, GREEN, Align::Left))])?;
    Ok(())
}
