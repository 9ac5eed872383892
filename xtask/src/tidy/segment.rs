//! The tables of the page that describes segments, compared with the code.
//!
//! A comment in front of a table says what the table must repeat: `layout: FILE STRUCT`, the fields
//! of a `repr(C)` struct, or `constants: FILE [NAME ...]`, the constants of a file (without names:
//! all of them). `layout::SEGMENT_TABLES` lists the comments that the page must have.

use std::{collections::BTreeMap, path::Path};

use syn::{
    BinOp, Expr, Fields, GenericArgument, ImplItem, Item, ItemStruct, Lit, PathArguments,
    RangeLimits, Type,
};

use super::file::File;
use crate::{findings::Findings, layout};

/// The value of a constant, in the code or in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Number(i128),
    Millis(i128),
    Text(String),
    Range(i128, i128),
}

/// A file of the code: its constants and structs, without those of tests.
#[derive(Default)]
struct Code {
    constants: Vec<(String, Expr)>,
    structs: Vec<ItemStruct>,
}

/// A field of a struct: its offset in bytes, its type and its name.
type Field = (u64, String, String);

/// The constants and structs of each file, among which names are looked up.
struct World(BTreeMap<String, Code>);

/// Finds tables that the page lacks, and tables that differ from the code.
pub fn check(files: &[File], found: &mut Findings) {
    let required = &layout::SEGMENT_TABLES;
    let world = World::read(files, required, found);
    match files.iter().find(|file| file.path == Path::new(layout::SEGMENT)) {
        Some(page) => check_page(&world, &page.text, required, found),
        None => found.errors.push(format!("{} is missing", layout::SEGMENT)),
    }
}

/// Compares the tables of the page `text` with the code.
fn check_page(world: &World, text: &str, required: &[&str], found: &mut Findings) {
    let page = layout::SEGMENT;
    let tables = tables(text);
    for marker in required {
        let count = tables.iter().filter(|table| table.marker == *marker).count();
        if count != 1 {
            found
                .errors
                .push(format!("{page}: {count} tables behind `<!-- {marker} -->`, not one"));
        }
    }
    for table in &tables {
        let words: Vec<&str> = table.marker.split(' ').collect();
        let checked = match words[..] {
            _ if !required.contains(&&*table.marker) => {
                Err(format!("the check does not know the table `{}`", table.marker))
            }
            ["layout:", path, name] => check_struct(world, path, name, table),
            ["constants:", path, ref names @ ..] => check_constants(world, path, names, table),
            _ => Err(format!("`{}` is no comment of a table", table.marker)),
        };
        let errors = checked.unwrap_or_else(|error| vec![error]);
        let at = |error: String| format!("{page}:{}: {error}", table.line);
        found.errors.extend(errors.into_iter().map(at));
    }
}

/// A table of the page behind a comment.
struct Table {
    marker: String,
    /// The line of the comment, from 1.
    line: usize,
    /// The line and the cells of each row, without the header.
    rows: Vec<(usize, Vec<String>)>,
}

fn tables(text: &str) -> Vec<Table> {
    let mut lines = text.lines().enumerate().peekable();
    let mut tables = Vec::new();
    while let Some((number, line)) = lines.next() {
        let marker = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
        let Some(marker) = marker
            .filter(|marker| marker.starts_with("layout:") || marker.starts_with("constants:"))
        else {
            continue;
        };
        while lines.next_if(|(_, line)| line.trim().is_empty()).is_some() {}
        let mut rows = Vec::new();
        while let Some((number, row)) = lines.next_if(|(_, line)| line.starts_with('|')) {
            let cells = row.trim().trim_matches('|').split('|');
            rows.push((number + 1, cells.map(|cell| cell.trim().to_owned()).collect()));
        }
        // Removes the header and the line below it.
        rows.drain(..rows.len().min(2));
        tables.push(Table { marker: marker.to_owned(), line: number + 1, rows });
    }
    tables
}

/// Returns the text of a cell between backticks, or the whole cell.
fn unquoted(cell: &str) -> &str {
    cell.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')).unwrap_or(cell)
}

fn check_struct(
    world: &World,
    path: &str,
    name: &str,
    table: &Table,
) -> Result<Vec<String>, String> {
    let (fields, size) = world.layout(path, name)?;
    let mut errors = Vec::new();
    let mut seen = Vec::new();
    let mut end = None;
    for (_, row) in &table.rows {
        let [at, kind, field] =
            [0, 1, 2].map(|cell| row.get(cell).map_or("", |cell| unquoted(cell)));
        let number = value(at);
        if field == "*end*" {
            end = Some(number);
            continue;
        }
        seen.push(field.to_owned());
        let Some((offset, of, _)) = fields.iter().find(|(_, _, known)| known == field) else {
            errors.push(format!("`{field}` is no field of `{name}` in {path}"));
            continue;
        };
        if number != Some(Value::Number((*offset).into())) {
            errors.push(format!("`{field}` of `{name}` is at {offset}, and not at {at}"));
        }
        if kind != of {
            errors.push(format!("`{field}` of `{name}` is `{of}`, and not `{kind}`"));
        }
    }
    let known: Vec<String> = fields.into_iter().map(|(_, _, field)| field).collect();
    for field in known.iter().filter(|field| !seen.contains(field)) {
        errors.push(format!("the table of `{name}` leaves out `{field}`"));
    }
    if errors.is_empty() && known != seen {
        errors.push(format!("the fields of `{name}` stand in another order, or twice"));
    }
    if end != Some(Some(Value::Number(size.into()))) {
        errors.push(format!("the table of `{name}` needs a row `*end*` at {size}, its size"));
    }
    Ok(errors)
}

fn check_constants(
    world: &World,
    path: &str,
    names: &[&str],
    table: &Table,
) -> Result<Vec<String>, String> {
    let code = world.0.get(path).ok_or(format!("{path} is not read"))?;
    let all = code.constants.iter().map(|(name, _)| name.as_str());
    let wanted: Vec<&str> = if names.is_empty() { all.collect() } else { names.to_vec() };
    let mut errors = Vec::new();
    let mut seen = Vec::new();
    for (_, row) in &table.rows {
        let [name, stated] = [0, 1].map(|cell| row.get(cell).map_or("", |cell| unquoted(cell)));
        seen.push(name);
        let Some((_, expression)) =
            code.constants.iter().find(|(known, _)| known == name && wanted.contains(&name))
        else {
            errors.push(format!("`{name}` is no constant of {path}"));
            continue;
        };
        let actual = world
            .evaluate(path, expression)
            .ok_or_else(|| format!("`{name}` of {path}: the check cannot compute its value"))?;
        if value(stated).as_ref() != Some(&actual) {
            errors.push(format!("`{name}` of {path} is {actual:?}, and not `{stated}`"));
        }
    }
    for name in wanted.iter().filter(|name| !seen.contains(name)) {
        errors.push(format!("the table of {path} leaves out `{name}`"));
    }
    if errors.is_empty() && seen.len() != wanted.len() {
        errors.push(format!("a constant of {path} stands twice"));
    }
    Ok(errors)
}

/// Reads a value of a table: `1`, `1,024`, `0x1F`, `2^40`, `1 ms`, `1..=64`, or a text.
fn value(text: &str) -> Option<Value> {
    let number = |text: &str| -> Option<i128> {
        let text = text.replace([',', '_'], "");
        if let Some(hex) = text.strip_prefix("0x") {
            i128::from_str_radix(hex, 16).ok()
        } else if let Some(power) = text.strip_prefix("2^") {
            1i128.checked_shl(power.parse().ok()?)
        } else {
            text.parse().ok()
        }
    };
    if text.is_empty() {
        return None;
    }
    let range =
        text.split_once("..=").and_then(|(a, b)| Some(Value::Range(number(a)?, number(b)?)));
    let millis = text.strip_suffix(" ms").and_then(number).map(Value::Millis);
    let plain = number(text).map(Value::Number);
    Some(range.or(millis).or(plain).unwrap_or(Value::Text(text.to_owned())))
}

impl Code {
    fn parse(text: &str) -> syn::Result<Code> {
        let mut code = Code::default();
        for item in syn::parse_file(text)?.items {
            match item {
                Item::Const(item) if item.ident != "_" => {
                    code.constants.push((item.ident.to_string(), *item.expr));
                }
                Item::Impl(item) if item.trait_.is_none() => {
                    for item in item.items {
                        if let ImplItem::Const(item) = item {
                            code.constants.push((item.ident.to_string(), item.expr));
                        }
                    }
                }
                Item::Struct(item) => code.structs.push(item),
                _ => {}
            }
        }
        Ok(code)
    }
}

impl World {
    /// Reads the files that the comments `required` name.
    fn read(files: &[File], required: &[&str], found: &mut Findings) -> World {
        let mut world = World(BTreeMap::new());
        for path in required.iter().filter_map(|marker| marker.split(' ').nth(1)) {
            let file = files.iter().find(|file| file.path == Path::new(path));
            match file.map(|file| Code::parse(&file.text)) {
                Some(Ok(code)) => _ = world.0.insert(path.to_owned(), code),
                Some(Err(error)) => found.errors.push(format!("{path}: {error}")),
                None => {
                    found.errors.push(format!("{path} is missing, of which a page has a table"))
                }
            }
        }
        world
    }

    /// Computes the fields of a `repr(C)` struct, and its size in bytes.
    fn layout(&self, path: &str, name: &str) -> Result<(Vec<Field>, u64), String> {
        let code = self.0.get(path).ok_or(format!("{path} is not read"))?;
        let found = code.structs.iter().find(|item| item.ident == name);
        let item = found.ok_or(format!("{path} has no struct `{name}`"))?;
        let is_c = |attribute: &syn::Attribute| {
            attribute.path().is_ident("repr")
                && attribute.parse_args::<syn::Ident>().is_ok_and(|repr| repr == "C")
        };
        if !item.attrs.iter().any(is_c) {
            return Err(format!("`{name}` of {path} is not `repr(C)`, so it has no layout"));
        }
        let Fields::Named(named) = &item.fields else {
            return Err(format!("`{name}` of {path} has no named fields"));
        };
        let (mut fields, mut at, mut widest) = (Vec::new(), 0u64, 1);
        for field in &named.named {
            let field_name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
            let (size, align, of) = self.kind(path, &field.ty).ok_or_else(|| {
                format!("`{field_name}` of `{name}`: the check does not know its type")
            })?;
            at = at.next_multiple_of(align);
            fields.push((at, of, field_name));
            (at, widest) = (at + size, widest.max(align));
        }
        Ok((fields, at.next_multiple_of(widest)))
    }

    /// Returns size and alignment of a type, in bytes, and its name in tables.
    fn kind(&self, path: &str, of: &Type) -> Option<(u64, u64, String)> {
        let many = |one: (u64, u64, String), count: i128| {
            let count = u64::try_from(count).ok()?;
            Some((one.0 * count, one.1, format!("{}[{count}]", one.2)))
        };
        match of {
            Type::Array(array) => {
                let Value::Number(count) = self.evaluate(path, &array.len)? else { return None };
                many(self.kind(path, &array.elem)?, count)
            }
            Type::Path(of) => {
                let last = of.path.segments.last()?;
                let bytes = match last.ident.to_string().as_str() {
                    "u8" => 1,
                    "u16" => 2,
                    "u32" | "AtomicU32" => 4,
                    "u64" | "AtomicU64" | "Statistic" => 8,
                    "Text" => {
                        let PathArguments::AngleBracketed(arguments) = &last.arguments else {
                            return None;
                        };
                        let Some(GenericArgument::Const(words)) = arguments.args.first() else {
                            return None;
                        };
                        let Value::Number(words) = self.evaluate(path, words)? else { return None };
                        return many((8, 8, "u64".to_owned()), words);
                    }
                    _ => return None,
                };
                Some((bytes, bytes, format!("u{}", bytes * 8)))
            }
            _ => None,
        }
    }

    /// Computes an expression of constants. Returns `None` if it has parts that the check does not
    /// know.
    fn evaluate(&self, path: &str, expression: &Expr) -> Option<Value> {
        let number = |of: &Expr| match self.evaluate(path, of)? {
            Value::Number(number) => Some(number),
            _ => None,
        };
        match expression {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Int(int) => int.base10_parse().ok().map(Value::Number),
                Lit::Str(text) => Some(Value::Text(text.value())),
                Lit::ByteStr(text) => String::from_utf8(text.value()).ok().map(Value::Text),
                _ => None,
            },
            Expr::Paren(inner) => self.evaluate(path, &inner.expr),
            Expr::Unary(inner) => self.evaluate(path, &inner.expr).filter(|value| {
                // The check knows one unary operator: `*` in front of a byte string.
                matches!((inner.op, value), (syn::UnOp::Deref(_), Value::Text(_)))
            }),
            Expr::Cast(inner) => self.evaluate(path, &inner.expr),
            Expr::Range(range) if matches!(range.limits, RangeLimits::Closed(_)) => {
                Some(Value::Range(number(range.start.as_ref()?)?, number(range.end.as_ref()?)?))
            }
            Expr::Binary(binary) => {
                let (left, right) = (number(&binary.left)?, number(&binary.right)?);
                Some(Value::Number(match binary.op {
                    BinOp::Add(_) => left + right,
                    BinOp::Sub(_) => left - right,
                    BinOp::Mul(_) => left * right,
                    BinOp::Div(_) => left.checked_div(right)?,
                    BinOp::BitOr(_) => left | right,
                    BinOp::Shl(_) => left.checked_shl(right.try_into().ok()?)?,
                    _ => return None,
                }))
            }
            // Of `if cfg!(slipring_loom) { .. } else { .. }` only the second branch counts, because
            // only models compile the first.
            Expr::If(choice) => match (&*choice.cond, &choice.else_branch) {
                (Expr::Macro(cond), Some((_, other)))
                    if cond.mac.tokens.to_string() == "slipring_loom" =>
                {
                    self.evaluate(path, other)
                }
                _ => None,
            },
            Expr::Block(block) => match &block.block.stmts[..] {
                [syn::Stmt::Expr(inner, None)] => self.evaluate(path, inner),
                _ => None,
            },
            Expr::Path(name) => {
                let name = name.path.get_ident()?.to_string();
                let own = self.0.get(path).into_iter();
                let constants = own.chain(self.0.values()).flat_map(|code| &code.constants);
                let (_, expression) = constants.into_iter().find(|(known, _)| *known == name)?;
                self.evaluate(path, expression)
            }
            Expr::MethodCall(call) if call.method == "div_ceil" => {
                let by = number(call.args.first()?)?;
                let whole = number(&call.receiver)?;
                (by > 0).then(|| Value::Number((whole + by - 1) / by))
            }
            Expr::Call(call) => {
                let Expr::Path(function) = &*call.func else { return None };
                let last = function.path.segments.last()?;
                match (last.ident.to_string().as_str(), &last.arguments) {
                    ("from_millis", _) => number(call.args.first()?).map(Value::Millis),
                    ("from_secs", _) => number(call.args.first()?).map(|s| Value::Millis(s * 1000)),
                    ("size_of", PathArguments::AngleBracketed(arguments)) => {
                        let GenericArgument::Type(Type::Path(of)) = arguments.args.first()? else {
                            return None;
                        };
                        let name = of.path.get_ident()?.to_string();
                        self.layout(path, &name).ok().map(|(_, size)| Value::Number(size.into()))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{tidy, workspace};

    const CODE: &str = "
        pub const LENGTH: usize = 1 << 2;
        const PAUSE: Duration = Duration::from_secs(1);
        const NAME: [u8; 2] = *b\"ab\";
        const LIMITS: RangeInclusive<u32> = 1..=1_000;
        const RUN: u64 = if cfg!(slipring_loom) { 3 } else { (LENGTH as u64) - 1 };
        const _: () = assert!(true);
        #[repr(C)] struct Record { bits: AtomicU32, at: AtomicU64, text: [u8; LENGTH], name: Text<2> }
        impl Record { const WORDS: usize = size_of::<Record>().div_ceil(16); }
        impl Trait for Record { const STRIDE: u64 = 128; }
        #[cfg(test)] mod tests { const OF_TESTS: u64 = 1; }
        struct Loose { a: u64 }";
    const FIELDS: &str = "| at | type | field | meaning |\n|---|---|---|---|\n\
        | 0 | `u32` | `bits` | |\n| 8 | `u64` | `at` | |\n| 16 | `u8[4]` | `text` | |\n\
        | 24 | `u64[2]` | `name` | |\n| 40 | | *end* | |\n";
    const CONSTANTS: &str = "| constant | value |\n|---|---|\n| `LENGTH` | 4 |\n\
        | `PAUSE` | 1,000 ms |\n| `NAME` | `ab` |\n| `LIMITS` | 1..=1000 |\n| `RUN` | 0x3 |\n\
        | `WORDS` | 3 |\n";
    const MARKERS: [&str; 3] =
        ["layout: a.rs Record", "constants: a.rs", "constants: a.rs LENGTH RUN"];

    /// Returns the errors of a page with three tables, in which `from` is replaced by `to`.
    fn errors(from: &str, to: &str) -> String {
        let [record, all, some] = MARKERS.map(|marker| format!("<!-- {marker} -->"));
        let text = format!(
            "# Page\n\n{record}\n\n{FIELDS}\ntext\n\n{all}\n\n{CONSTANTS}\n{some}\n\n\
             | constant | value |\n|---|---|\n| `LENGTH` | 2^2 |\n| `RUN` | 3 |\n"
        );
        assert!(from.is_empty() || text.contains(from), "{from}");
        let text = if from.is_empty() { text } else { text.replacen(from, to, 1) };
        let (files, mut found) = ([tidy::file::tests::file("a.rs", CODE)], Findings::default());
        let world = World::read(&files, &MARKERS, &mut found);
        check_page(&world, &text, &MARKERS, &mut found);
        found.errors.join("\n")
    }

    #[test]
    fn a_true_table_has_no_error() {
        assert_eq!(errors("", ""), "");
    }

    #[test]
    fn each_falsehood_of_a_table_is_found() {
        for (from, to, says) in [
            ("| 8 | `u64` | `at`", "| 4 | `u64` | `at`", "`at` of `Record` is at 8, and not at 4"),
            ("`u8[4]`", "`u8[8]`", "`text` of `Record` is `u8[4]`, and not `u8[8]`"),
            ("| 16 | `u8[4]` | `text` | |\n", "", "leaves out `text`"),
            ("`bits`", "`word`", "`word` is no field"),
            ("| 40 | | *end*", "| 48 | | *end*", "a row `*end*` at 40"),
            ("| 40 | | *end* | |\n", "", "a row `*end*` at 40"),
            (
                "| 0 | `u32` | `bits` | |\n",
                "| 0 | `u32` | `bits` | |\n| 0 | `u32` | `bits` | |\n",
                "or twice",
            ),
            ("| `LENGTH` | 4 |", "| `LENGTH` | 5 |", "`LENGTH` of a.rs is Number(4), and not `5`"),
            ("1,000 ms", "1000", "`PAUSE` of a.rs is Millis(1000)"),
            ("`ab`", "`abc`", "`NAME` of a.rs"),
            ("1..=1000", "1..=1001", "`LIMITS` of a.rs"),
            ("| `WORDS` | 3 |\n", "", "leaves out `WORDS`"),
            (
                "| `WORDS` | 3 |\n",
                "| `WORDS` | 3 |\n| `STRIDE` | 128 |\n",
                "`STRIDE` is no constant",
            ),
            ("| `LENGTH` | 2^2 |", "| `LENGTH` | 2^3 |", "and not `2^3`"),
            ("| `RUN` | 3 |\n", "", "leaves out `RUN`"),
            ("<!-- layout: a.rs Record -->", "", "0 tables behind `<!-- layout: a.rs Record -->`"),
            (
                "<!-- constants: a.rs -->",
                "<!-- constants: a.rs NAME -->",
                "does not know the table",
            ),
        ] {
            let found = errors(from, to);
            assert!(found.contains(says), "{from:?} as {to:?}: {found}");
        }
    }

    #[test]
    fn what_has_no_layout_is_an_error() {
        let mut found = Findings::default();
        check(&[], &mut found);
        let missing = |what: &str| found.errors.iter().any(|error| error.starts_with(what));
        assert!(missing("crates/slipring-shm/SEGMENT.md is missing"), "{:?}", found.errors);
        assert!(
            missing("crates/slipring-shm/src/system/limits.rs is missing"),
            "{:?}",
            found.errors
        );
        let world = World([("a.rs".to_owned(), Code::parse(CODE).unwrap())].into());
        assert!(world.layout("a.rs", "Loose").unwrap_err().contains("not `repr(C)`"));
        assert!(world.layout("a.rs", "Other").unwrap_err().contains("no struct"));
    }

    /// The check finds each missing row of the project's own page, and each number that differs.
    #[test]
    fn each_number_of_the_page_is_checked() {
        let files = tidy::read(&workspace::root()).unwrap();
        let mut found = Findings::default();
        check(&files, &mut found);
        assert_eq!(found.errors, [""; 0]);
        let world = World::read(&files, &layout::SEGMENT_TABLES, &mut found);
        let page = files.iter().find(|file| file.path == Path::new(layout::SEGMENT)).unwrap();
        let errors = |line: usize, with: &str| {
            let mut lines: Vec<&str> = page.text.lines().collect();
            lines[line - 1] = with;
            let mut found = Findings::default();
            check_page(&world, &lines.join("\n"), &layout::SEGMENT_TABLES, &mut found);
            found.errors.len()
        };
        let digit = |c: char| c.is_ascii_digit();
        let mut checked = 0;
        for (line, _) in tables(&page.text).into_iter().flat_map(|table| table.rows) {
            let row = page.text.lines().nth(line - 1).unwrap();
            assert_ne!(errors(line, "| | |"), 0, "line {line} can be left out: {row}");
            // The check must also notice a change of the last digit in the first cell that has a
            // digit.
            let cell = row.split('|').find(|cell| cell.contains(digit)).unwrap_or("");
            if let Some(at) = cell.rfind(digit) {
                let other = if cell[at..].starts_with('7') { "8" } else { "7" };
                let changed = format!("{}{other}{}", &cell[..at], &cell[at + 1..]);
                let row = row.replacen(cell, &changed, 1);
                assert_ne!(errors(line, &row), 0, "line {line} may be another: {row}");
                checked += 1;
            }
        }
        assert!(checked > 120, "{checked} rows have a number");
    }
}
