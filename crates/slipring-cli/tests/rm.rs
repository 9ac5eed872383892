//! `slipring rm --stale` as a user runs it, over a `/dev/shm` of its own, because it removes the
//! segments of all processes of the machine.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::process::Command;

use common::{Name, run, watched};
use slipring_shm::parts::layout::{Head, Header};

/// Environment variable that says that `/dev/shm` is this test's own.
const OWN: &str = "SLIPRING_CLI_TEST_OWN_SHM";
/// Mounts an empty folder for segments, and runs the test again.
const AGAIN: &str = "mount -t tmpfs tmpfs /dev/shm || exit 77; exec \"$0\" \"$@\"";

/// Runs the test of that name again with a `/dev/shm` of its own. Returns `true` within that second
/// run.
fn has_own_folder(test: &str) -> bool {
    if std::env::var_os(OWN).is_some() {
        return true;
    }
    let own = std::env::current_exe().unwrap();
    for user in [&["--propagation", "private"][..], &["--map-root-user"]] {
        let mut again = Command::new("unshare");
        again.arg("--mount").args(user).args(["sh", "-c", AGAIN]).arg(&own);
        again.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(OWN, "1");
        let output = again.output().unwrap();
        if output.status.success() {
            return false;
        }
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("panicked"), "{said}");
    }
    let _ = writeln!(std::io::stderr(), "\nSKIPPED: no mounts of its own for a tmpfs");
    false
}

fn remove_stale() -> (i32, String, String) {
    run("rm", &["--stale"])
}

/// Changes the header of a segment, and computes its checksum again if `seal` is set.
fn change(name: &Name, seal: bool, change: fn(&mut Header)) {
    let file = File::options().read(true).write(true).open(name.path()).unwrap();
    let mut bytes = vec![0; 65_536];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let mut head = Head::from_bytes(bytes).unwrap();
    let mut header = head.header();
    change(&mut header);
    head.store(&header);
    if seal {
        head.seal();
    }
    file.write_all_at(head.bytes(), 0).unwrap();
}

#[test]
fn what_no_process_needs_is_removed() {
    let _watched = watched();
    if !has_own_folder("what_no_process_needs_is_removed") {
        return;
    }
    let none = (0, "there are no stale segments in /dev/shm\n".to_owned(), String::new());
    assert_eq!(remove_stale(), none);

    let names =
        ["used", "left", "checksum", "short", "foreign", "notes", "boot", "open", "newer", "live"];
    let names = names.map(Name::new);
    let [used, left, checksum, short, foreign, notes, boot, open, newer, live] = &names;
    let attached = [used, live].map(|name| {
        // SAFETY: only this test knows the segments.
        unsafe { name.make().attach().unwrap() }
    });
    [left, checksum, short, boot, open, newer].iter().for_each(|name| drop(name.make()));
    change(checksum, false, |header| header.created ^= 1);
    change(live, false, |header| header.created ^= 1);
    change(boot, true, |header| header.boot = [7; 16]);
    change(newer, true, |header| header.major = 2);
    File::options().write(true).open(short.path()).unwrap().set_len(70_000).unwrap();
    let mut create = OpenOptions::new();
    create.write(true).create_new(true).mode(0o600);
    create.open(foreign.path()).unwrap().write_all_at(&[b'x'; 100_000], 0).unwrap();
    create.open(notes.path()).unwrap().write_all_at(b"no segment", 0).unwrap();
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o644)).unwrap();

    let (code, out, err) = remove_stale();
    assert_eq!(code, 1, "{out}{err}");
    let removed = [
        (left, ""),
        (checksum, ", which was damaged"),
        (short, ", which was damaged"),
        (boot, ", which was of an earlier boot"),
    ];
    for (name, state) in removed {
        let line = format!("removed {}{state}", name.path().display());
        assert!(out.lines().any(|other| other == line), "{line}: {out}{err}");
        assert!(!name.path().exists(), "{line}");
    }
    let kept = [
        (foreign, "it is no segment"),
        (notes, "it is no segment"),
        (open, "0644"),
        (newer, "version 2"),
        (live, "participant 1 is attached"),
    ];
    for (name, said) in kept {
        let path = name.path().display().to_string();
        let line = err.lines().find(|line| line.contains(&path)).unwrap_or_else(|| panic!("{err}"));
        assert!(line.contains(said) && name.path().exists(), "{line}");
    }
    assert!(used.path().exists() && !err.contains(&used.0), "{err}");
    assert_eq!((out.lines().count(), err.lines().count()), (4, 5), "{out}{err}");

    // Nothing is removed now, but the program does not claim that there are no stale segments.
    let (code, out, err) = remove_stale();
    assert_eq!((code, out.as_str(), err.lines().count()), (1, "", 5), "{err}");
    let (code, out, err) = run("rm", &[&foreign.0]);
    assert_eq!((code, out.lines().count()), (0, 1), "{out}{err}");
    [notes, open, newer, live].iter().for_each(|name| fs::remove_file(name.path()).unwrap());
    assert_eq!(remove_stale(), none);
    drop(attached);
    let expected = format!("removed {}\n", used.path().display());
    assert_eq!(remove_stale(), (0, expected, String::new()));
}
