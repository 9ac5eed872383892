//! Finds out which party waits for which, as far as their positions show it.
//!
//! Invariants
//! - I1: the producers count as waiting only if the ring was full at one moment, or if one of their
//!   threads sleeps. A stage counts as waiting only if it has released all events that the parties
//!   before it have passed on.
//! - I2: whatever the words of the segment say, a chain of waiting parties names no party twice.

use slipring::segment::Ending;

use super::copies::{TAP, ahead};
use super::summary::{Party, StageSummary, Summary};
use crate::contents::stages;

impl StageSummary {
    fn is_tap(&self) -> bool {
        self.delivery == stages::DELIVERIES[usize::from(TAP)]
    }
}

impl Summary {
    /// Returns the party that `party` waits for, according to this summary. Returns `None` if
    /// `party` has something to do, or if the ring has ended for it. For a tap, the result is
    /// always `None`, because a tap itself does not wait: only its readers do.
    ///
    /// The producers wait for the slowest gating stage while the ring is full, or while a
    /// producer's thread sleeps. A stage waits once it has released all events that the parties
    /// before it have passed on. It waits for the slowest of these parties. If the slowest party is
    /// a tap that none of its readers holds up, the call returns the party before the tap instead.
    ///
    /// A party that seems to wait may be busy with something else, because no word of the segment
    /// shows whether a thread is polling.
    ///
    /// ```
    /// use slipring_shm::{Segment, summaries::Party};
    /// let name = format!("awaited-{}", std::process::id());
    /// let segment = Segment::<u64>::create(&name).capacity(4).reader("parse");
    /// let segment = segment.reader("store").after(["parse"]).build()?;
    /// // SAFETY: no other program opens the segment.
    /// let attached = unsafe { segment.attach()? };
    /// let (mut tx, mut rx) = (attached.producer()?, attached.reader("parse")?);
    /// (0..4).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
    /// rx.poll(3, |_, _| ())?;
    ///
    /// let summary = slipring_shm::inspect(&name)?;
    /// let [producers, parse, store] = [0, 1, 2].map(|i| summary.parties().nth(i).unwrap());
    /// assert_eq!((summary.free, summary.awaited(producers)), (0, Some(store)));
    /// assert_eq!((summary.awaited(parse), summary.awaited(store)), (None, None));
    /// assert_eq!((summary.name_of(producers), summary.name_of(store)), ("producer", "store"));
    /// assert_eq!((summary.position(producers), summary.position(parse)), (4, 3));
    /// assert_eq!((summary.stage(store).unwrap().lag, summary.stage(producers)), (4, None));
    /// assert_eq!((summary.seats(store)[0].participant, summary.asleep(store)), (None, 0));
    /// assert!(summary.waited(producers, store) <= summary.counts(producers).waited.iter().sum());
    ///
    /// // Nothing has been published that `store` could see, once it has handled three events.
    /// attached.reader("store")?.poll(3, |_, _| ())?;
    /// let summary = slipring_shm::inspect(&name)?;
    /// assert_eq!(summary.awaited(store), Some(parse));
    /// assert_eq!(summary.awaited_in_turn(store), [parse]); // which waits for no party
    /// # drop((tx, rx, attached));
    /// # slipring_shm::remove(&name)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn awaited(&self, party: Party) -> Option<Party> {
        let ended = matches!(self.ending, Ending::Halted | Ending::Failed | Ending::Damaged);
        if ended || self.producer_seats.is_empty() {
            return None;
        }
        let awaited = match party {
            Party::Producers => self.gate()?,
            Party::Stage(number) => self.before(self.stages.get(number)?)?,
        };
        Some(awaited).filter(|&awaited| awaited != party)
    }

    /// Returns the party that `party` waits for, then the party that this second party waits for,
    /// and so on. The last party holds up all of them.
    ///
    /// Example: [`Summary::awaited`].
    pub fn awaited_in_turn(&self, party: Party) -> Vec<Party> {
        let mut chain: Vec<Party> = Vec::new();
        let mut next = self.awaited(party);
        while let Some(awaited) =
            next.filter(|awaited| *awaited != party && !chain.contains(awaited))
        {
            chain.push(awaited);
            next = self.awaited(awaited);
        }
        chain
    }

    /// Returns the party that gates the producers, or `None` if the producers do not wait.
    fn gate(&self) -> Option<Party> {
        if self.ending != Ending::Running {
            return None;
        }
        let sleeps = self.producers_asleep != 0 && self.free < self.capacity;
        if self.free != 0 && !sleeps {
            return None;
        }
        let is_gating = |stage: &StageSummary| {
            !self.stages.iter().any(|other| other.after.contains(&stage.name))
        };
        let gating = (0..self.stages.len()).filter(|&number| is_gating(&self.stages[number]));
        Some(self.culprit(gating)?.0)
    }

    /// Returns the party that a stage waits for, or `None` if the stage has something to do, or has
    /// reached the ring's end.
    fn before(&self, stage: &StageSummary) -> Option<Party> {
        if stage.is_tap() || self.last == Some(stage.position) {
            return None;
        }
        let (party, position) = self.slowest_before(stage);
        // The stage may seem to be ahead of the party before it, because the stage's position was
        // copied later.
        (ahead(stage.position, position) >= 0).then_some(party)
    }

    /// Returns the slowest party before a stage, and the position up to which that party has passed
    /// events on.
    fn slowest_before(&self, stage: &StageSummary) -> (Party, u64) {
        let is_before = |&number: &usize| stage.after.contains(&self.stages[number].name);
        let before = (0..self.stages.len()).filter(is_before);
        self.culprit(before).unwrap_or((Party::Producers, self.published))
    }

    /// Returns the slowest of `stages`, and its position. If that stage is a tap that no reader
    /// holds up, returns the party before the tap instead, with the tap's position.
    fn culprit(&self, stages: impl Iterator<Item = usize>) -> Option<(Party, u64)> {
        let slower = |one: usize, other: usize| {
            let [first, second] = [one, other].map(|number| self.stages[number].position);
            if ahead(first, second) > 0 { other } else { one }
        };
        let slowest = stages.reduce(slower)?;
        let stage = &self.stages[slowest];
        let position = stage.position;
        let holds = |at: u64| ahead(position, at) >= 0;
        let free = stage.is_tap() && !stage.seats.iter().filter_map(|s| s.position).any(holds);
        let party = if free { self.slowest_before(stage).0 } else { Party::Stage(slowest) };
        Some((party, position))
    }
}
