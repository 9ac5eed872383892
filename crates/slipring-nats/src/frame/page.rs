//! Compares the page for other languages with the code.

use std::mem::offset_of;

use super::{HEADER, Layout};

const PAGE: &str = include_str!("../../FRAMES.md");

#[test]
fn the_page_says_where_each_field_lies() {
    macro_rules! rows {
        ($($field:ident)*) => {{
            let mut ends = vec![$((offset_of!(Layout, $field), stringify!($field))),*];
            ends.push((HEADER, ""));
            ends
        }};
    }
    let fields = rows!(
        magic version header_length event_size ring epoch incarnation writer fingerprint after first
        count payload_length checksum window
    );
    for pair in fields.windows(2) {
        let ((offset, name), (end, _)) = (pair[0], pair[1]);
        let row = format!("| {offset} | {} | `{name}` |", end - offset);
        assert!(PAGE.contains(&row), "the page lacks {row}");
    }
    let rows = PAGE.lines().filter(|line| line.starts_with("| ") && line.contains(" | `"));
    assert_eq!(rows.count(), fields.len() - 1);
}
