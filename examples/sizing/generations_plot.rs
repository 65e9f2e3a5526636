//! docs/pictures/windows-generations.svg: the generations of a window of one day, under a load that
//! rises, stops and comes back.

use plotters::prelude::*;
use redis_bloom::filter::{Rules, Span};

use crate::{
    draw::{Area, BAND, BLUE, GREEN, INK, Outcome, YELLOW, font, picture, style_mesh},
    paged::{BEGIN, DAY, Stream},
    tables::grouped,
};

const GENERATIONS: u8 = 4;
/// Items a day that the filter is reserved for.
const PLANNED: u64 = 96_000;
/// Steps of a day, and the items of a step of the planned load.
const STEPS: u32 = 480;
const ITEMS: u64 = PLANNED / STEPS as u64;
const DAYS: f64 = 5.5;

/// The load at a moment, in times of the planned one.
fn load(day: f64) -> u64 {
    match day {
        1.5..1.75 => 3,
        3.0..4.4 => 0,
        _ => 1,
    }
}

/// What one generation did, in days.
struct Bar {
    start: f64,
    last_addition: f64,
    /// When it was dropped; `DAYS` if it was not.
    dropped: f64,
    items: u64,
}

/// The filter at one moment.
struct Point {
    day: f64,
    remembered: f64,
    bytes: f64,
}

fn follow() -> (Vec<Bar>, Vec<Point>) {
    let rules = Rules { span: Span::Time(DAY), generations: GENERATIONS, refresh: true };
    let mut stream = Stream::new(0.01, PLANNED, 2, false, Some(rules));
    let (mut bars, mut points) = (Vec::<Bar>::new(), Vec::new());
    let mut present = 0;
    for step in 0..(DAYS * f64::from(STEPS)) as u64 {
        let day = step as f64 / f64::from(STEPS);
        let now = BEGIN + (step * DAY / u64::from(STEPS)) as i64;
        let load = load(day);
        if load > 0 {
            stream.add(load * ITEMS, now);
            let generations = &stream.filter.window().expect("a window").generations;
            let newest = generations.last().expect("a generation");
            if newest.start == now {
                bars.push(Bar { start: day, last_addition: day, dropped: DAYS, items: 0 });
            }
            let first = bars.len() - generations.len();
            bars[present..first].iter_mut().for_each(|bar| bar.dropped = day);
            present = first;
            if let Some(bar) = bars.last_mut() {
                (bar.last_addition, bar.items) = (day, newest.items);
            }
        }
        points.push(Point {
            day,
            remembered: stream.filter.items(now) as f64,
            bytes: stream.filter.bytes() as f64,
        });
    }
    (bars, points)
}

pub(crate) fn draw() -> Outcome<String> {
    let (bars, points) = follow();
    picture(
        (1600, 1560),
        "A window of one day, in 4 parts: each generation is forgotten after 30 hours",
        "Reserved for 96,000 items a day at 1 %. Three times the planned load from day 1.5 to \
         1.75, none from day 3 to 4.4",
        |area| {
            let (top, rest) = area.split_vertically(780);
            let (middle, bottom) = rest.split_vertically(300);
            generations(&top, &bars)?;
            let remembered = ("remembered items: BF.CARD", GREEN);
            let label = |items: f64| grouped(items as u64);
            line(&middle, &points, |point| point.remembered, remembered, "", label)?;
            let bytes = ("memory: BF.INFO key SIZE", BLUE);
            let label = |bytes: f64| format!("{:.0} kB", bytes / 1e3);
            line(&bottom, &points, |point| point.bytes, bytes, "days", label)
        },
    )
}

/// A bar for each generation.
fn generations(area: &Area<'_>, bars: &[Bar]) -> Outcome {
    const LIGHT: RGBColor = RGBColor(0x8F, 0xC6, 0xE8);
    let count = bars.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .margin_top(20)
        .margin_right(40)
        .x_label_area_size(50)
        .y_label_area_size(130)
        .build_cartesian_2d(0.0..DAYS, 0.0..count)?;
    style_mesh(&mut chart.configure_mesh())
        .disable_y_mesh()
        .disable_y_axis()
        .x_labels(12)
        .x_label_formatter(&|day| format!("{day}"))
        .draw()?;
    for (number, bar) in bars.iter().enumerate() {
        let level = count - number as f64;
        let dies = bar.start + 1.0 + 1.0 / f64::from(GENERATIONS);
        let mut part = |from: f64, to: f64, style: ShapeStyle| -> Outcome {
            let to = to.min(DAYS);
            if from < to {
                let corners = [(from, level - 0.85), (to, level - 0.1)];
                chart.draw_series([Rectangle::new(corners, style)])?;
            }
            Ok(())
        };
        part(bar.start, bar.last_addition, BLUE.filled())?;
        part(bar.last_addition, dies, LIGHT.filled())?;
        part(dies, bar.dropped, YELLOW.filled())?;
        // Beyond the right edge there is no room for it.
        if dies <= DAYS {
            let text = grouped(bar.items);
            let at = (bar.last_addition + 0.03, level - 0.475);
            chart.draw_series([Text::new(text, at, font(24, INK))])?;
        }
    }
    let legend = [
        (BLUE, "takes additions"),
        (LIGHT, "alive, with its number of items"),
        (YELLOW, "forgotten; its memory is freed by the next addition"),
    ];
    for (row, (color, text)) in (0..).zip(legend) {
        let level = 0.6 + 1.1 * f64::from(2 - row);
        let square = [(0.05, level - 0.35), (0.13, level + 0.35)];
        chart.draw_series([Rectangle::new(square, color.filled())])?;
        chart.draw_series([Text::new(text, (0.17, level), font(26, INK))])?;
    }
    Ok(())
}

/// A number over time.
fn line(
    area: &Area<'_>,
    points: &[Point],
    value: fn(&Point) -> f64,
    (text, color): (&str, RGBColor),
    description: &str,
    label: fn(f64) -> String,
) -> Outcome {
    let top = points.iter().map(value).fold(0.0, f64::max) * 1.25;
    let mut chart = ChartBuilder::on(area)
        .margin_top(20)
        .margin_right(40)
        .x_label_area_size(if description.is_empty() { 50 } else { 80 })
        .y_label_area_size(130)
        .build_cartesian_2d(0.0..DAYS, 0.0..top)?;
    chart.draw_series([Rectangle::new([(3.0, 0.0), (4.4, top)], BAND.filled())])?;
    style_mesh(&mut chart.configure_mesh())
        .x_labels(12)
        .x_label_formatter(&|day| format!("{day}"))
        .x_desc(description)
        .y_labels(5)
        .y_label_formatter(&|value| label(*value))
        .draw()?;
    let values = points.iter().map(|point| (point.day, value(point)));
    chart.draw_series(LineSeries::new(values, color.stroke_width(4)))?;
    chart.draw_series([Text::new(text.to_owned(), (0.05, top * 0.9), font(26, color))])?;
    Ok(())
}
