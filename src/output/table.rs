//! Aligned tables.

use unicode_width::UnicodeWidthStr as _;

use super::sanitise;

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The heading.
    pub title: &'static str,
    /// Whether the cells are aligned to the right.
    pub right: bool,
}

/// Rows of sanitised cells under headings.
#[derive(Debug)]
pub struct Table {
    columns: &'static [Column],
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns an empty table.
    pub fn new(columns: &'static [Column]) -> Self {
        let titles = columns.iter().map(|column| column.title.to_owned());
        Self { columns, rows: vec![titles.collect()] }
    }

    /// Adds a row with one cell for each column, and sanitises the cells.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| sanitise::text(&cell)).collect());
    }

    /// Returns the lines, headings first. Columns without a text are left out.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![String::new(); self.rows.len()];
        for (n, column) in self.columns.iter().enumerate() {
            let width = self.rows.iter().map(|row| row[n].width()).max().unwrap_or(0);
            if self.rows[1..].iter().all(|row| row[n].is_empty()) {
                continue;
            }
            for (line, row) in lines.iter_mut().zip(&self.rows) {
                let padding = " ".repeat(width - row[n].width());
                let (before, after) =
                    if column.right { (padding, String::new()) } else { (String::new(), padding) };
                line.extend([&before, row[n].as_str(), &after, "  "]);
            }
        }
        lines.iter().map(|line| line.trim_end().to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligns_by_columns_on_screen_and_drops_empty_ones() {
        const COLUMNS: [Column; 3] = [
            Column { title: "WHO", right: false },
            Column { title: "PID", right: true },
            Column { title: "NONE", right: false },
        ];
        let mut table = Table::new(&COLUMNS);
        table.row(["日本".into(), "7".into(), String::new()]);
        table.row(["someone with a long\nname".into(), "12345".into(), String::new()]);
        assert_eq!(
            table.lines(),
            [
                "WHO                          PID",
                "日本                           7",
                "someone with a long\\nname  12345"
            ]
        );
    }
}
