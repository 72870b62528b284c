//! Tables as kubectl prints them: columns with three spaces between them, no lines.
//!
//! Invariant: a cell never breaks a line or steers the terminal, whatever a user wrote into an object.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

/// An age in kubectl's form: the largest unit.
pub(crate) fn age(since: Timestamp, now: Timestamp) -> String {
    let secs = now.duration_since(since).max(SignedDuration::ZERO).as_secs();
    match secs {
        0..120 => format!("{secs}s"),
        120..7200 => format!("{}m", secs / 60),
        7200..172_800 => format!("{}h", secs / 3600),
        _ => format!("{}d", secs / 86_400),
    }
}

/// Spaces between two columns.
const GAP: usize = 3;

/// Rows below a header. It keeps the widths of its columns, so that rows that come later line up with those before.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    widths: Vec<usize>,
}

impl Columns {
    pub(crate) const fn new() -> Self {
        Self { widths: Vec::new() }
    }

    /// Lines, one for each row. Each column is as wide as its widest cell so far.
    pub(crate) fn lines(&mut self, rows: &[Vec<String>]) -> String {
        let rows: Vec<Vec<String>> = rows
            .iter()
            .map(|row| row.iter().map(|cell| shown(cell)).collect())
            .collect();
        for row in &rows {
            self.widths.resize(self.widths.len().max(row.len()), 0);
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let lines: Vec<String> = rows.iter().map(|row| self.line(row)).collect();
        lines.join("\n")
    }

    fn line(&self, row: &[String]) -> String {
        let mut line = String::new();
        for (width, cell) in self.widths.iter().zip(row) {
            let _infallible = write!(line, "{cell:<width$}", width = width + GAP);
        }
        line.trim_end().to_owned()
    }
}

pub(crate) fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let header = header.iter().map(|&name| name.to_owned()).collect();
    let mut all = vec![header];
    all.extend(rows);
    Columns::new().lines(&all)
}

/// A text in one line, without control characters; a dash where there is none.
pub(crate) fn shown(text: &str) -> String {
    let text: String = text
        .trim()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if text.is_empty() { "-".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::{Columns, table};

    fn row(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|&cell| cell.to_owned()).collect()
    }

    /// Spec: experience 3
    #[test]
    fn columns_line_up_and_later_rows_line_up_with_earlier_ones() {
        let text = table(
            &["NAME", "AGE"],
            vec![row(&["job/train", "5m"]), row(&["", "2d"])],
        );
        assert_eq!(text, "NAME        AGE\njob/train   5m\n-           2d");
        let mut columns = Columns::new();
        assert_eq!(columns.lines(&[row(&["longer", "x"])]), "longer   x");
        assert_eq!(columns.lines(&[row(&["a", "x"])]), "a        x");
    }

    #[test]
    fn a_cell_neither_breaks_a_line_nor_steers_the_terminal() {
        let text = table(&["MESSAGE"], vec![row(&["two\nlines\u{1b}[31mred"])]);
        assert_eq!(text, "MESSAGE\ntwo lines [31mred");
    }
}
