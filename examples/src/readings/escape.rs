//! Text of a file, made safe to print.
//!
//! A file may hold anything: escape sequences that move the cursor or set the terminal's title, and
//! marks that reverse the direction of the text. Every name and every field of a file that reaches
//! the terminal passes through [`escaped`] or [`quoted`].

use std::path::Path;

/// Returns text in which an escape stands for every character that does not print as itself:
/// `\u{1b}`, `\n`, and `\xff` for a byte that is not UTF-8. Text of more than `limit` characters is
/// cut there and ends with `…`.
pub fn escaped(text: &[u8], limit: usize) -> String {
    // The result is cut after `limit` characters, and each of its characters stands for at most
    // four bytes of the text. So the rest of a very long text need not be examined.
    let mut out = String::new();
    for chunk in text[..text.len().min(limit.saturating_mul(4).saturating_add(4))].utf8_chunks() {
        // Quotes and backslashes print as themselves, so names keep their apostrophes.
        for part in chunk.valid().split_inclusive(['\'', '"', '\\']) {
            let bare = part.trim_end_matches(['\'', '"', '\\']);
            out.extend(bare.escape_debug());
            out.push_str(&part[bare.len()..]);
        }
        for byte in chunk.invalid() {
            out.extend(byte.escape_ascii().map(char::from));
        }
    }
    if let Some((end, _)) = out.char_indices().nth(limit) {
        out.truncate(end);
        out.push('…');
    }
    out
}

/// Returns a field of a file in quotes, escaped and at most 60 characters long.
pub fn quoted(field: &[u8]) -> String {
    format!("'{}'", escaped(field, 60))
}

/// Returns a path for a message, escaped.
pub fn path(path: &Path) -> String {
    escaped(path.as_os_str().as_encoded_bytes(), usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_prints_as_itself_is_left() {
        for (text, expected) in [
            (&b"Z\xc3\xbcrich O'Hare \"A\" C:\\x"[..], "Zürich O'Hare \"A\" C:\\x"),
            (b"\x1b]0;title\x07\x1b[31m", "\\u{1b}]0;title\\u{7}\\u{1b}[31m"),
            (b"a\nb\r\tc\x7f\0", "a\\nb\\r\\tc\\u{7f}\\0"),
            (b"Z\xfcrich", "Z\\xfcrich"),
            // Tries C1 controls, which some terminals obey, encoded as two bytes and as one.
            (b"\xc2\x9b31m \x9b31m", "\\u{9b}31m \\x9b31m"),
            ("\u{202e}\u{2066}\u{200f}\u{feff}".as_bytes(), "\\u{202e}\\u{2066}\\u{200f}\\u{feff}"),
            ("\u{2028}\u{a0}".as_bytes(), "\\u{2028}\\u{a0}"),
        ] {
            assert_eq!(escaped(text, 60), expected);
        }
    }

    #[test]
    fn long_text_is_cut() {
        assert_eq!(escaped(&[b'x'; 1000], 3), "xxx…");
        assert_eq!(escaped(b"xxx", 3), "xxx");
        assert_eq!(escaped("ü".repeat(99).as_bytes(), 3), "üüü…");
        assert_eq!(escaped("🌦".repeat(99).as_bytes(), 50), "🌦".repeat(50) + "…");
        assert_eq!(escaped(b"\x1b\x1b", 3), "\\u{…");
        assert_eq!(quoted(&[b'y'; 99]), format!("'{}…'", "y".repeat(60)));
    }
}
