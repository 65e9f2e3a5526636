//! docs/guide/sizing.md: the text between `<!-- sizing:NAME -->` and `<!-- end -->` is the table
//! NAME.

use std::{path::PathBuf, thread};

use crate::tables::TABLES;

const END: &str = "<!-- end -->";

/// A file of docs/.
pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs").join(name)
}

/// The text with each table replaced by a new one. Prints the tables.
///
/// # Errors
/// A table has no place in the text.
pub(crate) fn with_tables(mut text: String) -> Result<String, String> {
    let tables = thread::scope(|scope| {
        let makers = TABLES.map(|(name, make)| (name, scope.spawn(make)));
        makers.map(|(name, maker)| (name, maker.join().expect("a table")))
    });
    for (name, table) in tables {
        let mark = format!("<!-- sizing:{name} -->\n");
        let place = text.find(&mark).and_then(|start| {
            let start = start + mark.len();
            Some(start..start + text[start..].find(END)?)
        });
        let place = place.ok_or_else(|| format!("no place for the table {name}"))?;
        println!("{table}");
        text.replace_range(place, &format!("\n{table}\n"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_holds_the_tables_that_this_program_measures() {
        let text = std::fs::read_to_string(path("guide/sizing.md")).expect("the document");
        let anew = with_tables(text.clone()).expect("a place for each table");
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        for (held, measured) in lines(&text).iter().zip(&lines(&anew)) {
            assert_eq!(
                held, measured,
                "cargo run --release --no-default-features --example sizing"
            );
        }
        assert_eq!(text, anew);
    }
}
