//! The plots, as SVG: dark lines on white, legible on any page. They are drawn at twice the size
//! shown, because coordinates are integers.

use std::error::Error;

use plotters::{
    chart::MeshStyle,
    coord::{Shift, ranged1d::ValueFormatter},
    prelude::*,
};

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error>>;
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub(crate) const INK: RGBColor = RGBColor(0x1F, 0x23, 0x28);
pub(crate) const SOFT: RGBColor = RGBColor(0x59, 0x63, 0x6E);
pub(crate) const GRID: RGBColor = RGBColor(0xE3, 0xE6, 0xEA);
pub(crate) const BAND: RGBColor = RGBColor(0xF4, 0xF6, 0xF8);
/// The colours of Okabe and Ito: distinct with any colour vision, and dark enough for lines on
/// white.
pub(crate) const BLUE: RGBColor = RGBColor(0x00, 0x72, 0xB2);
pub(crate) const RED: RGBColor = RGBColor(0xD5, 0x5E, 0x00);
pub(crate) const GREEN: RGBColor = RGBColor(0x00, 0x9E, 0x73);
pub(crate) const PINK: RGBColor = RGBColor(0xB8, 0x55, 0x8F);
pub(crate) const YELLOW: RGBColor = RGBColor(0xC7, 0x87, 0x00);

/// A text style in the font family of the plots; a text begins at its point.
pub(crate) fn font(size: u32, color: RGBColor) -> TextStyle<'static> {
    use plotters::style::text_anchor::{HPos, Pos, VPos};
    ("sans-serif", size).into_font().color(&color).pos(Pos::new(HPos::Left, VPos::Center))
}

pub(crate) fn write(
    area: &Area<'_>,
    text: &str,
    at: (i32, i32),
    style: TextStyle<'static>,
) -> Outcome {
    area.draw(&Text::new(text.to_owned(), at, style))?;
    Ok(())
}

/// The lines and texts of a chart's grid and axes.
pub(crate) fn style_mesh<'m, 'a, 'b, 'svg, X, Y>(
    mesh: &'m mut MeshStyle<'a, 'b, X, Y, SVGBackend<'svg>>,
) -> &'m mut MeshStyle<'a, 'b, X, Y, SVGBackend<'svg>>
where
    X: Ranged + ValueFormatter<X::ValueType>,
    Y: Ranged + ValueFormatter<Y::ValueType>,
{
    mesh.bold_line_style(GRID.stroke_width(2))
        .light_line_style(TRANSPARENT)
        .axis_style(SOFT.stroke_width(2))
        .label_style(("sans-serif", 26).into_font().color(&SOFT))
        .axis_desc_style(("sans-serif", 26).into_font().color(&SOFT))
}

/// A picture of this size with a title and a subtitle; `plot` draws the rest.
pub(crate) fn picture(
    size: (u32, u32),
    title: &str,
    subtitle: &str,
    plot: impl FnOnce(&Area<'_>) -> Outcome,
) -> Outcome<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        write(&root, title, (40, 50), font(36, INK))?;
        write(&root, subtitle, (40, 98), font(26, SOFT))?;
        plot(&root.margin(120, 20, 20, 20))?;
        root.present()?;
    }
    let (width, height) = size;
    let shown = format!("<svg width=\"{}\" height=\"{}\"", width / 2, height / 2);
    Ok(svg.replacen(&format!("<svg width=\"{width}\" height=\"{height}\""), &shown, 1))
}
