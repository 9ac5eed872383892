//! Finding two statements whose order an edge may rest on.
//!
//! Such a pair stands in one block. Each of the two *touches* shared state: it accesses an atomic,
//! fences, or calls a function that wears a label. One of the two accesses, fences, or wears a
//! label itself. Two relaxed accesses are no pair: nothing orders them, so no order is lost.
//!
//! The first must be movable behind the second: it binds no name that the rest needs, and it leaves
//! the block in no other way than at its end. The statements between them touch nothing.

use std::{collections::HashSet, ops::Range};

use crate::{
    source::{self, Source},
    tidy,
};

/// The accesses of an atomic.
const ACCESSES: [&str; 6] =
    ["load", "store", "swap", "compare_exchange", "compare_exchange_weak", "fetch_update"];
/// An access with none of them is relaxed.
const ORDERINGS: [&str; 3] = ["Acquire", "Release", "AcqRel"];
/// Functions that order without a label of their own.
const FENCES: [&str; 3] = ["fence", "compiler_fence", "bar_all"];
/// With these a statement ends at its closing brace.
const BLOCKS: [&str; 10] =
    ["if", "match", "loop", "while", "for", "unsafe", "fn", "impl", "struct", "{"];
/// A statement that begins with one of these is a definition.
const ITEMS: [&str; 8] = ["fn", "impl", "struct", "const", "static", "use", "type", "#"];

/// Two statements, the first of which may be moved behind the second.
#[derive(Debug, PartialEq, Eq)]
pub struct Pair {
    /// The statement that comes first.
    pub first: Range<usize>,
    /// The statement that comes later.
    pub second: Range<usize>,
    /// Whether the later one is the value of its block.
    pub is_value: bool,
}

impl Pair {
    /// The source from the first to the end of the second, with the first behind the second.
    pub fn exchanged(&self, text: &str) -> String {
        let (first, second) = (&text[self.first.clone()], &text[self.second.clone()]);
        let between = &text[self.first.end..self.second.start];
        // What stands between is kept with its lines, so that no comment swallows a statement.
        if self.is_value {
            format!("{between}let exchanged = {second};\n{first}\nexchanged")
        } else {
            format!("{between}{second}\n{first}")
        }
    }
}

/// The functions of `source` whose bodies wear labels, by their bare names.
pub fn labelled(source: &Source) -> HashSet<String> {
    let functions = source.functions();
    let wears =
        |range: &Range<usize>| tidy::labels_in(&source.comments[range.clone()]).next().is_some();
    // A name that the standard library uses for other things would be found everywhere.
    let telling =
        |name: &str| !matches!(name, "new" | "drop" | "next" | "get" | "poll" | "len" | "sleep");
    functions
        .bodies()
        .filter(|(_, range)| wears(range))
        .map(|(name, _)| name.rsplit("::").next().unwrap_or(name).to_owned())
        .filter(|name| telling(name))
        .collect()
}

/// All pairs of `source`, whose code is `code` where a mutation makes a difference. `labelled`: the
/// library's functions that wear labels.
pub fn pairs(source: &Source, code: &str, labelled: &HashSet<String>) -> Vec<Pair> {
    let bytes = code.as_bytes();
    let functions = source.functions();
    let mut found = Vec::new();
    for (open, _) in code.match_indices('{').filter(|&(at, _)| functions.around(at) != "-") {
        let Some(close) = source::closing(bytes, open) else { continue };
        let touching: Vec<Statement> = statements(code, open + 1..close)
            .into_iter()
            .filter(|statement| {
                names(&code[statement.range.clone()])
                    .any(|name| orders(name) || labelled.contains(name))
            })
            .collect();
        for two in touching.windows(2) {
            let [first, second] = two else { continue };
            let own = |statement: &Statement| {
                names(&code[statement.range.clone()]).any(orders)
                    || wears_label(source, &statement.range)
            };
            let relaxed = |statement: &Statement| {
                let text = &code[statement.range.clone()];
                let calls =
                    names(text).any(|name| FENCES.contains(&name) || labelled.contains(name));
                let ordered =
                    ORDERINGS.iter().any(|ordering| source::words(text, ordering).next().is_some());
                !calls && !ordered && !wears_label(source, &statement.range)
            };
            let matters = (own(first) || own(second)) && !(relaxed(first) && relaxed(second));
            let text = &code[first.range.clone()];
            let stays = text.starts_with("let ")
                && binds_for(text, &code[first.range.end..second.range.end]);
            let leaves = ["return", "break", "continue"]
                .iter()
                .any(|word| source::words(text, word).next().is_some())
                || text.contains('?');
            if matters && !stays && !leaves && !first.is_value {
                found.push(Pair {
                    first: first.range.clone(),
                    second: second.range.clone(),
                    is_value: second.is_value,
                });
            }
        }
    }
    found.sort_by_key(|pair| pair.first.start);
    found
}

struct Statement {
    range: Range<usize>,
    is_value: bool,
}

/// The statements in `block`, without definitions.
fn statements(code: &str, block: Range<usize>) -> Vec<Statement> {
    let bytes = code.as_bytes();
    let mut found = Vec::new();
    let (mut from, mut at) = (block.start, block.start);
    let begins =
        |from: usize| from + code[from..block.end].len() - code[from..block.end].trim_start().len();
    while at < block.end {
        let mut ends = bytes[at] == b';';
        if matches!(bytes[at], b'(' | b'[' | b'{') {
            let brace = bytes[at] == b'{';
            let Some(close) = source::closing(bytes, at) else { return found };
            at = close;
            let start = &code[begins(from)..block.end];
            let is_block = BLOCKS.iter().any(|word| {
                start.strip_prefix(word).is_some_and(|rest| {
                    !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
                })
            });
            let after = code[at + 1..block.end].trim_start();
            let goes_on = after.is_empty()
                || after.starts_with("else")
                || after.starts_with(['.', '?', ';', '=', '&', '|']);
            ends = brace && is_block && !goes_on;
        }
        at += 1;
        if ends {
            found.push(Statement { range: begins(from)..at, is_value: false });
            from = at;
        }
    }
    let rest = code[from..block.end].trim();
    if !rest.is_empty() {
        let start = begins(from);
        // A block at the end is a statement or a value; exchanged, it is treated as a value, which
        // may be `()`.
        found.push(Statement { range: start..start + rest.len(), is_value: true });
    }
    let is_item = |text: &str| {
        ITEMS.iter().any(|item| {
            text.starts_with(item) && (*item == "#" || text[item.len()..].starts_with([' ', '<']))
        })
    };
    found.retain(|statement| !is_item(&code[statement.range.clone()]));
    found
}

/// The names in `text` that are called, or passed on by their paths.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let name_before = |end: usize| {
        let length = text[..end].bytes().rev().take_while(|&byte| source::is_name(byte)).count();
        &text[end - length..end]
    };
    let passed = text
        .match_indices(')')
        .map(|(end, _)| end)
        .filter(move |&end| text[..end - name_before(end).len()].ends_with("::"));
    text.match_indices('(').map(|(end, _)| end).chain(passed).map(name_before)
}

/// Whether a call of this name is an access or a fence.
fn orders(name: &str) -> bool {
    ACCESSES.contains(&name) || name.starts_with("fetch_") || FENCES.contains(&name)
}

/// Whether a comment within the statement or at the end of its last line wears a label.
fn wears_label(source: &Source, range: &Range<usize>) -> bool {
    let end =
        source.text[range.end..].find('\n').map_or(source.text.len(), |length| range.end + length);
    tidy::labels_in(&source.comments[range.start..end]).next().is_some()
}

/// Whether `rest` uses a name that the `let` of `text` binds.
fn binds_for(text: &str, rest: &str) -> bool {
    let pattern = text.split('=').next().unwrap_or(text);
    let names = pattern.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    names
        .filter(|name| name.starts_with(|c: char| c.is_lowercase()))
        .any(|name| source::words(rest, name).next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is exchanged in a function with this body.
    fn exchanged(body: &str) -> Vec<String> {
        let source = Source::new(format!("fn release() {{\n // SYNC[x]\n}}\nfn f() {{ {body}\n}}"));
        let found = pairs(&source, &source.code, &labelled(&source));
        found.iter().map(|pair| pair.exchanged(&source.text)).collect()
    }

    #[test]
    fn two_that_touch_are_exchanged() {
        assert_eq!(
            exchanged("a.store(1, Relaxed);\nb.fetch_or(2, Release); // SYNC[x]"),
            ["\nb.fetch_or(2, Release);\na.store(1, Relaxed);"]
        );
        assert_eq!(
            exchanged("a.store(1, Relaxed); let n = 1; n += 1; fence(SeqCst);"),
            [" let n = 1; n += 1; fence(SeqCst);\na.store(1, Relaxed);"]
        );
        assert_eq!(
            exchanged("a.store(1, Relaxed); // SYNC[x]\nself.release(1);"),
            [" // SYNC[x]\nself.release(1);\na.store(1, Relaxed);"]
        );
        assert_eq!(
            exchanged("fence(SeqCst); a.load(Relaxed) == 1"),
            [" let exchanged = a.load(Relaxed) == 1;\nfence(SeqCst);\nexchanged"]
        );
        assert_eq!(exchanged("fence(SeqCst);\nall.iter().for_each(Bell::release)").len(), 1);
        let nested =
            "if x { fence(SeqCst); a.load(Relaxed); } else { y() } compiler_fence(SeqCst);";
        assert_eq!(exchanged(nested).len(), 2);
    }

    #[test]
    fn what_cannot_be_exchanged_is_left_alone() {
        assert!(
            exchanged("self.release(1); self.release(2);").is_empty(),
            "neither accesses, fences or wears a label"
        );
        assert!(
            exchanged("a.store(1, Relaxed); b.store(2, Relaxed);").is_empty(),
            "nothing orders them"
        );
        assert!(
            exchanged("let seen = a.load(Acquire); // SYNC[x]\nb.store(seen, Release);").is_empty(),
            "the second needs the first"
        );
        assert!(exchanged("if a.load(Acquire) { return; } fence(SeqCst);").is_empty(), "it leaves");
        assert!(exchanged("fence(SeqCst); count += 1;").is_empty(), "the second touches nothing");
        assert!(
            exchanged("match a { B => fence(SeqCst), C => a.load(Relaxed) }").is_empty(),
            "one statement"
        );
    }

    #[test]
    fn statements_end_where_they_end() {
        let of = |text: &str| {
            let found = statements(text, 0..text.len());
            found
                .iter()
                .map(|statement| text[statement.range.clone()].to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            of("a(); if b { c; } else { d } let Some(e) = f else { g }; h"),
            ["a();", "if b { c; } else { d }", "let Some(e) = f else { g };", "h"]
        );
        assert_eq!(
            of("match a { b => { c } }.d(); unsafe { e; } fn f() { g; } h();"),
            ["match a { b => { c } }.d();", "unsafe { e; }", "h();"]
        );
        assert_eq!(
            of("twin!(\"x\": { a; } => b); let c = [1; 2];"),
            ["twin!(\"x\": { a; } => b);", "let c = [1; 2];"]
        );
    }
}
