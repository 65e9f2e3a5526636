//! Lines over a logarithmic axis, as SVG.

use std::path::Path;

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

/// A plot to be drawn.
pub(crate) struct Plot {
    /// Name of the SVG file, without the extension.
    pub(crate) file: &'static str,
    pub(crate) title: String,
    pub(crate) x_label: &'static str,
    pub(crate) y_label: &'static str,
    /// Name and points of each line, x above 0.
    pub(crate) lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// Distinguishable by people with any common colour vision (Okabe and Ito, 2008).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

impl Plot {
    pub(crate) fn draw(&self, path: &Path) {
        let outcome = self.try_draw(path);
        outcome.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    fn try_draw(&self, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
        let points = || self.lines.iter().flat_map(|(_, points)| points);
        let mut measured: Vec<f64> = points().map(|point| point.0).collect();
        measured.sort_by(f64::total_cmp);
        measured.dedup();
        let (least, most) = (measured[0], measured[measured.len() - 1]);
        let top = points().map(|point| point.1).fold(0.0, f64::max);
        let area = SVGBackend::new(path, (800, 420)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 18))
            .margin(12)
            .margin_right(190)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(
                (least..most).log_scale().with_key_points(measured.clone()),
                0.0..top * 1.1,
            )?;
        chart
            .configure_mesh()
            .x_desc(self.x_label)
            .y_desc(self.y_label)
            .x_labels(measured.len())
            .x_label_formatter(&|number| grouped(*number))
            .y_label_formatter(&|number| grouped(*number))
            .light_line_style(WHITE)
            .draw()?;
        let mut names = Vec::new();
        for (i, (name, points)) in self.lines.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            chart.draw_series(
                LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(3),
            )?;
            let end = points.last().copied().unwrap_or((most, 0.0));
            names.push((chart.backend_coord(&end), name, colour));
        }
        // Each line has its name at its end. Names of lines that end close together move down.
        names.sort_by_key(|((_, y), ..)| *y);
        let mut free = 0;
        for ((x, y), name, colour) in names {
            let y = y.max(free);
            free = y + 16;
            let style = ("sans-serif", 13).into_font().color(&colour);
            let style = style.pos(Pos::new(HPos::Left, VPos::Center));
            area.draw(&Text::new(name.clone(), (x + 10, y), style))?;
        }
        area.present()?;
        Ok(())
    }
}

/// A whole number with commas.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
