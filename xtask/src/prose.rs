//! Random paragraphs of the project and random claims of ARCHITECTURE.md, for a reader who sees
//! nothing else of them.
//!
//! Every paragraph has the same chance, so each crate appears in proportion to its text. The same
//! seed draws the same paragraphs from the same files. No paragraph is drawn from a record, because
//! each record is the journal of a single day.

use std::{fs, io, path::Path};

use crate::{source::Source, workspace};

/// The page of the claims.
const CLAIMS: &str = "ARCHITECTURE.md";
/// Least number of words in a paragraph or a claim. A shorter text counts as a label.
const WORDS: usize = 6;
/// The folder of the records.
const RECORDS: &str = "records";

/// A piece of prose with the name of its item, page or section.
#[derive(Debug, PartialEq, Eq)]
struct Piece {
    name: String,
    text: String,
}

/// Draws `count` paragraphs of the comments and pages below `root`.
pub fn paragraphs(root: &Path, seed: u64, count: usize) -> io::Result<String> {
    let mut all = Vec::new();
    for path in workspace::files(root)? {
        let extension = path.extension().and_then(|extension| extension.to_str());
        if path.starts_with(RECORDS) || !matches!(extension, Some("rs" | "md")) {
            continue;
        }
        let text = fs::read_to_string(root.join(&path))?;
        let name = path.display().to_string();
        all.extend(match extension {
            Some("rs") => of_code(&name, text).map_err(io::Error::other)?,
            _ => of_page(&name, &text),
        });
    }
    Ok(print(drawn(all, seed, count)))
}

/// Draws `count` sentences of the page of claims below `root`.
pub fn claims(root: &Path, seed: u64, count: usize) -> io::Result<String> {
    let page = fs::read_to_string(root.join(CLAIMS))?;
    let all = of_page(CLAIMS, &page).into_iter().flat_map(|Piece { name, text }| {
        let sentences = sentences(&text).into_iter().filter(|sentence| is_long(sentence));
        sentences.map(move |text| Piece { name: name.clone(), text }).collect::<Vec<_>>()
    });
    Ok(print(drawn(all.collect(), seed, count)))
}

fn print(pieces: Vec<Piece>) -> String {
    let piece =
        |(at, Piece { name, text }): (usize, Piece)| format!("{}. {name}\n{text}\n\n", at + 1);
    pieces.into_iter().enumerate().map(piece).collect()
}

/// Draws `count` of `all` without repetition.
fn drawn<T>(mut all: Vec<T>, seed: u64, count: usize) -> Vec<T> {
    let mut state = seed;
    // SplitMix64.
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let mut pieces = Vec::new();
    while pieces.len() < count && !all.is_empty() {
        // A remainder favours no piece noticeably: the pieces are few compared with 2^64.
        let at = usize::try_from(next() % all.len() as u64).unwrap_or(0);
        pieces.push(all.swap_remove(at));
    }
    pieces
}

/// Returns the paragraphs of a page, each with the page and its section.
fn of_page(page: &str, text: &str) -> Vec<Piece> {
    let mut section = String::new();
    let mut pieces = Vec::new();
    for block in blocks(text.lines()) {
        match block.first().and_then(|line| line.strip_prefix('#')) {
            Some(heading) => section = format!(", {}", heading.trim_start_matches(['#', ' '])),
            None => pieces.extend(piece(&format!("{page}{section}"), &block)),
        }
    }
    pieces
}

/// Returns the paragraphs of the comments in a file, each with the item that it stands before or
/// in.
fn of_code(path: &str, text: String) -> Result<Vec<Piece>, String> {
    let source = Source::parse(text).map_err(|error| format!("{path}: {error}"))?;
    let functions = source.functions();
    let mut pieces = Vec::new();
    let lines: Vec<&str> = source.text.lines().collect();
    let comments: Vec<&str> = source.comments().lines().map(str::trim).collect();
    // A comment behind code is no paragraph.
    let kind = |at: usize| {
        let whole = comments.get(at).filter(|comment| lines[at].trim() == **comment)?;
        ["//!", "///", "//"].into_iter().find(|kind| whole.starts_with(kind))
    };
    let mut at = 0;
    while at < lines.len() {
        let Some(kind_here) = kind(at) else {
            at += 1;
            continue;
        };
        let from = at;
        while kind(at) == Some(kind_here) {
            at += 1;
        }
        let offset = lines[from].as_ptr() as usize - source.text.as_ptr() as usize;
        let name = match kind_here {
            "//!" => path.to_owned(),
            "///" => format!("{path}, {}", item(&lines, at)),
            _ => match functions.around(offset) {
                "-" => format!("{path}, {}", item(&lines, at)),
                function => format!("{path}, {function}"),
            },
        };
        let text = comments[from..at].iter().map(|line| line[kind_here.len()..].trim_start());
        for block in blocks(text).iter().filter(|block| !block[0].starts_with('#')) {
            pieces.extend(piece(&name, block));
        }
    }
    Ok(pieces)
}

/// Returns the name of the item that begins behind line `at`, with its owner.
fn item(lines: &[&str], at: usize) -> String {
    const ITEMS: [&str; 9] =
        ["fn", "struct", "enum", "trait", "mod", "const", "static", "type", "macro_rules!"];
    let code = |line: &&&str| !line.trim().is_empty() && !line.trim().starts_with(['#', '/']);
    let Some(line) = lines[at..].iter().find(code) else { return String::new() };
    let words: Vec<&str> =
        line.split(|c: char| !c.is_alphanumeric() && !"_!#".contains(c)).collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let is_item = |word: &&str| ITEMS.contains(word);
    let keyword = words.iter().position(is_item);
    let skipped = ["pub", "crate", "super", "in"];
    let name = match keyword {
        Some(keyword) => words.get(keyword + 1),
        None => words.iter().find(|word| !skipped.contains(word)),
    };
    let name = name.copied().unwrap_or_default().to_owned();
    // The owner is the last line above that is indented less and opens an item.
    let indent = |line: &str| line.len() - line.trim_start().len();
    let owner = lines[..at].iter().rev().find(|above| {
        let opens = ["struct ", "enum ", "trait ", "impl", "mod "];
        indent(above) < indent(line)
            && !above.trim().is_empty()
            && opens.iter().any(|word| above.split_whitespace().any(|w| w.starts_with(word.trim())))
    });
    match owner.map(|above| owner_name(above)) {
        Some(owner) => format!("{owner}::{name}"),
        None => name,
    }
}

/// Returns the type or module that a line opens: `Ring` for `impl<E> Drop for Ring<E> {`.
fn owner_name(line: &str) -> &str {
    let line = line.rsplit_once(" for ").map_or(line, |(_, of)| of);
    let is_name = |word: &&str| word.starts_with(|c: char| c.is_uppercase()) && word.len() > 1;
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(is_name);
    // The parameters of an `impl` stand before the type: `impl<E, L: Layout> Ring<E, L> {`.
    let behind = line.strip_prefix("impl<").and_then(|rest| rest.split_once("> "));
    match behind {
        Some((_, of)) => of.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(of),
        None => words.next().unwrap_or(line.trim()),
    }
}

/// Returns the blocks between empty lines, without blocks of code, tables, style sheets and the
/// definitions of links.
fn blocks<'t>(lines: impl Iterator<Item = &'t str>) -> Vec<Vec<&'t str>> {
    let mut found = vec![Vec::new()];
    let (mut in_code, mut in_style) = (false, false);
    for line in lines.map(str::trim) {
        let is_fence = line.starts_with("```");
        in_code ^= is_fence;
        in_style = line == "<style>" || in_style && line != "</style>";
        let is_markup =
            line.starts_with(['|', '<']) || line.starts_with('[') && line.contains("]: ");
        let is_prose = !is_fence && !in_code && !in_style && !is_markup;
        let is_heading = line.starts_with('#');
        if !is_prose || line.is_empty() || is_heading {
            found.push(Vec::new());
        }
        if let Some(block) = found.last_mut().filter(|_| is_prose && !line.is_empty()) {
            block.push(line);
        }
        if is_heading {
            found.push(Vec::new());
        }
    }
    found.retain(|block| !block.is_empty());
    found
}

/// Returns a block as a piece, if it is long enough. Each point of a list begins a new line.
fn piece(name: &str, block: &[&str]) -> Option<Piece> {
    let is_point = |line: &str| {
        let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
        line.starts_with("- ") || (number.len() < line.len() && number.starts_with(". "))
    };
    let mut text = String::new();
    for line in block {
        if !text.is_empty() {
            text.push(if is_point(line) { '\n' } else { ' ' });
        }
        text.push_str(line);
    }
    is_long(&text).then(|| Piece { name: name.to_owned(), text })
}

fn is_long(text: &str) -> bool {
    text.split_whitespace().count() >= WORDS
}

/// Returns the sentences of a paragraph.
fn sentences(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut from = 0;
    for (at, end) in text.match_indices(['.', '\n', '?']) {
        let rest = &text[at + 1..];
        let begins = |c: char| c.is_uppercase() || "`*[-".contains(c);
        let is_end = end == "\n" || rest.trim_start().starts_with(begins) && rest.starts_with(' ');
        if is_end {
            found.push(text[from..=at].trim().to_owned());
            from = at + 1;
        }
    }
    found.push(text[from..].trim().to_owned());
    found.retain(|sentence| !sentence.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_have_the_names_of_their_items() {
        let code = [
            "//! The first paragraph of the module is here,\n//! in two lines.\n//!\n//! Short.\n",
            "\n/// Returns the number of events in the ring.\n///\n",
            "/// ```\n/// let a = 1; // a b c d e f g\n/// ```\n",
            "pub fn count() {\n    // A comment within the body of a function.\n",
            "    let x = 1; // behind code is no paragraph at all\n}\n",
            "struct Ring {\n    /// Number of slots, a power of two, always.\n",
            "    #[x]\n    pub(crate) capacity: u8,\n}\n",
        ]
        .concat();
        let pieces = of_code("a.rs", code).unwrap();
        let named: Vec<(&str, &str)> =
            pieces.iter().map(|piece| (piece.name.as_str(), piece.text.as_str())).collect();
        assert_eq!(
            named,
            [
                ("a.rs", "The first paragraph of the module is here, in two lines."),
                ("a.rs, count", "Returns the number of events in the ring."),
                ("a.rs, count", "A comment within the body of a function."),
                ("a.rs, Ring::capacity", "Number of slots, a power of two, always."),
            ]
        );
    }

    #[test]
    fn owners_are_named_by_their_type() {
        for (line, name) in [
            ("impl<E, L: Layout> Ring<E, L> {", "Ring"),
            ("impl<E: Fn() -> u8> Drop for Claim<E> {", "Claim"),
            ("pub(in super::super) struct Message {", "Message"),
            ("pub trait ReadHandler<E> {", "ReadHandler"),
        ] {
            assert_eq!(owner_name(line), name, "{line}");
        }
    }

    #[test]
    fn pages_have_sections_and_sentences() {
        let page = "# Page\n\nOne claim with `a.rs`. Another claim, e.g. this one.\nStill it.\n\n\
            ```text\nno prose in a block of code\n```\n| no | prose | in | a | table | either |\n\
            <style>\n.td { min-width: 7em; } .th { min-width: 8em; }\n</style>\n\
            [`one`]: crate::one\n[`two`]: crate::two\n[`a third`]: crate::three\n## Rooms\n\
            - A point of a list has words.\n- And so has its neighbour, too.\n";
        let pieces = of_page("P.md", page);
        assert_eq!(pieces.len(), 2);
        assert_eq!(pieces[0].name, "P.md, Page");
        assert_eq!(
            sentences(&pieces[0].text),
            ["One claim with `a.rs`.", "Another claim, e.g. this one.", "Still it."]
        );
        assert_eq!((pieces[1].name.as_str(), sentences(&pieces[1].text).len()), ("P.md, Rooms", 2));
    }

    #[test]
    fn a_seed_draws_the_same_pieces() {
        let draw = |seed, count| drawn((0..100).collect::<Vec<u8>>(), seed, count);
        assert_eq!(draw(7, 20), draw(7, 20));
        assert_ne!(draw(7, 20), draw(8, 20));
        let mut all = draw(1, 200);
        all.sort_unstable();
        assert_eq!(all, (0..100).collect::<Vec<u8>>());
    }

    #[test]
    fn the_project_has_paragraphs_and_claims() {
        let root = workspace::root();
        let count = |text: io::Result<String>| text.unwrap().matches("\n\n").count();
        assert_eq!(count(paragraphs(&root, 1, 60)), 60);
        assert_eq!(count(claims(&root, 1, 24)), 24);
    }
}
