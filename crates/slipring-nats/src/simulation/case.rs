//! A case: the options of the sinks and the source, the steps of a run, and the server's lies.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A run that fails, or that may fail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// The planted defect with which the run fails. Without one, it must hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub twin: Option<String>,
    /// The failure, in a line.
    #[serde(default)]
    pub found: String,
    /// Seed of the random numbers that sinks and sources draw.
    pub seed: u64,
    pub form: Form,
    /// Greatest number of frames in flight, of each sink in turn.
    pub windows: Vec<usize>,
    /// Number of events of fixed size for which a frame has room.
    pub frame_events: usize,
    pub linger_ms: u64,
    pub ack_ms: u64,
    /// Number of slots of each sink's ring.
    pub slots: u64,
    /// Number of slots of the source's ring.
    pub source_slots: u64,
    /// Interval at which the events are taken from the source's ring.
    pub read_ms: u64,
    /// Delay of each message on its way.
    pub latency_ms: u64,
    /// The steps, each with the time before it.
    pub steps: Vec<(u64, Step)>,
    /// The lies, by the number of the message that they concern.
    pub lies: BTreeMap<u64, Lie>,
}

/// How events become messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// Frames of events of one size.
    Plain,
    /// Frames of events of varying sizes.
    Varied,
    /// One message for each event.
    Single,
}

/// A step of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// The producer of a ring publishes events as far as the ring has room. Ring 0 is the newest.
    Publish { ring: usize, events: u64 },
    /// The producer of the newest ring leaves positions without events.
    LeaveOut { positions: u64 },
    /// The newest ring's sink is killed, and another sink takes its place at the ring.
    Replace,
    /// A sink with a new ring takes the stream over. The earlier sink is killed or lives on.
    TakeOver { kills: bool },
    /// The source is killed, and another one fills the same ring.
    ReplaceSource,
    /// The connection of the newest sink or of the source is lost, with the messages on their way
    /// to the server or without.
    Cut { source: bool, lost: bool },
    /// The client library of the newest sink or of the source gives up.
    GiveUp { source: bool },
    /// The server restarts. It keeps the stream, and loses consumers and unfinished batches.
    Restart { down_ms: u64 },
    /// No message arrives anywhere, and no connection is lost.
    Silence { ms: u64 },
    /// The stream is full.
    Full { ms: u64 },
    /// The server sends the consumers heartbeats, but no messages, until they are made anew.
    Stall,
    /// The server forgets the consumers.
    Forget,
    /// The stream's size limit for messages becomes that of so many events of fixed size.
    Limit { events: usize },
    /// Retention removes the messages that the source has read, except for the last.
    Retain,
    /// The stream's last messages are removed. Its last sequence stays.
    RemoveLast { messages: usize },
    /// A message is removed in front of the last ones.
    RemoveOne { behind: usize },
}

/// A fault of a single message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lie {
    /// The message arrives later.
    Late(u64),
    /// The message is lost.
    Lost,
    /// The message arrives, and arrives again later.
    Twice(u64),
    /// The client's connection is lost before the message is sent, and the messages on their way to
    /// the server with it, or without.
    Cut { lost: bool },
    /// The server refuses the request with this code, and does what was asked or does not.
    Refused { code: u64, obeyed: bool },
}

/// The codes with which the server refuses requests: the stream is full, another publication is in
/// flight, the server has no room, a batch is incomplete, and nothing answers the subject.
const CODES: [u64; 5] = [10077, 10164, 10023, 10176, 503];

impl Case {
    /// Returns the case of a seed.
    pub fn of(seed: u64) -> Case {
        let mut draw = fastrand::Rng::with_seed(seed);
        let form = [Form::Plain, Form::Plain, Form::Varied, Form::Single][draw.usize(..4)];
        let windows = (0..3).map(|_| draw.usize(1..=4)).collect();
        // Each case has a few kinds of steps and lies, so that these meet often.
        let mut kinds: Vec<u8> = (0..KINDS).filter(|_| draw.u8(..4) == 0).collect();
        let mut lying: Vec<u8> = (0..LIES).filter(|_| draw.u8(..3) == 0).collect();
        match draw.u8(..8) {
            0 => (kinds, lying) = (vec![11], vec![0, 1]), // sinks begin anew
            1 => (kinds, lying) = (vec![1, 3, 13], vec![0, 1]), // sinks begin behind losses
            _ => {}
        }
        let number = draw.usize(4..40);
        let (pause, most) = ([3, 20, 200][draw.usize(..3)], [3, 12, 40][draw.usize(..3)]);
        let steps = (0..number).map(|_| (draw.u64(..=pause), step(&mut draw, &kinds, most)));
        let steps = steps.collect();
        let (mut lies, mut message) = (BTreeMap::new(), 0);
        let rarity = [4, 12, 50, 200][draw.usize(..4)];
        while let Some(kind) = draw.choice(&lying) {
            message += draw.u64(1..=rarity);
            if message > 400 {
                break;
            }
            lies.insert(message, lie(&mut draw, *kind));
        }
        Case {
            twin: None,
            found: String::new(),
            seed,
            form,
            windows,
            frame_events: [1, 2, 5, 12][draw.usize(..4)],
            linger_ms: draw.u64(..5),
            ack_ms: [30, 300, 2000][draw.usize(..3)],
            slots: draw.u64(2..40),
            source_slots: draw.u64(2..24),
            read_ms: draw.u64(1..40),
            latency_ms: draw.u64(1..8),
            steps,
            lies,
        }
    }

    /// Returns the cases of a text with one on each line. Lines that begin with `#` are comments.
    pub fn all(text: &str) -> Vec<Case> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(|line| serde_json::from_str(line).expect("each line is a case")).collect()
    }
}

/// Number of the kinds of steps, except for publications.
const KINDS: u8 = 15;

/// Draws a step of one of `kinds`, or a publication of up to `most` events.
fn step(draw: &mut fastrand::Rng, kinds: &[u8], most: u64) -> Step {
    let publishes = draw.bool();
    let Some(kind) = draw.choice(kinds).filter(|_| !publishes) else {
        return Step::Publish { ring: usize::from(draw.u8(..8) == 0), events: draw.u64(1..=most) };
    };
    let (source, lost) = (draw.u8(..3) == 0, draw.bool());
    match kind {
        0 => Step::LeaveOut { positions: draw.u64(1..5) },
        1 => Step::Replace,
        2 => Step::TakeOver { kills: true },
        3 => Step::TakeOver { kills: false },
        4 => Step::ReplaceSource,
        5 => Step::Cut { source, lost },
        6 => Step::GiveUp { source },
        7 => Step::Restart { down_ms: draw.u64(1..500) },
        8 => Step::Silence { ms: draw.u64(1..9000) },
        9 => Step::Full { ms: draw.u64(1..500) },
        10 => [Step::Stall, Step::Forget][draw.usize(..2)].clone(),
        11 => Step::Limit { events: [1, 2, 5, 12][draw.usize(..4)] },
        12 => Step::Retain,
        13 => Step::RemoveLast { messages: draw.usize(1..5) },
        _ => Step::RemoveOne { behind: draw.usize(1..5) },
    }
}

/// Number of the kinds of lies.
const LIES: u8 = 6;

fn lie(draw: &mut fastrand::Rng, kind: u8) -> Lie {
    let late = [20, 200, 3000][draw.usize(..3)];
    match kind {
        0 => Lie::Late(draw.u64(1..late)),
        1 => Lie::Lost,
        2 => Lie::Twice(draw.u64(..late)),
        3 => Lie::Cut { lost: draw.bool() },
        kind => Lie::Refused { code: CODES[draw.usize(..CODES.len())], obeyed: kind == 4 },
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}
