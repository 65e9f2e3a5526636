//! Makes the tables and the plots of docs/sizing.md, and the plots of filters that forget.
//!
//! ```sh
//! cargo run --release --no-default-features --example sizing     # writes the tables and the plots
//! cargo test --no-default-features --example sizing              # fails if a table differs
//! ```
//!
//! ```text
//!   measure, windows ─▶ tables ─▶ document ─▶ docs/sizing.md
//!      ├─────▶ rate_plot, bytes_plot ─▶ draw ─▶ docs/sizing-*.svg
//!      └─────▶ generations_plot, window_rate_plot ─▶ draw ─▶ docs/windows-*.svg
//! ```
//!
//! Items and seeds are fixed, so every run gives the same numbers until the filter changes.

mod bytes_plot;
mod document;
mod draw;
mod generations_plot;
mod measure;
mod rate_plot;
mod tables;
mod window_rate_plot;
mod windows;

use std::fs;

fn main() -> draw::Outcome {
    let path = document::path("sizing.md");
    fs::write(&path, document::with_tables(fs::read_to_string(&path)?)?)?;
    fs::write(document::path("sizing-bytes.svg"), bytes_plot::draw()?)?;
    fs::write(document::path("sizing-rate.svg"), rate_plot::draw()?)?;
    fs::write(document::path("windows-generations.svg"), generations_plot::draw()?)?;
    fs::write(document::path("windows-rate.svg"), window_rate_plot::draw()?)?;
    Ok(())
}
