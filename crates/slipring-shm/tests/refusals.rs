//! Tests of what is refused: wrong names and capacities, full file systems, files that are not
//! segments, damaged heads, and segments with another type of events.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use common::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use slipring::{errors::MemoryLimit, handles::StartAt};
use slipring_shm::parts::layout::{self, Head, Header, StageRecord};
use slipring_shm::parts::machine;
use slipring_shm::{
    Event, Segment,
    blocks::Blocks,
    errors::{FileProblem, HeaderProblem, NameProblem, Problem},
    messages::Messages,
    promises::PromiseSegment,
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

#[test]
fn plays_a_role() {
    let _watched = watched();
    play(&[
        ("full", role_full),
        ("little memory", role_little_memory),
        ("little address space", role_little_address_space),
        ("file size limit", role_file_size_limit),
        ("other user", role_other_user),
        ("unmapped owner", role_unmapped_owner),
    ]);
}

#[test]
fn names() {
    let _watched = watched();
    let refused = |name: &OsStr| Test::create(name).capacity(4).without_ring().build();
    assert_problem!(refused(OsStr::new("")), Problem::Name(NameProblem::Empty));
    assert_problem!(
        refused(OsStr::new(&"a".repeat(49))),
        Problem::Name(NameProblem::TooLong { bytes: 49 })
    );
    assert_problem!(refused(OsStr::new("a/b")), Problem::Name(NameProblem::Slash));
    assert_problem!(refused(OsStr::new("/")), Problem::Name(NameProblem::Slash));
    assert_problem!(refused(OsStr::new(".")), Problem::Name(NameProblem::LeadingDot));
    assert_problem!(refused(OsStr::new("..")), Problem::Name(NameProblem::LeadingDot));
    assert_problem!(refused(OsStr::new(".a")), Problem::Name(NameProblem::LeadingDot));
    assert_problem!(refused(OsStr::from_bytes(b"a\xff")), Problem::Name(NameProblem::NotUtf8));
    for name in ["a b", "a\0b", "a\nb", "a\x7fb", "ä"] {
        assert_problem!(refused(OsStr::new(name)), Problem::Name(NameProblem::Character { .. }));
        assert_problem!(Test::open(name), Problem::Name(_));
        assert_problem!(slipring_shm::remove(name), Problem::Name(_));
        assert_problem!(slipring_shm::inspect(name), Problem::Name(_));
    }
    let name = Name(format!("{:a<48}", Name::new().0));
    drop(name.make());
    assert_eq!(slipring_shm::inspect(&name.0).unwrap().name, Some(name.0.clone()));
}

/// If a call asks for another kind of stage than was declared, the error names the declared kind,
/// and no other.
#[test]
fn deliveries() {
    let _watched = watched();
    let segment =
        Test::create_memfd("deliveries").capacity(4).reader("each").pool_reader("pool", 1);
    let segment = segment.shard_reader("shards", 2, |block| &block.seq).tap("tap", 1);
    let attached = attach(&segment.build().unwrap());
    let words = ["pool", "shards", "tap"];
    let told = [
        ("each", "one handle sees each event: ask for it by `reader` or `updater`", None),
        ("pool", "as a pool: ask for it by `pool_reader` or `pool_updater`", Some(0)),
        ("shards", "with shards: ask for one by `shard_reader` or `shard_updater`", Some(1)),
        ("tap", "as a tap: join it by `subscribe`", Some(2)),
    ];
    for (stage, says, own) in told {
        let refused = [
            attached.reader(stage).map(drop),
            attached.pool_reader(stage).map(drop),
            attached.shard_reader(stage, 0).map(drop),
            attached.subscribe(stage, StartAt::Now).map(drop),
        ];
        for (asked, refused) in ["each", "pool", "shards", "tap"].into_iter().zip(refused) {
            if asked == stage {
                assert!(refused.is_ok());
                continue;
            }
            let message = problem(refused).message;
            assert!(message.contains(says), "{asked} of {stage}: {message}");
            for (number, word) in words.into_iter().enumerate() {
                let is_said = message.contains(&format!("a {word}")) || message.contains("no pool");
                assert!(own == Some(number) || !is_said, "{asked} of {stage}: {message}");
            }
        }
    }
}

#[test]
fn numbers() {
    let _watched = watched();
    let name = Name::new();
    let make = || Test::create(&name.0);
    assert_problem!(make().build(), Problem::Capacity { asked: 0 });
    assert_problem!(make().capacity(0).without_ring().build(), Problem::Capacity { asked: 0 });
    assert_problem!(make().capacity(12).without_ring().build(), Problem::Capacity { asked: 12 });
    assert_problem!(make().capacity(u64::MAX).without_ring().build(), Problem::Capacity { .. });
    for shift in [35, 40, 59, 60, 61, 63] {
        assert_problem!(
            make().capacity(1 << shift).without_ring().build(),
            Problem::TooLarge { slot: 40, .. }
        );
    }
    for participants in [0, 1025, u32::MAX] {
        let made = make().capacity(4).without_ring().participants(participants).build();
        assert_problem!(made, Problem::Participants { .. });
    }
    for notice in [Duration::ZERO, Duration::from_micros(999), Duration::from_millis(1001)] {
        assert_problem!(
            make().capacity(4).without_ring().notice(notice).build(),
            Problem::Notice { .. }
        );
    }
    let declared =
        make().capacity(4).without_ring().declare(|declared| declared.shape.lines = u32::MAX);
    assert_problem!(declared.build(), Problem::Declaration { what: "lines", .. });
    assert!(!name.path().exists());
    let made =
        make().capacity(1).without_ring().participants(1024).notice(Duration::from_secs(1)).build();
    assert_eq!(made.unwrap().capacity(), 1);
}

#[test]
fn a_name_is_taken_once() {
    let _watched = watched();
    let name = Name::new();
    let _first = name.make();
    let message = problem(Test::create(&name.0).capacity(4).without_ring().build());
    assert!(matches!(message.of(), Problem::Exists) && message.message.contains("slipring rm"));
    assert_problem!(Test::open("test-none"), Problem::Missing);
    let nowhere =
        Test::create_at("/dev/shm/test-no-such-folder/a").capacity(4).without_ring().build();
    assert_problem!(nowhere, Problem::System { .. });
}

/// Mounts a tmpfs of one megabyte, and asks for more.
fn role_full() {
    let folder = PathBuf::from(value("FOLDER"));
    let mount = ["-t", "tmpfs", "-o", "size=1m", "tmpfs"];
    if !Command::new("mount").args(mount).arg(&folder).status().unwrap().success() {
        return say("no tmpfs");
    }
    let at = |name: &str, capacity| {
        Test::create_at(folder.join(name)).capacity(capacity).without_ring().build()
    };
    let failed = problem(at("a", 1 << 15));
    let expected = |found: &Problem| matches!(found, Problem::NoSpace { bytes, room: Some(1_048_576) } if *bytes > 1 << 20);
    assert!(expected(failed.of()), "{}", failed.message);
    assert!(failed.message.contains(" MiB: its file system has 1.00 MiB left"));
    assert!(failed.message.contains("slipring rm"), "{}", failed.message);
    let insisting = Test::create_at(folder.join("a")).capacity(1 << 15).without_ring();
    assert_problem!(insisting.allow_overcommit().build(), Problem::NoSpace { .. });
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "nothing is left");
    let first = at("b", 1 << 13).unwrap();
    let length = fs::metadata(folder.join("b")).unwrap().len();
    assert!(length > 300 << 10);
    let _second = at("c", 1 << 13).unwrap();
    assert_problem!(at("d", 1 << 13), Problem::NoSpace { .. });
    drop(first);
    slipring_shm::remove_at(folder.join("b")).unwrap();
    drop(at("d", 1 << 13).unwrap());
    // A tmpfs without a size limit reports a size of 0 blocks.
    let mount = ["-t", "tmpfs", "-o", "size=0", "tmpfs"];
    assert!(Command::new("mount").args(mount).arg(&folder).status().unwrap().success());
    drop(at("e", 1 << 15).unwrap());
    say("done");
}

#[test]
fn a_full_file_system() {
    let _watched = watched();
    let Some(wrapper) = own_mounts() else { return skip("no mounts of its own for a tmpfs") };
    let folder = Folder::new();
    let mut role = Role::start_in(wrapper, "full", &[("FOLDER", folder.0.to_str().unwrap())]);
    match role.hear().as_str() {
        "done" => assert!(role.end().success()),
        other => skip(other),
    }
}

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Large([[u8; 1 << 10]; 70 << 10]);
impl Event for Large {
    const NAME: &'static str = "test/Large";
    const VERSION: u32 = 1;
}

/// Makes the system report little memory, and asks for more: 64 to 100 MiB.
fn role_little_memory() {
    let folder = PathBuf::from(value("FOLDER"));
    let mount = |arguments: &[&str], at: &str| {
        let status = Command::new("mount").args(arguments).arg(at).status();
        status.is_ok_and(|status| status.success())
    };
    let put = |name: &str, text: &str| {
        fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
        fs::write(folder.join(name), text).unwrap();
        folder.join(name).into_os_string().into_string().unwrap()
    };
    let meminfo = put("meminfo", "MemAvailable: 65536 kB\n");
    let cgroup = put("cgroup", "0::/outer/own\n");
    let own = format!("/proc/{}/cgroup", std::process::id());
    if !mount(&["--bind", &meminfo], "/proc/meminfo") || !mount(&["--bind", &cgroup], &own) {
        return say("no files over those of /proc");
    }
    assert!(mount(&["-t", "tmpfs", "tmpfs"], "/dev/shm"));
    // The role must see only these memory groups, and not those of the machine.
    let groups = folder.join("groups").into_os_string().into_string().unwrap();
    put("groups/x", "");
    assert!(mount(&["--bind", &groups], "/sys/fs/cgroup"));

    let slots = 1 << 21; // of 40 bytes
    let refused = |made: Result<Test, slipring_shm::SegmentError>, least: u64| {
        let failed = problem(made);
        let Problem::MemoryShortage(found) = failed.of() else { panic!("{}", failed.message) };
        assert!((least..least + (1 << 20)).contains(&found.needed), "{}", failed.message);
        assert!(failed.message.contains("allow_overcommit"), "{}", failed.message);
        (found.available, found.limit.clone())
    };
    let machine = (64 << 20, MemoryLimit::Machine);
    let memfd = || Test::create_memfd("large").reader("all");
    let named = || Test::create("test-little-memory").reader("all");
    assert_eq!(refused(memfd().capacity(slots).build(), 80 << 20), machine);
    assert_eq!(refused(named().capacity(slots).build(), 80 << 20), machine);
    assert_eq!(fs::read_dir("/dev/shm").unwrap().count(), 0, "nothing is left");
    // The pools' cells and the shards' ids take memory as well.
    let pools = ["a", "b", "c", "d"].iter().fold(memfd(), |made, name| made.pool_reader(*name, 2));
    let shards = pools.shard_reader("e", 2, |block| &block.seq);
    assert_eq!(refused(shards.capacity(1 << 20).build(), (40 + 32 + 4) << 20), machine);
    let blocks = Segment::<Blocks>::create_memfd("large").capacity(slots).block(32, 8);
    assert_problem!(blocks.reader("all").build(), Problem::MemoryShortage(_));
    let messages = Segment::<Messages>::create_memfd("large").capacity(slots).reader("all");
    assert_problem!(messages.build(), Problem::MemoryShortage(_));
    assert_problem!(
        PromiseSegment::<Large>::create_memfd("large").build(),
        Problem::MemoryShortage(_)
    );
    // Segments are made if they fit, if they are too small to be compared, or if they lie on a
    // disk.
    drop(memfd().capacity(1 << 20).build().unwrap());
    drop(PromiseSegment::<Large>::create_memfd("large").allow_overcommit().build().unwrap());
    let first = named().capacity(slots).allow_overcommit().build().unwrap();
    assert_eq!(first.capacity(), slots);
    assert_problem!(named().capacity(slots).build(), Problem::Exists);
    match Test::create_at(folder.join("a.slipring")).reader("all").capacity(slots).build() {
        Ok(on_disk) => drop(on_disk),
        // The folder of temporary files may lie in memory, or on a file system that is refused.
        Err(error) => {
            let other = matches!(error.problem(), Problem::MemoryShortage(_) | Problem::File(_));
            assert!(other, "{error}");
        }
    }
    fs::write(folder.join("meminfo"), "MemAvailable: 0 kB\n").unwrap();
    drop(memfd().capacity(1 << 18).build().unwrap());
    assert_eq!(refused(memfd().capacity(1 << 20).build(), 40 << 20).0, 0);

    // The process's memory group has less memory left than the machine.
    fs::write(folder.join("meminfo"), "MemAvailable: 1048576 kB\n").unwrap();
    drop(memfd().capacity(slots).build().unwrap());
    put("groups/outer/memory.max", "209715200\n");
    put("groups/outer/memory.current", "157286400\n");
    put("groups/outer/memory.stat", "file 9\ninactive_file 20971520\n");
    put("groups/outer/own/memory.max", "max\n");
    put("groups/outer/own/memory.current", "0\n");
    let file = "/sys/fs/cgroup/outer/memory.max".to_owned();
    let outer = (70 << 20, MemoryLimit::Group { file });
    assert_eq!(refused(memfd().capacity(slots).build(), 80 << 20), outer);
    drop(memfd().capacity(slots).allow_overcommit().build().unwrap());
    drop(memfd().capacity(1 << 20).build().unwrap());
    say("done");
}

#[test]
fn a_segment_larger_than_the_available_memory_is_refused_before_it_is_made() {
    let _watched = watched();
    let Some(wrapper) = own_mounts() else { return skip("no mounts of its own") };
    let folder = Folder::new();
    let values = [("FOLDER", folder.0.to_str().unwrap())];
    let mut role = Role::start_in(wrapper, "little memory", &values);
    match role.hear().as_str() {
        "done" => assert!(role.end().success()),
        other => skip(other),
    }
}

/// Makes a segment whose cells take more memory than the creator may allocate for itself.
fn role_little_address_space() {
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').next().unwrap().parse().unwrap();
    let now = pages * rustix::param::page_size() as u64;
    let limit = Rlimit { current: Some(now + (48 << 20)), ..getrlimit(Resource::As) };
    setrlimit(Resource::As, limit).unwrap();
    let pools = ["a", "b", "c", "d"].iter();
    let pools = pools.fold(Test::create_memfd("cells"), |made, name| made.pool_reader(*name, 2));
    let made = pools.capacity(1 << 21).build().unwrap(); // 64 MiB of cells
    assert_eq!(made.capacity(), 1 << 21);
    say("done");
}

#[test]
fn what_a_segment_has_for_each_slot_takes_no_memory_of_its_maker() {
    let _watched = watched();
    let mut role = Role::start("little address space", &[]);
    assert_eq!(role.hear(), "done");
    assert!(role.end().success());
}

fn role_file_size_limit() {
    let limit = Rlimit { current: Some(1 << 17), ..getrlimit(Resource::Fsize) };
    setrlimit(Resource::Fsize, limit).unwrap();
    let made = Test::create(value("NAME")).capacity(1 << 14).without_ring().build();
    assert_problem!(made, Problem::FileSizeLimit { limit: 131_072, .. });
    let made = Test::create_memfd("test").capacity(1 << 14).without_ring().build();
    assert_problem!(made, Problem::FileSizeLimit { .. });
    say("no signal");
}

#[test]
fn a_limit_of_file_sizes_is_an_error_and_no_signal() {
    let _watched = watched();
    let name = Name::new();
    let mut role = Role::start("file size limit", &[("NAME", &name.0)]);
    assert_eq!(role.hear(), "no signal");
    assert!(role.end().success());
}

#[test]
fn files_that_are_no_segments() {
    let _watched = watched();
    let name = Name::new();
    let refused = |check: fn(&FileProblem) -> bool| {
        for failed in [problem(Test::open(&name.0)), problem(slipring_shm::inspect(&name.0))] {
            let Problem::File(found) = failed.of() else { panic!("{}", failed.message) };
            assert!(check(found), "{}", failed.message);
        }
    };
    let path = name.path();
    let whole = |mode: u32| {
        let _ = fs::remove_file(&path);
        drop(name.make());
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    };

    fs::create_dir(&path).unwrap();
    refused(|found| matches!(found, FileProblem::Kind { found: "a directory" }));
    assert_problem!(slipring_shm::remove(&name.0), Problem::File(_));
    fs::remove_dir(&path).unwrap();

    let fifo = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path is a C string.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    refused(|found| matches!(found, FileProblem::Kind { found: "a FIFO" }));
    assert_problem!(slipring_shm::remove(&name.0), Problem::File(_));
    fs::remove_file(&path).unwrap();

    let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    refused(|found| matches!(found, FileProblem::Kind { .. }));
    drop(socket);
    fs::remove_file(&path).unwrap();

    whole(0o600);
    let other = Name::new();
    symlink(&path, other.path()).unwrap();
    assert_problem!(
        Test::open(&other.0),
        Problem::File(FileProblem::Kind { found: "a symbolic link" })
    );
    fs::remove_file(other.path()).unwrap();

    fs::hard_link(&path, other.path()).unwrap();
    refused(|found| matches!(found, FileProblem::Links { found: 2 }));
    fs::remove_file(other.path()).unwrap();
    assert_eq!(Test::open(&name.0).unwrap().capacity(), 4);

    for mode in [0o660, 0o604, 0o644, 0o700, 0o4600] {
        whole(mode);
        refused(|found| matches!(found, FileProblem::Mode { .. }));
    }

    whole(0o600);
    let file = fs::File::options().write(true).open(&path).unwrap();
    let length = file.metadata().unwrap().len();
    for wrong in [length + 1, length + 4096, 1 << 30] {
        file.set_len(wrong).unwrap();
        refused(|found| matches!(found, FileProblem::TooLong { .. }));
    }
    for wrong in [length - 1, 65_536, 65_535, 4096, 8, 0] {
        file.set_len(wrong).unwrap();
        refused(|found| matches!(found, FileProblem::TooShort { .. }));
    }
    // The file is now empty. It can still be removed, and then the segment can be made again.
    assert_problem!(Test::create(&name.0).capacity(4).without_ring().build(), Problem::Exists);
    slipring_shm::remove(&name.0).unwrap();
    drop(name.make());
}

#[test]
fn only_segments_are_removed_by_path() {
    let _watched = watched();
    let folder = Folder::new();
    let path = folder.0.join("letter.txt");
    fs::write(&path, "no segment").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    match slipring_shm::remove_at(&path) {
        Err(error) => assert!(matches!(
            error.problem(),
            Problem::Header(HeaderProblem::Magic { .. }) | Problem::File(_)
        )),
        Ok(()) => panic!("removed"),
    }
    assert!(path.exists());
}

#[test]
fn other_file_systems() {
    let _watched = watched();
    // A file of `/proc` lies on neither tmpfs nor ext4, on any machine.
    assert_problem!(
        Test::open_at("/proc/self/comm"),
        Problem::File(FileProblem::FileSystem { name: "proc", .. })
    );
    let made = Test::create_at("/proc/a.slipring").capacity(4).without_ring().build();
    assert_problem!(made, Problem::System { .. } | Problem::File(_));
    // An ordinary file is refused, because it is not a sealed memfd.
    let name = Name::new();
    drop(name.make());
    let file = fs::File::open(name.path()).unwrap();
    let failed = problem(Test::open_memfd(&file, "test"));
    assert!(matches!(failed.of(), Problem::File(FileProblem::Named)), "{}", failed.message);
    assert!(failed.message.contains("`open_at`"), "{}", failed.message);
    fs::remove_file(name.path()).unwrap();
    assert_problem!(Test::open_memfd(&file, "test"), Problem::File(FileProblem::NotSealed));
}

/// Opens the segment as another user.
fn role_other_user() {
    let user = libc::uid_t::from(7_u8);
    // SAFETY: the call takes no pointers, and no other thread of the role depends on the user.
    if unsafe { libc::setresuid(user, user, user) } != 0 {
        return say("may not become another user");
    }
    // The file's mode keeps this user out. If the user could open the file, the call would refuse
    // it because of its owner.
    assert_problem!(Test::open(value("NAME")), Problem::System { .. });
    say("refused");
}

#[test]
fn files_of_other_users() {
    let _watched = watched();
    let name = Name::new();
    drop(name.make());
    let mut role = Role::start("other user", &[("NAME", &name.0)]);
    match role.hear().as_str() {
        "refused" => assert!(role.end().success()),
        other => skip(other),
    }
    if std::os::unix::fs::chown(name.path(), Some(7), None).is_err() {
        return skip("may not give files away");
    }
    for result in [problem(Test::open(&name.0)), problem(slipring_shm::inspect(&name.0))] {
        let expected =
            |found: &Problem| matches!(found, Problem::File(FileProblem::Owner { found: 7, .. }));
        assert!(expected(result.of()), "{}", result.message);
    }
    assert_problem!(slipring_shm::remove(&name.0), Problem::File(FileProblem::Owner { .. }));
}

fn role_unmapped_owner() {
    let failed = problem(Test::open(value("NAME")));
    // If the file's mode already keeps the process out, the call never checks the owner.
    let out = matches!(failed.of(), Problem::System { .. });
    assert!(out || matches!(failed.of(), Problem::File(FileProblem::UnmappedOwner)));
    say(if out { "kept out" } else { "unmapped" });
}

#[test]
fn files_of_users_without_a_number_here() {
    let _watched = watched();
    let wrapper: Wrapper<'_> = &["unshare", "--user", "--map-root-user"];
    let name = Name::new();
    drop(name.make());
    if !permits(wrapper) {
        return skip("no user namespaces here");
    }
    // With mode 0666, the other user can open the file, so the call gets as far as checking its
    // owner.
    fs::set_permissions(name.path(), fs::Permissions::from_mode(0o666)).unwrap();
    if std::os::unix::fs::chown(name.path(), Some(7), None).is_err() {
        return skip("may not give files away");
    }
    let mut role = Role::start_in(wrapper, "unmapped owner", &[("NAME", &name.0)]);
    assert_eq!(role.hear(), "unmapped");
    assert!(role.end().success());
}

/// A segment, and a copy of its head. Tests change the copy, store it in the file, and open the
/// segment again.
struct Damaged {
    name: Name,
    head: Head,
}

impl Damaged {
    fn new() -> Damaged {
        let name = Name::new();
        let made =
            Test::create(&name.0).capacity(4).without_ring().participants(8).declare(|declared| {
                let mut stages = [StageRecord::named("first"), StageRecord::named("second")];
                stages[1].after = 1;
                (stages[0].seats, stages[1].first_seat) = (1, 1);
                (stages[1].seats, stages[1].line, stages[1].key_length) = (2, 1, 8);
                declared.stages = stages.to_vec();
                declared.schema = b"schema".to_vec();
                let shape = &mut declared.shape;
                (shape.stages, shape.schema_length) = (2, 6);
                (shape.lines, shape.wait_queues, shape.seats) = (2, 1, 3);
                (shape.cells, shape.shard_ids) = (1, 1);
            });
        drop(made.build().unwrap());
        let head = Head::from_bytes(fs::read(name.path()).unwrap()[..65_536].to_vec()).unwrap();
        Damaged { name, head }
    }

    fn write(&self, head: &Head) {
        use std::os::unix::fs::FileExt;
        let file = fs::File::options().write(true).open(self.name.path()).unwrap();
        file.write_all_at(head.bytes(), 0).unwrap();
    }

    /// Opens the segment with a changed header. If `seal` is set, the checksum is computed again.
    fn open(
        &self,
        seal: bool,
        change: impl FnOnce(&mut Header),
    ) -> Result<Test, slipring_shm::SegmentError> {
        let mut head = self.head.clone();
        let mut header = head.header();
        change(&mut header);
        head.store(&header);
        if seal {
            head.seal();
        }
        self.write(&head);
        Test::open(&self.name.0)
    }
}

#[test]
fn headers() {
    let _watched = watched();
    let d = Damaged::new();
    assert_eq!(d.open(true, |_| ()).unwrap().capacity(), 4);
    let refused = |seal, change: fn(&mut Header), check: fn(&HeaderProblem) -> bool| {
        let failed = problem(d.open(seal, change));
        let Problem::Header(found) = failed.of() else { panic!("{}", failed.message) };
        assert!(check(found), "{}", failed.message);
    };
    refused(true, |h| h.magic = *b"slipring", |p| matches!(p, HeaderProblem::Magic { .. }));
    refused(true, |h| h.magic = [0; 8], |p| matches!(p, HeaderProblem::Magic { .. }));
    refused(
        true,
        |h| h.order = h.order.swap_bytes(),
        |p| matches!(p, HeaderProblem::ByteOrder { found: 0x0807_0605_0403_0201 }),
    );
    refused(true, |h| h.major = 2, |p| matches!(p, HeaderProblem::Major { found: 2, ours: 1 }));
    refused(true, |h| h.boot[3] ^= 1, |p| matches!(p, HeaderProblem::Boot));
    refused(true, |h| h.features = 4, |p| matches!(p, HeaderProblem::Features { unknown: 4 }));
    refused(false, |h| h.created ^= 1, |p| matches!(p, HeaderProblem::Checksum { .. }));
    refused(false, |h| h.checksum ^= 1, |p| matches!(p, HeaderProblem::Checksum { .. }));
    refused(
        true,
        |h| h.seats_at = h.participants_at,
        |p| matches!(p, HeaderProblem::Overlap { area: "seats", other: "participants" }),
    );
    refused(
        true,
        |h| h.seats_at += 8,
        |p| matches!(p, HeaderProblem::Field { field: "seats", .. }),
    );
    let beyond: fn(&mut Header) = |h| h.lines_at = h.length;
    refused(true, beyond, |p| matches!(p, HeaderProblem::Field { field: "lines", .. }));
    refused(
        true,
        |h| h.producer_on_death = 4,
        |p| matches!(p, HeaderProblem::Field { field: "what its producer's death does", .. }),
    );
    refused(true, |h| h.status_at = 128, |p| matches!(p, HeaderProblem::Field { .. }));
    refused(true, |h| h.events_at = u64::MAX - 4095, |p| matches!(p, HeaderProblem::Field { .. }));
    // A later minor version may be read.
    assert!(d.open(true, |h| h.minor = 9).is_ok());
}

#[test]
fn stage_tables() {
    let _watched = watched();
    let d = Damaged::new();
    let refused = |index: usize, change: &dyn Fn(&mut StageRecord)| {
        let mut bytes = d.head.bytes().to_vec();
        let at = layout::STAGES_AT as usize + index * 128;
        let mut stage = StageRecord::read_from_bytes(&bytes[at..at + 128]).unwrap();
        change(&mut stage);
        bytes[at..at + 128].copy_from_slice(stage.as_bytes());
        let mut head = Head::from_bytes(bytes).unwrap();
        d.write(&head);
        assert_problem!(Test::open(&d.name.0), Problem::Header(HeaderProblem::Checksum { .. }));
        head.seal();
        d.write(&head);
        let index = index as u32;
        let failed = problem(Test::open(&d.name.0));
        let Problem::Header(HeaderProblem::Stage { stage, .. }) = failed.of() else {
            panic!("{}", failed.message)
        };
        assert_eq!(*stage, index);
    };
    refused(0, &|s| s.name = [0; 48]);
    refused(0, &|s| s.name[0] = 0xff);
    refused(0, &|s| s.name[2] = 0);
    refused(0, &|s| s.name[1] = b'\n');
    refused(1, &|s| s.name = StageRecord::named("first").name);
    refused(0, &|s| s.access = 2);
    refused(0, &|s| s.delivery = 4);
    refused(0, &|s| s.on_death = 3);
    refused(0, &|s| s.flags = 1);
    refused(0, &|s| s.room = 0);
    refused(0, &|s| s.room = 65);
    refused(0, &|s| s.after = 1);
    refused(0, &|s| s.after = 2);
    refused(1, &|s| s.after = 1 << 63);
    refused(1, &|s| s.line = 2);
    refused(1, &|s| s.wait_queue = 1);
    refused(1, &|s| s.seats = 3);
    refused(1, &|s| s.seats = u32::MAX);
    refused(1, &|s| s.cells = 2);
    refused(1, &|s| s.shard_ids = 2);
    refused(1, &|s| s.key_offset = 25);
    refused(1, &|s| s.key_length = u32::MAX);
    refused(1, &|s| (s.delivery, s.key_length) = (2, 0));
}

/// Each number in the stage table is possible in itself, but the numbers do not fit the graph. Such
/// a table is refused before a ring is made.
#[test]
fn places_that_are_not_those_of_the_graph() {
    let _watched = watched();
    let name = Name::new();
    let pools = Test::create(&name.0).capacity(4).pool_reader("one", 2).pool_reader("other", 2);
    let segment = pools.reader("each").tap("tap", 2).build().unwrap();
    let head = Head::from_bytes(fs::read(name.path()).unwrap()[..65_536].to_vec()).unwrap();
    let file = fs::File::options().write(true).open(name.path()).unwrap();
    let attaches = |change: &dyn Fn(&mut Header, &mut [StageRecord])| {
        let mut bytes = head.bytes().to_vec();
        let table = layout::STAGES_AT as usize..layout::STAGES_AT as usize + 4 * 128;
        let stages = <[StageRecord]>::ref_from_bytes(&bytes[table.clone()]).unwrap();
        let (mut header, mut stages) = (head.header(), stages.to_vec());
        change(&mut header, &mut stages);
        bytes[table].copy_from_slice(stages.as_bytes());
        let mut changed = Head::from_bytes(bytes).unwrap();
        changed.store(&header);
        changed.seal();
        std::os::unix::fs::FileExt::write_all_at(&file, changed.bytes(), 0).unwrap();
        try_attach(&Test::open(&name.0)?)
    };
    assert!(attaches(&|_, _| ()).is_ok());
    let swapped = attaches(&|_, stages| (stages[0].cells, stages[1].cells) = (2, 1));
    assert_problem!(swapped, Problem::Header(HeaderProblem::Stage { stage: 0, .. }));
    let roomy = attaches(&|_, stages| stages[2].room = 2);
    assert_problem!(roomy, Problem::Header(HeaderProblem::Stage { stage: 2, .. }));
    let moved = attaches(&|_, stages| stages[3].line -= 1);
    assert_problem!(moved, Problem::Header(HeaderProblem::Stage { stage: 3, .. }));
    let messages = attaches(&|header, _| header.kind = layout::KIND_MESSAGES);
    assert_problem!(messages, Problem::EventType { property: "kind", .. });
    drop(segment);
}

#[test]
fn a_stage_that_is_named_twice_is_followed_once() {
    let _watched = watched();
    let graph = Test::create_memfd("twice").capacity(4).reader("one").reader("other");
    let graph = graph.after(["one", "one"]).reader("last").after(["one"]);
    // Both stages that follow `one` must wait at the same queue. The creator and each attached
    // process compute this for themselves.
    let attached = try_attach(&graph.build().unwrap()).unwrap();
    let mut tx = attached.producer().unwrap();
    let readers = ["one", "other", "last"].map(|name| attached.reader(name).unwrap());
    tx.publish(|block| block.seq = 3).unwrap();
    for mut reader in readers {
        assert_eq!(reader.poll(4, |block, _| assert_eq!(block.seq, 3)).unwrap(), 1);
    }
}

#[test]
fn events_of_another_type() {
    let _watched = watched();
    macro_rules! event {
        ($type:ident, $field:ty, $name:literal, $version:literal) => {
            #[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            struct $type($field);
            impl Event for $type {
                const NAME: &'static str = $name;
                const VERSION: u32 = $version;
            }
        };
    }
    event!(OtherName, [u64; 4], "test/Brick", 3);
    event!(OtherVersion, [u64; 4], "test/Block", 4);
    event!(OtherSize, [u64; 3], "test/Block", 3);
    event!(OtherAlignment, [u32; 8], "test/Block", 3);
    let name = Name::new();
    drop(name.make());
    fn refused<E: Event + std::fmt::Debug>(name: &Name, what: &str, texts: [&str; 2]) {
        let failed = problem(Segment::<E>::open(&name.0));
        let Problem::EventType { property, .. } = failed.of() else { panic!("{}", failed.message) };
        assert_eq!(*property, what);
        assert!(texts.iter().all(|text| failed.message.contains(text)), "{}", failed.message);
    }
    refused::<OtherName>(&name, "name", ["`test/Block`", "`test/Brick`"]);
    refused::<OtherVersion>(&name, "version", ["is 3", "is 4"]);
    refused::<OtherSize>(&name, "size", ["is 32", "is 24"]);
    refused::<OtherAlignment>(&name, "alignment", ["is 8", "is 4"]);
    assert!(Test::open(&name.0).is_ok());
}

fn this_boot(made_in: [u8; 16]) -> Result<(), Problem> {
    let ours = machine::boot_id().unwrap().unwrap();
    if made_in == ours { Ok(()) } else { Err(HeaderProblem::Boot.into()) }
}

#[test]
fn any_word_of_a_header_may_be_anything() {
    let _watched = watched();
    let d = Damaged::new();
    let mut random = fastrand::Rng::with_seed(7);
    let length = fs::metadata(d.name.path()).unwrap().len();
    let (mut wrong, mut right) = (0, 0);
    for word in (0..82).chain(1024..1056) {
        let original = &d.head.bytes()[word * 4..word * 4 + 4];
        let original = u32::from_ne_bytes(original.try_into().unwrap());
        let mut values = vec![0, 1, 2, 0xff, 0x1_0000, i32::MAX as u32, u32::MAX, original ^ 1];
        values.extend([original.wrapping_add(128), original.wrapping_sub(128)]);
        values.extend((0..20).map(|_| random.u32(..)));
        for value in values {
            if value == original {
                continue;
            }
            let mut bytes = d.head.bytes().to_vec();
            bytes[word * 4..word * 4 + 4].copy_from_slice(&value.to_ne_bytes());
            let mut head = Head::from_bytes(bytes).unwrap();
            assert!(head.check(length, this_boot).is_err(), "word {word} {value:#x}: not noticed");
            // Once the checksum is computed again, a few fields may have other values.
            if (layout::SCHEMA_AT as u32..=layout::HEAD as u32)
                .contains(&head.header().header_length)
            {
                head.seal();
            }
            match head.check(length, this_boot) {
                Err(problem) => {
                    assert!(!problem.to_string().is_empty());
                    wrong += 1;
                }
                Ok(checked) => {
                    right += 1;
                    let end = |(_, area): (_, layout::Area)| area.at + area.length().unwrap();
                    assert!(
                        checked.areas.list().into_iter().map(end).all(|end| end <= length + 4096)
                    );
                }
            }
        }
    }
    assert!(wrong > 1000 && right > 0, "{wrong} wrong, {right} right");
}

#[test]
fn heads_of_random_bytes() {
    let _watched = watched();
    let d = Damaged::new();
    let mut random = fastrand::Rng::with_seed(8);
    for _ in 0..300 {
        let mut bytes = d.head.bytes().to_vec();
        for _ in 0..random.usize(1..40) {
            let at = if random.bool() { random.usize(40..328) } else { random.usize(4096..4352) };
            bytes[at] = random.u8(..);
        }
        let mut head = Head::from_bytes(bytes).unwrap();
        head.seal();
        let length = if random.bool() { head.header().length } else { random.u64(..) };
        let _ = head.check(length, this_boot);
    }
}

/// Whatever values the words behind the head have, nothing panics. The segment can be inspected. At
/// worst, a handle cannot be taken, or its calls fail.
#[test]
fn words_of_any_value() {
    let _watched = watched();
    use std::os::unix::fs::FileExt;
    let name = Name::new();
    drop(Test::create(&name.0).capacity(4).reader("first").build().unwrap());
    let changing = fs::File::options().write(true).open(name.path()).unwrap();
    let length = changing.metadata().unwrap().len();
    for fill in [0xff, 0x01, 0x80] {
        changing.write_all_at(&vec![fill; (length - 65_536) as usize], 65_536).unwrap();
        slipring_shm::inspect(&name.0).unwrap();
        let attached = name.attach();
        for number in 0..20 {
            attached.liveness(number).unwrap();
        }
        let _ = attached.participation().claim_dead(2).unwrap().map(|claim| claim.finish());
        let _ = attached.report();
        if let Ok(mut reader) = attached.reader("first") {
            let _ = reader.try_batch(8).map(|_| ());
            let _ = reader.poll(8, |_, _| ());
        }
        if let Ok(mut producer) = attached.producer() {
            let _ = producer.try_publish(|_| ());
        }
    }
    assert!(changing.metadata().unwrap().len() == length);
}

#[test]
fn shapes_compute_areas_that_fit() {
    let _watched = watched();
    use layout::{Shape, Stamps};
    let mut random = fastrand::Rng::with_seed(9);
    for round in 0..2_000 {
        let align = 1u64 << random.u32(0..=12);
        let shape = Shape {
            capacity: 1 << random.u32(0..if round % 4 == 0 { 64 } else { 12 }),
            event_size: align * random.u64(1..100),
            event_align: align,
            stamps: [Stamps::None, Stamps::Inside, Stamps::Beside][random.usize(0..3)],
            producers: random.u32(1..=64),
            lines: random.u32(0..300),
            wait_queues: random.u32(0..70),
            participants: random.u32(1..=1024),
            seats: random.u32(0..300),
            cells: random.u32(0..4),
            shard_ids: random.u32(0..4),
            stages: 0,
            schema_length: 0,
        };
        let areas = match shape.areas() {
            Ok(areas) => areas,
            Err(Problem::TooLarge { .. }) => continue,
            Err(other) => panic!("{other}"),
        };
        let mut header = Header::new_zeroed();
        (header.notice_ms, header.type_name[0]) = (20, b'a');
        let head = Head::new(header, &shape, &[], &[]).unwrap();
        let checked = head.check(areas.length, |_| Ok(())).unwrap();
        assert_eq!((checked.shape, checked.areas), (shape, areas));
        let (slot, _) = shape.slot().unwrap();
        assert_eq!((areas.events.at - slot) % 4096, 0);
        assert_eq!(areas.events.at % align, 0);
        assert_eq!(areas.events.stride % align, 0);
    }
}
