//! The labels of edges: each stands at both ends of its edge and in the protocol.

use std::{collections::BTreeMap, path::Path};

use super::{File, Findings};
use crate::layout;

/// The places of one label.
#[derive(Default)]
struct Places {
    /// `file:line` of each comment that carries the label.
    code: Vec<String>,
    is_explained: bool,
}

/// Finds labels that stand at one end only, and labels that the protocol does not explain or
/// explains in vain.
pub fn check(files: &[File], found: &mut Findings) {
    let mut labels: BTreeMap<String, Places> = BTreeMap::new();
    for file in files.iter().filter(|file| file.path.starts_with(layout::SOURCE)) {
        if labels_in(&file.text).next().is_none() {
            continue;
        }
        let is_protocol = file.path == Path::new(layout::PROTOCOL);
        let text = match file.source(found) {
            Some(source) => source.comments(),
            None if is_protocol => &file.text,
            None => continue,
        };
        // The documentation of a module tells of an edge; it is neither of its ends.
        let lines = text.lines().enumerate();
        for (number, line) in lines.filter(|(_, line)| !line.trim_start().starts_with("//!")) {
            for label in labels_in(line) {
                let places = labels.entry(label.to_owned()).or_default();
                if is_protocol {
                    places.is_explained = true;
                } else {
                    places.code.push(format!("{}:{}", file.path.display(), number + 1));
                }
            }
        }
    }
    for (label, Places { code, is_explained }) in labels {
        let protocol = layout::PROTOCOL;
        match code.as_slice() {
            [] => found
                .errors
                .push(format!("{protocol}: SYNC[{label}] is explained, but no code carries it")),
            [one] => found.errors.push(format!(
                "{one}: SYNC[{label}] stands at one end only: label the access that pairs with it"
            )),
            [first, ..] if !is_explained => {
                found.errors.push(format!("{first}: SYNC[{label}] is not explained in {protocol}"))
            }
            _ => {}
        }
    }
}

/// The labels in a line of text: `SYNC[this]`.
pub fn labels_in(line: &str) -> impl Iterator<Item = &str> {
    line.split("SYNC[").skip(1).filter_map(|rest| rest.split_once(']').map(|(label, _)| label))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::file;

    #[test]
    fn edges_need_both_ends_and_an_explanation() {
        let found = |code: &str, protocol: &str| {
            let mut found = Findings::default();
            let files = [file("crates/slipring/src/a.rs", code), file(layout::PROTOCOL, protocol)];
            check(&files, &mut found);
            found.errors.join("\n")
        };
        let both = "fn f() {// SYNC[a]: with b\nx();\n// SYNC[a]: with c\n}";
        assert_eq!(found(both, "SYNC[a] is enough because ..."), "");
        assert!(found("// SYNC[a]\n", "SYNC[a]").contains("one end only"));
        assert!(found("//! I1: SYNC[a]\nuse x; // SYNC[a]\n", "SYNC[a]").contains("one end only"));
        assert!(found("// SYNC[a]\n// SYNC[a]\n", "").contains("not explained"));
        assert!(found("", "SYNC[a]").contains("no code carries it"));
        let quoted = "const X: &str = \"SYNC[a]\"; // SYNC[b]\n// SYNC[b]";
        assert!(found(quoted, "SYNC[b]").is_empty());
    }
}
