//! Results that go to closed pipes, full disks, pipes as files, or twice to one file. The program
//! saves its results or reports a failure; it never panics and never hangs. The tests judge no
//! figures.
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

/// Time after which a program counts as hanging.
const LIMIT: Duration = Duration::from_secs(120);

/// Arguments for the shortest measurement, which takes about a second.
const SHORT: [&str; 7] = ["lab", "waits", "--smoke", "--only", "blocking", "--arrivals", "burst"];

fn slipring() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slipring"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns the command for the shortest measurement, with the arguments `more` at its end.
fn short_run<A: AsRef<OsStr>>(more: &[A]) -> Command {
    let mut command = slipring();
    command.args(SHORT).args(more);
    command
}

/// Waits for the end of a process; fails after [`LIMIT`].
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

/// Runs a command to its end and returns its output.
fn run(command: &mut Command) -> Output {
    finish(command.spawn().unwrap())
}

/// Reads the output of a process until it ends.
fn finish(mut child: Child) -> Output {
    fn read_all(from: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
        thread::spawn(move || {
            let mut all = Vec::new();
            if let Some(mut from) = from {
                from.read_to_end(&mut all).unwrap();
            }
            all
        })
    }
    let (out, err) = (read_all(child.stdout.take()), read_all(child.stderr.take()));
    let status = end(&mut child);
    Output { status, stdout: out.join().unwrap(), stderr: err.join().unwrap() }
}

/// Runs a command whose standard output is a pipe that its reader has closed.
fn run_unread(command: &mut Command) -> Output {
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let status = end(&mut child);
    let mut stderr = Vec::new();
    if let Some(mut errors) = child.stderr.take() {
        errors.read_to_end(&mut stderr).unwrap();
    }
    Output { status, stdout: Vec::new(), stderr }
}

/// Returns exit code and standard error; fails after a panic or a signal.
fn ended(output: &Output) -> (i32, String) {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.signal(), None, "{errors}");
    let code = output.status.code().unwrap();
    assert!(code != 101 && !errors.contains("panicked"), "the program panicked: {errors}");
    (code, errors)
}

/// Runs a command that must refuse its arguments before the measurement; returns its message.
fn refused(command: &mut Command) -> String {
    let output = run(command);
    let (code, errors) = ended(&output);
    assert_eq!((code, errors.lines().count()), (2, 1), "{errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "the measurement began: {errors}");
    errors
}

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// Parses a record and checks that it is complete.
fn record(text: &str) -> Value {
    let record: Value =
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(record["format"], "slipring-lab");
    assert_eq!(record["experiments"][0]["series"][0]["contender"], "blocking");
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
fn results_are_saved_when_standard_output_is_closed() {
    let folder = tempdir().unwrap();
    let (json, picture) = (folder.path().join("a.json"), folder.path().join("a.svg"));
    let files =
        [OsStr::new("--json"), json.as_os_str(), OsStr::new("--picture"), picture.as_os_str()];
    let (code, errors) = ended(&run_unread(&mut short_run(&files)));
    assert_eq!((code, errors.as_str()), (0, ""), "a closed pipe is no failure");
    record_in(&json);
    assert!(fs::read_to_string(&picture).unwrap().contains("</svg>"));
    assert_eq!(names_in(&folder), ["a.json", "a.svg"], "no temporary file remains");
}

#[test]
fn results_are_saved_before_the_first_line_is_printed() {
    let folder = tempdir().unwrap();
    let json = folder.path().join("a.json");
    let mut child = short_run(&[OsStr::new("--json"), json.as_os_str()]).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("slipring "), "{line}");
    record_in(&json);
    end(&mut child);
}

#[test]
fn results_are_saved_when_standard_output_is_full() {
    let folder = tempdir().unwrap();
    let json = folder.path().join("a.json");
    let (code, errors) =
        ended(&run(short_run(&[OsStr::new("--json"), json.as_os_str()]).stdout(full())));
    assert_eq!((code, errors.lines().count()), (2, 1), "{errors}");
    assert!(
        errors.contains("standard output")
            && errors.contains("No space left")
            && errors.contains("a.json"),
        "{errors}"
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
        &SHORT,
        bystander,
    ] {
        let (code, errors) = ended(&run_unread(slipring().args(args)));
        assert_eq!((code, errors.as_str()), (0, ""), "{args:?}");
        let (code, errors) = ended(&run(slipring().args(args).stdout(full())));
        assert_eq!((code, errors.lines().count()), (2, 1), "{args:?}: {errors}");
        assert!(
            errors.contains("cannot write to standard output: No space left"),
            "{args:?}: {errors}"
        );
        assert_eq!(
            ended(&run(slipring().args(args).stdout(full()).stderr(full()))).0,
            2,
            "{args:?}: no stream takes the message, and the program must not panic"
        );
    }
    // The exit code stays the same if the message cannot be written to standard error.
    for (args, code) in [
        (["lab", "wait"].as_slice(), 2),
        (&[], 2),
        (&["lab", "waits", "--json", "/nowhere/at/all"], 2),
    ] {
        assert_eq!(ended(&run(slipring().args(args).stderr(full()))).0, code, "{args:?}");
        let mut child = slipring().args(args).spawn().unwrap();
        drop(child.stderr.take());
        assert_eq!(end(&mut child).code(), Some(code), "{args:?}");
    }
}

#[test]
fn a_full_device_a_folder_and_an_empty_name_are_refused_before_the_measurement() {
    let folder = tempdir().unwrap();
    for option in ["--json", "--picture"] {
        let message = refused(&mut short_run(&[option, "/dev/full"]));
        assert!(
            message.contains(option)
                && message.contains("/dev/full")
                && message.contains("No space left"),
            "{message}"
        );
        let message = refused(&mut short_run(&[OsStr::new(option), folder.path().as_os_str()]));
        assert!(message.contains("cannot write to") && message.contains("directory"), "{message}");
        let message = refused(&mut short_run(&[option, ""]));
        assert!(message.contains(option) && message.contains("value is required"), "{message}");
        let slash = format!("{}/new/", folder.path().display());
        let message = refused(&mut short_run(&[option, &slash]));
        assert!(message.contains("cannot write to"), "{message}");
    }
    assert_eq!(names_in(&folder), [""; 0], "no temporary file remains");
}

#[test]
fn a_record_on_standard_output_moves_the_tables_to_standard_error() {
    let output = run(&mut short_run(&["--json", "/dev/stdout"]));
    let (code, errors) = ended(&output);
    assert_eq!(code, 0, "{errors}");
    record(&String::from_utf8(output.stdout).unwrap());
    assert!(errors.contains("| blocking"), "the tables are on standard error: {errors}");

    // Standard output can be a file, and the user can name that file.
    let folder = tempdir().unwrap();
    let path = folder.path().join("out");
    for name in [OsStr::new("/dev/stdout"), path.as_os_str()] {
        let output =
            run(short_run(&[OsStr::new("--json"), name]).stdout(File::create(&path).unwrap()));
        let (code, errors) = ended(&output);
        assert!(code == 0 && errors.contains("| blocking"), "{errors}");
        record_in(&path);
    }
    let mut unread = short_run(&["--json", "/dev/stdout"]);
    let (code, errors) = ended(&run_unread(unread.env("TMPDIR", folder.path())));
    assert_eq!(code, 2, "{errors}");
    assert!(errors.contains("slipring: --json: cannot write to /dev/stdout"), "{errors}");
    assert_eq!(names_in(&folder).len(), 2, "the record is kept beside `out`: {errors}");
    let output = run(short_run(&["--json", "/dev/null"]).stdout(Stdio::null()));
    assert_eq!(ended(&output), (0, String::new()), "a device does not count as standard output");
}

#[test]
fn a_process_substitution_gets_the_record() {
    let folder = tempdir().unwrap();
    let copy = folder.path().join("copy");
    let script =
        format!("\"$@\" --json >(cat > '{0}.part' && mv '{0}.part' '{0}')", copy.display());
    let mut bash = Command::new("bash");
    bash.args(["-c", &script, "bash", env!("CARGO_BIN_EXE_slipring")]).args(SHORT);
    let output = run(bash.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    let (code, errors) = ended(&output);
    assert_eq!(code, 0, "{errors}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("| blocking"));
    // The shell does not wait for the process that reads the substitution.
    let deadline = Instant::now() + LIMIT;
    while !copy.exists() {
        assert!(Instant::now() < deadline, "the record did not arrive");
        thread::sleep(Duration::from_millis(5));
    }
    record_in(&copy);
    // A pipe in the wrong direction must be refused, because a write to it would block forever.
    let mut bash = Command::new("bash");
    bash.args(["-c", "\"$@\" --json <(true)", "bash", env!("CARGO_BIN_EXE_slipring")]).args(SHORT);
    let message = refused(bash.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert!(message.contains("only reads"), "{message}");
}

fn fifo(folder: &TempDir) -> std::path::PathBuf {
    let path = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

#[test]
fn a_named_pipe_gets_the_record_and_one_without_a_reader_is_refused() {
    let folder = tempdir().unwrap();
    let path = fifo(&folder);
    let message = refused(&mut short_run(&[OsStr::new("--json"), path.as_os_str()]));
    assert!(message.contains("fifo") && message.contains("reads"), "{message}");

    let reader = thread::spawn({
        let path = path.clone();
        move || fs::read_to_string(path).unwrap()
    });
    let output = run(&mut short_run(&[OsStr::new("--json"), path.as_os_str()]));
    assert_eq!(ended(&output), (0, String::new()));
    record(&reader.join().unwrap());
}

#[test]
fn a_record_that_cannot_be_saved_is_kept_elsewhere_and_the_tables_are_printed() {
    let folder = tempdir().unwrap();
    let path = fifo(&folder);
    // The reader opens the pipe, so that the measurement begins, and closes it before the end.
    let reader = thread::spawn({
        let path = path.clone();
        move || drop(File::open(path).unwrap())
    });
    let output =
        run(short_run(&[OsStr::new("--json"), path.as_os_str()]).env("TMPDIR", folder.path()));
    reader.join().unwrap();
    let (code, errors) = ended(&output);
    assert_eq!((code, errors.lines().count()), (2, 1), "{errors}");
    assert!(errors.contains("cannot write to") && errors.contains("Broken pipe"), "{errors}");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("| blocking"),
        "the tables are printed after the failure"
    );
    let names = names_in(&folder);
    let kept = names
        .iter()
        .find(|name| *name != "fifo")
        .expect("a copy in the folder for temporary files");
    assert!(errors.contains(kept), "{errors}");
    record_in(&folder.path().join(kept));
}

/// Runs the shortest measurement with a limit of one block (512 or 1024 bytes) on file sizes.
fn run_without_room(args: &[&OsStr]) -> Output {
    let mut shell = Command::new("sh");
    shell
        .args([
            "-c",
            "trap '' XFSZ; ulimit -f 1; exec \"$@\"",
            "sh",
            env!("CARGO_BIN_EXE_slipring"),
        ])
        .args(SHORT)
        .args(args);
    run(shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))
}

#[test]
fn without_room_the_old_file_stays_and_the_record_is_printed() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("old.json");
    fs::write(&path, "an old record").unwrap();
    let output = run_without_room(&[OsStr::new("--json"), path.as_os_str()]);
    let (code, errors) = ended(&output);
    assert_eq!((code, errors.lines().count()), (2, 1), "{errors}");
    assert!(errors.contains("old.json") && errors.contains("File too large"), "{errors}");
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "an old record",
        "an incomplete record replaced the old one"
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
fn a_killed_run_leaves_the_old_file_and_no_temporary_file() {
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
    // After this pause, the measurement has usually begun. The test also passes if it has not.
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
        ended(&run(&mut short_run(&[OsStr::new("--json"), soft.as_os_str()]))),
        (0, String::new())
    );
    record_in(&real);
    assert!(fs::symlink_metadata(&soft).unwrap().is_symlink());
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);

    fs::write(&real, "an old record").unwrap();
    fs::hard_link(&real, &hard).unwrap();
    assert_eq!(
        ended(&run(&mut short_run(&[OsStr::new("--json"), hard.as_os_str()]))),
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
        let message = refused(&mut short_run(&[
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
    let message = refused(&mut short_run(&["--json", "/dev/stdout", "--picture", "/dev/fd/1"]));
    assert!(message.contains("the same file"), "{message}");
    // The options name one file by a relative and by an absolute path.
    let message = refused(
        short_run(&[OsStr::new("--json"), OsStr::new("new"), OsStr::new("--picture"), &at("new")])
            .current_dir(&folder),
    );
    assert!(message.contains("the same file"), "{message}");
}

/// Measures the patterns `arrivals`. The program's file is deleted during the measurement, so the
/// bystander cannot start.
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
fn results_before_a_failure_are_saved_and_printed() {
    let folder = tempdir().unwrap();
    let json = folder.path().join("a.json");
    fs::write(&json, "an old record").unwrap();
    let output = run_without_bystander("bystander", &json);
    let (code, errors) = ended(&output);
    assert!(code == 1 && errors.contains("bystander"), "{errors}");
    assert_eq!(fs::read_to_string(&json).unwrap(), "an old record", "there are no results");

    let output = run_without_bystander("burst,bystander,regular-10k", &json);
    let (code, errors) = ended(&output);
    assert!(code == 1 && errors.contains("the bystander does not start"), "{errors}");
    let record = record_in(&json);
    // The record has the pattern before the failure, and none after it.
    let series = record["experiments"][0]["series"].as_array().unwrap();
    let points: Vec<&Value> = series.iter().map(|series| &series["point"]).collect();
    assert_eq!(points, [&serde_json::json!([["arrival", "burst"]]), &serde_json::json!([])]);
    assert!(
        record["stopped"].as_str().unwrap().contains("the bystander does not start"),
        "{record}"
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("| blocking"));
}

#[test]
fn thousands_of_names_are_parsed_quickly() {
    // The two arguments have nearly the maximal length. The last name is wrong, so that no
    // measurement begins.
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
    // Distinct strategies take no longer than equal ones.
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
    // A strategy that is named many times is measured once.
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
fn a_bystander_refuses_cores_that_it_cannot_use() {
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
    // The core is allowed, and the input ends at once.
    let output = run(slipring().args(["lab", "bystander", "--cores", &first]));
    assert_eq!(ended(&output).0, 0);
    assert!(output.stdout.starts_with(b"ready\n{\"units\":"));
}

/// Returns the first core that this process may use.
fn first_core() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let list =
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    list.split([',', '-']).next().unwrap().to_owned()
}

#[test]
fn a_thread_that_cannot_start_is_an_error() {
    // A stack of this size cannot be allocated.
    let output = run(short_run::<&str>(&[]).env("RUST_MIN_STACK", "1000000000000000"));
    let (code, errors) = ended(&output);
    assert!(code == 1 && errors.contains("thread"), "{errors}");
    let output =
        run(slipring().args(["lab", "bystander"]).env("RUST_MIN_STACK", "1000000000000000"));
    let (code, errors) = ended(&output);
    assert!(code == 1 && errors.contains("thread"), "{errors}");
}

#[test]
fn arguments_that_are_not_utf_8_are_refused_except_for_paths() {
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
    // The name of a file may be any bytes.
    let folder = tempdir().unwrap();
    let path = folder.path().join(bad);
    assert_eq!(
        ended(&run(&mut short_run(&[OsStr::new("--json"), path.as_os_str()]))),
        (0, String::new())
    );
    record_in(&path);
}
