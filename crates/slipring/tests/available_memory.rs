//! The library refuses a build that needs more memory than the system has left, and does so before
//! the build allocates. Any other build allocates about as much memory as the refusal would have
//! stated.
//!
//! The test runs in a child process with its own mounts, and mounts a file of its own over
//! `/proc/meminfo`, so that the system seems to have little memory. Therefore the test itself needs
//! little memory, even if the library fails to refuse a ring. This file has a single test, because
//! another test in the process would allocate at the same time.
#![cfg(all(target_os = "linux", not(miri)))]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use common::{ends_well, plays};
use slipring::{
    Error, Graph, Mirror,
    errors::{BuildError, ErrorKind, MemoryLimit, MemoryShortage},
    faults::Marks,
};

struct Counting;

/// Bytes that were allocated since the last reading, freed ones included.
static ALLOCATED: AtomicU64 = AtomicU64::new(0);

// SAFETY: each call is forwarded to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as u64, SeqCst);
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROLE: &str = "builds_larger_than_the_available_memory_are_refused";
const MEMINFO: &str = "SLIPRING_TEST_MEMINFO";
const MIB: u64 = 1 << 20;

/// A test's build of 60 to 130 MiB. The argument decides whether it may take more memory than is
/// available.
type Build = fn(bool) -> Result<(), Error>;

/// Says `allow_overcommit` if `insist`.
macro_rules! with {
    ($front:expr, $insist:expr) => {
        if $insist { $front.allow_overcommit() } else { $front }
    };
}

const BUILDS: [(&str, Build); 9] = [
    ("slots", |insist| with!(Graph::new(1 << 21, || [0u64; 3]), insist).build().map(drop)),
    ("contiguous", |insist| {
        with!(Graph::new(1 << 21, || [0u64; 4]), insist).contiguous().build().map(drop)
    }),
    ("contiguous with stamps", |insist| {
        with!(Graph::new(1 << 21, || [0u64; 4]), insist).contiguous().shared().build().map(drop)
    }),
    ("huge pages", |insist| {
        with!(Graph::new(1 << 21, || [0u64; 3]), insist).huge_pages().build().map(drop)
    }),
    ("sampled", |insist| {
        with!(Graph::new(1 << 21, || 0u64), insist).sample_latency(1).build().map(drop)
    }),
    ("shards", |insist| {
        let graph = with!(Graph::new(1 << 21, || [0u64; 2]), insist);
        let keys = ["a", "b"].map(|name| graph.shard_reader(name, 2, |event| event[0]));
        graph.build().map(|_| drop(keys))
    }),
    ("marks", |insist| {
        let [one, other] = [Marks::new(), Marks::new()];
        let chain = with!(slipring::ring(1 << 21, || 0u64), insist);
        let chain = chain.read("a", |_, _| ()).marks(&one).read("b", |_, _| ()).marks(&other);
        chain.run(|_| Ok(())).map(drop)
    }),
    ("taps", |insist| {
        let graph = with!(Graph::new(2, || 0u64), insist);
        let keys = ["a", "b", "c"].map(|name| graph.tap(name, slipring::stages::MAX_STAGE_HANDLES));
        graph.build().map(|_| drop(keys))
    }),
    ("a mirror", |insist| {
        let make = if insist { Mirror::allow_overcommit } else { Mirror::<[u64; 6]>::new };
        make(1 << 20)?;
        Ok(())
    }),
];

fn shortage(name: &str, built: Result<(), Error>) -> MemoryShortage {
    let error = built.err().unwrap_or_else(|| panic!("{name}: the build succeeded"));
    assert!(error.to_string().contains("allow_overcommit"), "{error}");
    match error.kind() {
        ErrorKind::Build(BuildError::MemoryShortage(shortage)) => shortage.clone(),
        other => panic!("{name}: {other:?}"),
    }
}

/// Runs in the child process, which reads the system's available memory from the file at `MEMINFO`.
fn child() {
    let says = |kib: u64| {
        fs::write(std::env::var(MEMINFO).unwrap(), format!("MemAvailable: {kib} kB\n")).unwrap();
    };
    for (name, build) in BUILDS {
        says(63 << 10);
        ALLOCATED.store(0, SeqCst);
        let shortage = shortage(name, build(false));
        let of_refusal = ALLOCATED.load(SeqCst);
        assert!(of_refusal < MIB, "{name}: {of_refusal} bytes for a refusal");
        assert_eq!((shortage.available, &shortage.limit), (63 * MIB, &MemoryLimit::Machine));
        ALLOCATED.store(0, SeqCst);
        build(true).unwrap_or_else(|error| panic!("{name}: {error}"));
        let allocated = ALLOCATED.load(SeqCst);
        // More may be allocated than the stated need, which leaves out names, handles and the plan.
        // Besides, the build may touch only a part of a huge page.
        let most = shortage.needed + 2 * MIB + shortage.needed / 64;
        assert!((shortage.needed..=most).contains(&allocated), "{name}: {allocated}, {shortage:?}");
        says((shortage.needed >> 10) * 16 / 15 + 64);
        build(false).unwrap_or_else(|error| panic!("{name}, with enough memory: {error}"));
    }
    says(0);
    drop(Graph::new(1 << 15, || [0u64; 3]).build().unwrap()); // 1 MiB: not looked at
    drop(slipring::unicast(1 << 15, || [0u64; 3]).unwrap());
    shortage("unicast", slipring::unicast(1 << 21, || [0u64; 3]).map(drop));
}

#[test]
fn builds_larger_than_the_available_memory_are_refused() {
    let _watched = crate::common::watched();
    if plays(ROLE) {
        return child();
    }
    let file = std::env::temp_dir().join(format!("slipring-meminfo-{}", std::process::id()));
    fs::write(&file, "MemAvailable: 0 kB\n").unwrap();
    let own_mounts = [&["--mount"][..], &["--map-root-user", "--mount"]];
    let bound = |arguments: &[&str], program: &str| {
        let mut command = Command::new("unshare");
        command.args(arguments).args(["sh", "-c"]);
        command.arg(format!("mount --bind \"$0\" /proc/meminfo && exec {program}")).arg(&file);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    };
    let is_permitted = |arguments: &&&[&str]| {
        let status = bound(arguments, "true").stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    let Some(arguments) = own_mounts.iter().find(is_permitted) else {
        return eprintln!("did not run: no mounts of its own here");
    };
    let mut command = bound(arguments, "\"$@\"");
    command.arg(std::env::current_exe().unwrap());
    command.args([ROLE, "--exact", "--nocapture", "--test-threads=1"]);
    command.env("SLIPRING_TEST_ROLE", ROLE).env(MEMINFO, &file);
    ends_well("builds with little memory", command.spawn().unwrap());
    fs::remove_file(file).unwrap();
}
