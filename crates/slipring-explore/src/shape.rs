//! Families of programs, and the size of a program's parts.

use slipring_coherence::Dice;

/// A family of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One ring, whose handles the program drives.
    Handles,
    /// One ring, whose stages the library runs.
    Handlers,
    /// One ring, with readers and workers that come and go.
    Visitors,
    /// Handles that panic, fail, leave, halt.
    Disrupted,
    /// Two rings, the first one's handlers publishing into the second.
    Rings,
    /// A ring that processes share, which die and come again.
    Processes,
    /// The same, of messages, blocks, or events that are copied.
    Contents,
    /// One full ring, whose producers are closed while they wait for room; or one whose last
    /// producer goes while another one comes.
    Closing,
    /// One ring without stages.
    Bare,
    /// One ring with a pool, whose workers sleep, and a stage behind it.
    Pools,
    /// One ring with a tap, whose readers come and go often, and stages behind it.
    Taps,
}

impl Shape {
    /// All families.
    pub const ALL: [Shape; 11] = [
        Shape::Handles,
        Shape::Handlers,
        Shape::Visitors,
        Shape::Disrupted,
        Shape::Rings,
        Shape::Processes,
        Shape::Contents,
        Shape::Closing,
        Shape::Bare,
        Shape::Pools,
        Shape::Taps,
    ];

    /// The family of a seed. The more the parts of a program can do to each other, the more
    /// programs a family has.
    pub fn of(seed: u64) -> Shape {
        const SHARES: [Shape; 18] = [
            Shape::Handles,
            Shape::Processes,
            Shape::Handlers,
            Shape::Pools,
            Shape::Visitors,
            Shape::Processes,
            Shape::Disrupted,
            Shape::Closing,
            Shape::Rings,
            Shape::Processes,
            Shape::Taps,
            Shape::Contents,
            Shape::Pools,
            Shape::Closing,
            Shape::Processes,
            Shape::Contents,
            Shape::Handlers,
            Shape::Bare,
        ];
        SHARES[(seed % SHARES.len() as u64) as usize]
    }

    /// The family's name.
    pub fn name(self) -> &'static str {
        match self {
            Shape::Handles => "handles",
            Shape::Handlers => "handlers",
            Shape::Visitors => "visitors",
            Shape::Disrupted => "disrupted",
            Shape::Rings => "rings",
            Shape::Processes => "processes",
            Shape::Contents => "contents",
            Shape::Closing => "closing",
            Shape::Bare => "bare",
            Shape::Pools => "pools",
            Shape::Taps => "taps",
        }
    }
}

/// How large the parts of a program are. A small program meets itself more often at the same step.
#[derive(Clone, Copy)]
pub struct Scale {
    /// Largest number of stages, and of handles of one.
    stages: u64,
    /// Largest number of a producer's actions, and of events of one.
    verbs: u64,
    pub events: u64,
}

impl Scale {
    pub fn random(dice: &mut Dice) -> Scale {
        match dice.one_in(2) {
            true => Scale { stages: 2, verbs: 2, events: dice.pick(&[1, 2, 3]) },
            false => Scale { stages: 4, verbs: 5, events: dice.pick(&[2, 6, 12]) },
        }
    }

    /// The number of a stage's handles.
    pub fn handles(self, dice: &mut Dice, capacity: usize) -> usize {
        1 + dice.below(self.stages.min(3).min(capacity as u64)) as usize
    }

    /// The number of stages.
    pub fn stages(self, dice: &mut Dice) -> usize {
        let most = 1 + dice.below(self.stages);
        1 + dice.below(most) as usize
    }

    /// The number of a producer's actions.
    pub fn verbs(self, dice: &mut Dice) -> u64 {
        1 + dice.below(self.verbs)
    }
}
