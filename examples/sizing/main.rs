//! Measures what docs/sizing.md says: makes its tables and draws its plots.
//!
//! ```sh
//! cargo run --release --no-default-features --example sizing     # writes the document's tables and docs/sizing-*.svg
//! cargo test --no-default-features --example sizing              # fails where the document's tables are not these
//! ```
//!
//! ```text
//!   measure ─▶ tables ─▶ document ─▶ docs/sizing.md
//!      └─────▶ rate_plot, bytes_plot ─▶ draw ─▶ docs/sizing-*.svg
//! ```
//!
//! Items and seeds are fixed: whoever runs it gets the same numbers, until the filter changes.

mod bytes_plot;
mod document;
mod draw;
mod measure;
mod rate_plot;
mod tables;

use std::fs;

fn main() -> draw::Outcome {
    let path = document::path("sizing.md");
    fs::write(&path, document::with_tables(fs::read_to_string(&path)?)?)?;
    fs::write(document::path("sizing-bytes.svg"), bytes_plot::draw()?)?;
    fs::write(document::path("sizing-rate.svg"), rate_plot::draw()?)?;
    Ok(())
}
