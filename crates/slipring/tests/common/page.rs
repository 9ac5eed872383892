//! The guide's page of misuses, whose tables the tests compare with what they see.

const PAGE: &str = include_str!("../../src/guide/misuses.md");

/// A row of the page: what the user writes, the phrases of the message, and the remedy.
pub struct Row {
    pub writes: String,
    pub says: Vec<String>,
    pub remedy: String,
}

/// Fails if the first table behind a heading of the page has other rows than these.
pub fn assert_has(heading: &str, rows: &[Row]) {
    let (_, section) = PAGE.split_once(&format!("\n# {heading}\n")).expect("a heading of the page");
    let lines = section.lines().skip_while(|line| !line.starts_with('|'));
    let table: Vec<_> = lines.take_while(|line| line.starts_with('|')).skip(2).collect();
    let rows: Vec<_> = rows.iter().map(line).collect();
    assert!(table == rows, "the table below \"{heading}\" must be\n\n{}\n", rows.join("\n"));
}

fn line(row: &Row) -> String {
    let says: Vec<_> = row.says.iter().map(|phrase| format!("`` {phrase} ``")).collect();
    let (writes, says, remedy) = (&row.writes, says.join("<br>"), &row.remedy);
    format!("| {} | {} | {} |", escaped(writes), escaped(&says), escaped(remedy))
}

/// A bar would end a cell, also inside of code.
fn escaped(cell: &str) -> String {
    cell.replace('|', "\\|")
}
