//! docs/pictures/sizing-bytes.svg: the size of a reserved filter, in bits per item.

use plotters::prelude::*;

use crate::{
    draw::{
        Area, BLUE, GREEN, INK, Outcome, PINK, RED, SOFT, YELLOW, font, picture, style_mesh, write,
    },
    measure::{redisbloom, size},
    tables::{item_text, rate_text},
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
        (1600, 840),
        "A reserved filter takes 6 bits an item at 10 %, 11 at 1 %, 16 at 0.1 %: at any size",
        "Lines: BF.INFO key SIZE of a new filter · dashes: RedisBloom's formula, for the bits \
         alone",
        bits,
    )
}

/// The powers of ten that the x axis shows.
fn powers() -> Vec<f64> {
    (3..=9).map(|power| 10_f64.powi(power)).collect()
}

fn bits(area: &Area<'_>) -> Outcome {
    const MOST: f64 = 35.0;
    let mut chart = ChartBuilder::on(area)
        .margin_top(20)
        .margin_right(130)
        .x_label_area_size(80)
        .y_label_area_size(130)
        .build_cartesian_2d((FROM..TO).log_scale().with_key_points(powers()), 0.0..MOST)?;
    style_mesh(&mut chart.configure_mesh())
        .label_style(("sans-serif", 24).into_font().color(&SOFT))
        .x_labels(20)
        .x_label_formatter(&|items| item_text(items.round() as u64))
        .x_desc("items that the filter is reserved for")
        .y_labels(8)
        .y_label_formatter(&|bits| format!("{bits} bits"))
        .draw()?;
    for (rate, color) in RATES {
        let bits = curve(rate).map(|(items, bytes)| (items, bytes * 8.0 / items));
        chart.draw_series(LineSeries::new(bits, color.stroke_width(4)))?;
        let formula = redisbloom(rate, 0, true);
        let line = [(FROM, formula), (TO, formula)];
        chart.draw_series(DashedLineSeries::new(line, 8, 16, INK.stroke_width(2)))?;
        let (x, y) = chart.backend_coord(&(TO, size(rate, TO as u64, true) as f64 * 8.0 / TO));
        let (left, top) = area.get_base_pixel();
        write(area, &rate_text(rate), (x - left + 10, y - top), font(26, color))?;
    }
    Ok(())
}
