//! Aligned tables.

use unicode_width::UnicodeWidthStr as _;

use super::sanitise::{self, cut};

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The heading.
    pub title: &'static str,
    /// Whether the cells are aligned to the right.
    pub right: bool,
    /// Whether cells may be cut when the terminal is narrow.
    pub flexible: bool,
    /// The column of the highest rank is cut first, and left out first. Columns of rank 0 are never left out.
    pub rank: u8,
}

/// Rows of sanitised cells under headings.
#[derive(Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

/// The least width of a flexible column.
const LEAST: usize = 8;
/// The least width after all other columns were left out.
const LEAST_OF_ALL: usize = 4;
const GAP: usize = 2;

impl Table {
    /// Returns an empty table.
    pub fn new(columns: Vec<Column>) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row with one cell for each column, and sanitises the cells.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut row: Vec<String> = cells.into_iter().map(|cell| sanitise::text(&cell)).collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// Returns the lines, headings first, in at most `width` columns. Columns without a text are left out.
    pub fn lines(&self, width: Option<usize>) -> Vec<String> {
        let mut used: Vec<usize> =
            (0..self.columns.len()).filter(|i| self.rows.iter().any(|row| !row[*i].is_empty())).collect();
        let widths = self.fit(&mut used, width);
        let titles = used.iter().map(|i| self.columns[*i].title).collect::<Vec<_>>();
        let mut lines = vec![self.line(&used, &widths, &titles)];
        for row in &self.rows {
            let cells = used.iter().map(|i| row[*i].as_str()).collect::<Vec<_>>();
            lines.push(self.line(&used, &widths, &cells));
        }
        match width {
            Some(width) => lines.iter().map(|line| cut(line, width)).collect(),
            None => lines,
        }
    }

    /// Returns the widths of the columns `used`, and removes those that have no room.
    fn fit(&self, used: &mut Vec<usize>, limit: Option<usize>) -> Vec<usize> {
        loop {
            let widths = self.widths(used, limit, LEAST);
            if limit.is_none_or(|limit| total(&widths) <= limit) {
                return widths;
            }
            let weakest = (0..used.len()).max_by_key(|n| self.columns[used[*n]].rank);
            match weakest.filter(|n| self.columns[used[*n]].rank > 0) {
                Some(weakest) => used.remove(weakest),
                None => return self.widths(used, limit, LEAST_OF_ALL),
            };
        }
    }

    fn widths(&self, used: &[usize], limit: Option<usize>, least: usize) -> Vec<usize> {
        let natural = |i: &usize| {
            let cells = self.rows.iter().map(|row| row[*i].width());
            cells.max().unwrap_or(0).max(self.columns[*i].title.width())
        };
        let mut widths: Vec<usize> = used.iter().map(natural).collect();
        let Some(limit) = limit else { return widths };
        while total(&widths) > limit {
            let flexible =
                (0..widths.len()).filter(|n| self.columns[used[*n]].flexible && widths[*n] > least);
            // The widest of one rank is cut first, so that short texts stay whole.
            match flexible.max_by_key(|n| (self.columns[used[*n]].rank, widths[*n])) {
                Some(weakest) => widths[weakest] -= 1,
                None => return widths,
            }
        }
        widths
    }

    fn line(&self, used: &[usize], widths: &[usize], cells: &[&str]) -> String {
        let mut line = String::new();
        for ((i, width), cell) in used.iter().zip(widths).zip(cells) {
            let cell = cut(cell, *width);
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

/// Returns the width of the whole line.
fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let column = |title, right, flexible| Column { title, right, flexible, rank: 0 };
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
        assert_eq!(table().lines(Some(10)), ["WHO     P…", "日本     …", "som…  123…"]);
    }

    #[test]
    fn higher_rank_is_cut_first_and_then_left_out() {
        let column = |title, flexible, rank| Column { title, right: false, flexible, rank };
        let mut table = Table::new(vec![
            column("ID", false, 0),
            column("WHO", true, 1),
            column("WHAT", true, 2),
            column("WHY", true, 3),
        ]);
        let cells = ["12345678", "other process", "a long command", "a longer text yet"];
        table.row(cells.map(str::to_owned));
        let rows = |width| table.lines(Some(width)).swap_remove(1);
        assert_eq!(rows(58), "12345678  other process  a long command  a longer text yet");
        assert_eq!(rows(50), "12345678  other process  a long command  a longer…");
        assert_eq!(rows(45), "12345678  other process  a long co…  a longe…");
        assert_eq!(rows(37), "12345678  other process  a long comm…");
        assert_eq!(rows(23), "12345678  other process");
        assert_eq!(rows(17), "12345678");
    }
}
