//! Sinks and sources that are killed: at each of their steps, and at random moments.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use slipring::errors::WaitError;
use slipring_nats_server::{Client, Direction, Proxy, Server};

use slipring_shm::{Producer, Reader};

use crate::common::*;
use crate::roles::*;
use crate::singles;
use crate::support::*;

/// Steps of a takeover, in their order. Each run of a sink passes them once.
const ONCE: [&str; 5] =
    ["sink-connected", "sink-checked", "sink-tail-read", "sink-begin-sent", "sink-begun"];
const OFTEN: [&str; 6] = [
    "sink-taken",
    "sink-sealed",
    "sink-sent",
    "sink-acknowledged",
    "sink-released",
    "sink-acknowledged", // and the next sink skips the stored events
];
/// Steps that a sink passes if its acknowledgements come too late.
const IN_DOUBT: [&str; 3] = ["sink-in-doubt", "sink-asked", "sink-resolved"];

/// A ring of processes that outlives its sinks.
struct Journal {
    ring: Ring,
    tx: Producer<u64>,
    client: Client,
    url: String,
}

impl Journal {
    fn new(server: &Server) -> Journal {
        let ring = Ring::new("journal", 0);
        let tx = ring.producer();
        Journal { ring, tx, client: client(server), url: server.url() }
    }

    fn sink(&self) -> Role {
        let values = [("NAME", self.ring.name.as_str()), ("URL", self.url.as_str())];
        Role::start("sink", &values, None)
    }

    /// Publishes as many events as there is room for.
    fn feed(&mut self) {
        let room = self.tx.remaining() as u64;
        let end = self.tx.next_seq() + room.min(7);
        match feed(&mut self.tx, end) {
            Ok(()) | Err(WaitError::PeerDead(_)) => {}
            Err(error) => panic!("{error}"),
        }
        if room == 0 {
            std::thread::sleep(Duration::from_micros(300));
        }
    }

    /// Publishes until the process of the role is dead.
    fn feed_until_killed(&mut self, mut role: Role, mut way: Way, why: &str) {
        until(why, || {
            self.feed();
            way.disturb();
            role.ended().is_some()
        });
        role.assert_killed(why);
        self.assert_released_is_stored();
    }

    /// Checks that each event that the ring has released is in the stream.
    #[track_caller]
    fn assert_released_is_stored(&mut self) {
        let held = CAPACITY - self.tx.remaining() as u64;
        let released = self.tx.next_seq() - held;
        assert!(released <= stored(&mut self.client), "released {released}");
    }

    /// Starts a last sink, which stores the remaining events, and checks the stream.
    fn finish(mut self) -> Vec<Frame> {
        let mut role = self.sink();
        (0..100).for_each(|_| self.feed());
        let end = self.tx.next_seq();
        self.tx.close();
        assert_eq!(role.hear(), "runs");
        assert_eq!(role.hear(), format!("ended {end}"));
        assert_stored(&mut self.client, 0, end)
    }
}

/// Returns the position behind the last event that the stream has.
fn stored(client: &mut Client) -> u64 {
    let last = client.stream_info(STREAM).map(|info| info["state"]["last_seq"].as_u64().unwrap());
    match last {
        Ok(last) if last != 0 => frame(&client.get_message(STREAM, last).unwrap().unwrap()).end(),
        _ => 0,
    }
}

/// The network between a sink and its server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Network {
    Good,
    /// The answers arrive after the sink has stopped waiting for them.
    Slow,
    /// Connections are cut at intervals, once the sink has begun.
    Cut,
}

/// Calls `run` for each case in which a sink is killed. The arguments are the step, a number *n*,
/// and the network: the sink is killed when it comes to the step for the *n*th time.
fn each_step(mut run: impl FnMut(&str, u32, Network)) {
    use Network::{Cut, Good, Slow};
    for step in ONCE {
        run(step, 1, Good);
    }
    for step in OFTEN {
        for time in [1, 2, 9] {
            run(step, time, Good);
        }
    }
    for step in ["sink-passing-over", "sink-passed-over"] {
        run("sink-acknowledged", 3, Good);
        run(step, 1, Good);
    }
    run("sink-found-begun", 1, Slow);
    for time in [1, 2, 3] {
        for step in IN_DOUBT {
            run(step, time, Slow);
        }
        run("sink-sent-again", time, Cut);
    }
}

/// The setting of a sink behind a slow proxy: its time limit for an acknowledgement is one
/// microsecond.
const SHORT: (&str, &str) = ("ACK_MICROS", "1");

/// A proxy in front of a server, for one sink.
struct Way {
    proxy: Proxy,
    network: Network,
    cut: Instant,
}

impl Way {
    fn to(server: &Server, network: Network) -> Way {
        let proxy = Proxy::to(server.port()).unwrap();
        if network == Network::Slow {
            proxy.delay(Duration::from_millis(4));
        }
        Way { proxy, network, cut: Instant::now() }
    }

    /// Starts a sink that is killed at a step. If connections will be cut, waits until the sink
    /// runs.
    fn sink(&self, role: &str, more: (&str, &str), step: (&str, u32)) -> Role {
        let url = self.proxy.url();
        let mut values = vec![("URL", url.as_str()), more];
        values.extend((self.network == Network::Slow).then_some(SHORT));
        let mut role = Role::start(role, &values, Some(step));
        if self.network == Network::Cut {
            role.hear();
        }
        role
    }

    /// At intervals, cuts the connection after a random number of further bytes to the server.
    fn disturb(&mut self) {
        if self.network == Network::Cut && self.cut.elapsed() > Duration::from_millis(10) {
            self.cut = Instant::now();
            self.proxy.cut_after(Direction::ToServer, fastrand::u64(..1500));
        }
    }
}

#[test]
fn a_sink_of_a_ring_of_processes_is_killed_at_each_step() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let mut journal = Journal::new(&server);
    each_step(|step, time, network| {
        let way = Way::to(&server, network);
        let role = way.sink("sink", ("NAME", &journal.ring.name), (step, time));
        journal.feed_until_killed(role, way, &format!("{step} {time}"));
    });
    journal.finish();
}

/// Steps of a sink whose frames in flight are larger than the stream's lowered limit.
const ANEW: [&str; 3] = ["sink-begin-again-sent", "sink-begun-again", "sink-resolved"];

#[test]
fn a_sink_that_begins_anew_to_divide_its_frames_is_killed() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let mut journal = Journal::new(&server);
    let take = |client: &mut Client, size: i64| {
        let mut config = client.stream_info(STREAM).unwrap()["config"].clone();
        config["max_msg_size"] = size.into();
        client.api(&format!("STREAM.UPDATE.{STREAM}"), config).unwrap();
    };
    for step in ANEW {
        // The sink finds a full ring, and stores it in large frames before the limit is lowered.
        (0..CAPACITY).for_each(|_| journal.feed());
        let end = journal.tx.next_seq();
        let values = [("NAME", journal.ring.name.as_str()), ("URL", &journal.url), ("FRAME", "64")];
        let mut role = Role::start("sink", &values, Some((step, 1)));
        assert_eq!(role.hear(), "runs");
        until("large frames", || stored(&mut journal.client) >= end || role.ended().is_some());
        take(&mut journal.client, 400); // room for headers and a frame of four events
        let way = Way::to(&server, Network::Good);
        journal.feed_until_killed(role, way, step);
        take(&mut journal.client, -1);
    }
    let frames = journal.finish();
    assert!(frames.iter().any(|frame| frame.events.len() > 4));
}

/// Starts the role of a sink that feeds its own ring up to position `end`.
fn fed(role: &str, url: &str, end: u64, step: Option<(&str, u32)>) -> Role {
    Role::start(role, &[("URL", url), ("END", &end.to_string())], step)
}

#[test]
fn a_sink_of_a_ring_of_threads_is_killed_at_each_step() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let url = server.url();
    each_step(|step, time, network| {
        if step.contains("pass") {
            return; // a new ring has nothing to skip
        }
        let mut way = Way::to(&server, network);
        let mut role = way.sink("sink-of-threads", ("END", "1000000000"), (step, time));
        until(step, || {
            way.disturb();
            role.ended().is_some()
        });
        role.assert_killed(format!("{step} {time}"));
    });
    let mut client = client(&server);
    let first = stored(&mut client);
    let sink = |end, step| fed("sink-of-threads", &url, end, step);
    sink(first + 100, Some(("sink-ended", 1))).assert_killed("at its end");
    assert_eq!(stored(&mut client), first + 100);
    let mut role = sink(first + 200, None);
    assert_eq!(role.hear(), (first + 100).to_string());
    assert_eq!(role.hear(), format!("ended {}", first + 200));
    assert_stored(&mut client, 0, first + 200);
}

#[test]
fn a_sink_of_single_events_is_killed_in_the_middle_of_batches() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let url = server.url();
    let sink = |end, step| fed("sink-of-singles", &url, end, step);
    for time in [1, 2, 3, 5, 8, 20, 40, 65, 100, 300, 1000] {
        sink(u64::MAX, Some(("single-sent", time))).assert_killed(format!("single {time}"));
    }
    let mut role = sink(0, None); // has nothing to publish
    let next: u64 = role.hear().parse().unwrap();
    assert_eq!(role.hear(), format!("ended {next}"));
    let mut role = sink(next + 10_000, None);
    assert_eq!(role.hear(), next.to_string());
    assert_eq!(role.hear(), format!("ended {}", next + 10_000));
    singles::assert_singles(&mut client(&server), next + 10_000);
}

/// Returns the text of all files below a folder.
fn text_below(folder: &Path) -> String {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let text = |path: PathBuf| match path.is_dir() {
        true => text_below(&path),
        false => std::fs::read_to_string(&path).unwrap(),
    };
    paths.map(text).collect()
}

/// Checks that for each step that the source code names, some test makes a fault there. If a step
/// is added, this test fails until a test makes a fault at it.
#[test]
fn each_step_has_a_fault() {
    let _watched = watched();
    let sources = text_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let steps = sources.split("step!(\"").skip(1).map(|text| text.split('"').next().unwrap());
    // Only rings of threads leave positions out. Such a ring ends with the process, so a kill there
    // tests nothing.
    let steps: Vec<&str> = steps.filter(|step| !step.ends_with("-leaving-out")).collect();
    assert!(steps.len() > 20, "{steps:?}");
    for step in steps {
        assert!(include_str!("kills.rs").contains(&format!("\"{step}\"")), "no fault at {step}");
    }
}

#[test]
fn the_sink_of_a_ring_of_processes_is_killed_at_random() {
    let _watched = watched();
    let Some(server) = server() else { return };
    seeded(|rng| {
        let mut journal = Journal::new(&server);
        for _ in 0..faults(10) {
            let mut role = journal.sink();
            // Some sinks are killed before they have begun.
            if rng.u8(..5) != 0 {
                assert_eq!(role.hear(), "runs");
            }
            for _ in 0..rng.u32(..30) {
                journal.feed();
            }
            spin(rng, 2_000);
            role.signal(Signal::KILL);
            role.assert_killed("at random");
            journal.assert_released_is_stored();
        }
        journal.finish();
    });
}

/// Fills the stream with small frames.
fn fill(server: &Server, end: u64) {
    let open = sink(&server.url()).max_frame(HEADER + 8 * 8).open(numbers()).unwrap();
    let (mut tx, running) = start(open, 1024);
    feed(&mut tx, end).unwrap();
    tx.close();
    running.join().unwrap();
}

/// A ring of processes that outlives its sources, and the oracle behind it.
struct Replay {
    ring: Ring,
    reader: Reader<u64>,
    next: u64,
    url: String,
}

impl Replay {
    fn new(server: &Server) -> Replay {
        let ring = Ring::new("replay", 0);
        let reader = ring.me.reader("replay").unwrap();
        Replay { ring, reader, next: 0, url: server.url() }
    }

    fn source(&self, step: Option<(&str, u32)>) -> Role {
        let values = [("NAME", self.ring.name.as_str()), ("URL", self.url.as_str())];
        Role::start("source", &values, step)
    }

    /// Reads some of the available events, and checks them.
    fn read(&mut self, most: usize) {
        let next = &mut self.next;
        let read = self.reader.poll(most, |value, at| {
            assert_eq!((*value, at.seq), (event(*next), *next));
            *next += 1;
        });
        match read {
            Ok(_) | Err(WaitError::PeerDead(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Starts a last source, which fills the ring with the remaining events.
    fn finish(mut self, end: u64) {
        let _role = self.source(None);
        until("the rest", || {
            self.read(64);
            assert!(self.next <= end);
            self.next == end
        });
    }
}

const EVENTS: u64 = 20_000;

#[test]
fn a_source_is_killed_at_each_step() {
    let _watched = watched();
    let Some(server) = server() else { return };
    fill(&server, EVENTS);
    let mut replay = Replay::new(&server);
    let once = ["source-found", "source-fetching"].map(|step| (step, &[1][..]));
    let often = [
        ("source-fetched", &[1, 2, 5][..]),
        ("source-claimed", &[1, 2, 5]),
        ("source-filling", &[1, 3, 8, 21]), // in the middle of a claim
        ("source-filled", &[1, 2, 5]),      // between filling and publishing
        ("source-published", &[1, 2, 5]),
    ];
    for (step, times) in once.into_iter().chain(often) {
        for &time in times {
            let mut role = replay.source(Some((step, time)));
            until(step, || {
                replay.read(7);
                role.ended().is_some()
            });
            role.assert_killed(format!("{step} {time}"));
        }
    }
    replay.finish(EVENTS);
}

#[test]
fn the_source_is_killed_at_random() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let events = faults(10) * 300 + 1000;
    fill(&server, events);
    seeded(|rng| {
        let mut replay = Replay::new(&server);
        for _ in 0..faults(10) {
            // Some sources are killed between filling and publishing.
            let step = ("source-filled", rng.u32(1..4));
            let mut role = replay.source(rng.bool().then_some(step));
            if rng.u8(..5) != 0 {
                assert_eq!(role.hear(), "runs");
            }
            let stop_at = replay.next + rng.u64(..250);
            for _ in 0..200 {
                replay.read(stop_at.saturating_sub(replay.next) as usize);
                std::thread::sleep(Duration::from_micros(20));
            }
            if role.ended().is_none() {
                role.signal(Signal::KILL);
            }
            role.assert_killed("at random");
        }
        replay.finish(events);
    });
}

/// A sink of another process is stopped, replaced, and resumed. Its frames in flight are refused.
#[test]
fn a_stopped_sink_is_replaced_and_goes_on() {
    let _watched = watched();
    let Some(server) = server() else { return };
    seeded(|rng| {
        for _ in 0..faults(10) {
            let mut role = fed("sink-of-threads", &server.url(), u64::MAX, None);
            let first: u64 = role.hear().parse().unwrap();
            spin(rng, 3_000);
            role.signal(Signal::STOP);
            let open = sink(&server.url()).open(numbers()).unwrap();
            assert!(open.next_seq() >= first);
            let (mut tx, running) = start(open, 64);
            if rng.bool() {
                feed_some(&mut tx, rng, 100);
            }
            role.signal(Signal::CONT);
            let said = role.hear();
            assert!(said.contains("another sink took over the stream"), "{said}");
            feed_some(&mut tx, rng, 100);
            tx.close();
            running.join().unwrap();
        }
        scan(&mut client(&server));
    });
}

/// The stream has lost positions that a surviving ring has released.
#[test]
fn a_surviving_ring_finds_that_acknowledged_events_are_lost() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let mut journal = Journal::new(&server);
    let mut role = journal.sink();
    assert_eq!(role.hear(), "runs");
    for _ in 0..60 {
        journal.feed();
    }
    until("releases", || journal.tx.remaining() as u64 == CAPACITY);
    let end = journal.tx.next_seq();
    role.signal(Signal::KILL);
    role.assert_killed("on purpose");

    let last = journal.client.stream_info(STREAM).unwrap()["state"]["last_seq"].as_u64().unwrap();
    for sequence in last - 2..=last {
        journal.client.delete_message(STREAM, sequence).unwrap();
    }
    let kept = frame(&journal.client.get_message(STREAM, last - 3).unwrap().unwrap());
    let said = journal.sink().hear();
    assert!(said.starts_with("refused: the server acknowledged position"), "{said}");
    for number in [end - 1, kept.end()] {
        assert!(said.contains(&format!(" {number}")), "{number}: {said}");
    }

    // The user accepts the loss, and the stream declares the hole.
    let reader = journal.ring.me.reader("journal");
    let reader = reader.or_else(|_| {
        std::thread::sleep(Duration::from_millis(50));
        journal.ring.me.reader("journal")
    });
    let accepting = sink(&server.url()).accept_loss();
    let running = accepting.attach(numbers(), reader.unwrap(), journal.ring.me.id()).unwrap();
    feed(&mut journal.tx, end + 10).unwrap();
    journal.tx.close();
    running.join().unwrap();
    let frames = assert_stored(&mut journal.client, 0, end + 10);
    let hole = frames.iter().find(|frame| frame.first > frame.after).unwrap();
    assert_eq!((hole.after, hole.first), (kept.end(), end));
}
