//! The contents of a segment's slots (values of one type, blocks whose size is known only at run
//! time, or messages of any length), and the handles that serve them.
//!
//! Invariants
//! - I1: a ring is made over a segment with slots of the layout that [`Handles::Layout`] names, and
//!   with events of the size that [`Contents::check`] has accepted.

pub(crate) mod event;
pub(crate) mod stages;

use slipring::segment::{
    Apart, BlockConsumer, BlockProducer, BlockStart, CELL, Declaration, Delivery, MessageConsumer,
    MessageProducer, Needs, Seated, SeatedShard, SeatedWorker, SegmentConsumer, SegmentLayout,
    SegmentProducer, Sharing, StageDeclaration, Strided,
};
use slipring::{
    errors::BuildError,
    handles::StartAt,
    markers::{Interleaved, Joined, Reading, Single, Updating},
};

use crate::errors::{HeaderProblem, Problem};
use crate::layout::{Checked, KIND_BLOCKS, KIND_EVENTS, KIND_MESSAGES, Stamps};
pub use event::Event;

/// The contents of a segment's slots: values of a type that is an [`Event`], [`Blocks`], or
/// [`Messages`]. The contents decide which [`Handles`] the segment has. No other crate implements
/// the trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot lie in a segment",
    label = "other processes read its bytes, so it must be plain data, and say its name",
    note = "for a struct of numbers and arrays: `#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)] #[repr(C)]` (of `zerocopy`), and `impl Event` with a `NAME` and a `VERSION`",
    note = "a `String`, a `Vec` or another pointer means nothing in another process: take an array such as `[u8; 64]`, or `Segment::<Messages>` for byte strings of any length"
)]
pub trait Contents: Handles {
    /// Number by which the header identifies these contents.
    #[doc(hidden)]
    const KIND: u32;

    /// Returns the first values of a builder.
    #[doc(hidden)]
    fn defaults() -> Defaults;

    /// Checks that the segment holds these contents (I1). The caller has checked the segment's
    /// kind.
    #[doc(hidden)]
    fn check(checked: &Checked) -> Result<(), Problem>;

    /// Returns how much memory a ring needs for events of `size` bytes.
    #[doc(hidden)]
    fn needs(declaration: &Declaration, size: u64) -> Result<Needs, BuildError>;
}

/// The types of a segment's handles, which depend on the contents of its slots. The calls of
/// [`Attached`](crate::Attached) that make the handles are the same for all contents. No other
/// crate implements the trait.
///
/// | contents | producers | stages | they lend |
/// |---|---|---|---|
/// | an [`Event`] `E` | [`slipring::Producer`] | [`slipring::Consumer`] | `&E`, and `&mut E` to a stage that updates events |
/// | [`Blocks`] | [`BlockProducer`] | [`BlockConsumer`] | `&[u8]` and `&mut [u8]`, of one size |
/// | [`Messages`] | [`MessageProducer`] | [`MessageConsumer`] | [`Message`](crate::messages::Message)s of any length |
/// | [`Copies`](crate::Copies)`<E>` | [`CopyingProducer`](crate::copies::CopyingProducer) | [`CopyingConsumer`](crate::copies::CopyingConsumer) | nothing: an `E` is copied in and out |
///
/// | handle | sees |
/// |---|---|
/// | [`Reader`], [`Updater`] | every event |
/// | [`PoolReader`], [`PoolUpdater`] | the events that no other worker of the pool takes |
/// | [`ShardReader`], [`ShardUpdater`] | the events of its own keys |
/// | [`Subscription`] | every event since it joined a tap |
///
/// ```
/// use slipring_shm::{Attached, Handles, Reader, Segment, SegmentError, blocks::Blocks};
/// /// Takes the stage that all rings of this program have, whatever they hold.
/// fn log<H: Handles>(attached: &Attached<H>) -> Result<Reader<H>, SegmentError> {
///     attached.reader("log")
/// }
/// let numbers = Segment::<u64>::create_memfd("numbers").capacity(8).reader("log").build()?;
/// let rows = Segment::<Blocks>::create_memfd("rows").capacity(8).block(24, 8).reader("log");
/// let rows = rows.build()?;
/// // SAFETY: no other process has the memfds.
/// let (numbers, rows) = unsafe { (numbers.attach()?, rows.attach()?) };
/// assert_eq!((log(&numbers)?.next_seq(), log(&rows)?.block_size()), (0, 24));
/// # Ok::<(), slipring_shm::SegmentError>(())
/// ```
pub trait Handles: sealed::Sealed + 'static {
    /// Handle with which a process publishes.
    type Producer<S: Sharing>;
    /// Handle of a stage that reads.
    type Reader<D: Delivery>;
    /// Type of the position at which a reader joins a tap.
    type Start: Into<StartAt>;
    /// Type of the slots' events.
    #[doc(hidden)]
    type Slot: Send + Sync + 'static;
    /// Layout of the slots.
    #[doc(hidden)]
    type Layout: SegmentLayout;

    /// Makes a producer's handle from the ring's own handle, which fills slots.
    ///
    /// # Safety
    /// The slots hold these contents, in events of `size` bytes (I1). All processes treat them as
    /// the protocol says, unless the handles copy.
    #[doc(hidden)]
    unsafe fn producer<S: Sharing>(
        tx: SegmentProducer<Self::Slot, Self::Layout, S>,
        size: usize,
    ) -> Self::Producer<S>;

    /// Makes the handle of a reading stage from the ring's own handle, which reads slots.
    ///
    /// # Safety
    /// As for [`Handles::producer`].
    #[doc(hidden)]
    unsafe fn reader<D: Delivery>(
        rx: SegmentConsumer<Self::Slot, Reading, D, Self::Layout>,
        size: usize,
    ) -> Self::Reader<D>;
}

/// Handles of contents that fill one slot each: events, blocks, and copies. Only these contents
/// have updating stages, pools and shards, because a message, which fills several slots, must not
/// be divided.
///
/// ```compile_fail,E0277
/// use slipring_shm::{Attached, messages::Messages};
/// fn work(lines: Attached<Messages>) {
///     lines.pool_reader("print");
/// }
/// ```
pub trait Divisible: Handles {
    /// Handle of a stage that may update events.
    type Updater<D: Delivery>;

    /// Makes the handle of an updating stage from the ring's own handle, which lends whole slots.
    ///
    /// # Safety
    /// As for [`Handles::producer`].
    #[doc(hidden)]
    unsafe fn updater<D: Delivery>(
        rx: SegmentConsumer<Self::Slot, Updating, D, Self::Layout>,
        size: usize,
    ) -> Self::Updater<D>;
}

/// The handle of a ring's only producer.
pub type Producer<H> = <H as Handles>::Producer<Single>;
/// The handle of one of several producers.
pub type SharedProducer<H> = <H as Handles>::Producer<Apart>;
/// The handle with which a stage reads every event.
pub type Reader<H> = <H as Handles>::Reader<Seated>;
/// The handle with which a stage reads, and may change, every event.
pub type Updater<H> = <H as Divisible>::Updater<Seated>;
/// A reader that has joined a tap.
pub type Subscription<H> = <H as Handles>::Reader<Joined>;
/// The handle with which one worker of a pool reads events.
pub type PoolReader<H> = <H as Handles>::Reader<SeatedWorker>;
/// The handle with which one worker of a pool reads, and may change, events.
pub type PoolUpdater<H> = <H as Divisible>::Updater<SeatedWorker>;
/// The handle with which one shard of a stage reads the events of its own keys.
pub type ShardReader<H> = <H as Handles>::Reader<SeatedShard>;
/// The handle with which one shard of a stage reads, and may change, the events of its own keys.
pub type ShardUpdater<H> = <H as Divisible>::Updater<SeatedShard>;

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// Blocks of bytes whose size is known only at run time: the contents of a `Segment<Blocks>`. All
/// blocks of a segment have one size.
///
/// Blocks lie side by side, so a library can treat lent blocks as an array, in at most two
/// stretches ([`Stretch`](crate::blocks::Stretch)). With `Builder::stamps_inside`, each block lies
/// behind its stamp instead. `Builder::schema` describes the contents of a block.
///
/// Blocks have the same kinds of stages as events: readers, writers, pools, taps and shards. The
/// key of shards is a range of a block's bytes (`Builder::shard_reader`).
///
/// ```
/// use slipring_shm::{Segment, blocks::Blocks};
/// let (rows, columns) = (100, 30); // known at run time
/// let segment = Segment::<Blocks>::create_memfd("fields")
///     .capacity(8)
///     .block(rows * columns * 4, 4)
///     .type_name("field/f32", 1)
///     .schema(format!("('<f4', ({rows}, {columns}))"))
///     .updater("clip")
///     .reader("plot")
///     .after(["clip"])
///     .build()?;
/// assert_eq!(segment.schema(), b"('<f4', (100, 30))");
/// // SAFETY: no other process has the memfd.
/// let attached = unsafe { segment.attach()? };
/// let (mut tx, mut plot) = (attached.producer()?, attached.reader("plot")?);
/// let mut clip = attached.updater("clip")?;
/// tx.publish(|field| field.fill(200))?;
/// let mut batch = clip.batch(1)?;
/// if let Some(field) = batch.get_mut(0) { field.iter_mut().for_each(|byte| *byte &= 127) }
/// batch.release();
/// plot.poll(1, |field, at| assert_eq!((field.len(), field[0], at.seq), (12_000, 72, 0)))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub enum Blocks {}

/// Messages of any length: the contents of a `Segment<Messages>`.
///
/// The ring's slots are cells of 64 bytes, and a message occupies a run of adjacent cells. So the
/// capacity is a number of cells. A stage of messages reads each message. There are taps, but no
/// pools, shards or updating stages, because these would divide a message.
///
/// ```
/// use slipring_shm::{Segment, messages::{Messages, NextMessage}};
/// let segment = Segment::<Messages>::create_memfd("lines").capacity(64);
/// let segment = segment.reader("print").tap("viewers", 4).build()?;
/// // SAFETY: no other process has the memfd.
/// let attached = unsafe { segment.attach()? };
/// let (mut tx, mut print) = (attached.producer()?, attached.reader("print")?);
/// tx.publish(1, b"before")?;
/// let mut viewer = attached.subscribe("viewers", NextMessage)?;
/// tx.publish(2, b"a longer line")?;
/// tx.publish(3, b"")?;
/// let mut kinds = Vec::new();
/// viewer.poll(|message| kinds.push((message.kind, message.bytes.len())))?;
/// assert_eq!(kinds, [(2, 13), (3, 0)]);
/// assert_eq!(print.poll(|_| ())?, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub enum Messages {}

/// First position of a reader that joins a tap of [`Messages`]: the next message. An earlier
/// position may lie inside a message.
///
/// Example: [`Messages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextMessage;

impl From<NextMessage> for StartAt {
    fn from(_: NextMessage) -> StartAt {
        StartAt::Now
    }
}

/// First values of a builder.
#[derive(Debug)]
pub struct Defaults {
    /// Name of the contents' type.
    pub name: &'static str,
    /// Version of the contents' type.
    pub version: u32,
    /// Size of a slot's event, in bytes.
    pub size: u64,
    /// Alignment of a slot's event, in bytes.
    pub align: u64,
    /// Position of the stamps.
    pub stamps: Stamps,
}

fn differ(property: &'static str, segment: String, program: String) -> Result<(), Problem> {
    Err(Problem::EventType { property, segment, program })
}

/// Names of the kinds of contents, indexed by their numbers in the header.
const KINDS: [&str; 3] = ["events of a type", "messages", "blocks"];

/// Checks that a segment holds the contents `C`.
pub(crate) fn check<C: Contents>(checked: &Checked) -> Result<(), Problem> {
    let found = checked.header.kind;
    if found != C::KIND {
        let name = |kind: u32| KINDS.get(kind as usize).map_or("unknown", |name| name).to_owned();
        return differ("kind", name(found), name(C::KIND));
    }
    C::check(checked)
}

impl<E: Event> sealed::Sealed for E {}

impl<E: Event> Handles for E {
    type Producer<S: Sharing> = SegmentProducer<E, Interleaved, S>;
    type Reader<D: Delivery> = SegmentConsumer<E, Reading, D>;
    type Start = StartAt;
    type Slot = E;
    type Layout = Interleaved;

    unsafe fn producer<S: Sharing>(
        tx: SegmentProducer<E, Interleaved, S>,
        _size: usize,
    ) -> Self::Producer<S> {
        tx
    }

    unsafe fn reader<D: Delivery>(
        rx: SegmentConsumer<E, Reading, D>,
        _size: usize,
    ) -> Self::Reader<D> {
        rx
    }
}

impl<E: Event> Divisible for E {
    type Updater<D: Delivery> = SegmentConsumer<E, Updating, D>;

    unsafe fn updater<D: Delivery>(
        rx: SegmentConsumer<E, Updating, D>,
        _size: usize,
    ) -> Self::Updater<D> {
        rx
    }
}

#[diagnostic::do_not_recommend]
impl<E: Event> Contents for E {
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

impl sealed::Sealed for Blocks {}

impl Handles for Blocks {
    type Producer<S: Sharing> = BlockProducer<S>;
    type Reader<D: Delivery> = BlockConsumer<Reading, D>;
    type Start = StartAt;
    type Slot = BlockStart;
    type Layout = Strided;

    unsafe fn producer<S: Sharing>(
        tx: SegmentProducer<BlockStart, Strided, S>,
        size: usize,
    ) -> BlockProducer<S> {
        // SAFETY: the caller's promise.
        unsafe { BlockProducer::over(tx, size) }
    }

    unsafe fn reader<D: Delivery>(
        rx: SegmentConsumer<BlockStart, Reading, D, Strided>,
        size: usize,
    ) -> BlockConsumer<Reading, D> {
        // SAFETY: the caller's promise.
        unsafe { BlockConsumer::over(rx, size) }
    }
}

impl Divisible for Blocks {
    type Updater<D: Delivery> = BlockConsumer<Updating, D>;

    unsafe fn updater<D: Delivery>(
        rx: SegmentConsumer<BlockStart, Updating, D, Strided>,
        size: usize,
    ) -> BlockConsumer<Updating, D> {
        // SAFETY: the caller's promise.
        unsafe { BlockConsumer::over(rx, size) }
    }
}

impl Contents for Blocks {
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

impl sealed::Sealed for Messages {}

impl Handles for Messages {
    type Producer<S: Sharing> = MessageProducer<S>;
    type Reader<D: Delivery> = MessageConsumer<D>;
    type Start = NextMessage;
    type Slot = BlockStart;
    type Layout = Strided;

    unsafe fn producer<S: Sharing>(
        tx: SegmentProducer<BlockStart, Strided, S>,
        size: usize,
    ) -> MessageProducer<S> {
        // SAFETY: the caller has promised this for cells, which are blocks.
        MessageProducer::over(unsafe { BlockProducer::over(tx, size) })
    }

    unsafe fn reader<D: Delivery>(
        rx: SegmentConsumer<BlockStart, Reading, D, Strided>,
        size: usize,
    ) -> MessageConsumer<D> {
        // SAFETY: the caller has promised this for cells, which are blocks.
        MessageConsumer::over(unsafe { BlockConsumer::over(rx, size) })
    }
}

impl Contents for Messages {
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

/// Refuses a segment without stamps, because a ring of blocks or messages needs them.
fn has_stamps(checked: &Checked) -> Result<(), Problem> {
    if checked.shape.stamps == Stamps::None {
        let (field, rule) = ("the distance of its stamps", "is 0, and blocks have stamps");
        return Err(HeaderProblem::Field { field, found: 0, rule }.into());
    }
    Ok(())
}
