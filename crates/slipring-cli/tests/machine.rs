//! `slipring machine` as a user runs it, on this machine and on the files of others.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use common::{command, run, watched};
use serde_json::Value;
use slipring_machine::{Machine, Snapshot};

/// Returns the path of a machine's file.
fn file(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../slipring-machine/tests/machines");
    folder.join(format!("{name}.txt"))
}

/// Runs the command on the files of a machine, unpacked to a folder. Returns standard output.
fn unpacked(name: &str, arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let snapshot: Snapshot = fs::read_to_string(file(name)).unwrap().parse().unwrap();
    snapshot.unpack(folder.path()).unwrap();
    succeeds(folder.path(), arguments)
}

/// Runs the command with this `--root`, and returns its standard output.
fn succeeds(root: &Path, arguments: &[&str]) -> String {
    let arguments = [&["--root", root.to_str().unwrap()], arguments].concat();
    let (code, out, err) = run("machine", &arguments);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 80 && line == line.trim_end()), "{out}");
    out
}

/// Returns the part of the text after the name of a placement.
fn placement<'o>(out: &'o str, threads: &str, placement: &str) -> &'o str {
    let (_, part) = out.split_once(&format!("CPUs of {threads},")).unwrap();
    let line = part.lines().find_map(|line| line.strip_prefix(&format!("  {placement} ")));
    line.unwrap_or_else(|| panic!("no line for {placement}: {out}")).trim()
}

#[test]
fn kinds_of_cores_are_drawn_apart() {
    let _watched = watched();
    let out = unpacked("laptop-hybrid", &["--threads", "10"]);
    for line in [
        "13th Gen Intel(R) Core(TM) i7-1370P",
        "Linux 6.1.0-13-amd64, 14 cores, 20 CPUs",
        "package 0, node 0 with 31 GiB, L3 24 MiB",
        "  performance: [0 1] [2 3] [4 5] [6 7] [8 9] [10 11]",
        "  L2 2 MiB: efficiency: [12] [13] [14] [15]",
        "kind       efficiency: CPUs 12-19",
        "allowed    all CPUs",
    ] {
        assert!(out.lines().any(|shown| shown == line), "{line}: {out}");
    }
    assert_eq!(placement(&out, "2 threads", "siblings"), "0 1");
    assert_eq!(placement(&out, "2 threads", "shared-cache"), "0 2");
    assert_eq!(placement(&out, "10 threads", "shared-cache"), "0 2 4 6 8 10 12-15");
    let impossible = "impossible: a core has at most 2 allowed CPUs";
    assert_eq!(placement(&out, "10 threads", "siblings"), impossible);
}

#[test]
fn a_quota_and_a_mask_are_shown() {
    let _watched = watched();
    let out = unpacked("container-cgroup2", &[]);
    for line in [
        "package 0, node 0 with 15.53 GiB, L3 8 MiB: [(0) (4)] [(1) (5)] [2 6] [3 7]",
        "allowed    CPUs 2-3,6-7, by the affinity mask",
        "usable     1 thread can run all the time",
    ] {
        assert!(out.lines().any(|shown| shown == line), "{line}: {out}");
    }
    assert!(out.contains("\nquota      1.5 CPUs: 150000 of each 100000 µs, by"), "{out}");
    assert_eq!(placement(&out, "2 threads", "same-core"), "2 2");
    assert_eq!(placement(&out, "2 threads", "spread"), "2 3 (beyond the quota)");
    assert!(!out.contains("CPUs of 1 thread"), "{out}");
}

#[test]
fn a_machine_of_256_cpus_fits_on_a_screen() {
    let _watched = watched();
    let out = succeeds(&file("server-epyc-nps4"), &[]);
    assert!(out.lines().count() <= 48, "{out}");
    for line in [
        "  node 7 with 62.89 GiB",
        "    L3 32 MiB: 8 cores: 120-127 with 248-255",
        "distances  10 within a node, 12 within a package, 32 between packages",
    ] {
        assert!(out.lines().any(|shown| shown == line), "{line}: {out}");
    }
    assert_eq!(placement(&out, "2 threads", "spread"), "0 64");
}

#[test]
fn a_folder_and_a_file_give_the_same_description() {
    let _watched = watched();
    let name = "board-big-little";
    assert_eq!(unpacked(name, &[]), succeeds(&file(name), &[]));
    let json = |out: String| serde_json::from_str::<Value>(&out).unwrap();
    let description = json(unpacked(name, &["--json"]));
    assert_eq!(description, json(succeeds(&file(name), &["--json"])));
    assert_eq!(description["model"], "Cortex-A53 and Cortex-A72");
    assert_eq!(description["kinds"][0]["capacity"], 1024);
    assert_eq!(description["cores"][4]["kind"], 0);
    assert_eq!(description["allowed"], "0-5");
    let machine: Machine = serde_json::from_value(description).unwrap();
    assert_eq!(machine.caches().len(), 14);
}

#[test]
#[cfg(target_os = "linux")]
fn this_machine_is_saved_and_read_again() {
    let _watched = watched();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("this.txt");
    let (code, out, err) = run("machine", &["--save", path.to_str().unwrap()]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let again = run("machine", &["--root", path.to_str().unwrap()]);
    // In the saved machine the path of a CPU quota has no root, so its lines may differ.
    assert_eq!(again.1.lines().next(), out.lines().next());
    let placements = |text: &str| text.split_once("CPUs of 2").unwrap().1.to_owned();
    assert_eq!(placements(&again.1), placements(&out));
    // If the saved machine is saved again, the file is the same.
    let copy = folder.path().join("copy.txt");
    let arguments = ["--root", path.to_str().unwrap(), "--save", copy.to_str().unwrap(), "--json"];
    let (code, json, err) = run("machine", &arguments);
    assert_eq!((code, err.as_str()), (0, ""));
    serde_json::from_str::<Machine>(&json).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), fs::read_to_string(copy).unwrap());
    // Standard output carries the file alone.
    let (code, out, _) = run("machine", &["--save", "/dev/stdout"]);
    assert_eq!((code, out), (0, fs::read_to_string(path).unwrap()));
}

#[test]
fn wrong_input_is_one_line_and_saves_nothing() {
    let _watched = watched();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [missing, empty, damaged, text, save] =
        ["missing", "empty", "damaged", "text", "save"].map(path);
    fs::create_dir(&empty).unwrap();
    let list = Path::new(&damaged).join("sys/devices/system/cpu");
    fs::create_dir_all(&list).unwrap();
    fs::write(list.join("online"), "\u{1b}[2Jnone\n").unwrap();
    fs::write(&text, "no path\n").unwrap();
    for (root, said) in [
        (&missing, "missing"),
        (&empty, "online: names no CPU"),
        (&damaged, "online: `\\u{1b}[2Jnone` is no number or range"),
        (&text, "line 1: no path in `no path`"),
    ] {
        let (code, out, err) = run("machine", &["--root", root, "--save", &save]);
        assert_eq!((code, out.as_str(), err.lines().count()), (2, "", 1), "{err}");
        assert!(err.starts_with("slipring: --root: ") && err.contains(said), "{err}");
        assert!(!Path::new(&save).exists());
    }
    for wrong in [&["--threads", "0"][..], &["--threads", "5000"], &["x"], &["--root"]] {
        let (code, out, _) = run("machine", wrong);
        assert_eq!((code, out.as_str()), (2, ""), "{wrong:?}");
    }
    let known = file("virtual-machine");
    let within = format!("{missing}/file");
    let (code, out, err) = run("machine", &["--root", known.to_str().unwrap(), "--save", &within]);
    assert_eq!((code, out.as_str(), err.lines().count()), (2, "", 1), "{err}");
    assert!(err.contains("--save: cannot write to"), "{err}");
}

#[test]
fn a_closed_pipe_is_fine() {
    let _watched = watched();
    let mut child = command("machine", &["--root", file("server-altra").to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}
