//! The machine code of a publication and of a release at a quiet wait queue.
//!
//! In a publication and in a release, the order of the store and the load behind it rests on a
//! compiler fence, which no model sees. The check is written by hand, because it reads only a few
//! mnemonics of one function.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    command::Call,
    say::say,
    steps::{Step, Trouble},
};

/// The label of the publication's code. If the queue is not quiet, this code calls a function that
/// the models check.
const PUBLISHES: &str = "publish_at_a_quiet_queue:";
/// The label of the release.
const RELEASES: &str = "release_at_a_quiet_queue:";
/// The published value, as the machine code spells it.
const MARK: &str = "$1579129387,";
/// The instructions that wait until earlier stores have left the core.
const WAITING: [&str; 4] = ["mfence", "lock", "xchg", "syscall"];

/// Checks that the machine code stores the event, stores the progress, and checks the queue, in
/// this order. Between these steps, no instruction may wait.
pub fn check(step: &mut Step) -> Result<(), Trouble> {
    let folder = step.scratch("asm");
    forget(&folder)?;
    step.run(&call(&folder))?;
    Ok(judge(&read(&folder)?)?)
}

/// Removes the machine code of an earlier build from `folder`.
pub fn forget(folder: &Path) -> io::Result<()> {
    let examples = examples(folder);
    if examples.exists() { fs::remove_dir_all(&examples) } else { Ok(()) }
}

/// Returns the cargo call that writes the machine code into `folder`.
pub fn call(folder: &Path) -> Call {
    let call = Call::cargo("rustc --release -p slipring --example publish_asm").target_dir(folder);
    call.args(["--", "--emit=asm", "-Ccodegen-units=1", "-Cdebuginfo=0"])
}

/// Reads the machine code in `folder`.
pub fn read(folder: &Path) -> Result<String, String> {
    let examples = examples(folder);
    let entries =
        fs::read_dir(&examples).map_err(|error| format!("{}: {error}", examples.display()))?;
    let mut codes = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "s"));
    let code = codes
        .next()
        .ok_or_else(|| format!("the compiler wrote no machine code to {}", examples.display()))?;
    fs::read_to_string(&code).map_err(|error| format!("{}: {error}", code.display()))
}

fn examples(folder: &Path) -> PathBuf {
    folder.join("release/examples")
}

/// Returns the instructions of a function whose label holds `name`.
fn body<'c>(code: &'c str, name: &str) -> Result<Vec<&'c str>, String> {
    let is_label = |line: &&str| {
        line.ends_with(':') && format!("{}:", line.trim_end_matches(':')).contains(name)
    };
    let body: Vec<&str> = code
        .lines()
        .skip_while(|line| !is_label(line))
        .map(str::trim)
        .take_while(|line| !line.starts_with(".cfi_endproc"))
        .collect();
    if body.is_empty() {
        Err(format!("there is no function `{name}` in the code"))
    } else {
        Ok(body)
    }
}

/// Checks the order of both functions in `code`.
pub fn judge(code: &str) -> Result<(), String> {
    if !cfg!(target_arch = "x86_64") {
        say!("skipped: this check reads x86-64 code alone");
        return Ok(());
    }
    progress(code, "publication", PUBLISHES, Some(MARK), "notify_publication")?;
    progress(code, "release", RELEASES, None, "notify_fenced")
}

/// Checks the function `what`, whose label contains `label`: it must store its progress behind the
/// mark `event`, and if a queue is not quiet, it must call a function whose name contains
/// `notifies`.
fn progress(
    code: &str,
    what: &str,
    label: &str,
    event: Option<&str>,
    notifies: &str,
) -> Result<(), String> {
    let body = body(code, label)?;
    // A stamp or a frontier is stored from a register into an array, or to the address in another
    // register. The handle's own fields lie at a distance from its address, so stores to them do
    // not count.
    let stores = |line: &str| {
        line.starts_with("movq\t%r")
            && line.ends_with(')')
            && (line.contains(",%r") || line.contains(", (%r"))
            && !line.contains("%rsp")
    };
    let waits = |line: &&&str| WAITING.iter().any(|word| line.starts_with(word));
    let find = |from: usize, missing: &str, is: &dyn Fn(&str) -> bool| {
        let found = body[from..].iter().position(|line| is(line));
        found.map(|at| from + at).ok_or_else(|| format!("a {what} has no {missing} in its place"))
    };
    let begin = event.map_or(Ok(0), |mark| {
        find(0, "store of its event", &|line| line.contains(mark)).map(|at| at + 1)
    })?;
    let store = find(begin, "store of its progress", &stores)?;
    let bar = find(0, "compiler fence", &|line| line.contains("MEMBARRIER"))?;
    let look = (bar + 1..body.len())
        .find(|&at| looks(&body[at..]))
        .ok_or_else(|| format!("a {what} has no look at the queue in its place"))?;
    let call = find(look + 1, "call for a queue that is not quiet", &|line| {
        line.starts_with("call") && line.contains(notifies)
    })?;
    if store > bar {
        return Err(format!(
            "a {what} stores its progress in line {store} of its code, behind the fence in line {bar}"
        ));
    }
    if let Some(line) = body[begin..call].iter().find(waits) {
        return Err(format!("a {what} waits for its stores at `{line}`"));
    }
    say!("{what}: progress in line {store}, compiler fence in {bar}, look in {look}, no wait");
    Ok(())
}

/// Returns whether `code` begins with a load of a state word whose low half is then tested.
fn looks(code: &[&str]) -> bool {
    let Some((first, rest)) = code.split_first() else { return false };
    if first.starts_with("cmpl\t") && first.contains('(') {
        return true;
    }
    let Some((_, word)) = first.rsplit_once("), %").filter(|_| first.starts_with("movq\t")) else {
        return false;
    };
    let half = match word.strip_prefix('r') {
        Some(number) if number.starts_with(|digit: char| digit.is_ascii_digit()) => {
            format!("{word}d")
        }
        Some(name) => format!("e{name}"),
        None => return false,
    };
    let test = format!("testl\t%{half}, %{half}");
    rest.iter().take(3).any(|line| *line == test)
}

#[cfg(test)]
mod tests {
    use super::judge;

    const PUBLISHES: [&str; 9] = [
        "movq\t$1579129387, 8(%rax,%rcx)",
        "movq\t%r14, 88(%rdi)",
        "movq\t%rax, (%rcx,%rdx)",
        "#MEMBARRIER",
        "movq\t(%rax), %rcx",
        "movb\t$1, %al",
        "testl\t%ecx, %ecx",
        "callq\t*_ZN8slipring7control7Control16notify_publication17h0123E@GOTPCREL(%rip)",
        "retq",
    ];
    const RELEASES: [&str; 7] = [
        "movq\t%r8, 96(%rdi)",
        "movq\t%r8, (%rax)",
        "#MEMBARRIER",
        "movq\t24(%rax,%r8), %r8",
        "testl\t%r8d, %r8d",
        "callq\t*_ZN8slipring4wait5queue13notify_fenced17h0123E@GOTPCREL(%rip)",
        "retq",
    ];

    fn code(publishes: &[&str], releases: &[&str]) -> String {
        let function = |name: &str, lines: &[&str]| {
            format!("{name}_at_a_quiet_queue:\n{}\n.cfi_endproc\n", lines.join("\n"))
        };
        function("publish", publishes) + &function("release", releases)
    }

    #[test]
    fn each_wrong_order_is_found() {
        assert_eq!(judge(&code(&PUBLISHES, &RELEASES)), Ok(()));
        let direct = PUBLISHES.map(|line| line.replace("(%rcx,%rdx)", "(%rcx)"));
        assert_eq!(judge(&code(&direct.each_ref().map(|line| &line[..]), &RELEASES)), Ok(()));
        for release in [false, true] {
            let with = |change: &dyn Fn(&mut Vec<&'static str>)| {
                let (mut publishes, mut releases) = (PUBLISHES.to_vec(), RELEASES.to_vec());
                change(if release { &mut releases } else { &mut publishes });
                let wrong = judge(&code(&publishes, &releases)).unwrap_err();
                assert_eq!(wrong.contains("a release "), release, "{wrong}");
                wrong
            };
            assert!(with(&|lines| lines.insert(2, "lock\torl\t$0, (%rsp)")).contains("waits"));
            // A store to one of the handle's own fields is no progress.
            let own = usize::from(!release);
            assert!(with(&|lines| lines.swap(own + 1, own + 2)).contains("behind the fence"));
            assert!(with(&|lines| lines.swap(own + 2, own + 3)).contains("look at the queue"));
            assert!(
                with(&|lines| lines.retain(|line| !line.contains("BARRIER")))
                    .contains("compiler fence")
            );
            assert!(with(&|lines| _ = lines.remove(own + 1)).contains("progress"));
        }
        assert!(judge("").unwrap_err().contains("no function"));
    }
}
