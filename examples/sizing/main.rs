//! Makes the tables and the plots of docs/guide/sizing.md, and the plot of filters that forget.
//!
//! ```sh
//! cargo run --release --no-default-features --example sizing     # writes the tables and the plots
//! cargo test --no-default-features --example sizing              # fails if a table differs
//! ```
//!
//! ```text
//!   measure, paged ─▶ tables ─▶ document ─▶ docs/guide/sizing.md
//!      └──────────▶ bytes_plot, growth_plot, generations_plot ─▶ draw ─▶ docs/pictures/*.svg
//! ```
//!
//! Items and seeds are fixed, so every run gives the same numbers until the filter changes.

mod bytes_plot;
mod document;
mod draw;
mod generations_plot;
mod growth_plot;
mod measure;
mod paged;
mod tables;

use std::fs;

fn main() -> draw::Outcome {
    let path = document::path("guide/sizing.md");
    fs::write(&path, document::with_tables(fs::read_to_string(&path)?)?)?;
    fs::write(document::path("pictures/sizing-bytes.svg"), bytes_plot::draw()?)?;
    fs::write(document::path("pictures/sizing-growth.svg"), growth_plot::draw()?)?;
    fs::write(document::path("pictures/windows-generations.svg"), generations_plot::draw()?)?;
    Ok(())
}
