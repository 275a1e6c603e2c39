//! Plots with logarithmic axes.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use crate::{Axis, Point};

const SIZE: (u32, u32) = (720, 420);
/// Colors that people with color blindness can tell apart (Okabe and Ito, 2008).
const COLORS: [RGBColor; 4] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
];

/// Writes the curves of an axis as SVG.
pub(crate) fn write(axis: &Axis, file: &Path) -> Result<(), Box<dyn Error>> {
    let points = || axis.curves.iter().flat_map(|curve| &curve.points);
    let (left, right) = range(points().map(|point| point.size));
    let (low, high) = range(points().map(|point| point.micros));
    let area = SVGBackend::new(file, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(axis.title, ("sans-serif", 18))
        .margin(12)
        .margin_right(28)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(
            (left..right).log_scale(),
            (low / 2.0..high * 2.0).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc(axis.unit)
        .y_desc("microseconds")
        .x_label_formatter(&short)
        .y_label_formatter(&short)
        .light_line_style(WHITE)
        .label_style(("sans-serif", 13))
        .draw()?;
    for (curve, color) in axis.curves.iter().zip(COLORS.iter().cycle()) {
        let line = || {
            curve
                .points
                .iter()
                .map(|Point { size, micros }| (*size, *micros))
        };
        chart
            .draw_series(LineSeries::new(line(), color.stroke_width(2)))?
            .label(curve.name)
            .legend(|(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
        chart.draw_series(line().map(|point| Circle::new(point, 3, color.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.9))
        .border_style(BLACK.mix(0.3))
        .label_font(("sans-serif", 13))
        .draw()?;
    area.present()?;
    Ok(())
}

/// The smallest and the largest value.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(low, high), value| {
        (low.min(value), high.max(value))
    })
}

/// A number with a unit prefix: `20k`.
fn short(value: &f64) -> String {
    match *value {
        value if value >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e3 => format!("{}k", value / 1e3),
        value => format!("{value}"),
    }
}
