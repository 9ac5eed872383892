//! What the slots of a segment hold: values of one type, blocks whose size is known at run time
//! only, or messages of any length.
//!
//! Invariants
//! - I1: a ring is made over a segment with slots of the layout that [`Kind::Layout`] names, and
//!   with events of the size that [`Kind::check`] has accepted.

pub(crate) mod event;
pub(crate) mod stages;

use slipring::BuildError;
use slipring::segment::{
    BlockStart, CELL, Declaration, Interleaved, Needs, SegmentLayout, StageDeclaration, Strided,
};

use crate::errors::{HeaderProblem, Problem};
use crate::layout::{Checked, KIND_BLOCKS, KIND_EVENTS, KIND_MESSAGES, Stamps};
pub use event::Event;

/// What the slots of a segment hold: values of a type that is an [`Event`], [`Blocks`], or
/// [`Messages`].
pub trait Contents: Kind {}

impl<K: Kind> Contents for K {}

/// Blocks of bytes, whose size is known at run time only: the contents of a
/// `Segment<Blocks>`. All blocks of a segment have one size.
///
/// Blocks lie side by side, at the distance of their size, so that lent blocks are an array of
/// another library in two stretches ([`Stretch`](crate::Stretch)); or each behind its stamp
/// (`Builder::stamps_inside`). `Builder::schema` says what is in them.
///
/// The stages of blocks are those of events: readers, writers, pools, taps, and shards, whose key
/// is a range of the block's bytes (`Attached::block_shard_reader`).
///
/// ```
/// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
/// use slipring_shm::{Blocks, Segment};
/// let (rows, columns) = (100, 30); // known at run time
/// let segment = Segment::<Blocks>::create_memfd("fields")
///     .capacity(8)
///     .block(rows * columns * 4, 4)
///     .type_name("field/f32", 1)
///     .schema(format!("('<f4', ({rows}, {columns}))"))
///     .writer("clip")
///     .reader("plot")
///     .after(["clip"])
///     .build()?;
/// assert_eq!(segment.schema(), b"('<f4', (100, 30))");
/// // SAFETY: no other process has the memfd.
/// let attached = unsafe { segment.attach()? };
/// let (mut tx, mut plot) = (attached.block_producer()?, attached.block_reader("plot")?);
/// let mut clip = attached.block_writer("clip")?;
/// tx.publish(|field| field.fill(200))?;
/// let mut batch = clip.batch(1)?;
/// if let Some(field) = batch.get_mut(0) { field.iter_mut().for_each(|byte| *byte &= 127) }
/// batch.release();
/// plot.poll(1, |field, at| assert_eq!((field.len(), field[0], at.seq), (12_000, 72, 0)))?;
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub enum Blocks {}

/// Messages of any length: the contents of a `Segment<Messages>`.
///
/// The ring's slots are cells of 64 bytes, and a message is a run of them, so its capacity is a
/// number of cells. Stages of messages read each message; there are taps, but no pools, shards and
/// stages that write, because these would divide a message.
///
/// Example: [`MessageProducer::publish`](crate::MessageProducer::publish).
#[derive(Debug)]
pub enum Messages {}

/// First values of a builder.
#[derive(Debug)]
pub struct Defaults {
    /// Name and version of the contents' type.
    pub name: &'static str,
    /// Version of the contents' type.
    pub version: u32,
    /// Size of a slot's event, in bytes.
    pub size: u64,
    /// Its alignment, in bytes.
    pub align: u64,
    /// Where the stamps are.
    pub stamps: Stamps,
}

/// How a segment with these contents is laid out. No other crate implements it.
pub trait Kind: 'static {
    /// Type of the slots' events.
    #[doc(hidden)]
    type Slot: Send + Sync + 'static;
    /// Layout of the slots.
    #[doc(hidden)]
    type Layout: SegmentLayout;
    /// Number of the kind in the header.
    #[doc(hidden)]
    const KIND: u32;

    /// Returns what a builder begins with.
    #[doc(hidden)]
    fn defaults() -> Defaults;

    /// Checks that the segment holds these contents (I1). Its kind is the right one.
    #[doc(hidden)]
    fn check(checked: &Checked) -> Result<(), Problem>;

    /// Returns how much memory a ring needs for events of `size` bytes.
    #[doc(hidden)]
    fn needs(declaration: &Declaration, size: u64) -> Result<Needs, BuildError>;
}

fn differ(property: &'static str, segment: String, program: String) -> Result<(), Problem> {
    Err(Problem::EventType { property, segment, program })
}

/// Names of the kinds, by their numbers in the header.
const KINDS: [&str; 3] = ["events of a type", "messages", "blocks"];

/// Checks that a segment holds the contents `C`.
pub(crate) fn check<C: Kind>(checked: &Checked) -> Result<(), Problem> {
    let found = checked.header.kind;
    if found != C::KIND {
        let name = |kind: u32| KINDS.get(kind as usize).map_or("unknown", |name| name).to_owned();
        return differ("kind", name(found), name(C::KIND));
    }
    C::check(checked)
}

impl<E: Event> Kind for E {
    type Slot = E;
    type Layout = Interleaved;
    const KIND: u32 = KIND_EVENTS;

    fn defaults() -> Defaults {
        const { event::check::<E>() };
        Defaults {
            name: E::NAME,
            version: E::VERSION,
            size: size_of::<E>() as u64,
            align: align_of::<E>() as u64,
            stamps: Stamps::Inside,
        }
    }

    fn check(checked: &Checked) -> Result<(), Problem> {
        const { event::check::<E>() };
        let header = &checked.header;
        let name = checked.type_name();
        if name != E::NAME {
            return differ("name", format!("`{name}`"), format!("`{}`", E::NAME));
        }
        let numbers = [
            ("version", u64::from(header.type_version), u64::from(E::VERSION)),
            ("size", header.event_size, size_of::<E>() as u64),
            ("alignment", header.event_align.into(), align_of::<E>() as u64),
        ];
        for (property, segment, program) in numbers {
            if segment != program {
                return differ(property, segment.to_string(), program.to_string());
            }
        }
        Ok(())
    }

    fn needs(declaration: &Declaration, _size: u64) -> Result<Needs, BuildError> {
        declaration.needs::<E>()
    }
}

impl Kind for Blocks {
    type Slot = BlockStart;
    type Layout = Strided;
    const KIND: u32 = KIND_BLOCKS;

    fn defaults() -> Defaults {
        let (name, version, stamps) = ("blocks", 0, Stamps::Beside);
        Defaults { name, version, size: 0, align: 8, stamps }
    }

    fn check(checked: &Checked) -> Result<(), Problem> {
        has_stamps(checked)
    }

    fn needs(declaration: &Declaration, size: u64) -> Result<Needs, BuildError> {
        declaration.needs_for(usize::try_from(size).unwrap_or(usize::MAX))
    }
}

impl Kind for Messages {
    type Slot = BlockStart;
    type Layout = Strided;
    const KIND: u32 = KIND_MESSAGES;

    fn defaults() -> Defaults {
        let (name, version, size) = ("messages", 0, CELL as u64);
        Defaults { name, version, size, align: size, stamps: Stamps::Beside }
    }

    fn check(checked: &Checked) -> Result<(), Problem> {
        has_stamps(checked)?;
        let (size, found) = (CELL as u64, checked.header.event_size);
        let beside = checked.shape.stamps == Stamps::Beside;
        if found != size || !beside {
            let (field, rule) = ("the size of its events", "is not that of a message's cells");
            return Err(HeaderProblem::Field { field, found, rule }.into());
        }
        Ok(())
    }

    fn needs(declaration: &Declaration, size: u64) -> Result<Needs, BuildError> {
        use slipring::segment::StageDelivery::{Pool, Shards};
        let divides = |stage: &&StageDeclaration| {
            stage.writes || matches!(stage.delivery, Pool(_) | Shards { .. })
        };
        if let Some(StageDeclaration { name, .. }) = declaration.stages.iter().find(divides) {
            let problem = format!(
                "stage `{name}` is of a kind that messages do not have: declare a reader or a tap"
            );
            return Err(BuildError::Declaration { problem });
        }
        declaration.needs_for(usize::try_from(size).unwrap_or(usize::MAX))
    }
}

/// Refuses segments without stamps, which no ring of blocks can use.
fn has_stamps(checked: &Checked) -> Result<(), Problem> {
    if checked.shape.stamps == Stamps::None {
        let (field, rule) = ("the distance of its stamps", "is 0, and blocks have stamps");
        return Err(HeaderProblem::Field { field, found: 0, rule }.into());
    }
    Ok(())
}
