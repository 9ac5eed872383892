//! The memory of a segment on the heap, and its participants.
//!
//! - I1: The areas have the sizes that the declaration needs, and live until the run is over.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use slipring::segment::{
    Areas, CELL, Declaration, Needs, Participant, Proof as _, SegmentRing, StageDeclaration,
    StageDelivery, blocks_on_heap, on_heap,
};
use slipring::{Wait, errors::BuildError};

use super::messages::Lengths;
use super::places::{PLACES, Places};
use super::recovering::{Proofs, is_leaving};
use super::shared_ring::{Copying, InBlocks, InCells, Lent, SharedRing};
use crate::content::Content;
use crate::event::{Parts, point};
use crate::oracle::Log;
use crate::plan::Kind;
use crate::segment::SegmentPlan;

/// A segment on the heap.
pub struct Heap {
    declaration: Declaration,
    areas: Areas,
    pub places: Arc<Places>,
    wait: Wait,
    content: Content,
    log: Arc<Log>,
    /// A ring that has no handles.
    looker: Option<Arc<dyn SharedRing>>,
}

impl Heap {
    /// Makes a new segment.
    pub fn new(plan: &SegmentPlan, log: &Arc<Log>) -> Result<Heap, BuildError> {
        let ring = &plan.ring;
        let stage = |(number, death): (usize, &crate::segment::Death)| {
            let stage = &ring.stages[number];
            let handles = stage.drives.len();
            StageDeclaration {
                name: Log::name(number),
                writes: stage.kind.writes(),
                delivery: match stage.kind {
                    Kind::Reader | Kind::Writer => StageDelivery::Each,
                    Kind::PoolReader | Kind::PoolWriter => StageDelivery::Pool(handles),
                    Kind::ShardReader | Kind::ShardWriter => {
                        let (key_offset, key_length) = Parts::KEY;
                        StageDelivery::Shards { shards: handles, key_offset, key_length }
                    }
                    Kind::Tap => StageDelivery::Tap(stage.room),
                },
                after: stage.after.clone(),
                on_death: death.effect(),
            }
        };
        let declaration = Declaration {
            capacity: ring.capacity,
            start: ring.first,
            stages: plan.on_death.iter().enumerate().map(stage).collect(),
            producers: plan.producers.len(),
            producer_on_death: plan.producer_on_death.effect(),
        };
        let areas = match plan.content {
            Content::Events | Content::Copies { .. } => on_heap::<Parts>(&declaration)?,
            Content::Blocks { size, inside } => blocks_on_heap(&declaration, size, inside)?,
            Content::Messages { .. } => blocks_on_heap(&declaration, CELL, false)?,
        };
        let (wait, content, log) = (ring.wait.strategy(), plan.content.clone(), log.clone());
        let places = Arc::default();
        let mut heap = Heap { declaration, areas, places, wait, content, log, looker: None };
        heap.looker = Some(Arc::from(heap.attach(PLACES as u32 + 1, 0)?));
        Ok(heap)
    }

    /// Returns whether a producer that has died needs no successor: it had begun to leave, or the
    /// ring is closing. The living ones do the rest.
    pub fn needs_no_successor(&self, process: u32) -> bool {
        let Some(ring) = self.looker.as_deref() else { return false };
        if self.places.of(process).is_some_and(|number| is_leaving(ring, number)) {
            self.log.dies_leaving(process);
        }
        ring.is_closing() || self.log.has_died_leaving(process)
    }

    fn proofs(&self, process: u32) -> Proofs {
        let (places, log, looker) = (self.places.clone(), self.log.clone(), self.looker.clone());
        Proofs { places, process, log, looker }
    }

    /// The memory that the segment's ring needs.
    pub fn needs(&self) -> Needs {
        let needs = match self.content {
            Content::Events | Content::Copies { .. } => self.declaration.needs::<Parts>(),
            Content::Blocks { size, .. } => self.declaration.needs_for(size),
            Content::Messages { .. } => self.declaration.needs_for(CELL),
        };
        needs.expect("the segment was made so")
    }

    /// The areas of the segment.
    pub fn areas(&self) -> &Areas {
        &self.areas
    }

    /// Loads the stamp of a position's slot, of whatever lap.
    pub fn stamp(&self, seq: u64) -> u64 {
        let (stamps, stride) = match self.areas.strides {
            (0, _) => (self.areas.stamps, 8 + size_of::<Parts>()),
            (stride, _) => (self.areas.stamps, stride),
        };
        self.word(stamps, stride, seq, 0)
    }

    /// Copies the event of a position's slot, or the beginning of a block, word by word. Other
    /// threads may change it between two words.
    pub fn event(&self, seq: u64) -> [u64; 3] {
        let (events, stride, first) = match self.areas.strides {
            (0, _) => (self.areas.stamps, 8 + size_of::<Parts>(), 1),
            (_, stride) => (self.areas.events, stride, 0),
        };
        [0, 1, 2].map(|word| self.word(events, stride, seq, first + word))
    }

    /// Loads a word of a position's slot in an array.
    fn word(&self, array: NonNull<u8>, stride: usize, seq: u64, word: usize) -> u64 {
        const { assert!(size_of::<Parts>() == 24 && align_of::<Parts>() == 8) };
        let number = seq as usize & (self.declaration.capacity - 1);
        point();
        // SAFETY: I1. A slot of events is a stamp and a `Parts` behind it; a block begins with a
        // `Parts`. All virtual threads share one system thread, so no other access happens at once.
        unsafe { array.add(number * stride).cast::<u64>().add(word).read_volatile() }
    }

    /// Attaches a process as the participant `number`.
    pub fn attach(&self, number: u32, process: u32) -> Result<Box<dyn SharedRing>, BuildError> {
        let participant = Participant {
            number,
            proof: Arc::new(self.proofs(process)),
            notice: Duration::from_micros(100),
            always_fences: !slipring_coherence::has_membarrier(),
            wait: self.wait.clone(),
            producer_wait: self.wait.clone(),
        };
        let (declaration, areas) = (&self.declaration, &self.areas);
        let lends = !process.is_multiple_of(2);
        // SAFETY: I1, all rings follow the protocol, and every bit pattern is a `Parts`.
        Ok(unsafe {
            match &self.content {
                Content::Copies { mixed } if !mixed || !lends => {
                    let ring = SegmentRing::over_copies(declaration, areas, &participant)?;
                    Box::new(Copying(ring))
                }
                Content::Events | Content::Copies { .. } => {
                    Box::new(Lent(SegmentRing::over(declaration, areas, &participant)?))
                }
                Content::Blocks { size, .. } => {
                    let ring = SegmentRing::over(declaration, areas, &participant)?;
                    Box::new(InBlocks(ring, *size, declaration.capacity))
                }
                Content::Messages { lengths, excess } => {
                    let ring = SegmentRing::over(declaration, areas, &participant)?;
                    let lengths = Lengths::new(lengths, *excess, declaration.capacity);
                    Box::new(InCells(ring, lengths))
                }
            }
        })
    }

    /// Takes one of several seats for a participant: a free one, or else one whose worker left a
    /// chunk, or else that of a participant that is dead, which it recovers first.
    pub fn take_any(
        &self,
        ring: &dyn SharedRing,
        mut seats: Range<usize>,
        own: u32,
        process: u32,
    ) -> Option<usize> {
        let all = seats.clone();
        let free = seats.find(|&seat| ring.seat(seat).take(own).is_ok());
        let orphan = || all.clone().find(|&seat| ring.seat(seat).adopt_chunk(own));
        free.or_else(orphan).or_else(|| {
            let owners = all.clone().filter_map(|seat| ring.seat(seat).owner());
            owners.for_each(|owner| _ = self.recover(ring, owner, process));
            None
        })
    }

    /// Recovers all participants that are dead.
    pub fn recover_all(&self, ring: &dyn SharedRing, process: u32) {
        let owners = (0..ring.seats()).filter_map(|seat| ring.seat(seat).owner());
        owners.for_each(|owner| _ = self.recover(ring, owner, process));
    }

    fn recover(&self, ring: &dyn SharedRing, dead: u32, process: u32) -> bool {
        let proof = self.proofs(process);
        let found = || proof.is_dead(dead).then(|| proof.pid(dead));
        (0..ring.seats()).for_each(|seat| _ = ring.seat(seat).find_dead(dead, found));
        let mut settle = || (0..ring.seats()).for_each(|seat| ring.settle_seat(seat, dead));
        proof.recover(dead, &mut settle)
    }
}
