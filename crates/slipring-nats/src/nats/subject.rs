//! The rules for names and subjects.

use crate::errors::Error;

/// Greatest length of a subject, in bytes. The server ends a connection whose command has more than
/// 4,096 bytes (`max_control_line`), and a command has two subjects.
pub const MAX_SUBJECT: usize = 1024;

/// Refuses an invalid name of a stream or a consumer. `of` is the word for the named thing in the
/// error's text: `stream` or `consumer`.
pub fn check_name(of: &str, name: &str) -> Result<(), Error> {
    let bad = |c: char| c.is_whitespace() || ".*>/\\".contains(c) || c.is_control();
    if name.is_empty() || name.len() > 255 || name.contains(bad) {
        let what = format!(
            "{name:?} is no name of a {of}: it has 1 to 255 characters, without blanks and \
             . * > / \\"
        );
        return Err(Error::Option { what });
    }
    Ok(())
}

/// Returns whether a message can have this subject.
pub fn is_subject(subject: &str) -> bool {
    let bad = |c: char| c.is_whitespace() || c.is_control();
    !subject.contains(bad)
        && subject.len() <= MAX_SUBJECT
        && subject.split('.').all(|token| !matches!(token, "" | "*" | ">"))
}

/// Returns whether `pattern` covers `subject`. If `subject` is itself a pattern, `pattern` must
/// cover every subject that it covers.
pub fn matches(pattern: &str, subject: &str) -> bool {
    let (mut pattern, mut subject) = (pattern.split('.'), subject.split('.'));
    loop {
        match (pattern.next(), subject.next()) {
            (Some(">"), Some(_)) => return true,
            (Some("*"), Some(token)) if token != ">" => {}
            (Some(want), Some(token)) if want == token => {}
            (None, None) => return true,
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_cover_subjects() {
        for (pattern, subject, covered) in [
            ("orders.>", "orders.a.b", true),
            ("orders.>", "orders", false),
            ("orders.*", "orders.a", true),
            ("orders.*", "orders.a.b", false),
            ("orders.*", "orders.>", false),
            ("orders.>", "orders.*", true),
            ("orders", "orders", true),
            ("orders", "order", false),
            (">", "orders", true),
        ] {
            assert_eq!(matches(pattern, subject), covered, "{pattern} {subject}");
        }
    }

    #[test]
    fn names_that_no_stream_can_have_are_refused() {
        for name in ["", "a.b", "a b", "a>", "a*", "a/b"] {
            assert!(check_name("stream", name).is_err(), "{name}");
        }
        check_name("stream", "ORDERS-1_x").unwrap();
    }
}
