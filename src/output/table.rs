//! Aligned tables.

use unicode_width::UnicodeWidthStr as _;

use super::sanitise;

/// Headings of columns that are aligned to the right, as numbers are.
const RIGHT: [&str; 3] = ["PID", "TTL", "TOKEN"];

/// Rows of sanitised cells under headings.
#[derive(Debug)]
pub struct Table {
    /// The headings first.
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns a table with these headings.
    pub fn new(titles: &[&str]) -> Self {
        Self { rows: vec![titles.iter().map(|title| (*title).to_owned()).collect()] }
    }

    /// Adds a row with one cell for each column, and sanitises the cells.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| sanitise::text(&cell)).collect());
    }

    /// Returns the lines, headings first. Columns without a text are left out.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![String::new(); self.rows.len()];
        for (n, title) in self.rows[0].iter().enumerate() {
            let width = self.rows.iter().map(|row| row[n].width()).max().unwrap_or(0);
            if self.rows[1..].iter().all(|row| row[n].is_empty()) {
                continue;
            }
            for (line, row) in lines.iter_mut().zip(&self.rows) {
                let padding = " ".repeat(width - row[n].width());
                let (before, after) = if RIGHT.contains(&title.as_str()) {
                    (padding, String::new())
                } else {
                    (String::new(), padding)
                };
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
        let mut table = Table::new(&["WHO", "PID", "NONE"]);
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
