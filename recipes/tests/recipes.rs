//! Each recipe prints the lines that its head promises, and the README's table of lengths is true.

mod promise;

use std::fs;
use std::path::Path;
use std::process::Command;

/// Largest length of a recipe, relative to its incumbent's.
const AT_MOST: f64 = 1.2;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs a recipe, and checks its output.
fn keeps_its_promise(recipe: &str, program: &str) {
    let output = Command::new(program).output().unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{recipe}: {err}");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert_eq!(out, promise::promised(here, recipe), "{recipe}: {err}");
}

macro_rules! recipes {
    ($($(#[$meta:meta])* $name:ident),*) => {$(
        #[test]
        $(#[$meta])*
        fn $name() {
            keeps_its_promise(stringify!($name), env!(concat!("CARGO_BIN_EXE_", stringify!($name))));
        }
    )*
    const ALL: &[&str] = &[$(stringify!($name)),*];
    };
}

recipes!(
    compression,
    dead_letters,
    fan_out,
    group_commit,
    log_library,
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    market_data,
    order_gateway,
    request_answer,
    telemetry_agent
);

/// Ctrl-C stops the sensors, and every record that was published is sent.
#[test]
#[cfg(unix)]
fn an_interrupted_agent_sends_the_rest() {
    use rustix::process::{Pid, Signal, kill_process};
    use std::io::{BufRead as _, BufReader, Read as _};
    use std::process::Stdio;
    let mut agent = Command::new(env!("CARGO_BIN_EXE_telemetry_agent"))
        .arg(u64::MAX.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // An agent that prints metrics has taken Ctrl-C over.
    let mut errors = BufReader::new(agent.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    assert!(!line.is_empty(), "the agent printed no metrics");
    kill_process(Pid::from_child(&agent), Signal::INT).unwrap();
    let mut out = String::new();
    agent.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    errors.read_to_string(&mut line).unwrap();
    assert!(agent.wait().unwrap().success(), "{line}");
    let words: Vec<&str> = out.split_whitespace().collect();
    assert_eq!((words[0], words[1]), ("sent", words[3]), "{out}");
    assert!(out.ends_with("stopped by Ctrl-C\n"), "{out}");
}

/// Returns the number of lines that are neither empty nor comments.
fn length(path: &str) -> usize {
    let is_code = |line: &&str| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with("//") && !line.starts_with("/**")
    };
    read(path).lines().filter(is_code).count()
}

#[test]
fn no_recipe_is_much_longer_than_its_incumbent() {
    let readme = read("README.md");
    for recipe in ALL {
        let begin = format!("| [{recipe}](src/bin/{recipe}.rs) |");
        let row = readme.lines().find(|row| row.starts_with(&begin)).expect("a row of the README");
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let beside = cells[4].split(['(', ')']).nth(1).expect("a link to the incumbent");
        let (ours, theirs) = (length(&format!("src/bin/{recipe}.rs")), length(beside));
        assert_eq!((cells[3], cells[5]), (&*ours.to_string(), &*theirs.to_string()), "{recipe}");
        assert!(ours as f64 <= AT_MOST * theirs as f64, "{recipe}: {ours} to {theirs} lines");
    }
}
