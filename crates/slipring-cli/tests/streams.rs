//! Results against closed pipes, full disks, pipes as files and the same file named twice: what was
//! measured is saved or told of, nothing panics and nothing hangs. What the figures are is no
//! matter here.
#![cfg(target_os = "linux")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::{TempDir, tempdir};

/// Past this a program counts as one that hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// The least that is measured: a second or so.
const LITTLE: [&str; 7] = ["lab", "waits", "--smoke", "--only", "blocking", "--arrivals", "burst"];

fn slipring() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slipring"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// `slipring lab waits` over little, with more arguments.
fn little<A: AsRef<OsStr>>(more: &[A]) -> Command {
    let mut command = slipring();
    command.args(LITTLE).args(more);
    command
}

/// The end of a child, or a failure where it does not come.
fn end(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + LIMIT;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    panic!("the program hangs");
}

/// Runs a program to its end.
fn run(command: &mut Command) -> Output {
    finish(command.spawn().unwrap())
}

/// Hears a program to its end.
fn finish(mut child: Child) -> Output {
    fn gather(from: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
        thread::spawn(move || {
            let mut all = Vec::new();
            if let Some(mut from) = from {
                from.read_to_end(&mut all).unwrap();
            }
            all
        })
    }
    let (out, err) = (gather(child.stdout.take()), gather(child.stderr.take()));
    let status = end(&mut child);
    Output { status, stdout: out.join().unwrap(), stderr: err.join().unwrap() }
}

/// Runs a program where nothing reads its standard output.
fn run_unread(command: &mut Command) -> Output {
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let status = end(&mut child);
    let mut stderr = Vec::new();
    if let Some(mut said) = child.stderr.take() {
        said.read_to_end(&mut stderr).unwrap();
    }
    Output { status, stdout: Vec::new(), stderr }
}

/// Its exit code and what it says on standard error; a panic or a signal is a failure.
fn ended(output: &Output) -> (i32, String) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.signal(), None, "{said}");
    let code = output.status.code().unwrap();
    assert!(code != 101 && !said.contains("panicked"), "it panicked: {said}");
    (code, said)
}

/// Runs a program that must refuse its arguments before it measures; gives what it says.
fn refused(command: &mut Command) -> String {
    let output = run(command);
    let (code, said) = ended(&output);
    assert!(code == 1 || code == 2, "{code}: {said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "it measured all the same: {said}");
    said
}

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// A complete record.
fn record(text: &str) -> Value {
    let record: Value =
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(record["arrivals"][0]["strategies"][0]["strategy"], "blocking");
    record
}

fn record_in(path: &Path) -> Value {
    record(&fs::read_to_string(path).unwrap())
}

fn names_in(folder: &TempDir) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn results_are_saved_where_nothing_reads_the_tables() {
    let folder = tempdir().unwrap();
    let (json, picture) = (folder.path().join("a.json"), folder.path().join("a.svg"));
    let files =
        [OsStr::new("--json"), json.as_os_str(), OsStr::new("--picture"), picture.as_os_str()];
    let (code, said) = ended(&run_unread(&mut little(&files)));
    assert_eq!((code, said.as_str()), (0, ""), "a reader that has seen enough is no failure");
    record_in(&json);
    assert!(fs::read_to_string(&picture).unwrap().contains("</svg>"));
    assert_eq!(names_in(&folder), ["a.json", "a.svg"], "nothing else is left behind");
}

#[test]
fn results_are_saved_before_the_first_line_is_printed() {
    let folder = tempdir().unwrap();
    let json = folder.path().join("a.json");
    let mut child = little(&[OsStr::new("--json"), json.as_os_str()]).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("slipring "), "{line}");
    record_in(&json);
    end(&mut child);
}

#[test]
fn results_are_saved_where_the_disk_of_the_tables_is_full() {
    let folder = tempdir().unwrap();
    let json = folder.path().join("a.json");
    let (code, said) =
        ended(&run(little(&[OsStr::new("--json"), json.as_os_str()]).stdout(full())));
    assert_eq!(code, 1);
    assert!(
        said.contains("standard output")
            && said.contains("No space left")
            && said.contains("a.json"),
        "{said}"
    );
    record_in(&json);
}

#[test]
fn no_print_panics_on_a_closed_pipe_or_a_full_disk() {
    let bystander = ["lab", "bystander"].as_slice();
    for args in [
        &["--help"],
        &["--version"],
        ["lab", "--help"].as_slice(),
        &["lab", "waits", "--help"],
        &LITTLE,
        bystander,
    ] {
        let (code, said) = ended(&run_unread(slipring().args(args)));
        assert_eq!((code, said.as_str()), (0, ""), "{args:?}");
        let (code, said) = ended(&run(slipring().args(args).stdout(full())));
        assert_eq!(code, 1, "{args:?}: {said}");
        assert!(
            said.contains("cannot write to standard output: No space left"),
            "{args:?}: {said}"
        );
        assert_eq!(
            ended(&run(slipring().args(args).stdout(full()).stderr(full()))).0,
            1,
            "{args:?}: nothing can be told, but no panic"
        );
    }
    // What goes to standard error is told to nothing, and the exit code stays what it is.
    for (args, code) in [
        (["lab", "wait"].as_slice(), 2),
        (&[], 2),
        (&["lab", "waits", "--json", "/nowhere/at/all"], 1),
    ] {
        assert_eq!(ended(&run(slipring().args(args).stderr(full()))).0, code, "{args:?}");
        let mut child = slipring().args(args).spawn().unwrap();
        drop(child.stderr.take());
        assert_eq!(end(&mut child).code(), Some(code), "{args:?}");
    }
}

#[test]
fn a_full_device_and_what_is_no_file_are_refused_before_anything_is_measured() {
    let folder = tempdir().unwrap();
    for option in ["--json", "--picture"] {
        let message = refused(&mut little(&[option, "/dev/full"]));
        assert!(
            message.contains(option)
                && message.contains("/dev/full")
                && message.contains("No space left"),
            "{message}"
        );
        let message = refused(&mut little(&[OsStr::new(option), folder.path().as_os_str()]));
        assert!(message.contains("cannot write to") && message.contains("directory"), "{message}");
        let message = refused(&mut little(&[option, ""]));
        assert!(message.contains(option) && message.contains("value is required"), "{message}");
        let slash = format!("{}/new/", folder.path().display());
        let message = refused(&mut little(&[option, &slash]));
        assert!(message.contains("cannot write to"), "{message}");
    }
    assert_eq!(names_in(&folder), [""; 0], "nothing is left behind");
}

#[test]
fn standard_output_as_a_file_gets_the_record_alone() {
    let output = run(&mut little(&["--json", "/dev/stdout"]));
    let (code, said) = ended(&output);
    assert_eq!(code, 0, "{said}");
    record(&String::from_utf8(output.stdout).unwrap());
    assert!(said.contains("| blocking"), "the tables go to standard error then: {said}");

    // Standard output may be a file, too, and that file may be named.
    let folder = tempdir().unwrap();
    let path = folder.path().join("out");
    for name in [OsStr::new("/dev/stdout"), path.as_os_str()] {
        let output =
            run(little(&[OsStr::new("--json"), name]).stdout(File::create(&path).unwrap()));
        let (code, said) = ended(&output);
        assert!(code == 0 && said.contains("| blocking"), "{said}");
        record_in(&path);
    }
    assert_eq!(ended(&run_unread(&mut little(&["--json", "/dev/stdout"]))).0, 0);
    let output = run(little(&["--json", "/dev/null"]).stdout(Stdio::null()));
    assert_eq!(ended(&output), (0, String::new()), "nobody's output is nobody's");
}

#[test]
fn a_process_substitution_gets_the_record() {
    let folder = tempdir().unwrap();
    let copy = folder.path().join("copy");
    let script =
        format!("\"$@\" --json >(cat > '{0}.part' && mv '{0}.part' '{0}')", copy.display());
    let mut bash = Command::new("bash");
    bash.args(["-c", &script, "bash", env!("CARGO_BIN_EXE_slipring")]).args(LITTLE);
    let output = run(bash.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    let (code, said) = ended(&output);
    assert_eq!(code, 0, "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("| blocking"));
    // The shell does not wait for what it started.
    let deadline = Instant::now() + LIMIT;
    while !copy.exists() {
        assert!(Instant::now() < deadline, "the record did not arrive");
        thread::sleep(Duration::from_millis(5));
    }
    record_in(&copy);
    // The other direction is a mistake that must not block: nothing would ever read what is written
    // there.
    let mut bash = Command::new("bash");
    bash.args(["-c", "\"$@\" --json <(true)", "bash", env!("CARGO_BIN_EXE_slipring")]).args(LITTLE);
    let message = refused(bash.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert!(message.contains("only reads"), "{message}");
}

fn fifo(folder: &TempDir) -> std::path::PathBuf {
    let path = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

#[test]
fn a_fifo_gets_the_record_and_one_that_nothing_reads_is_refused() {
    let folder = tempdir().unwrap();
    let path = fifo(&folder);
    let message = refused(&mut little(&[OsStr::new("--json"), path.as_os_str()]));
    assert!(message.contains("fifo") && message.contains("reads"), "{message}");

    let reader = thread::spawn({
        let path = path.clone();
        move || fs::read_to_string(path).unwrap()
    });
    let output = run(&mut little(&[OsStr::new("--json"), path.as_os_str()]));
    assert_eq!(ended(&output), (0, String::new()));
    record(&reader.join().unwrap());
}

#[test]
fn what_cannot_be_saved_is_kept_elsewhere_and_the_tables_are_printed() {
    let folder = tempdir().unwrap();
    let path = fifo(&folder);
    // A reader that comes, so that the measurement begins, and goes before it ends.
    let reader = thread::spawn({
        let path = path.clone();
        move || drop(File::open(path).unwrap())
    });
    let output =
        run(little(&[OsStr::new("--json"), path.as_os_str()]).env("TMPDIR", folder.path()));
    reader.join().unwrap();
    let (code, said) = ended(&output);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("cannot write to") && said.contains("Broken pipe"), "{said}");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("| blocking"),
        "the tables are printed all the same"
    );
    let names = names_in(&folder);
    let kept = names
        .iter()
        .find(|name| *name != "fifo")
        .expect("a copy in the folder for temporary files");
    assert!(said.contains(kept), "{said}");
    record_in(&folder.path().join(kept));
}

/// Runs it where no file may become larger than half a kilobyte or so.
fn run_without_room(args: &[&OsStr]) -> Output {
    let mut shell = Command::new("sh");
    shell
        .args([
            "-c",
            "trap '' XFSZ; ulimit -f 1; exec \"$@\"",
            "sh",
            env!("CARGO_BIN_EXE_slipring"),
        ])
        .args(LITTLE)
        .args(args);
    run(shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))
}

#[test]
fn without_room_for_files_the_old_one_stays_and_the_record_is_printed() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("old.json");
    fs::write(&path, "an old record").unwrap();
    let output = run_without_room(&[OsStr::new("--json"), path.as_os_str()]);
    let (code, said) = ended(&output);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("old.json") && said.contains("File too large"), "{said}");
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "an old record",
        "half a record is worse than an old one"
    );
    assert_eq!(names_in(&folder), ["old.json"]);
    let out = String::from_utf8(output.stdout).unwrap();
    let json = &out[out.find("{\n").expect("the record is on standard output")..];
    let printed: Value =
        serde_json::Deserializer::from_str(json).into_iter().next().unwrap().unwrap();
    record(&printed.to_string());
    assert!(out.contains("| blocking"), "{out}");
}

#[test]
fn a_run_that_is_killed_leaves_the_old_file_and_nothing_else() {
    let folder = tempdir().unwrap();
    let (old, new) = (folder.path().join("old.json"), folder.path().join("new.svg"));
    fs::write(&old, "an old record").unwrap();
    let mut child = slipring();
    let mut child = child
        .args(["lab", "waits", "--json"])
        .arg(&old)
        .arg("--picture")
        .arg(&new)
        .spawn()
        .unwrap();
    // Long enough to be measuring; were it not, the test would only show less.
    thread::sleep(Duration::from_millis(300));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(fs::read_to_string(&old).unwrap(), "an old record");
    assert_eq!(names_in(&folder), ["old.json"]);
}

#[test]
fn a_replaced_file_keeps_its_links_and_its_mode() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempdir().unwrap();
    let [real, soft, hard] = ["real", "soft", "hard"].map(|name| folder.path().join(name));
    fs::write(&real, "an old record").unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    symlink("real", &soft).unwrap();
    assert_eq!(
        ended(&run(&mut little(&[OsStr::new("--json"), soft.as_os_str()]))),
        (0, String::new())
    );
    record_in(&real);
    assert!(fs::symlink_metadata(&soft).unwrap().is_symlink());
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);

    fs::write(&real, "an old record").unwrap();
    fs::hard_link(&real, &hard).unwrap();
    assert_eq!(
        ended(&run(&mut little(&[OsStr::new("--json"), hard.as_os_str()]))),
        (0, String::new())
    );
    record_in(&real);
}

#[test]
fn the_same_file_twice_is_refused_however_it_is_spelled() {
    use std::os::unix::fs::symlink;
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).into_os_string();
    fs::write(at("old"), "an old record").unwrap();
    fs::hard_link(at("old"), at("hard")).unwrap();
    symlink("old", at("soft")).unwrap();
    symlink("new", at("dangling")).unwrap();
    fs::create_dir(at("sub")).unwrap();
    let before = names_in(&folder);
    for (one, other) in [
        ("old", "old"),
        ("old", "./sub/../old"),
        ("old", "hard"),
        ("soft", "old"),
        ("new", "new"),
        ("new", "sub/../new"),
        ("dangling", "new"),
        ("new", "dangling"),
    ] {
        let message = refused(&mut little(&[
            OsStr::new("--json"),
            &at(one),
            OsStr::new("--picture"),
            &at(other),
        ]));
        assert!(
            message.contains("--json and --picture") && message.contains("the same file"),
            "{one}, {other}: {message}"
        );
        assert_eq!(names_in(&folder), before, "{one}, {other}");
        assert_eq!(fs::read_to_string(at("old")).unwrap(), "an old record");
    }
    let message = refused(&mut little(&["--json", "/dev/stdout", "--picture", "/dev/fd/1"]));
    assert!(message.contains("the same file"), "{message}");
    // A relative name and an absolute one.
    let message = refused(
        little(&[OsStr::new("--json"), OsStr::new("new"), OsStr::new("--picture"), &at("new")])
            .current_dir(&folder),
    );
    assert!(message.contains("the same file"), "{message}");
}

/// Runs a measurement of these patterns whose bystander cannot start: the program that it would be
/// is gone.
fn run_without_bystander(arrivals: &str, json: &Path) -> Output {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().join("slipring");
    fs::hard_link(env!("CARGO_BIN_EXE_slipring"), &program).unwrap();
    let mut command = Command::new(&program);
    command
        .args(["lab", "waits", "--smoke", "--only", "blocking", "--arrivals", arrivals, "--json"])
        .arg(json);
    let child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(folder);
    finish(child)
}

#[test]
fn what_was_measured_before_a_failure_is_saved_and_printed() {
    let folder = tempdir().unwrap();
    let json = folder.path().join("a.json");
    fs::write(&json, "an old record").unwrap();
    let output = run_without_bystander("bystander", &json);
    let (code, said) = ended(&output);
    assert!(code == 1 && said.contains("bystander"), "{said}");
    assert_eq!(fs::read_to_string(&json).unwrap(), "an old record", "nothing was measured");

    let output = run_without_bystander("burst,bystander,regular-10k", &json);
    let (code, said) = ended(&output);
    assert!(code == 1 && said.contains("the bystander does not start"), "{said}");
    let record = record_in(&json);
    assert_eq!(
        (record["arrivals"].as_array().unwrap().len(), &record["arrivals"][0]["arrival"]),
        (1, &Value::from("burst"))
    );
    assert!(
        record["stopped"].as_str().unwrap().contains("the bystander does not start"),
        "{record}"
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("| blocking"));
}

#[test]
fn thousands_of_names_are_read_at_once() {
    // As long as an argument can be, several times; only the last name is wrong, so that nothing is
    // measured.
    let many = "blocking,".repeat(14_000);
    let message = refused(slipring().args([
        "lab",
        "waits",
        "--only",
        &many[..many.len() - 1],
        "--only",
        &format!("{many}sleepy"),
    ]));
    assert!(message.contains("sleepy"), "{message}");
    // Every name is another strategy: to tell them apart is no more work.
    let different: Vec<String> = (0..9_000).map(|spins| format!("yielding:{spins}")).collect();
    let message = refused(slipring().args([
        "lab",
        "waits",
        "--only",
        &different.join(","),
        "--json",
        "/nowhere/at/all",
    ]));
    assert!(message.contains("/nowhere/at/all"), "{message}");
    // All of them are the same one, and it is measured once.
    let output = run(slipring().args([
        "lab",
        "waits",
        "--smoke",
        "--arrivals",
        "burst",
        "--only",
        &many[..many.len() - 1],
    ]));
    assert_eq!(ended(&output), (0, String::new()));
    assert_eq!(String::from_utf8(output.stdout).unwrap().matches("| blocking").count(), 1);
}

#[test]
fn a_bystander_with_impossible_cores_says_so() {
    for (cores, reason) in [
        ("99999999", "core 99999999 is not"),
        ("1023", "core 1023 is not"),
        ("18446744073709551615", "core 18446744073709551615 is not"),
        ("18446744073709551616", "18446744073709551616"),
        ("-1", "-1"),
        ("", "--cores"),
    ] {
        let message = refused(slipring().args(["lab", "bystander", &format!("--cores={cores}")]));
        assert!(message.contains(reason), "{cores}: {message}");
    }
    let first = first_core();
    let message =
        refused(slipring().args(["lab", "bystander", "--cores", &format!("{first},{first}")]));
    assert!(message.contains("twice"), "{message}");
    // One that can be had, and an input that ends at once.
    let output = run(slipring().args(["lab", "bystander", "--cores", &first]));
    assert_eq!(ended(&output).0, 0);
    assert!(output.stdout.starts_with(b"ready\n{\"units\":"));
}

/// The first core that this process may use.
fn first_core() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let list =
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    list.split([',', '-']).next().unwrap().to_owned()
}

#[test]
fn a_system_without_threads_is_an_error() {
    // No stack is as large as this one.
    let output = run(little::<&str>(&[]).env("RUST_MIN_STACK", "1000000000000000"));
    let (code, said) = ended(&output);
    assert!(code == 1 && said.contains("thread"), "{said}");
    let output =
        run(slipring().args(["lab", "bystander"]).env("RUST_MIN_STACK", "1000000000000000"));
    let (code, said) = ended(&output);
    assert!(code == 1 && said.contains("thread"), "{said}");
}

#[test]
fn arguments_that_are_no_text_are_refused() {
    let bad = OsStr::from_bytes(b"block\xffing");
    for option in ["--only", "--arrivals", "--cores"] {
        let message = refused(
            slipring()
                .args(["lab", if option == "--cores" { "bystander" } else { "waits" }, option])
                .arg(bad),
        );
        assert!(
            message.contains("UTF-8") || message.contains("invalid value"),
            "{option}: {message}"
        );
    }
    // As a file's name it is as good as any.
    let folder = tempdir().unwrap();
    let path = folder.path().join(bad);
    assert_eq!(
        ended(&run(&mut little(&[OsStr::new("--json"), path.as_os_str()]))),
        (0, String::new())
    );
    record_in(&path);
}
