//! A model of the resume rule. A search visits every state that two sinks, their network and a
//! server can reach, message by message. The sinks make their decisions with the real functions
//! [`begin`](super::begin), [`resume`](super::resume) and [`has_begun`](super::has_begun).
//!
//! # Why there are as many begin messages as frames in flight
//!
//! A single begin message does not fence a sink with two frames in flight. The condition of the
//! second frame names the sequence that the sink *predicts* for the first one:
//!
//! 1. Sink A's begin message has sequence 1. Sink A sends frame 0..1, which expects 1, and frame
//!    1..2, which expects 2.
//! 2. Sink B's begin message, which expects 1, arrives first and gets sequence 2.
//! 3. The server refuses A's frame 0..1. It stores A's frame 1..2: the last sequence is 2.
//!
//! Behind sink B's begin message, the journal then has an event of sink A. So sink B sends as many
//! begin messages as sink A's window has frames, in one atomic batch, and the last of them is
//! behind each sequence that sink A has predicted. A stream without atomic batches gets a window of
//! one frame.
//!
//! Two other remedies fail on a real server, so sinks do not use them:
//!
//! - Frames whose condition names the last sequence of the begin messages' subject. A cluster
//!   refuses a second append in flight with such a condition (error 10164), and retention may
//!   remove the begin message.
//! - Frames that name the id of their predecessor (`Nats-Expected-Last-Msg-Id`). Atomic batches
//!   refuse that header, and a cluster may check it only after it has decided.
//!
//! # The model
//!
//! - The stream is a log. The server stores a message if its condition holds, and a batch of begin
//!   messages as a whole.
//! - A sink sends the number of begin messages that `begin` returns. `begin` reads it from the
//!   window in the header of the log's last message.
//! - There are two scenarios. With *rings of threads*, each sink has its own ring, which begins at
//!   the position that the acknowledged begin message names. With *a ring of processes*, sink B
//!   takes sink A's place in the one ring, and from then on sink A can neither read nor release
//!   events.
//! - A sink has up to [`Model::windows`] frames in flight, of one message and one or two events
//!   each. The model sends frames as soon as the window has room, because a frame that is sent late
//!   is the same as one that is delivered late.
//! - A sink can time out at any moment, [`Model::timeouts`] times. It then asks the leader, and
//!   continues as the answer decides. It also asks after each refusal, however many there are.
//! - After a doubt, the network holds back the messages of the attempt. Each may be stored at any
//!   later moment, or never, and only the conditions keep them in order. The replies of the attempt
//!   are lost.
//! - A sink that has asked may begin anew, [`Model::anews`] times. Once its begin messages are
//!   stored, it divides the events in flight into other frames.
//! - Sink B may start at any moment. In a ring of processes, the search tries each position up to
//!   which sink A may have released events by that moment.
//! - Some or all of the stream's messages are removed at its end, at any moment,
//!   [`Model::removals`] times. Its last sequence stays. Removals at the front by retention
//!   influence nothing unless they remove all messages.
//! - A sink that finds a loss ends. It continues only if its user accepts the loss, or names the
//!   position behind all events and the number of the journal.
//!
//! The model has no steps for deaths, stops and lost messages. A dead or stopped sink is a sink
//! whose next step comes late or never, and a lost message is one that is held back for ever. So
//! each sink is checked by itself, whatever the other sink still waits for.
//!
//! # The checks
//!
//! - The events of the log are contiguous, and each position occurs once.
//! - Behind a begin message there are only messages of its sink, up to the next begin message.
//! - Each position that was acknowledged to a sink is in the log, with the epoch of its ring.
//! - A sink ends only if another sink has taken over and fenced it, or if its place in the ring is
//!   taken. The sink of the last begin message is never fenced, and neither is the sink that holds
//!   the place in the ring.
//! - Sinks with windows of one frame begin with one message, which needs no atomic batch.
//! - After a sink has asked the server, the condition with which it continues holds.
//! - A sink that waits for nothing has all of its events in the log.
//! - Under one number of the journal, a position never has two events. This holds even if the first
//!   event was removed, because a source may have read it. (The sinks' rings have different events
//!   at the same position.)
//! - A sink ends because of a loss only if messages were removed.
//!
//! Each run ends. A refusal means that the log has grown since the sink asked, and the log's length
//! is limited. So the number of doubts is limited as well, and no state occurs twice in a run.
//!
//! # Outside the model
//!
//! - Streams whose last sequence falls, holes, wrong types of events, and third sinks. A third sink
//!   could have any window, which is why a sink behind a loss begins with as many messages as any
//!   sink may have in flight.
//! - A gap between two frames of a sink: the first is removed while the sink does not yet know that
//!   it was stored, and the second is stored. A source finds that gap.
//! - Replies out of order. They put a sink in doubt, which can happen at any moment in the model
//!   anyway.
//! - Time between a sink's request, the answer and the resulting messages. Messages that are sent
//!   late are the same as messages that arrive late.
//! - Refusals by a cluster that accepts a message first, and then cannot store it. Sinks treat them
//!   like other refusals.
//!
//! # Bounds
//!
//! Each ring has at least three events. They are enough for three frames in flight, or for two
//! frames in flight and a third after the first acknowledgement. A window of two frames is the
//! smallest in which a sink predicts a sequence. Some models give the sinks different windows,
//! since each takeover depends on the window of the previous sink. With two time-outs for each
//! sink, messages of three attempts can meet. A search fails if it exceeds its number of states.

mod scenario;
mod world;

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use self::scenario::{A, B, BATCHES, Model, NO_BATCHES, RING_OF_PROCESSES, RINGS_OF_THREADS, Twin};
use self::world::{Step, Verdict, World};

/// Counts of a search.
#[derive(Default, Debug)]
struct Explored {
    states: usize,
    /// Number of steps in which a held-back message is stored.
    held_stored: usize,
    /// Number of steps in which a sink finds its begin message stored after a lost reply.
    recognized: usize,
    /// Number of steps in which a sink asks the leader because a message was refused.
    refusals: usize,
    /// Number of steps in which a sink that has begun begins anew.
    begun_anew: usize,
    /// Four counts for each sink: the states in which it is fenced, has lost its place, has stored
    /// all events, and has ended because of a loss.
    ends: [[usize; 4]; 2],
}

impl Model {
    /// Explores every state, in the order of its distance from the first state. If a state is
    /// wrong, returns the reason and the shortest run to it.
    fn explore(&self) -> Result<Explored, String> {
        let first = World::first(self);
        let start = digest(&first);
        // A 64-bit digest identifies a state. A collision would hide a state, but is less likely
        // than a hardware fault.
        let mut known = HashMap::from([(start, (start, Step::Starts { sink: A }))]);
        let mut left = VecDeque::from([(start, first)]);
        let mut explored = Explored::default();
        while let Some((from, world)) = left.pop_front() {
            explored.count_ends(&world);
            for (step, world) in world.next(self) {
                let failed = |reason| format!("{reason}: {}", run_to(&known, from, step));
                let world = world.map_err(failed)?;
                explored.count_step(step);
                let digest = digest(&world);
                if known.contains_key(&digest) {
                    continue;
                }
                world.check(self).map_err(failed)?;
                known.insert(digest, (from, step));
                left.push_back((digest, world));
            }
            if known.len() > self.most {
                return Err(format!("more than {} states", self.most));
            }
        }
        explored.states = known.len();
        Ok(explored)
    }

    /// Asserts that no state is wrong.
    fn holds(&self) -> Explored {
        let start = Instant::now();
        let found = self.explore().unwrap_or_else(|reason| panic!("{reason}"));
        let Model { windows, one_ring, timeouts, .. } = self;
        let (states, seconds) = (found.states, start.elapsed().as_secs_f64());
        println!(
            "windows {windows:?}, time-outs {timeouts:?}, one ring {one_ring}: {states} states in \
             {seconds:.1} s"
        );
        found
    }

    /// Asserts that no state is wrong, and that the search has met each kind of fault.
    fn passes(&self, least: usize) {
        let found = self.holds();
        assert!(found.states >= least, "{found:?} are fewer states than the {least} expected");
        assert!(found.refusals > 0, "{found:?}");
        assert!(found.held_stored > 0, "{found:?}");
        assert!(found.recognized > 0, "{found:?}");
        assert_eq!(found.begun_anew > 0, self.anews != [0, 0], "{found:?}");
        let [[a_fenced, a_gone, a_all, _], [b_fenced, b_gone, b_all, _]] = found.ends;
        assert!(a_fenced > 0 && a_all > 0 && b_all > 0 && b_gone == 0, "{found:?}");
        assert_eq!((a_gone > 0, b_fenced > 0), (self.one_ring, !self.one_ring), "{found:?}");
    }

    /// Asserts that the search finds a wrong state, and that the reason and the run to that state
    /// contain `parts`.
    fn fails(&self, parts: &[&str]) {
        let found = self.explore().expect_err("the model must fail");
        assert!(parts.iter().all(|part| found.contains(part)), "{found}");
    }
}

impl Explored {
    fn count_ends(&mut self, world: &World) {
        for sink in [A, B] {
            for (count, end) in self.ends[sink].iter_mut().zip(world.ends(sink)) {
                *count += usize::from(end);
            }
        }
    }

    fn count_step(&mut self, step: Step) {
        match step {
            Step::Delivered { held: true, verdict: Verdict::Stored, .. } => self.held_stored += 1,
            Step::TimesOut { recognized: true, .. } => self.recognized += 1,
            Step::Refused { .. } => self.refusals += 1,
            Step::BeginsAnew { .. } => self.begun_anew += 1,
            _ => {}
        }
    }
}

/// Returns the steps from the first state to the state `from`, followed by `last`.
fn run_to(known: &HashMap<u64, (u64, Step)>, from: u64, last: Step) -> String {
    let (mut steps, mut at) = (vec![last.to_string()], from);
    while known[&at].0 != at {
        steps.push(known[&at].1.to_string());
        at = known[&at].0;
    }
    steps.reverse();
    steps.join("; ")
}

fn digest(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

#[test]
#[cfg_attr(miri, ignore = "takes an hour, and runs no unsafe code")]
fn rings_of_threads_keep_each_event_once() {
    let model = Model::new(RINGS_OF_THREADS, BATCHES, Twin::None);
    Model { timeouts: [2, 2], ..model }.passes(150_000);
}

#[test]
#[cfg_attr(miri, ignore = "takes an hour, and runs no unsafe code")]
fn a_ring_of_processes_keeps_each_event_once() {
    let model = Model::new(RING_OF_PROCESSES, BATCHES, Twin::None);
    Model { timeouts: [3, 3], events: 4, ..model }.passes(100_000);
}

#[test]
#[cfg_attr(miri, ignore = "takes an hour, and runs no unsafe code")]
fn sinks_with_different_windows_keep_each_event_once() {
    for windows in [[2, 1], [1, 2], [3, 2]] {
        for (one_ring, least) in [(RINGS_OF_THREADS, 80_000), (RING_OF_PROCESSES, 10_000)] {
            let model = Model::new(one_ring, windows, Twin::None);
            Model { timeouts: [2, 2], ..model }.passes(least);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes an hour, and runs no unsafe code")]
fn a_window_of_one_frame_needs_no_batch() {
    for (one_ring, least) in [(RINGS_OF_THREADS, 100_000), (RING_OF_PROCESSES, 15_000)] {
        let model = Model::new(one_ring, NO_BATCHES, Twin::None);
        Model { timeouts: [3, 3], ..model }.passes(least);
    }
}

/// Sink B's begin message takes the sequence that sink A has predicted for its first frame, so the
/// server stores sink A's second frame behind it. A window of one frame needs no second message.
#[test]
fn one_begin_message_lets_a_second_frame_slip_behind_a_takeover() {
    for one_ring in [RINGS_OF_THREADS, RING_OF_PROCESSES] {
        for windows in [BATCHES, [2, 1], [3, 2]] {
            let model = Model::new(one_ring, windows, Twin::OneBegin);
            let run = "B's begin message at 0 is stored; A's frame 0..1 is refused; ";
            Model { timeouts: [0, 0], ..model }
                .fails(&["A's frame 1..2 is stored behind position 0: ", run]);
        }
    }
    // Sink A begins last if sink B's begin message is stored first.
    Model::new(RINGS_OF_THREADS, [1, 2], Twin::OneBegin)
        .fails(&["B's frame 1..2 is stored behind position 0: "]);
    Model::new(RING_OF_PROCESSES, [1, 2], Twin::OneBegin).holds();
}

/// The server stores a frame, and its acknowledgement is lost. The sink sends the same events
/// again, with a condition that holds.
#[test]
fn a_local_note_stores_an_event_twice() {
    for windows in [NO_BATCHES, BATCHES] {
        for one_ring in [RINGS_OF_THREADS, RING_OF_PROCESSES] {
            let model = Model::new(one_ring, windows, Twin::LocalMark);
            model.fails(&["A's frame 0..1 is stored behind position 1: "]);
        }
    }
}

/// The lagging replica still shows sink A's begin message as the last one, so sink A appends behind
/// that of sink B. In a ring of processes, sink B sees an old end, and takes it for a loss.
#[test]
fn a_lagging_replica_hides_a_takeover() {
    for windows in [NO_BATCHES, BATCHES] {
        let model = Model::new(RINGS_OF_THREADS, windows, Twin::DirectGet);
        model.fails(&["A's frame 0..1 is stored behind the begin message of its successor"]);
        let model = Model::new(RING_OF_PROCESSES, windows, Twin::DirectGet);
        model.fails(&["false alarm of B: the stream now has no event"]);
    }
}

/// Sink B's begin message changes no sequence that sink A's frame names, so the server stores that
/// frame after the takeover.
#[test]
fn conditions_by_subject_do_not_fence() {
    for windows in [NO_BATCHES, BATCHES] {
        for one_ring in [RINGS_OF_THREADS, RING_OF_PROCESSES] {
            let model = Model::new(one_ring, windows, Twin::BySubject);
            model.fails(&["A's frame 0..1 is stored behind the begin message of its successor"]);
        }
    }
}

/// A frame is held back, and a second attempt stores it. Once the window has passed, the server
/// takes the held-back frame for a new one.
///
/// If there is a successor, deduplication fails even while the window lasts: the begin messages of
/// both sinks are stored, and each sink takes itself for the only one with incarnation 1.
#[test]
fn a_duplicate_window_passes_before_a_frame_that_is_held_back() {
    let model = Model::new(RINGS_OF_THREADS, NO_BATCHES, Twin::DuplicateWindow);
    let alone = Model { successor: false, ..model };
    alone.holds();
    Model { passes: 1, ..alone }
        .fails(&["stored behind position 1: ", "; the duplicate window passes; "]);
    model.fails(&["A's begin message at 0 is stored; B's begin message at 0 is stored"]);
}

/// Nothing that sink B has done keeps the server from storing sink A's frame. If each sink has its
/// own ring, sink A's event takes a position at which sink B's ring has begun. In a ring of
/// processes, sink A's frame stores some of the events of one of sink B's frames.
#[test]
fn without_a_begin_message_the_predecessor_still_writes() {
    for windows in [NO_BATCHES, BATCHES] {
        let wrong = ["false alarm of B: the stream ends before position 1 with events of another"];
        Model::new(RINGS_OF_THREADS, windows, Twin::NoTakeover).fails(&wrong);
        let wrong = ["the stream ends within a frame of B"];
        Model::new(RING_OF_PROCESSES, windows, Twin::NoTakeover).fails(&wrong);
    }
}

/// The second attempt stores events 0 and 1 in one frame, at the sequence of the first attempt's
/// frame with event 0. The held-back frame with event 1 names that sequence, and is stored as well.
#[test]
fn frames_divided_anew_store_an_event_twice() {
    let model = Model::new(RINGS_OF_THREADS, BATCHES, Twin::Reframed);
    let alone = Model { successor: false, ..model };
    alone.fails(&["A's frame 0..2 is stored; held-back A's frame 1..2 is stored"]);
}

/// Sink A is stopped while it begins, and begins again after sink B has taken its place in the
/// ring. Its begin message fences sink B, but sink A has no events to write.
#[test]
fn a_sink_without_its_place_in_the_ring_must_not_begin_anew() {
    for windows in [NO_BATCHES, BATCHES] {
        let model = Model::new(RING_OF_PROCESSES, windows, Twin::HandleUnchecked);
        model.fails(&["the newest sink B is fenced: "]);
    }
}

/// Some or all messages are removed at the stream's end.
#[test]
#[cfg_attr(miri, ignore = "takes an hour, and runs no unsafe code")]
fn a_position_has_one_event_behind_a_loss() {
    for one_ring in [RINGS_OF_THREADS, RING_OF_PROCESSES] {
        for (accepts_loss, says) in [(false, false), (false, true), (true, false), (true, true)] {
            for (windows, timeouts) in [(NO_BATCHES, [0, 0]), (BATCHES, [1, 0]), ([3, 2], [0, 0])] {
                let model = Model::new(one_ring, windows, Twin::None);
                let found = Model { removals: 1, accepts_loss, says, timeouts, ..model }.holds();
                let [[.., a_all, a_lost], [.., b_all, b_lost]] = found.ends;
                assert!(a_all > 0 && b_all > 0 && a_lost > 0, "{found:?}");
                // In a ring of processes, the last sink continues if its user accepts the loss.
                assert_eq!(b_lost == 0, one_ring && accepts_loss, "{found:?}");
            }
        }
    }
}

/// Sink A continues behind the removed begin message of sink B, which is alive.
#[test]
fn a_tail_that_is_not_compared_hides_a_takeover() {
    for windows in [NO_BATCHES, BATCHES] {
        let model = Model::new(RINGS_OF_THREADS, windows, Twin::TailIgnored);
        let model = Model { timeouts: [0, 0], ..model };
        model.holds();
        Model { removals: 1, ..model }.fails(&[
            "A's frame 0..1 is stored behind the begin message of its successor: ",
            "are removed; ",
        ]);
    }
}

/// The user accepts the loss. The new ring's events get the positions of the lost ones under the
/// same number, and sources take them for the lost events.
#[test]
fn a_number_that_is_kept_behind_a_loss_lets_a_ring_replace_events() {
    for windows in [NO_BATCHES, BATCHES] {
        let model = Model::new(RINGS_OF_THREADS, windows, Twin::KeptNumber);
        Model { removals: 1, accepts_loss: true, ..model }
            .fails(&["B's frame 0..1 replaces the event of position 0: ", "are removed; "]);
    }
}

/// All messages are removed, so that no header tells how many frames sink A may have in flight. A
/// single begin message takes the sequence that sink A has predicted for its first frame.
#[test]
fn one_begin_message_lets_a_frame_slip_behind_a_takeover_of_an_emptied_stream() {
    let model = Model::new(RINGS_OF_THREADS, BATCHES, Twin::OneBegin);
    Model { removals: 1, says: true, timeouts: [0, 0], ..model }
        .fails(&["A's frame 1..2 is stored behind "]);
}

/// Sink A's begin message is stored, but sink A gets no answer. Sink B writes under the number that
/// this begin message names. Then sink A accepts the loss of sink B's messages, and begins again at
/// the same position.
#[test]
fn a_number_that_is_drawn_once_may_be_the_one_that_others_write_under() {
    for windows in [NO_BATCHES, BATCHES] {
        let model = Model::new(RINGS_OF_THREADS, windows, Twin::OneNumber);
        Model { removals: 1, accepts_loss: true, ..model }
            .fails(&["A's frame 0..1 replaces the event of position 0: ", "are removed; "]);
    }
}

/// Frames in flight have become larger than the server allows, and are divided behind further begin
/// messages of the sink.
#[test]
#[cfg_attr(miri, ignore = "takes an hour, and runs no unsafe code")]
fn sinks_that_begin_anew_keep_each_event_once() {
    for (one_ring, least) in [(RINGS_OF_THREADS, 15_000), (RING_OF_PROCESSES, 2_000)] {
        for (windows, timeouts) in [(NO_BATCHES, [2, 1]), (BATCHES, [1, 1]), ([3, 2], [1, 0])] {
            let model = Model::new(one_ring, windows, Twin::None);
            Model { anews: [1, 0], timeouts, ..model }.passes(least);
        }
        let model = Model::new(one_ring, BATCHES, Twin::None);
        Model { anews: [1, 0], timeouts: [1, 0], removals: 1, ..model }.holds();
    }
}

/// The condition of the previous attempt's second frame names the sequence that the begin message
/// gets.
#[test]
fn one_begin_message_lets_a_frame_of_the_attempt_before_slip_in() {
    let model = Model::new(RINGS_OF_THREADS, BATCHES, Twin::OneBegin);
    Model { successor: false, anews: [1, 0], ..model }
        .fails(&["A's frame 1..2 is stored behind position 0: ", "A asks and begins anew; "]);
}

/// Sink B's begin messages take the sequences that sink A has predicted for its own. Sink A's frame
/// then follows them.
#[test]
fn frames_behind_begin_messages_that_may_not_be_stored_are_not_fenced() {
    let model = Model::new(RINGS_OF_THREADS, BATCHES, Twin::Unacknowledged);
    Model { anews: [1, 0], ..model }.fails(&["A's frame ", "A asks and begins anew; "]);
}
