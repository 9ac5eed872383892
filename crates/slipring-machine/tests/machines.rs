//! Reads machines from their systems' files, and checks the description of each and the CPUs that
//! placements choose.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use slipring_machine::{CorePair, Machine, Placement, Snapshot};

/// A machine's description, and its placements.
struct Expected {
    /// Name of the machine's file.
    name: &'static str,
    model: &'static str,
    /// Four counts: CPUs that are online, cores, packages, and threads that can run at the same
    /// time.
    counts: [usize; 4],
    allowed: &'static str,
    /// Shared data caches: level, and CPUs.
    shared: &'static [(u32, &'static str)],
    /// CPUs of each node, and its distances.
    nodes: &'static [(&'static str, &'static [u32])],
    /// Kinds of cores, the fastest first.
    kinds: &'static [(&'static str, &'static str)],
    /// Quota, in CPUs.
    quota: Option<f64>,
    hypervisor: Option<&'static str>,
    /// CPUs that each named placement chooses for a number of threads, or the reason why the
    /// placement is impossible.
    placements: &'static [(usize, [&'static str; 5])],
}

fn snapshot(name: &str) -> Snapshot {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines");
    fs::read_to_string(folder.join(format!("{name}.txt"))).unwrap().parse().unwrap()
}

/// Formats CPUs in order, with a range for three or more consecutive numbers.
fn in_order(cpus: &[usize]) -> String {
    let mut parts = Vec::new();
    for run in cpus.chunk_by(|one, next| one + 1 == *next) {
        match run {
            [first, _, .., last] => parts.push(format!("{first}-{last}")),
            few => parts.extend(few.iter().map(usize::to_string)),
        }
    }
    parts.join(" ")
}

fn check(expected: &Expected) {
    let name = expected.name;
    let snapshot = snapshot(name);
    let machine = Machine::from_snapshot(&snapshot).unwrap();
    // Some file systems take seconds for the thousands of files of the large machines.
    let read = (snapshot.len() < 2000).then(|| {
        let folder = tempfile::tempdir().unwrap();
        snapshot.unpack(folder.path()).unwrap();
        let (mut below, read) = Machine::below_with_snapshot(folder.path()).unwrap();
        let file = below.quota().map(|quota| quota.file.clone());
        assert_eq!(file.is_some(), machine.quota().is_some(), "{name}");
        if let Some(file) = file {
            // Paths in a description begin with the root.
            let root = format!("{}/", folder.path().display());
            let json = serde_json::to_string(&below).unwrap();
            assert!(file.starts_with(&root), "{file}");
            below = serde_json::from_str(&json.replace(&root, "")).unwrap();
        }
        assert_eq!(below, machine, "{name}");
        read
    });
    // If a file in the text were never read, an error in it would stay unnoticed. So each kind of
    // file must be read. Not each file is: of a core's CPUs, only one is read.
    let kinds_of_files = |snapshot: &Snapshot| -> BTreeSet<String> {
        let lines = snapshot.to_string();
        let path = |line: &str| line.split(": ").next().unwrap_or_default().to_owned();
        let is_number = |letter: char| letter.is_ascii_digit() || "[],-".contains(letter);
        lines.lines().map(|line| path(line).replace(is_number, "")).collect()
    };
    if let Some(read) = read {
        assert_eq!(kinds_of_files(&read), kinds_of_files(&snapshot), "{name}");
    }

    assert_eq!(machine.model(), Some(expected.model), "{name}");
    assert_eq!(machine.hypervisor(), expected.hypervisor, "{name}");
    let [cpus, cores, packages, usable] = expected.counts;
    assert_eq!(machine.online().len(), cpus, "{name}");
    assert_eq!(machine.cores().len(), cores, "{name}");
    assert_eq!(machine.packages().len(), packages, "{name}");
    assert_eq!(machine.usable_cores(), usable, "{name}");
    assert_eq!(machine.allowed().to_string(), expected.allowed, "{name}");
    let on_cores = machine.cores().iter().flat_map(|core| core.cpus.iter());
    assert_eq!(on_cores.collect::<slipring_machine::CpuSet>(), *machine.online(), "{name}");

    let caches = machine.caches().iter();
    let shared: Vec<(u32, String)> = caches
        .filter(|cache| {
            let first = machine.cores().iter().find(|core| !core.cpus.is_disjoint(&cache.cpus));
            !cache.cpus.is_subset(&first.unwrap().cpus)
        })
        .map(|cache| (cache.level, cache.cpus.to_string()))
        .collect();
    let shared: Vec<(u32, &str)> = shared.iter().map(|(level, cpus)| (*level, &**cpus)).collect();
    assert_eq!(shared, expected.shared, "{name}");
    let nodes = machine.nodes().iter().map(|node| (node.cpus.to_string(), &*node.distances));
    let nodes: Vec<(String, &[u32])> = nodes.collect();
    let nodes: Vec<(&str, &[u32])> = nodes.iter().map(|(cpus, far)| (&**cpus, *far)).collect();
    assert_eq!(nodes, expected.nodes, "{name}");
    assert!(machine.nodes().iter().all(|node| node.memory_mib.unwrap() > 1000), "{name}");
    let kinds = machine.kinds().iter().map(|kind| (&*kind.name, kind.cpus.to_string()));
    let expected_kinds = expected.kinds.iter().map(|&(name, cpus)| (name, cpus.to_owned()));
    assert_eq!(kinds.collect::<Vec<_>>(), expected_kinds.collect::<Vec<_>>(), "{name}");
    assert_eq!(machine.quota().map(|quota| quota.cpus()), expected.quota, "{name}");

    for (count, expected) in expected.placements {
        let names: Vec<String> = (0..*count).map(|number| format!("stage {number}")).collect();
        for (placement, expected) in Placement::NAMED.iter().zip(expected) {
            let found = match machine.assign(placement, &names) {
                Ok(assignment) => {
                    let cpus: Vec<usize> =
                        assignment.threads().iter().map(|thread| thread.cpu).collect();
                    in_order(&cpus)
                }
                Err(error) => error.reason().to_owned(),
            };
            assert_eq!(found, *expected, "{name}: {placement} of {count} threads");
        }
    }

    let json = serde_json::to_string(&machine).unwrap();
    assert_eq!(serde_json::from_str::<Machine>(&json).unwrap(), machine, "{name}");
    // Error messages contain the summary, so it must be short: a few lines, none of which is long.
    let summary = machine.summary();
    assert!(summary.lines().count() <= 12, "{name}: {summary}");
    assert!(summary.lines().all(|line| line.chars().count() <= 80), "{name}: {summary}");
    for width in [40, 80, 200] {
        let drawing = machine.drawing(width);
        assert!(drawing.lines().all(|line| line.chars().count() <= width), "{name}: {drawing}");
        assert!(drawing.lines().count() <= 45, "{name}: {drawing}");
    }
}

const ONE_NODE: &[u32] = &[10];

/// Why there are no siblings.
const ONE_EACH: &str = "a core has at most 1 allowed CPU";
const TWO_EACH: &str = "a core has at most 2 allowed CPUs";

#[test]
fn a_laptop_with_two_kinds_of_cores() {
    check(&Expected {
        name: "laptop-hybrid",
        model: "13th Gen Intel(R) Core(TM) i7-1370P",
        counts: [20, 14, 1, 20],
        allowed: "0-19",
        shared: &[(3, "0-19"), (2, "12-15"), (2, "16-19")],
        nodes: &[("0-19", ONE_NODE)],
        kinds: &[("performance", "0-11"), ("efficiency", "12-19")],
        quota: None,
        hypervisor: None,
        placements: &[
            (1, ["0"; 5]),
            (2, ["0 0", "0 1", "0 2", "0 2", "0 2"]),
            (3, ["0 0 0", TWO_EACH, "0 2 4", "0 2 4", "0 2 4"]),
            // The efficiency cores alone are enough, so the kinds do not mix.
            (8, ["0 0 0 0 0 0 0 0", TWO_EACH, "12-19", "12-19", "12 16 13 17 14 18 15 19"]),
            (
                10,
                [
                    "0 0 0 0 0 0 0 0 0 0",
                    TWO_EACH,
                    "0 2 4 6 8 10 12-15",
                    "0 2 4 6 8 10 12-15",
                    "0 2 4 6 8 10 12 16 13 17",
                ],
            ),
            (
                16,
                [
                    "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
                    TWO_EACH,
                    "0 2 4 6 8 10 12-19 1 3",
                    "0 2 4 6 8 10 12-19 1 3",
                    "14 cores have allowed CPUs",
                ],
            ),
        ],
    });
}

#[test]
fn a_laptop_with_cores_outside_of_the_last_cache() {
    check(&Expected {
        name: "laptop-low-power-cores",
        model: "Intel(R) Core(TM) Ultra 9 185H",
        counts: [22, 16, 1, 22],
        allowed: "0-21",
        shared: &[(3, "0-19"), (2, "12-15"), (2, "16-19"), (2, "20-21")],
        nodes: &[("0-21", ONE_NODE)],
        kinds: &[("performance", "0-11"), ("efficiency", "12-21")],
        quota: None,
        hypervisor: None,
        placements: &[
            (1, ["0"; 5]),
            (2, ["0 0", "0 5", "0 1", "0 1", "0 1"]),
            (3, ["0 0 0", TWO_EACH, "0 1 3", "0 1 3", "0 1 3"]),
            // Eight efficiency cores share the L3 cache, and two have an L2 cache of their own.
            (
                10,
                [
                    "0 0 0 0 0 0 0 0 0 0",
                    TWO_EACH,
                    "0 1 3 6 8 10 12-15",
                    "12-21",
                    "12 20 16 21 13 17 14 18 15 19",
                ],
            ),
            (
                21,
                [
                    "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
                    TWO_EACH,
                    "the cores of one cache have at most 20 allowed CPUs",
                    "0 1 3 6 8 10 12-21 5 2 4 7 9",
                    "16 cores have allowed CPUs",
                ],
            ),
        ],
    });
}

/// Once the performance cores are excluded, cores that have an L3 cache come before cores that have
/// none.
#[test]
fn a_group_below_the_highest_cache_is_preferred() {
    let text = snapshot("laptop-low-power-cores").to_string();
    let text = text.replace("Cpus_allowed_list:\\t0-21", "Cpus_allowed_list:\\t12-21");
    let machine = Machine::from_snapshot(&text.parse().unwrap()).unwrap();
    let assignment = machine.assign(&Placement::SharedCache, &["producer", "parse"]).unwrap();
    assert_eq!((assignment.cpu("producer"), assignment.cpu("parse")), (Some(12), Some(13)));
    let error = machine.assign(&Placement::SharedCache, &[""; 9]).unwrap_err();
    assert_eq!(error.reason(), "the cores of one cache have at most 8 allowed CPUs");
}

#[test]
fn two_cpus_for_a_measurement_are_of_two_cores_if_there_are_two() {
    let pair = |text: &str| {
        let machine = Machine::from_snapshot(&text.parse().unwrap()).unwrap();
        CorePair::of(&machine).map(|pair| (pair.producer, pair.waiter))
    };
    for (name, expected) in [
        ("virtual-machine", (0, 1)),
        ("laptop-hybrid", (0, 2)),
        ("laptop-low-power-cores", (0, 1)),
        ("server-intel-2-sockets", (0, 1)),
    ] {
        assert_eq!(pair(&snapshot(name).to_string()), Some(expected), "{name}");
    }
    let within = |mask: &str| {
        let text = snapshot("laptop-hybrid").to_string();
        let all = text.lines().find(|line| line.contains("Cpus_allowed_list")).unwrap();
        pair(&text.replace(all, &format!("proc/self/status: Cpus_allowed_list:\\t{mask}")))
    };
    assert_eq!((within("0-1"), within("1,3"), within("3")), (Some((0, 1)), Some((1, 3)), None));
}

/// Programs read these keys.
#[test]
fn the_keys_of_records_are_stable() {
    let machine = Machine::from_snapshot(&snapshot("container-cgroup2")).unwrap();
    let record = serde_json::to_value(&machine).unwrap();
    let keys = |value: &serde_json::Value| -> String {
        value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        keys(&record),
        "allowed caches cores hypervisor kernel kinds memory model nodes offline online packages \
         quota usable_cores"
    );
    assert_eq!(keys(&record["caches"][0]), "cpus holds level line_bytes size_kib");
    assert_eq!(keys(&record["cores"][0]), "cpus kind node number package");
    assert_eq!(keys(&record["nodes"][0]), "cpus distances memory_mib number");
    assert_eq!(keys(&record["packages"][0]), "cpus number");
    assert_eq!(keys(&record["quota"]), "file period_us time_us");
    assert_eq!(
        keys(&record["memory"]),
        "huge_pages page_kib transparent_huge_page_kib transparent_huge_pages"
    );
    assert_eq!(keys(&record["memory"]["huge_pages"][0]), "free reserved size_kib");
    assert_eq!(record["allowed"], "2-3,6-7");
    assert_eq!(record["caches"][1]["holds"], "both");
    let hybrid = Machine::from_snapshot(&snapshot("laptop-hybrid")).unwrap();
    let record = serde_json::to_value(&hybrid).unwrap();
    assert_eq!(keys(&record["kinds"][0]), "capacity cpus name");
    let assignment = machine.assign(&Placement::SameCore, &["producer"]).unwrap();
    let record = serde_json::to_value(&assignment).unwrap();
    assert_eq!(keys(&record), "exceeds_quota memory_cpus node threads");
    assert_eq!(keys(&record["threads"][0]), "cpu name");
}

#[test]
fn a_server_with_two_packages() {
    check(&Expected {
        name: "server-intel-2-sockets",
        model: "Intel(R) Xeon(R) Silver 4108 CPU @ 1.80GHz",
        counts: [32, 16, 2, 32],
        allowed: "0-31",
        shared: &[(3, "0-7,16-23"), (3, "8-15,24-31")],
        nodes: &[("0-7,16-23", &[10, 21]), ("8-15,24-31", &[21, 10])],
        kinds: &[],
        quota: None,
        hypervisor: None,
        placements: &[
            (1, ["0"; 5]),
            (2, ["0 0", "0 16", "0 1", "0 1", "0 8"]),
            (3, ["0 0 0", TWO_EACH, "0-2", "0-2", "0 8 1"]),
            (
                10,
                [
                    "0 0 0 0 0 0 0 0 0 0",
                    TWO_EACH,
                    "0-7 16 17",
                    "0-7 16 17",
                    "0 8 1 9 2 10 3 11 4 12",
                ],
            ),
            (
                17,
                [
                    "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
                    TWO_EACH,
                    "the cores of one cache have at most 16 allowed CPUs",
                    "a node has at most 16 allowed CPUs",
                    "16 cores have allowed CPUs",
                ],
            ),
        ],
    });
}

#[test]
fn a_server_with_several_last_level_caches() {
    check(&Expected {
        name: "server-epyc-nps1",
        model: "AMD EPYC 7313P 16-Core Processor",
        counts: [32, 16, 1, 32],
        allowed: "0-31",
        shared: &[(3, "0-3,16-19"), (3, "4-7,20-23"), (3, "8-11,24-27"), (3, "12-15,28-31")],
        nodes: &[("0-31", ONE_NODE)],
        kinds: &[],
        quota: None,
        hypervisor: None,
        placements: &[
            (1, ["0"; 5]),
            (2, ["0 0", "0 16", "0 1", "0 1", "0 4"]),
            (3, ["0 0 0", TWO_EACH, "0-2", "0-2", "0 4 8"]),
            (6, ["0 0 0 0 0 0", TWO_EACH, "0-3 16 17", "0-5", "0 4 8 12 1 5"]),
            (
                17,
                [
                    "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
                    TWO_EACH,
                    "the cores of one cache have at most 8 allowed CPUs",
                    "0-16",
                    "16 cores have allowed CPUs",
                ],
            ),
        ],
    });
}

#[test]
fn a_server_with_four_nodes_in_a_package() {
    check(&Expected {
        name: "server-epyc-nps4",
        model: "AMD EPYC 7763 64-Core Processor",
        counts: [256, 128, 2, 256],
        allowed: "0-255",
        shared: &[
            (3, "0-7,128-135"),
            (3, "8-15,136-143"),
            (3, "16-23,144-151"),
            (3, "24-31,152-159"),
            (3, "32-39,160-167"),
            (3, "40-47,168-175"),
            (3, "48-55,176-183"),
            (3, "56-63,184-191"),
            (3, "64-71,192-199"),
            (3, "72-79,200-207"),
            (3, "80-87,208-215"),
            (3, "88-95,216-223"),
            (3, "96-103,224-231"),
            (3, "104-111,232-239"),
            (3, "112-119,240-247"),
            (3, "120-127,248-255"),
        ],
        nodes: &[
            ("0-15,128-143", &[10, 12, 12, 12, 32, 32, 32, 32]),
            ("16-31,144-159", &[12, 10, 12, 12, 32, 32, 32, 32]),
            ("32-47,160-175", &[12, 12, 10, 12, 32, 32, 32, 32]),
            ("48-63,176-191", &[12, 12, 12, 10, 32, 32, 32, 32]),
            ("64-79,192-207", &[32, 32, 32, 32, 10, 12, 12, 12]),
            ("80-95,208-223", &[32, 32, 32, 32, 12, 10, 12, 12]),
            ("96-111,224-239", &[32, 32, 32, 32, 12, 12, 10, 12]),
            ("112-127,240-255", &[32, 32, 32, 32, 12, 12, 12, 10]),
        ],
        kinds: &[],
        quota: None,
        hypervisor: None,
        placements: &[
            (1, ["0"; 5]),
            (2, ["0 0", "0 128", "0 1", "0 1", "0 64"]),
            (3, ["0 0 0", TWO_EACH, "0-2", "0-2", "0 64 16"]),
            (
                20,
                [
                    "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
                    TWO_EACH,
                    "the cores of one cache have at most 16 allowed CPUs",
                    "0-15 128-131",
                    "0 64 16 80 32 96 48 112 8 72 24 88 40 104 56 120 1 65 17 81",
                ],
            ),
        ],
    });
    let machine = Machine::from_snapshot(&snapshot("server-epyc-nps4")).unwrap();
    let names: Vec<String> = (0..128).map(|number| number.to_string()).collect();
    let all = machine.assign(&Placement::Spread, &names).unwrap();
    let cpus: BTreeSet<usize> = all.threads().iter().map(|thread| thread.cpu).collect();
    assert_eq!(cpus, (0..128).collect());
    let error = machine.assign(&Placement::SharedCache, &names).unwrap_err().to_string();
    assert!(error.lines().count() <= 14, "{error}");
    assert!(error.lines().skip(1).all(|line| line.chars().count() <= 80), "{error}");
    for shown in
        ["128 cores: 0-127 with 128-255", "16 shared L3 caches", "8 nodes: 0: 0-15+128-143"]
    {
        assert!(error.contains(shown), "{error}");
    }
}

#[test]
fn an_arm_server_without_shared_caches() {
    const NONE: &str = "no two cores share a cache, as far as the system says";
    check(&Expected {
        name: "server-altra",
        model: "Neoverse-N1",
        counts: [160, 160, 2, 160],
        allowed: "0-159",
        shared: &[],
        nodes: &[("0-79", &[10, 20]), ("80-159", &[20, 10])],
        kinds: &[],
        quota: None,
        hypervisor: None,
        placements: &[
            (1, ["0"; 5]),
            (2, ["0 0", ONE_EACH, NONE, "0 1", "0 80"]),
            (3, ["0 0 0", ONE_EACH, NONE, "0-2", "0 80 1"]),
            (7, ["0 0 0 0 0 0 0", ONE_EACH, NONE, "0-6", "0 80 1 81 2 82 3"]),
        ],
    });
    let machine = Machine::from_snapshot(&snapshot("server-altra")).unwrap();
    let reason = |placement, count| {
        machine.assign(&placement, &vec![""; count]).unwrap_err().reason().to_owned()
    };
    assert_eq!(reason(Placement::SameNode, 81), "a node has at most 80 allowed CPUs");
    assert_eq!(reason(Placement::Spread, 161), "160 cores have allowed CPUs");
}

#[test]
fn a_container_with_groups_of_version_2() {
    check(&Expected {
        name: "container-cgroup2",
        model: "Intel(R) Core(TM) i7-6700 CPU @ 3.40GHz",
        counts: [8, 4, 1, 1],
        allowed: "2-3,6-7",
        shared: &[(3, "0-7")],
        nodes: &[("0-7", ONE_NODE)],
        kinds: &[],
        quota: Some(1.5),
        hypervisor: None,
        placements: &[
            (1, ["2"; 5]),
            (2, ["2 2", "2 6", "2 3", "2 3", "2 3"]),
            (3, ["2 2 2", TWO_EACH, "2 3 6", "2 3 6", "2 cores have allowed CPUs"]),
            (
                5,
                [
                    "2 2 2 2 2",
                    TWO_EACH,
                    "the cores of one cache have at most 4 allowed CPUs",
                    "a node has at most 4 allowed CPUs",
                    "2 cores have allowed CPUs",
                ],
            ),
        ],
    });
}

#[test]
fn a_container_with_groups_of_version_1() {
    check(&Expected {
        name: "container-cgroup1",
        model: "Intel(R) Xeon(R) CPU E5-2660 v2 @ 2.20GHz",
        counts: [40, 20, 2, 2],
        allowed: "0,2,4,10-13",
        shared: &[(3, "0-9,20-29"), (3, "10-19,30-39")],
        nodes: &[("0-9,20-29", &[10, 21]), ("10-19,30-39", &[21, 10])],
        kinds: &[],
        quota: Some(2.5),
        hypervisor: None,
        placements: &[
            (1, ["0"; 5]),
            // `SharedCache` takes the smallest group that suffices, and `SameNode` takes the node
            // with the most allowed cores.
            (2, ["0 0", ONE_EACH, "0 2", "10 11", "0 10"]),
            (3, ["0 0 0", ONE_EACH, "0 2 4", "10-12", "0 10 2"]),
            (4, ["0 0 0 0", ONE_EACH, "10-13", "10-13", "0 10 2 11"]),
            (
                8,
                [
                    "0 0 0 0 0 0 0 0",
                    ONE_EACH,
                    "the cores of one cache have at most 4 allowed CPUs",
                    "a node has at most 4 allowed CPUs",
                    "7 cores have allowed CPUs",
                ],
            ),
        ],
    });
}

#[test]
fn a_desktop_with_two_complexes() {
    check(&Expected {
        name: "desktop-ryzen-2-ccx",
        model: "AMD Ryzen 7 3700X 8-Core Processor",
        counts: [16, 8, 1, 16],
        allowed: "0-15",
        shared: &[(3, "0-3,8-11"), (3, "4-7,12-15")],
        // The system of this machine has no `node` directory.
        nodes: &[("0-15", &[])],
        kinds: &[],
        quota: None,
        hypervisor: None,
        placements: &[
            (1, ["0"; 5]),
            (2, ["0 0", "0 8", "0 1", "0 1", "0 4"]),
            (3, ["0 0 0", TWO_EACH, "0-2", "0-2", "0 4 1"]),
            (
                9,
                [
                    "0 0 0 0 0 0 0 0 0",
                    TWO_EACH,
                    "the cores of one cache have at most 8 allowed CPUs",
                    "0-8",
                    "8 cores have allowed CPUs",
                ],
            ),
        ],
    });
}

#[test]
fn a_board_with_big_and_little_cores() {
    check(&Expected {
        name: "board-big-little",
        model: "Cortex-A53 and Cortex-A72",
        counts: [6, 6, 1, 6],
        allowed: "0-5",
        shared: &[(2, "0-3"), (2, "4-5")],
        nodes: &[("0-5", &[])],
        kinds: &[("capacity 1024", "4-5"), ("capacity 381", "0-3")],
        quota: None,
        hypervisor: None,
        placements: &[
            (1, ["4"; 5]),
            (2, ["4 4", ONE_EACH, "4 5", "4 5", "4 5"]),
            // The slow cores alone are enough, so the placement does not mix the kinds of cores.
            (3, ["4 4 4", ONE_EACH, "0-2", "0-2", "0-2"]),
            (
                6,
                [
                    "4 4 4 4 4 4",
                    ONE_EACH,
                    "the cores of one cache have at most 4 allowed CPUs",
                    "4 5 0-3",
                    "4 5 0-3",
                ],
            ),
        ],
    });
}

#[test]
fn a_virtual_machine() {
    check(&Expected {
        name: "virtual-machine",
        model: "AMD EPYC",
        counts: [2, 2, 1, 2],
        allowed: "0-1",
        shared: &[(3, "0-1")],
        nodes: &[("0-1", ONE_NODE)],
        kinds: &[],
        quota: None,
        hypervisor: Some("unknown"),
        placements: &[
            (1, ["0"; 5]),
            (2, ["0 0", ONE_EACH, "0 1", "0 1", "0 1"]),
            (
                3,
                [
                    "0 0 0",
                    ONE_EACH,
                    "the cores of one cache have at most 2 allowed CPUs",
                    "a node has at most 2 allowed CPUs",
                    "2 cores have allowed CPUs",
                ],
            ),
        ],
    });
}

/// The threads are placed in the order of the graph, and the memory belongs to the node that has
/// most of them.
#[test]
fn memory_lies_where_most_threads_are() {
    let machine = Machine::from_snapshot(&snapshot("server-intel-2-sockets")).unwrap();
    let place = |text: &str, threads: &[&str]| {
        let assignment = machine.assign(&text.parse().unwrap(), threads).unwrap();
        (assignment.node(), assignment.memory_cpus().to_string())
    };
    let (first, second) = ("0-7,16-23".to_owned(), "8-15,24-31".to_owned());
    assert_eq!(place("cpus:0,8,9", &["producer", "a", "b"]), (Some(1), second.clone()));
    // Each node has one thread, so the producer's node is chosen.
    assert_eq!(place("cpus:8,0", &["producer", "a"]), (Some(1), second));
    assert_eq!(place("producer=0,a=9,b=16", &["producer", "a", "b"]), (Some(0), first));
    let container = Machine::from_snapshot(&snapshot("container-cgroup1")).unwrap();
    let assignment = container.assign(&Placement::Spread, &["producer"]).unwrap();
    assert_eq!(assignment.memory_cpus().to_string(), "0,2,4");
}

#[test]
fn an_explicit_placement_is_exact_or_an_error() {
    let machine = Machine::from_snapshot(&snapshot("container-cgroup2")).unwrap();
    let threads = ["producer", "parse"];
    let named = machine.assign(&"parse=7,producer=2".parse().unwrap(), &threads).unwrap();
    assert_eq!(
        (named.cpu("producer"), named.cpu("parse"), named.cpu("x")),
        (Some(2), Some(7), None)
    );
    for (text, reason) in [
        ("cpus:2", "it names 1 CPU, and the threads are producer, parse"),
        ("cpus:2,3,6", "it names 3 CPUs, and the threads are producer, parse"),
        ("producer=2", "thread parse has no CPU"),
        ("producer=2,parse=3,store=6", "there is no thread store; the threads are producer, parse"),
        ("cpus:2,8", "there is no CPU 8"),
        ("cpus:2,0", "CPU 0 is outside of this thread's affinity mask, which is 2-3,6-7"),
    ] {
        let error = machine.assign(&text.parse().unwrap(), &threads).unwrap_err();
        assert_eq!(error.reason(), reason);
    }
    let error = machine.assign(&"cpus:2,0".parse().unwrap(), &threads).unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(
        lines,
        [
            "placement cpus:2,0 is impossible for 2 threads: CPU 0 is outside of this thread's \
             affinity mask, which is 2-3,6-7; possible are same-core, siblings, shared-cache, \
             same-node, spread; the machine has",
            "  4 cores: 0-3 with 4-7",
            "  this process may use: 2-3,6-7",
            "  1 shared L3 cache: 0-7",
            "  1 node: 0: 0-7",
        ]
    );
}

/// The drawing marks a group without allowed CPUs, and shows partly allowed cores in brackets.
#[test]
fn a_mask_is_drawn_on_a_large_machine() {
    let text = snapshot("server-epyc-nps4").to_string();
    let text = text.replace("Cpus_allowed_list:\\t0-255", "Cpus_allowed_list:\\t0-3,8-9,136");
    let machine = Machine::from_snapshot(&text.parse().unwrap()).unwrap();
    let drawing = machine.drawing(80);
    for line in [
        "      8 cores: [0 (128)], [1 (129)], [2 (130)], [3 (131)], (4-7 with 132-135)",
        "    L3 32 MiB: 8 cores: 8+136, [9 (137)], (10-15 with 138-143)",
        "  node 1 with 62.89 GiB, not allowed",
        "    L3 32 MiB: 8 cores: 16-23 with 144-151",
        "package 1, not allowed",
    ] {
        assert!(drawing.lines().any(|drawn| drawn == line), "{line}: {drawing}");
    }
}
