//! Damaged, missing and strange files: errors that name the file, and no panic.

use std::fs;
use std::path::Path;

use slipring_machine::{Machine, Placement, Snapshot};

fn describe(text: &str) -> Result<Machine, String> {
    let snapshot: Snapshot = text.parse().unwrap();
    Machine::from_snapshot(&snapshot).map_err(|error| error.to_string())
}

#[test]
fn what_a_system_does_not_say_is_absent() {
    let machine = describe("sys/devices/system/cpu/online: 0-3").unwrap();
    assert_eq!((machine.online().len(), machine.cores().len()), (4, 4));
    assert_eq!((machine.nodes().len(), machine.packages().len()), (1, 0));
    assert!(machine.caches().is_empty() && machine.kinds().is_empty());
    assert_eq!((machine.model(), machine.kernel(), machine.hypervisor()), (None, None, None));
    assert_eq!((machine.allowed(), machine.quota()), (machine.online(), None));
    assert_eq!(machine.cores()[3].node, Some(0));
    assert!(machine.assign(&Placement::SharedCache, &["a", "b"]).is_err());
    assert!(machine.assign::<&str>(&Placement::SameCore, &[]).is_err());
    assert_eq!(machine.drawing(80), "node 0: [0] [1] [2] [3]\n");
    // Some systems have a folder for each CPU, but no list of the CPUs.
    let folders = "sys/devices/system/cpu/cpu[0,2]/topology/physical_package_id: -1";
    let machine = describe(folders).unwrap();
    assert_eq!(machine.online().to_string(), "0,2");
    assert!(machine.packages().is_empty());
}

#[test]
fn offline_cpus_have_no_topology() {
    let machine = describe(
        "sys/devices/system/cpu/online: 0-1,3\n\
         sys/devices/system/cpu/present: 0-3\n\
         sys/devices/system/cpu/cpu[0-1]/topology/thread_siblings_list: 0-1\n\
         sys/devices/system/cpu/cpu3/topology/thread_siblings_list: 2-3\n\
         sys/devices/system/node/node0/cpulist: 0-3\n",
    )
    .unwrap();
    assert_eq!(machine.offline().to_string(), "2");
    let cores: Vec<String> = machine.cores().iter().map(|core| core.cpus.to_string()).collect();
    assert_eq!(cores, ["0-1", "3"]);
    let error = machine.assign(&"cpus:2".parse().unwrap(), &["producer"]).unwrap_err();
    assert_eq!(error.reason(), "CPU 2 is offline");
}

#[test]
fn a_damaged_file_is_named_with_what_is_wrong() {
    let cpu = "sys/devices/system/cpu/online: 0-1\n";
    for (text, error) in [
        ("a: b", "sys/devices/system/cpu/online: names no CPU, and there are no folders"),
        ("sys/devices/system/cpu/online: 0-x", "cpu/online: `0-x` is no number or range"),
        ("proc/self/status: Cpus_allowed_list: 9", "9 has no CPU that is online; online are 0-1"),
        ("proc/self/status: Cpus_allowed_list: ?", "proc/self/status: Cpus_allowed_list: `?` is"),
        (
            "sys/devices/system/cpu/cpu1/topology/core_cpus_list: 0",
            "cpu1/topology/core_cpus_list: `0` does not have CPU 1 itself",
        ),
        ("sys/devices/system/cpu/cpu0/topology/physical_package_id: x", "`x` is no such number"),
        ("sys/devices/system/cpu/cpu0/cache/index0/level: 99", "there is no level 99"),
        (
            "sys/devices/system/cpu/cpu0/cache/index0/level: 1\n\
             sys/devices/system/cpu/cpu0/cache/index0/type: Trace",
            "index0/type: `Trace` is no type of cache",
        ),
        (
            "sys/devices/system/cpu/cpu0/cache/index0/level: 1\n\
             sys/devices/system/cpu/cpu0/cache/index0/size: big",
            "index0/size: `big` is no size",
        ),
        ("sys/devices/system/node/node0/distance: 10 x", "node0/distance: `x` is no such number"),
        ("sys/devices/system/node/node0/distance: 10 20", "has 2 distances for 1 nodes"),
        ("sys/devices/system/node/node0/meminfo: MemTotal: many kB", "`many` is no such number"),
        ("sys/devices/cpu_core/cpus: -1", "cpu_core/cpus: `-1` is no number or range"),
        ("sys/kernel/mm/transparent_hugepage/enabled: always", "has no mode in brackets"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages: -1", "`-1` is no such number"),
    ] {
        let text = if text == "a: b" { text.to_owned() } else { format!("{cpu}{text}") };
        let found = describe(&text).unwrap_err();
        assert!(found.contains(error) && found.lines().count() == 1, "{found}");
    }
}

#[test]
fn a_folder_that_is_no_root_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let error = Machine::below(&missing).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot read {}: ", missing.display())), "{error}");
    let error = Machine::below(folder.path()).unwrap_err().to_string();
    assert!(error.contains("online: names no CPU"), "{error}");
    // There is a folder in place of the file.
    fs::create_dir_all(folder.path().join("sys/devices/system/cpu/online")).unwrap();
    let error = Machine::below(folder.path()).unwrap_err();
    assert!(error.file().ends_with("sys/devices/system/cpu/online"), "{error}");
    // The file has bytes that are not text, so it is not a list of CPUs.
    fs::remove_dir(folder.path().join("sys/devices/system/cpu/online")).unwrap();
    fs::write(folder.path().join("sys/devices/system/cpu/online"), [0xff, 0, b'1']).unwrap();
    assert!(Machine::below(folder.path()).unwrap_err().to_string().contains("is no number"));
}

/// Uses everything that a description offers.
fn use_all(machine: &Machine) {
    for width in [0, 40, 80] {
        machine.drawing(width);
    }
    machine.summary();
    for count in [0, 1, 2, 3, 17, 300] {
        let names = vec!["thread"; count];
        for placement in &Placement::NAMED {
            match machine.assign(placement, &names) {
                Ok(assignment) => {
                    assert_eq!(assignment.threads().len(), count);
                    let allowed = |cpu| machine.allowed().contains(cpu);
                    assert!(assignment.threads().iter().all(|thread| allowed(thread.cpu)));
                    let _ = assignment.to_string();
                }
                Err(error) => drop(error.to_string()),
            }
        }
    }
    let json = serde_json::to_string(machine).unwrap();
    assert_eq!(serde_json::from_str::<Machine>(&json).unwrap(), *machine);
}

/// Changes files of real machines at random. Each result is a description or an error.
#[test]
fn no_damage_panics() {
    const STRANGE: [&str; 16] = [
        "",
        "-1",
        "0",
        "1",
        "7",
        "0-3",
        "3-0",
        "0-8191",
        "0-8191:1/2",
        "99999999999999999999",
        "18446744073709551615",
        "max",
        "max 0",
        "1 1",
        "[always",
        "\u{1b}]0;\u{7}",
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines");
    let mut random = fastrand::Rng::with_seed(7);
    let (mut described, mut refused) = (0, 0);
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let text = fs::read_to_string(path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for _ in 0..if lines.len() > 200 { 5 } else { 40 } {
            let mut lines: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
            for _ in 0..random.usize(1..6) {
                let place = random.usize(..lines.len());
                match random.u8(..4) {
                    0 => drop(lines.remove(place)),
                    1 => {
                        let strange = STRANGE[random.usize(..STRANGE.len())];
                        if let Some((path, _)) = lines[place].clone().split_once(": ") {
                            lines[place] = format!("{path}: {strange}");
                        }
                    }
                    2 => {
                        let other = random.usize(..lines.len());
                        lines.swap(place, other);
                    }
                    _ => {
                        let mut bytes = lines[place].clone().into_bytes();
                        if !bytes.is_empty() {
                            let byte = random.usize(..bytes.len());
                            bytes[byte] = random.u8(b' '..b'~');
                        }
                        lines[place] = String::from_utf8_lossy(&bytes).into_owned();
                    }
                }
            }
            let Ok(snapshot) = lines.join("\n").parse::<Snapshot>() else {
                refused += 1;
                continue;
            };
            match Machine::from_snapshot(&snapshot) {
                Ok(machine) => {
                    use_all(&machine);
                    described += 1;
                }
                Err(error) => {
                    assert_eq!(error.to_string().lines().count(), 1, "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(described > 50 && refused > 50, "{described} described, {refused} refused");
}

/// Sets of CPUs overlap as they do on no real machine.
#[test]
fn overlapping_groups_are_described() {
    let mut text = "sys/devices/system/cpu/online: 0-7\n".to_owned();
    for (cpus, shared) in [("0", "0-4"), ("3", "2-5"), ("5", "1,5-7"), ("6", "0-7")] {
        text += &format!(
            "sys/devices/system/cpu/cpu{cpus}/cache/index3/level: 3\n\
             sys/devices/system/cpu/cpu{cpus}/cache/index3/shared_cpu_list: {shared}\n\
             sys/devices/system/cpu/cpu{cpus}/topology/core_cpus_list: {shared}\n"
        );
    }
    text += "sys/devices/system/node/node0/cpulist: 0-5\n\
             sys/devices/system/node/node1/cpulist: 4-7\n\
             sys/devices/cpu_core/cpus: 0-5\n\
             sys/devices/cpu_atom/cpus: 3-6\n";
    use_all(&describe(&text).unwrap());
}
