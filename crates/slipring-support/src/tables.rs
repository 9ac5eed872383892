//! Markdown tables that a terminal can show without wrapped lines.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// Least width at which cells are broken into lines; narrower cells would break words.
const NARROWEST: usize = 24;

/// Renders a Markdown table whose first column names the rows. The other columns are aligned to the
/// right.
///
/// If `width` is `None` (for a pipe or a file), the result is one table. If a terminal of `width`
/// characters is too narrow for all columns, the result is several tables below each other, each of
/// which begins with the first column. If even two columns are too wide, their cells are broken
/// into several lines.
pub fn markdown(header: &[String], rows: &[Vec<String>], width: Option<usize>) -> String {
    let mut tables = Vec::new();
    let mut begin = 1;
    loop {
        let fits = |table: &Table| {
            let line = table.lines().next().unwrap_or_default();
            width.is_none_or(|width| line.chars().count() <= width)
        };
        // A table has at least one column beside the names, even if that column does not fit.
        let (end, mut table) = (begin + 1..=header.len())
            .rev()
            .map(|end| (end, columns(header, rows, begin, end)))
            .find(|(end, table)| *end == begin + 1 || fits(table))
            .unwrap_or_else(|| (header.len(), columns(header, rows, begin, begin)));
        let narrow =
            width.filter(|width| *width >= NARROWEST).and_then(|width| width.try_into().ok());
        if let Some(width) = narrow.filter(|_| !fits(&table)) {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        tables.push(table.to_string());
        begin = end;
        if begin >= header.len() {
            return tables.join("\n\n");
        }
    }
}

/// Makes a table of the first column and the columns `begin..end`.
fn columns(header: &[String], rows: &[Vec<String>], begin: usize, end: usize) -> Table {
    let part = |row: &[String]| [&row[..1], &row[begin..end]].concat();
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(part(header));
    table.add_rows(rows.iter().map(|row| part(row)));
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|cell| (*cell).to_owned()).collect()
    }

    fn table(width: Option<usize>) -> String {
        let header = strings(&["name", "first figure", "second", "third"]);
        markdown(&header, &[strings(&["a", "1", "2", "3"]), strings(&["b", "4", "5", "6"])], width)
    }

    #[test]
    fn without_a_width_all_columns_are_in_one_table() {
        let expected = "| name | first figure | second | third |\n\
                        |------|--------------|--------|-------|\n\
                        | a    |            1 |      2 |     3 |\n\
                        | b    |            4 |      5 |     6 |";
        assert_eq!(table(None), expected);
        assert_eq!(table(Some(40)), expected);
    }

    #[test]
    fn a_narrow_terminal_gets_every_column_once_and_no_long_line() {
        for width in [23, 24, 32, 39] {
            let text = table(Some(width));
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            for heading in ["first figure", "second", "third"] {
                assert_eq!(text.matches(heading).count(), 1, "{width}:\n{text}");
            }
        }
        let header = strings(&["the name of a contender", "the figure of a contender"]);
        let text = markdown(&header, &[strings(&["a", "1,234 ±56"])], Some(30));
        assert!(text.lines().all(|line| line.chars().count() <= 30), "{text}");
        assert!(text.contains("contender") && text.contains("1,234"), "{text}");
        assert!(
            table(Some(1)).contains("third"),
            "a column that fits nowhere is shown all the same"
        );
    }
}
