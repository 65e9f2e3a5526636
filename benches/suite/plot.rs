//! Lines over a logarithmic axis, as SVG.

use std::path::Path;

use plotters::prelude::*;

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
        let least = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
        let most = points().map(|point| point.0).fold(0.0, f64::max);
        let top = points().map(|point| point.1).fold(0.0, f64::max);
        let area = SVGBackend::new(path, (800, 420)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d((least..most).log_scale(), 0.0..top * 1.1)?;
        chart
            .configure_mesh()
            .x_desc(self.x_label)
            .y_desc(self.y_label)
            .light_line_style(WHITE)
            .draw()?;
        for (i, (name, points)) in self.lines.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            chart
                .draw_series(
                    LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(3),
                )?
                .label(name)
                .legend(move |(x, y)| {
                    Rectangle::new([(x, y - 4), (x + 12, y + 4)], colour.filled())
                });
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK)
            .draw()?;
        area.present()?;
        Ok(())
    }
}
