//! Aligned tables.

use unicode_width::UnicodeWidthStr as _;

use super::sanitise;

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// What stands above it.
    pub title: &'static str,
    /// Whether its numbers stand at the right.
    pub right: bool,
    /// Whether it gives way when the terminal is narrow.
    pub flexible: bool,
}

/// Rows of sanitised cells under titled columns.
#[derive(Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

/// The least width of a flexible column.
const LEAST: usize = 8;
const GAP: usize = 2;

impl Table {
    /// An empty table.
    pub fn new(columns: Vec<Column>) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row with one cell for each column. Cells are other people's text: they are sanitised here.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut row: Vec<String> = cells.into_iter().map(|cell| sanitise::text(&cell)).collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// The lines, titles first, without columns in which every cell is empty; cut to `width` columns if given.
    pub fn lines(&self, width: Option<usize>) -> Vec<String> {
        let used: Vec<usize> =
            (0..self.columns.len()).filter(|i| self.rows.iter().any(|row| !row[*i].is_empty())).collect();
        let widths = self.widths(&used, width);
        let titles = used.iter().map(|i| self.columns[*i].title).collect::<Vec<_>>();
        let mut lines = vec![self.line(&used, &widths, &titles)];
        for row in &self.rows {
            let cells = used.iter().map(|i| row[*i].as_str()).collect::<Vec<_>>();
            lines.push(self.line(&used, &widths, &cells));
        }
        match width {
            Some(width) => lines.iter().map(|line| sanitise::cut(line, width)).collect(),
            None => lines,
        }
    }

    fn widths(&self, used: &[usize], limit: Option<usize>) -> Vec<usize> {
        let natural = |i: &usize| {
            let cells = self.rows.iter().map(|row| row[*i].width());
            cells.max().unwrap_or(0).max(self.columns[*i].title.width())
        };
        let mut widths: Vec<usize> = used.iter().map(natural).collect();
        let Some(limit) = limit else { return widths };
        loop {
            let total = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
            // The widest flexible column gives way first, so that short texts stay whole.
            let flexible =
                (0..widths.len()).filter(|n| self.columns[used[*n]].flexible && widths[*n] > LEAST);
            match flexible.max_by_key(|n| widths[*n]) {
                Some(widest) if total > limit => widths[widest] -= 1,
                _ => return widths,
            }
        }
    }

    fn line(&self, used: &[usize], widths: &[usize], cells: &[&str]) -> String {
        let mut line = String::new();
        for ((i, width), cell) in used.iter().zip(widths).zip(cells) {
            let cell = sanitise::cut(cell, *width);
            let padding = " ".repeat(width.saturating_sub(cell.width()));
            if self.columns[*i].right {
                line.push_str(&padding);
                line.push_str(&cell);
            } else {
                line.push_str(&cell);
                line.push_str(&padding);
            }
            line.push_str(&" ".repeat(GAP));
        }
        line.truncate(line.trim_end().len());
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let column = |title, right, flexible| Column { title, right, flexible };
        let mut table = Table::new(vec![
            column("WHO", false, true),
            column("PID", true, false),
            column("NONE", false, false),
        ]);
        table.row(["日本".into(), "7".into(), String::new()]);
        table.row(["someone with a long\nname".into(), "12345".into(), String::new()]);
        table
    }

    #[test]
    fn aligns_by_columns_on_screen_and_drops_empty_ones() {
        assert_eq!(
            table().lines(None),
            [
                "WHO                          PID",
                "日本                           7",
                "someone with a long\\nname  12345"
            ]
        );
    }

    #[test]
    fn gives_way_on_a_narrow_terminal_and_is_cut_at_last() {
        assert_eq!(
            table().lines(Some(20)),
            ["WHO              PID", "日本               7", "someone with…  12345"]
        );
        assert_eq!(table().lines(Some(10)), ["WHO      …", "日本     …", "someone… …"]);
    }
}
