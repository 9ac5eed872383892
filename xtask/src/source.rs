//! Reading Rust source just well enough for the checks: what is code, what is comment, which
//! function a place belongs to, and what only the tests see.
//!
//! This is a scanner, not a parser. It keeps every byte where it was, so that an offset into
//! [`Source::code`] is an offset into [`Source::text`].

use std::{ops::Range, path::PathBuf};

/// The orderings that a fence may have.
const ORDERS: [&str; 4] = ["SeqCst", "AcqRel", "Acquire", "Release"];

/// A source file, taken apart into code and comments.
pub struct Source {
    /// The file as it stands.
    pub text: String,
    /// The same bytes with comments and the insides of literals blanked out.
    pub code: String,
    /// The same bytes with everything but comments blanked out.
    pub comments: String,
}

/// A function's body, with the name it goes by: `Type::method` or `function`.
#[derive(Debug)]
struct Body {
    name: String,
    range: Range<usize>,
}

/// What a file holds for its tests alone.
#[derive(Debug, Default)]
pub struct TestCode {
    /// Parts of this file.
    pub ranges: Vec<Range<usize>>,
    /// Modules in files of their own, as their names or as the files that `#[path]` names.
    pub modules: Vec<PathBuf>,
}

impl Source {
    /// Takes `text` apart.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        let (code, comments) = split(&text);
        Self { text, code, comments }
    }

    /// The line of `offset`, counted from 1.
    pub fn line(&self, offset: usize) -> usize {
        self.text.as_bytes()[..offset].iter().filter(|&&b| b == b'\n').count() + 1
    }

    /// Where `word` stands in code as a word of its own.
    pub fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        words(&self.code, word)
    }

    /// The functions of the file.
    pub fn functions(&self) -> Functions {
        Functions(bodies(&self.code))
    }

    /// What only tests see: items under `#[cfg(test)]`, `#[cfg(all(test, ...))]`.
    pub fn test_code(&self) -> TestCode {
        let mut found = TestCode::default();
        let code = self.code.as_bytes();
        let mut from = 0;
        while let Some(at) = self.code[from..].find('#').map(|i| i + from) {
            from = at + 1;
            let inner = code.get(at + 1) == Some(&b'!');
            let open = at + 1 + usize::from(inner);
            if code.get(open) != Some(&b'[') {
                continue;
            }
            let Some(close) = closing(code, open) else { continue };
            if !is_test_attribute(&self.code[open + 1..close]) {
                continue;
            }
            if inner {
                found.ranges.push(0..code.len());
                return found;
            }
            let (end, module) = self.item(close + 1);
            found.ranges.push(at..end);
            found.modules.extend(module);
            from = end;
        }
        found
    }

    /// The end of the item that begins at or after `from`, and the module it names when that is in
    /// another file.
    fn item(&self, mut from: usize) -> (usize, Option<PathBuf>) {
        let code = self.code.as_bytes();
        let mut path = None;
        loop {
            while from < code.len() && code[from].is_ascii_whitespace() {
                from += 1;
            }
            if code.get(from) != Some(&b'#') {
                break;
            }
            let Some(close) = closing(code, from + 1) else { break };
            let attribute = self.text[from + 2..close].trim();
            if let Some(value) =
                attribute.strip_prefix("path").map(|rest| rest.trim_matches([' ', '=', '"']))
            {
                path = Some(PathBuf::from(value));
            }
            from = close + 1;
        }
        let mut at = from;
        while at < code.len() {
            match code[at] {
                b'(' | b'[' => at = closing(code, at).unwrap_or(code.len()),
                b'{' => return (closing(code, at).map_or(code.len(), |end| end + 1), None),
                b';' => {
                    let item = self.code[from..at].trim();
                    let name =
                        words(item, "mod").next().map(|i| PathBuf::from(item[i + 3..].trim()));
                    return (at + 1, name.map(|name| path.unwrap_or(name)));
                }
                _ => {}
            }
            at += 1;
        }
        (code.len(), None)
    }

    /// The calls of `compiler_fence(...)`, with their paths.
    pub fn compiler_fences(&self) -> Vec<Range<usize>> {
        self.calls("compiler_fence", |name, _| name == "compiler_fence")
    }

    /// The calls of `fence(...)`, and of functions named `fence_...()`, with their paths.
    pub fn fences(&self) -> Vec<Range<usize>> {
        self.calls("fence", |name, args| {
            let plain = name == "fence" && ORDERS.iter().any(|order| args.ends_with(order));
            plain || (name.starts_with("fence_") && args.is_empty())
        })
    }

    /// The calls, with their paths, of functions whose name begins with `prefix`, and that `is`
    /// accepts by name and arguments.
    pub fn calls(&self, prefix: &str, is: impl Fn(&str, &str) -> bool) -> Vec<Range<usize>> {
        let code = self.code.as_bytes();
        let mut found = Vec::new();
        for (at, _) in
            self.code.match_indices(prefix).filter(|&(at, _)| at == 0 || !is_name(code[at - 1]))
        {
            let open = at + code[at..].iter().take_while(|&&byte| is_name(byte)).count();
            if code.get(open) != Some(&b'(') {
                continue;
            }
            let Some(close) = closing(code, open) else { continue };
            let start = at
                - code[..at]
                    .iter()
                    .rev()
                    .take_while(|&&byte| is_name(byte) || byte == b':')
                    .count();
            let before = self.code[..start].trim_end();
            let (name, args) = (&self.code[at..open], self.code[open + 1..close].trim());
            if is(name, args) && !before.ends_with("fn") && !before.ends_with('.') {
                found.push(start..close + 1);
            }
        }
        found
    }

    /// The ranges of all `use` items.
    pub fn uses(&self) -> Vec<Range<usize>> {
        self.words("use")
            .filter(|&at| self.code.as_bytes().get(at + 3).is_some_and(u8::is_ascii_whitespace))
            .map(|at| at..self.code[at..].find(';').map_or(self.code.len(), |end| at + end))
            .collect()
    }
}

/// The functions of a file.
pub struct Functions(Vec<Body>);

impl Functions {
    /// The bodies of all functions, with their names: `Type::method` or `function`.
    pub fn bodies(&self) -> impl Iterator<Item = (&str, &Range<usize>)> {
        self.0.iter().map(|body| (body.name.as_str(), &body.range))
    }

    /// The name of the innermost function around `offset`, or `-` outside of any.
    pub fn around(&self, offset: usize) -> &str {
        self.0
            .iter()
            .filter(|body| body.range.contains(&offset))
            .min_by_key(|body| body.range.len())
            .map_or("-", |body| &body.name)
    }
}

/// Whether `byte` may be part of a name.
pub fn is_name(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric() || byte >= 0x80
}

/// Where `word` stands in `code` as a word of its own.
pub fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let end = at + word.len();
        (at == 0 || !is_name(bytes[at - 1])) && (end == bytes.len() || !is_name(bytes[end]))
    })
}

/// The bracket that closes the one at `open`, in code whose literals are blanked out.
pub fn closing(code: &[u8], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in code.iter().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Whether an attribute leaves its item to tests alone: `cfg(test)`, `cfg(all(test, ...))`.
fn is_test_attribute(attribute: &str) -> bool {
    let squeezed: String = attribute.split_whitespace().collect();
    let Some(predicate) = squeezed.strip_prefix("cfg(").and_then(|rest| rest.strip_suffix(')'))
    else {
        return false;
    };
    let all =
        predicate.strip_prefix("all(").and_then(|rest| rest.strip_suffix(')')).unwrap_or(predicate);
    let mut depth = 0;
    all.split(|c| {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        c == ',' && depth == 0
    })
    .any(|part| part == "test")
}

/// Splits `text` into code and comments, both as long as `text`.
fn split(text: &str) -> (String, String) {
    let bytes = text.as_bytes();
    let blank: Vec<u8> = bytes.iter().map(|&b| if b == b'\n' { b'\n' } else { b' ' }).collect();
    let (mut code, mut comments) = (blank.clone(), blank);
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let end = if rest.starts_with(b"//") {
            let end = at + rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
            comments[at..end].copy_from_slice(&bytes[at..end]);
            end
        } else if rest.starts_with(b"/*") {
            let end = at + block_comment(rest);
            comments[at..end].copy_from_slice(&bytes[at..end]);
            end
        } else if let Some((quote, end)) = literal(bytes, at) {
            code[at..=quote].copy_from_slice(&bytes[at..=quote]);
            code[end - 1] = bytes[end - 1];
            end
        } else {
            code[at] = bytes[at];
            at + 1
        };
        at = end;
    }
    let valid = |bytes| String::from_utf8(bytes).expect("whole characters are copied or blanked");
    (valid(code), valid(comments))
}

/// The length of the (nested) block comment that `bytes` begins with.
fn block_comment(bytes: &[u8]) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// The literal that begins at `at`, if one does: its opening quote and its end (exclusive).
fn literal(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let rest = &bytes[at..];
    match rest[0] {
        b'"' => Some((at, quoted(bytes, at, b'"'))),
        b'\'' => {
            let next = *rest.get(1)?;
            if next == b'\\' {
                return Some((at, quoted(bytes, at, b'\'')));
            }
            let width = match next {
                ..0x80 => 1,
                0x80..0xe0 => 2,
                0xe0..0xf0 => 3,
                _ => 4,
            };
            (rest.get(1 + width) == Some(&b'\'')).then_some((at, at + width + 2)) // else a lifetime
        }
        b'r' | b'b' | b'c' if at == 0 || !is_name(bytes[at - 1]) => {
            let raw = rest.iter().take(2).position(|&b| b == b'r')?;
            let hashes = rest[raw + 1..].iter().take_while(|&&b| b == b'#').count();
            let quote = at + raw + 1 + hashes;
            if bytes.get(quote) != Some(&b'"') {
                return None;
            }
            let mut end = vec![b'"'];
            end.resize(1 + hashes, b'#');
            let length = bytes[quote + 1..].windows(end.len()).position(|w| w == end);
            Some((quote, length.map_or(bytes.len(), |length| quote + 1 + length + end.len())))
        }
        _ => None,
    }
}

/// The end (exclusive) of the literal with escapes that opens at `open`.
fn quoted(bytes: &[u8], open: usize, quote: u8) -> usize {
    let mut at = open + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b if b == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// All function bodies of `code`.
fn bodies(code: &str) -> Vec<Body> {
    struct Open {
        depth: usize,
        function: bool,
        name: String,
        start: usize,
    }
    let bytes = code.as_bytes();
    let (mut found, mut stack): (Vec<Body>, Vec<Open>) = Default::default();
    let (mut depth, mut nest, mut at) = (0usize, 0isize, 0);
    let mut pending: Option<(bool, String, isize)> = None;
    while at < bytes.len() {
        if is_name(bytes[at]) {
            let end = at + bytes[at..].iter().take_while(|&&b| is_name(b)).count();
            match (&code[at..end], &pending) {
                ("fn", _) => {
                    let name: String = code[end..]
                        .trim_start()
                        .chars()
                        .take_while(|c| c.is_alphanumeric() || *c == '_')
                        .collect();
                    if !name.is_empty() {
                        pending = Some((true, name, nest));
                    }
                }
                ("impl", None) => {
                    let header = code[end..].split('{').next().unwrap_or_default();
                    pending = Some((false, implementor(header), nest));
                }
                ("trait", None) => {
                    let name = code[end..]
                        .trim_start()
                        .chars()
                        .take_while(|c| c.is_alphanumeric() || *c == '_')
                        .collect();
                    pending = Some((false, name, nest));
                }
                _ => {}
            }
            at = end;
            continue;
        }
        match bytes[at] {
            b'(' | b'[' => nest += 1,
            b')' | b']' => nest -= 1,
            b';' => {
                pending = pending.filter(|&(_, _, outside)| outside != nest);
            }
            b'{' => {
                if let Some((function, name, _)) =
                    pending.take_if(|&mut (_, _, outside)| outside == nest)
                {
                    let owner = stack.iter().rev().find(|open| !open.function).filter(|_| function);
                    let name = owner
                        .map_or_else(|| name.clone(), |owner| format!("{}::{name}", owner.name));
                    stack.push(Open { depth, function, name, start: at });
                }
                depth += 1;
            }
            b'}' => {
                depth = depth.saturating_sub(1);
                if let Some(open) = stack.pop_if(|open| open.depth == depth)
                    && open.function
                {
                    found.push(Body { name: open.name, range: open.start..at + 1 });
                }
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// The name of the type that an `impl` header (without the keyword) is for.
fn implementor(header: &str) -> String {
    let mut flat = String::new();
    let (mut depth, mut last) = (0isize, ' ');
    for c in header.chars() {
        match c {
            '<' => depth += 1,
            '>' if last != '-' => depth -= 1,
            _ if depth == 0 => flat.push(c),
            _ => {}
        }
        last = c;
    }
    let flat = flat.split_once(" where").map_or(flat.as_str(), |(before, _)| before);
    let name = flat.rsplit_once(" for ").map_or(flat, |(_, after)| after);
    let name = name.split_whitespace().last().unwrap_or_default();
    name.rsplit("::").next().unwrap_or_default().trim_start_matches(['&', '*', '!']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_told_from_code() {
        let text = r####"let a = "x // no \" y"; // yes
let b = 'z'; let c: &'static str = r#"raw " /* no */ "#; /* a /* nested */ block */ let d = '\''; let e = b"Acquire"; let é = 'é';"####;
        let source = Source::new(text);
        assert_eq!(source.code.len(), text.len());
        assert!(
            !source.code.contains("no")
                && !source.code.contains("yes")
                && !source.code.contains("nested")
        );
        assert!(
            source.code.contains("let c: &'static str")
                && source.code.contains("let d")
                && source.code.contains("let e")
        );
        assert!(!source.code.contains("Acquire") && source.code.ends_with("let é = '  ';"));
        assert!(
            source.comments.contains("// yes")
                && source.comments.contains("/* a /* nested */ block */")
        );
        assert!(!source.comments.contains("// no"));
    }

    #[test]
    fn functions_are_named_by_their_type() {
        let source = Source::new(
            "fn free(x: [u8; 4]) -> impl Fn() { one }
             impl<T: Fn() -> u8> Drop for ring::Claim<'_, T> where T: Send { fn drop(&mut self) { let f = || { two }; fn inner() { three } } }
             trait Wait { fn wait(&self); fn both(&self) { four } }
             const X: u8 = five;",
        );
        let functions = source.functions();
        let of = |word: &str| functions.around(source.words(word).next().unwrap()).to_owned();
        assert_eq!(
            ["one", "two", "three", "four", "five"].map(of),
            ["free", "Claim::drop", "Claim::inner", "Wait::both", "-"]
        );
    }

    #[test]
    fn test_code_is_found() {
        let source = Source::new(
            "#[cfg(not(test))] fn a() { live }
             #[cfg(any(test, x))] fn a() { live }
             #[cfg(all(test, slipring_loom))] #[allow(x)] mod models;
             #[cfg(test)] #[path = \"elsewhere/t.rs\"] mod t;
             #[cfg(test)] mod tests { dead }
             fn b() { live }",
        );
        let tests = source.test_code();
        let within = |at| tests.ranges.iter().any(|range| range.contains(&at));
        assert_eq!(source.words("live").filter(|&at| !within(at)).count(), 3);
        assert!(source.words("dead").all(within));
        assert_eq!(tests.modules, [PathBuf::from("models"), PathBuf::from("elsewhere/t.rs")]);
        assert_eq!(
            Source::new("#![cfg(all(test, slipring_loom))] fn a() {}").test_code().ranges.len(),
            1
        );
    }

    #[test]
    fn words_stand_alone() {
        let source = Source::new("Acquire AcquireX x.Acquire _Acquire \"Acquire\"");
        assert_eq!(source.words("Acquire").count(), 2);
        let uses = Source::new("use a::{b, c};\nfn f() -> impl A + use<'_> { x }").uses();
        assert_eq!(uses.iter().map(|range| range.end).collect::<Vec<_>>(), [13]);
    }
}
