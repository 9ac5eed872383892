//! The bounds of a model, and its twins, each with one weakened step.

/// Indices of the two sinks. Sink B is the successor.
pub const A: usize = 0;
pub const B: usize = 1;

// `Model::one_ring`.
pub const RINGS_OF_THREADS: bool = false;
pub const RING_OF_PROCESSES: bool = true;

// `Model::windows`.
pub const NO_BATCHES: [u32; 2] = [1, 1];
pub const BATCHES: [u32; 2] = [2, 2];

/// The weakened step of a model. The search must find the fault that it causes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Twin {
    /// No step is weakened.
    None,
    /// A sink continues at the acknowledged position that it or its predecessor has recorded.
    LocalMark,
    /// The stream's last message is read from a lagging replica, but its last sequence from the
    /// leader.
    DirectGet,
    /// Conditions name the last sequence of the message's subject, and begin messages and frames
    /// have different subjects.
    BySubject,
    /// There are no conditions. A message's id is its first position, and the server drops messages
    /// whose id it knows.
    DuplicateWindow,
    /// Sink B sends no begin message.
    NoTakeover,
    /// A sink sends one begin message, however large the window of the previous sink is.
    OneBegin,
    /// After a doubt, a sink divides its events into frames differently than before.
    Reframed,
    /// Sink A starts over without checking whether its place in the ring is taken.
    HandleUnchecked,
    /// The sequence of the stream's last message is not compared with the stream's last sequence.
    TailIgnored,
    /// A new ring that continues behind a loss keeps the number of the journal.
    KeptNumber,
    /// A sink that begins anew sends frames behind its begin messages before these are
    /// acknowledged.
    Unacknowledged,
    /// A new ring draws a single journal number for all of its attempts to begin.
    OneNumber,
}

impl Twin {
    /// Returns whether conditions name the stream's last sequence.
    pub fn names_the_stream(self) -> bool {
        !matches!(self, Twin::BySubject | Twin::DuplicateWindow)
    }
}

/// A model of two sinks and a server.
#[derive(Clone, Copy)]
pub struct Model {
    /// Greatest number of frames in flight, for each sink.
    pub windows: [u32; 2],
    /// Whether both sinks serve the same ring.
    pub one_ring: bool,
    pub twin: Twin,
    /// Number of events of each ring.
    pub events: u8,
    /// Number of time-outs of each sink.
    pub timeouts: [u8; 2],
    /// Whether sink B starts.
    pub successor: bool,
    /// Number of times that the server may forget all message ids.
    pub passes: u8,
    /// Number of times that each sink may begin anew.
    pub anews: [u8; 2],
    /// Number of times that messages are removed at the stream's end.
    pub removals: u8,
    /// Whether sinks accept a loss.
    pub accepts_loss: bool,
    /// Whether the user of sink B names the position and the journal's number.
    pub says: bool,
    /// Greatest number of states.
    pub most: usize,
}

impl Model {
    /// Returns a model with the fewest events and time-outs, and without removals.
    pub fn new(one_ring: bool, windows: [u32; 2], twin: Twin) -> Model {
        let (events, timeouts, most) = (3, [1, 1], 500_000);
        let (successor, passes, removals, accepts_loss, says) = (true, 0, 0, false, false);
        Model {
            windows,
            one_ring,
            twin,
            events,
            timeouts,
            successor,
            passes,
            anews: [0, 0],
            removals,
            accepts_loss,
            says,
            most,
        }
    }
}
