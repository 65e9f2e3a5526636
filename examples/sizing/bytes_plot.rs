//! docs/pictures/sizing-bytes.svg: the size of a reserved filter, in bytes and in bits per item.

use plotters::{
    coord::{
        combinators::WithKeyPoints,
        ranged1d::{AsRangedCoord, Ranged, ValueFormatter},
    },
    prelude::*,
};

use crate::{
    draw::{
        Area, BLUE, GREEN, INK, Outcome, PINK, RED, SOFT, YELLOW, font, picture, style_mesh, write,
    },
    measure::{redisbloom, size},
    tables::rate_text,
};

const FROM: f64 = 1_000.0;
const TO: f64 = 1e9;
/// Points of a curve per factor of ten.
const POINTS: u32 = 100;

const RATES: [(f64, RGBColor); 5] =
    [(1e-6, PINK), (1e-4, YELLOW), (0.001, GREEN), (0.01, BLUE), (0.1, RED)];

/// Items and bytes.
fn curve(rate: f64) -> impl Iterator<Item = (f64, f64)> {
    let count = ((TO / FROM).log10() * f64::from(POINTS)) as u32;
    (0..=count).map(move |i| {
        let items = (FROM * 10_f64.powf(f64::from(i) / f64::from(POINTS))).round();
        (items, size(rate, items as u64, true) as f64)
    })
}

pub(crate) fn draw() -> Outcome<String> {
    picture(
        (1600, 1420),
        "What a filter costs, by the number of items that it is reserved for",
        "Lines: BF.INFO key SIZE of a new filter · dashes: RedisBloom's formula, for the bits \
         alone",
        |area| {
            let (top, bottom) = area.split_vertically(590);
            bytes(&top)?;
            bits(&bottom)
        },
    )
}

/// The powers of ten that the axes show.
fn powers() -> Vec<f64> {
    (3..=9).map(|power| 10_f64.powi(power)).collect()
}

/// The name of a power of ten: 1e7 is 10 million, or 10 MB.
fn power_text(value: f64, units: [&str; 4]) -> String {
    let power = value.log10().round() as u32;
    let unit = units[(power / 3).min(3) as usize];
    format!("{}{unit}", 10_u32.pow(power % 3))
}

fn item_text(items: f64) -> String {
    power_text(items, ["", ",000", " million", " billion"])
}

type Items = WithKeyPoints<LogCoord<f64>>;

/// Axes: items on the x axis.
fn axes<'a, 'b, Y>(
    area: &'a Area<'b>,
    upwards: impl AsRangedCoord<CoordDescType = Y, Value = f64>,
    label: impl Fn(f64) -> String,
    description: &str,
) -> Outcome<ChartContext<'a, SVGBackend<'b>, Cartesian2d<Items, Y>>>
where
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .margin_top(20)
        .margin_right(130)
        .x_label_area_size(if description.is_empty() { 50 } else { 80 })
        .y_label_area_size(130)
        .build_cartesian_2d((FROM..TO).log_scale().with_key_points(powers()), upwards)?;
    style_mesh(&mut chart.configure_mesh())
        .label_style(("sans-serif", 24).into_font().color(&SOFT))
        .x_labels(20)
        .x_label_formatter(&|items| item_text(*items))
        .x_desc(description)
        .y_labels(10)
        .y_label_formatter(&|value| label(*value))
        .draw()?;
    Ok(chart)
}

/// The pixel at the right end of a curve whose last value is `value`.
fn pixel<Y>(
    area: &Area<'_>,
    chart: &ChartContext<'_, SVGBackend<'_>, Cartesian2d<Items, Y>>,
    value: f64,
) -> (i32, i32)
where
    Y: Ranged<ValueType = f64>,
{
    let (x, y) = chart.backend_coord(&(TO, value));
    let (left, top) = area.get_base_pixel();
    (x - left, y - top)
}

fn bytes(area: &Area<'_>) -> Outcome {
    const LEAST: f64 = 100.0;
    let label = |bytes| power_text(bytes, [" B", " kB", " MB", " GB"]);
    let mut chart = axes(area, (LEAST..1e10).log_scale().with_key_points(powers()), label, "")?;
    for (i, (rate, color)) in RATES.into_iter().enumerate() {
        chart.draw_series(LineSeries::new(curve(rate), color.stroke_width(4)))?;
        let formula = redisbloom(rate, 0, true) / 8.0;
        let line = [FROM.max(LEAST / formula), TO].map(|items| (items, items * formula));
        chart.draw_series(DashedLineSeries::new(line, 8, 16, INK.stroke_width(2)))?;
        // The lines end closer together than their names can stand, so a short line leads to each
        // name.
        let end = |rate| pixel(area, &chart, size(rate, TO as u64, true) as f64);
        let (right, from) = end(rate);
        let to = end(RATES[RATES.len() / 2].0).1 + 32 * (i as i32 - RATES.len() as i32 / 2);
        let lead = [(right + 2, from), (right + 24, to)];
        area.draw(&PathElement::new(lead, color.stroke_width(2)))?;
        write(area, &rate_text(rate), (right + 30, to), font(26, color))?;
    }
    Ok(())
}

fn bits(area: &Area<'_>) -> Outcome {
    const MOST: f64 = 44.0;
    let mut chart = axes(
        area,
        0.0..MOST,
        |bits| format!("{bits} bits"),
        "items that the filter is reserved for",
    )?;
    for (rate, color) in RATES {
        let bits = curve(rate).map(|(items, bytes)| (items, bytes * 8.0 / items));
        chart
            .draw_series(LineSeries::new(bits.filter(|at| at.1 <= MOST), color.stroke_width(4)))?;
        let formula = redisbloom(rate, 0, true);
        let line = [(FROM, formula), (TO, formula)];
        chart.draw_series(DashedLineSeries::new(line, 8, 16, INK.stroke_width(2)))?;
        let (right, level) = pixel(area, &chart, size(rate, TO as u64, true) as f64 * 8.0 / TO);
        write(area, &rate_text(rate), (right + 10, level), font(26, color))?;
    }
    Ok(())
}
