//! docs/windows-rate.svg: the rate of a window under a steady load, from its first item to the end
//! of the third window.

use plotters::prelude::*;
use redis_bloom::filter::Span;

use crate::{
    draw::{Align, Area, BAND, BLUE, GREEN, Outcome, RED, SOFT, font, picture, style_mesh},
    measure::{rate_by_bits, wrong},
    windows::{BEGIN, DAY, Stream},
};

const RATE: f64 = 0.01;
const CAPACITY: u64 = 96_000;
/// Windows that pass: the filter fills in the first one.
const WINDOWS: u64 = 3;
/// Points of a curve in a window; every `ASKED_EVERY`th is also measured by queries.
const POINTS: u64 = 240;
const ASKED_EVERY: u64 = 12;
/// 10,000 wrong answers at the requested rate have a standard error of 1 %. Each point queries
/// other items.
const QUERIES: u64 = (10_000.0 / RATE) as u64;

/// A window at one moment.
struct Point {
    /// The moment, in windows.
    time: f64,
    by_bits: f64,
    measured: Option<f64>,
}

/// Adds as many items as planned, evenly spread. The last point before a generation opens is the
/// worst moment.
fn follow(expansion: u64, span: Span, generations: u8) -> Vec<Point> {
    let mut stream = Stream::new(RATE, CAPACITY, expansion, span, generations);
    (1..=WINDOWS * POINTS)
        .map(|point| {
            // In the middle of the step, so that no generation starts at its end.
            let now = BEGIN + ((point * 2 - 1) * DAY / (2 * POINTS)) as i64;
            stream.add(CAPACITY / POINTS, now);
            let filter = stream.window.filter();
            let queries = point * QUERIES..(point + 1) * QUERIES;
            Point {
                time: point as f64 / POINTS as f64,
                by_bits: rate_by_bits(filter) / RATE,
                measured: (point % ASKED_EVERY == 0).then(|| wrong(filter, queries) / RATE),
            }
        })
        .collect()
}

pub(crate) fn draw() -> Outcome<String> {
    picture(
        (1600, 1460),
        "The false positive rate of a window over two windows of steady load",
        "Reserved for 96,000 items at 1 %, and filled at that pace. Line: by the bits that are \
         set. Dots: measured, by asking for items that were not added",
        |area| {
            let (first, rest) = area.split_vertically(440);
            let (second, third) = rest.split_vertically(440);
            let items = follow(0, Span::Items, 4);
            rates(&first, "the last 96,000 items, 4 generations", BLUE, &items, "")?;
            let time = follow(2, Span::Time(DAY), 4);
            rates(&second, "a window of time that may grow, 4 generations", GREEN, &time, "")?;
            let fine = follow(2, Span::Time(DAY), 12);
            let text = "a window of time that may grow, 12 generations";
            rates(&third, text, GREEN, &fine, "windows that have passed")
        },
    )
}

fn rates(
    area: &Area<'_>,
    text: &'static str,
    color: RGBColor,
    points: &[Point],
    description: &str,
) -> Outcome {
    const TOP: f64 = 1.25;
    let end = WINDOWS as f64;
    let mut chart = ChartBuilder::on(area)
        .margin_top(20)
        .margin_right(40)
        .x_label_area_size(if description.is_empty() { 50 } else { 80 })
        .y_label_area_size(130)
        .build_cartesian_2d(0.0..end, 0.0..TOP)?;
    chart.draw_series([Rectangle::new([(0.0, 0.0), (1.0, TOP)], BAND.filled())])?;
    style_mesh(&mut chart.configure_mesh())
        .x_labels(7)
        .x_label_formatter(&|time| format!("{time}"))
        .x_desc(description)
        .y_labels(6)
        .y_label_formatter(&|share| format!("{:.2} %", share * RATE * 100.0))
        .draw()?;
    let line = [(0.0, 1.0), (end, 1.0)];
    chart.draw_series(DashedLineSeries::new(line, 16, 10, RED.stroke_width(4)))?;
    let by_bits = points.iter().map(|point| (point.time, point.by_bits));
    chart.draw_series(LineSeries::new(by_bits, color.stroke_width(4)))?;
    let dots = points.iter().filter_map(|point| Some((point.time, point.measured?)));
    chart.draw_series(dots.map(|at| Circle::new(at, 7, color.filled())))?;
    for (text, at, color) in [
        (text, (0.03, 1.14), color),
        ("asked for: 1 %", (2.6, 1.08), RED),
        ("the first window: the filter fills", (0.28, 0.07), SOFT),
    ] {
        chart.draw_series([Text::new(text, at, font(26, color, Align::Left))])?;
    }
    Ok(())
}
