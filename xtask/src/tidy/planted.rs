//! The rule of planted defects: the library and the budgets that catch the defects name the same.

use std::collections::BTreeMap;

use super::file::File;
use crate::{findings::Findings, layout};

/// Finds planted defects that no budget catches or that the library does not have, and names that
/// the library uses for several places in different files.
pub fn check(files: &[File], found: &mut Findings) {
    let mut planted: BTreeMap<&str, Vec<&File>> = BTreeMap::new();
    let mut caught = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        if file.path.starts_with(layout::SOURCE) {
            for name in named(&file.text, "planted!(\"") {
                planted.entry(name).or_default().push(file);
            }
        } else if file.path.starts_with(layout::BUDGETS) {
            caught.extend(named(&file.text, "caught(\""));
        }
    }
    let mut error = |text: String| found.errors.push(text);
    for (name, within) in &planted {
        let path = within[0].path.display();
        if !caught.contains(name) {
            error(format!("{path}: no test of {} catches the defect `{name}`", layout::BUDGETS));
        }
        if within.iter().any(|file| file.path != within[0].path) {
            error(format!("{path}: the defect `{name}` is planted in several files"));
        }
    }
    for name in caught.iter().filter(|name| !planted.contains_key(*name)) {
        error(format!("{}: the library has no planted defect `{name}`", layout::BUDGETS));
    }
}

/// Returns the names behind each `start`. Comments do not count.
fn named<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let behind = code.flat_map(|line| line.split(start).skip(1));
    behind.filter_map(|rest| Some(rest.split_once('"')?.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file::tests::file;

    #[test]
    fn a_defect_and_its_budget_have_the_same_name() {
        let errors = |library: &str, other: &str, budgets: &str| {
            let mut found = Findings::default();
            let in_library = |name: &str, text| file(&format!("{}/{name}", layout::SOURCE), text);
            let budgets = file(&format!("{}/planted.rs", layout::BUDGETS), budgets);
            check(&[in_library("a.rs", library), in_library("b.rs", other), budgets], &mut found);
            found.errors.len()
        };
        let planted = "fn f() { planted!(\"x\": a => b); }";
        assert_eq!(errors(planted, "", "fn g() { caught(\"x\", 1) }"), 0);
        assert_eq!(errors("// planted!(\"y\": a => b)", "", ""), 0);
        assert_eq!(errors(planted, "", ""), 1);
        assert_eq!(errors("", "", "fn g() { caught(\"x\", 1) }"), 1);
        assert_eq!(errors(planted, planted, "fn g() { caught(\"x\", 1) }"), 1);
    }
}
