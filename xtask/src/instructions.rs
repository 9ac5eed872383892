//! The budgets of the hot paths, in instructions.
//!
//! The program `peers/instructions` runs each operation in one thread, without a wait. Valgrind's
//! callgrind counts what it executes, and a count is the same each time and on each machine, as
//! long as the same compiler has made the program. So the check sees a single instruction more for
//! an event, which no measurement of time does. It says nothing about time: a transfer of a cache
//! line costs as much as a hundred instructions, and a locked instruction counts as one.
//!
//! [`BUDGETS`] has a budget for each operation, and names the compiler with which they were
//! counted. The check fails in these cases:
//! - An operation costs more than its budget by more than [`SLACK`].
//! - An operation costs less than its budget by more than [`SLACK`] and [`LOOSE`]. A loose budget
//!   would let the next change spend what this one has saved.
//! - An operation has no budget, or a budget no operation.
//!
//! Another compiler makes other code. With another one than the file names, the check therefore
//! fails only if an operation exceeds its budget by more than [`OTHER_COMPILER`], and tells the
//! other differences. `--renew` writes the counts as the new budgets, and the compiler's name; the
//! change then shows in review, line by line.
//!
//! All operations run in one process, under one callgrind. The check calls valgrind itself, because
//! the crate `gungraun` gained nothing here: it starts callgrind once for each operation, compares
//! with the previous run on the same machine or with totals in the source, and needs a program of
//! its own, which takes 127 more crates and two minutes to build.

use std::{
    collections::BTreeMap,
    env,
    fmt::Write as _,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    command::Call,
    say::say,
    steps::{Step, Trouble},
};

/// The file of the budgets.
const BUDGETS: &str = "peers/instructions/budgets.csv";
/// The workspace of the program that runs the operations.
const WORKSPACE: &str = "peers";
/// Number of instructions by which a count may differ from its budget. It is below one, so a single
/// instruction more for each event is found.
const SLACK: f64 = 0.4;
/// Share of the budget by which a message may cost more. The C library copies the message, and its
/// code differs from version to version.
const COPIED: f64 = 0.02;
/// Settings of the C library under which it copies by the same code on each processor. Older
/// versions know the names that end in `_Usable`.
const ONE_COPY: &str = "glibc.cpu.hwcaps=-AVX,-AVX2,-AVX512F,-AVX512VL,-ERMS,-FSRM,\
    -AVX_Usable,-AVX2_Usable,-AVX512F_Usable,-AVX_Fast_Unaligned_Load";
/// Share of the budget by which an operation may cost less.
const LOOSE: f64 = 0.03;
/// Share of the budget by which an operation may cost more if another compiler has made it.
const OTHER_COMPILER: f64 = 0.10;
/// How to renew the budgets.
const RENEW: &str = "`cargo xtask instructions --renew` writes the counts as the new budgets";

/// An operation, as the program lists it.
#[derive(Debug, Clone, PartialEq)]
struct Operation {
    name: String,
    /// Symbol of the counted function.
    symbol: String,
    /// Number of units in one call of the function.
    units: f64,
    /// The unit.
    unit: String,
    /// Description of the operation.
    what: String,
    /// The operation of slipring that this one is compared with, if it belongs to another ring.
    beside: Option<String>,
}

/// The budgets, in instructions, by the names of the operations.
#[derive(Debug, Default, PartialEq)]
struct Budgets {
    /// The compiler with which they were counted.
    compiler: String,
    of: BTreeMap<String, f64>,
}

/// The judgement of one count.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Fits,
    Exceeds,
    Loose,
}

/// Counts the instructions of all operations, and compares them with the budgets, or writes them as
/// the new budgets if `renew` is set.
pub fn check(step: &mut Step, renew: bool) -> Result<(), Trouble> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        say!("skipped: the budgets hold for x86-64 Linux alone");
        return Ok(());
    }
    let quiet = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if !quiet.is_ok_and(|status| status.success()) {
        return Err(Trouble::missing("valgrind", "apt install valgrind"));
    }
    let target = step.root.join(WORKSPACE).join("target");
    let build = Call::cargo("build --release -p instructions --manifest-path");
    step.run(&build.args([format!("{WORKSPACE}/Cargo.toml")]).target_dir(&target))?;
    let program = target.join("release/instructions");
    let operations = list(&output(Command::new(&program).arg("--list"))?)?;
    let profile = step.scratch("instructions.callgrind");
    let counts = counts(&operations, &costs(&callgrind(&program, &profile)?))?;
    let compiler = compiler(&step.root)?;
    let file = step.root.join(BUDGETS);
    if renew {
        fs::write(file, written(&operations, &counts, &compiler))?;
    }
    let budgets = read(&fs::read_to_string(step.root.join(BUDGETS)).unwrap_or_default())?;
    say!("{}", table(&operations, &counts, &budgets));
    Ok(judge(&operations, &counts, &budgets, &compiler)?)
}

/// Returns what a command prints.
fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{name} failed ({}):\n{said}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs `program` under callgrind, and returns the profile.
fn callgrind(program: &Path, profile: &Path) -> Result<String, Trouble> {
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--tool=callgrind", "--compress-strings=no"]);
    command.arg(format!("--callgrind-out-file={}", profile.display())).arg(program);
    // The linker's work at a function's first call would count as the caller's.
    output(command.env("LD_BIND_NOW", "1").env("GLIBC_TUNABLES", ONE_COPY))?;
    Ok(fs::read_to_string(profile)?)
}

/// Returns the compiler's version and its target.
fn compiler(root: &Path) -> Result<String, String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = output(Command::new(rustc).arg("-vV").current_dir(root))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
    Ok(format!("{} for {host}", said.lines().next().unwrap_or_default()))
}

/// Reads the program's list of operations.
fn list(text: &str) -> Result<Vec<Operation>, String> {
    let operation = |line: &str| {
        let [name, symbol, units, unit, what, beside] = line.split('\t').collect::<Vec<_>>()[..]
        else {
            return None;
        };
        let (name, symbol, unit) = (name.to_owned(), symbol.to_owned(), unit.to_owned());
        let beside = (!beside.is_empty()).then(|| beside.to_owned());
        let units = units.parse().ok()?;
        Some(Operation { name, symbol, units, unit, what: what.to_owned(), beside })
    };
    let read = |line| operation(line).ok_or_else(|| format!("no operation: `{line}`"));
    text.lines().map(read).collect()
}

/// Returns the number of calls of each function in a profile with uncompressed names, and the
/// instructions that these calls have executed, also in the functions that they called.
fn costs(profile: &str) -> BTreeMap<&str, (u64, u64)> {
    let mut costs = BTreeMap::<&str, (u64, u64)>::new();
    let (mut called, mut calls) = ("", None);
    for line in profile.lines() {
        if let Some(name) = line.strip_prefix("cfn=") {
            called = name;
        } else if let Some(number) = line.strip_prefix("calls=") {
            calls = number.split(' ').next().and_then(|number| number.parse::<u64>().ok());
        } else if let Some(calls) = calls.take() {
            // The line behind `calls` has a place and the cost of the calls.
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok());
            let sum = costs.entry(called).or_default();
            *sum = (sum.0 + calls, sum.1 + cost.unwrap_or_default());
        }
    }
    costs
}

/// Returns the instructions of each operation, for one unit.
fn counts(
    operations: &[Operation],
    costs: &BTreeMap<&str, (u64, u64)>,
) -> Result<Vec<f64>, String> {
    let count = |Operation { name, symbol, units, .. }: &Operation| {
        let (calls, cost) = costs
            .get(symbol.as_str())
            .ok_or_else(|| format!("{name}: the profile has no call of `{symbol}`"))?;
        Ok(*cost as f64 / *calls as f64 / units)
    };
    operations.iter().map(count).collect()
}

/// Reads the file of the budgets.
fn read(text: &str) -> Result<Budgets, String> {
    let mut budgets = Budgets::default();
    for line in text.lines().filter(|line| !line.starts_with("operation,")) {
        if let Some(compiler) = line.strip_prefix("# compiler: ") {
            budgets.compiler = compiler.to_owned();
        } else if !line.starts_with('#') {
            let mut columns = line.split(',');
            let (name, budget) = (columns.next(), columns.next());
            let budget = budget.and_then(|budget| budget.parse().ok());
            let (Some(name), Some(budget)) = (name, budget) else {
                return Err(format!("{BUDGETS}: no budget: `{line}`"));
            };
            budgets.of.insert(name.to_owned(), budget);
        }
    }
    Ok(budgets)
}

/// Returns the file of the budgets that equal the counts.
fn written(operations: &[Operation], counts: &[f64], compiler: &str) -> String {
    let mut text = format!(
        "# Instructions of each operation. {RENEW}.\n\
         # compiler: {compiler}\n\
         operation,budget,per,what\n"
    );
    for (Operation { name, unit, what, beside, .. }, count) in operations.iter().zip(counts) {
        if beside.is_none() {
            let _ = writeln!(text, "{name},{count:.1},{unit},{}", what.replace(',', ";"));
        }
    }
    text
}

/// Returns a table of all counts. Below each operation stand those of other rings that are compared
/// with it.
fn table(operations: &[Operation], counts: &[f64], budgets: &Budgets) -> String {
    let mut text = format!(
        "{:<24} {:>8} {:>8}  {:<8} {}",
        "operation", "counted", "budget", "per", "what it is"
    );
    let mut row = |operation: &Operation, count: f64| {
        let Operation { name, unit, what, beside, .. } = operation;
        let budget = budgets.of.get(name).map(|budget| format!("{budget:.1}"));
        let budget = budget.as_deref().unwrap_or(if beside.is_some() { "" } else { "none" });
        let name = if beside.is_some() { format!("  {name}") } else { name.clone() };
        let _ = write!(text, "\n{name:<24} {count:>8.1} {budget:>8}  {unit:<8} {what}");
    };
    let all = || operations.iter().zip(counts.iter().copied());
    for (own, count) in all().filter(|(operation, _)| operation.beside.is_none()) {
        row(own, count);
        let other = |operation: &Operation| operation.beside.as_deref() == Some(&own.name);
        all().filter(|(operation, _)| other(operation)).for_each(|(it, count)| row(it, count));
    }
    text
}

/// Compares the count of a `unit` with its budget.
fn verdict(count: f64, budget: f64, unit: &str, same_compiler: bool) -> Verdict {
    let share = match same_compiler {
        false => OTHER_COMPILER,
        true if unit == "message" => COPIED,
        true => 0.0,
    };
    if count > budget + (share * budget).max(SLACK) {
        Verdict::Exceeds
    } else if count < budget - (LOOSE * budget).max(SLACK) {
        Verdict::Loose
    } else {
        Verdict::Fits
    }
}

/// Compares the counts with the budgets.
fn judge(
    operations: &[Operation],
    counts: &[f64],
    budgets: &Budgets,
    compiler: &str,
) -> Result<(), String> {
    let same = compiler == budgets.compiler;
    if !same {
        say!("counted with {compiler}; the budgets are of {}", budgets.compiler);
    }
    let (mut errors, mut of) = (Vec::new(), budgets.of.clone());
    let ours = operations.iter().zip(counts).filter(|(operation, _)| operation.beside.is_none());
    for (Operation { name, unit, .. }, count) in ours {
        let Some(budget) = of.remove(name) else {
            errors.push(format!("{name} has no budget: {count:.1} instructions per {unit}"));
            continue;
        };
        let numbers = format!("{count:.1} instructions per {unit}, budget {budget:.1}");
        match verdict(*count, budget, unit, same) {
            Verdict::Fits => {}
            Verdict::Exceeds => errors.push(format!("{name} exceeds its budget: {numbers}")),
            Verdict::Loose if same => errors.push(format!("{name} got cheaper: {numbers}")),
            Verdict::Loose => say!("{name} is cheaper with this compiler: {numbers}"),
        }
    }
    errors.extend(of.keys().map(|name| format!("{name} has a budget, and is no operation")));
    if errors.is_empty() {
        return Ok(());
    }
    errors.push(format!("If that is meant: {RENEW}."));
    Err(errors.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "publish\tcount_publish\t1024\tevent\tpublish, by a closure\t\n\
        read\tcount_read\t10\tbatch\tread\t\n\
        limit\tcount_limit\t1024\tevent\tthe limit\tpublish\n";

    /// A profile as callgrind writes it: a call of a call counts for both, and the counted function
    /// is called from two places.
    const PROFILE: &str = "version: 1\n\
        events: Ir\n\
        fn=main\n\
        16 400\n\
        cfi=src/main.rs\n\
        cfn=count_publish\n\
        calls=3 7\n\
        +3 30720\n\
        cfn=count_publish\n\
        calls=1 7\n\
        * 10240\n\
        cfn=count_read\n\
        calls=2 9\n\
        * 2000\n\
        cfn=count_limit\n\
        calls=1 9\n\
        * 4096\n\
        \n\
        fn=count_publish\n\
        7 1000\n\
        cfn=cold\n\
        calls=4 9\n\
        +1 39960\n";

    fn counted() -> (Vec<Operation>, Vec<f64>) {
        let operations = list(LIST).unwrap();
        let counts = counts(&operations, &costs(PROFILE)).unwrap();
        (operations, counts)
    }

    fn judged(counts: &[f64], compiler: &str) -> Result<(), String> {
        let (operations, first) = counted();
        let budgets = read(&written(&operations, &first, "rustc 1")).unwrap();
        judge(&operations, counts, &budgets, compiler)
    }

    #[test]
    fn calls_are_counted_with_all_that_they_call() {
        let (operations, counts) = counted();
        assert_eq!(counts, [10.0, 100.0, 4.0]);
        let missing = super::counts(&operations, &costs("cfn=count_publish\n")).unwrap_err();
        assert!(missing.contains("count_publish"), "{missing}");
        assert!(list("publish\tcount_publish\n").is_err());
    }

    #[test]
    fn renewed_budgets_fit() {
        let (operations, counts) = counted();
        let text = written(&operations, &counts, "rustc 1 for a machine");
        let budgets = read(&text).unwrap();
        assert_eq!(budgets.compiler, "rustc 1 for a machine");
        assert_eq!(budgets.of.len(), 2, "other rings have no budget: {text}");
        assert_eq!(judge(&operations, &counts, &budgets, &budgets.compiler), Ok(()));
        let table = table(&operations, &counts, &budgets);
        let names: Vec<_> = table.lines().map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(names, ["operation", "publish", "", "read"], "{table}");
        assert!(read("publish,many").is_err());
    }

    #[test]
    fn one_instruction_more_is_found_and_both_numbers_are_named() {
        let error = judged(&[11.0, 100.0, 9.0], "rustc 1").unwrap_err();
        assert!(error.contains("publish exceeds its budget: 11.0"), "{error}");
        assert!(error.contains("budget 10.0") && error.contains("--renew"), "{error}");
        assert!(!error.contains("read") && !error.contains("limit"), "{error}");
        assert_eq!(judged(&[10.3, 98.0, 4.0], "rustc 1"), Ok(()));
    }

    #[test]
    fn a_loose_budget_is_found() {
        let error = judged(&[10.0, 96.0, 4.0], "rustc 1").unwrap_err();
        assert!(error.contains("read got cheaper: 96.0"), "{error}");
    }

    #[test]
    fn another_compiler_gets_a_tenth_more() {
        assert_eq!(judged(&[10.9, 90.0, 4.0], "rustc 2"), Ok(()));
        assert!(judged(&[10.9, 111.0, 4.0], "rustc 2").unwrap_err().contains("111.0"));
    }

    #[test]
    fn a_message_may_be_copied_by_other_code() {
        assert_eq!(verdict(101.9, 100.0, "message", true), Verdict::Fits);
        assert_eq!(verdict(102.1, 100.0, "message", true), Verdict::Exceeds);
        assert_eq!(verdict(101.0, 100.0, "batch", true), Verdict::Exceeds);
    }

    #[test]
    fn each_operation_has_a_budget_and_each_budget_an_operation() {
        let (operations, counts) = counted();
        let budgets = read("# compiler: rustc 1\npublish,10.0\nold,7\n").unwrap();
        let error = judge(&operations, &counts, &budgets, "rustc 1").unwrap_err();
        assert!(error.contains("read has no budget") && error.contains("old has a budget"));
    }
}
