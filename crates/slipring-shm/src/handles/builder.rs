//! The segment builder: it describes a segment before the segment's file is made.
//!
//! Invariants
//! - I1: nothing is made before [`Builder::build`], which makes the segment whole, or not at all
//!   (`create`).
//! - I2: the head of a new segment passes the checks that every opening process makes.

mod by_contents;

use std::ffi::OsStr;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};
use slipring::segment::{OnDeath, StageDelivery};
use zerocopy::FromZeros;

use crate::attach::ring;
#[cfg(doc)]
use crate::contents::Blocks;
use crate::contents::{Contents, Defaults, stages};
use crate::errors::{Problem, SegmentError};
use crate::file::create::{self, NewFile, NewSegment};
use crate::file::location::Location;
use crate::handles::graph::DeclaredGraph;
use crate::handles::segment::{OpenedFile, Segment};
use crate::layout::{Head, Header, NOTICE_MS, Shape};
use crate::system::machine;

// Each function has the bound itself, so that the compiler prints the message of `Contents`.
impl<C> Segment<C> {
    /// Declares a new segment with that name, in `/dev/shm`.
    ///
    /// A name has 1 to 48 letters, digits, `-`, `_` and `.`, and does not begin with a dot. Nothing
    /// is made before [`build`](Builder::build).
    ///
    /// Example: the [first page](crate).
    pub fn create(name: impl AsRef<OsStr>) -> Builder<C>
    where
        C: Contents,
    {
        Builder::new(Location::named(name))
    }

    /// Declares a new segment at `path`, on tmpfs or ext4.
    ///
    /// Example: the [first page](crate).
    pub fn create_at(path: impl Into<PathBuf>) -> Builder<C>
    where
        C: Contents,
    {
        Builder::new(Ok(Location::Path(path.into())))
    }

    /// Declares a new segment without a name: a memfd, which other processes open by a descriptor
    /// that they inherit or receive. `label` appears in messages.
    ///
    /// Example: [`Segment::open_memfd`].
    pub fn create_memfd(label: impl Into<String>) -> Builder<C>
    where
        C: Contents,
    {
        Builder::new(Ok(Location::Memfd(label.into())))
    }
}

/// A segment that is declared but not made yet.
///
/// Example: the [first page](crate).
#[derive(Debug)]
#[must_use = "nothing is made before `build`"]
pub struct Builder<C> {
    location: Result<Location, SegmentError>,
    notice: Duration,
    overcommit: bool,
    declaration: NewSegment,
    /// The stages and producers, or `None` if the segment has no ring.
    graph: Option<DeclaredGraph>,
    event: PhantomData<fn() -> C>,
}

impl<C: Contents> Builder<C> {
    fn new(location: Result<Location, SegmentError>) -> Builder<C> {
        let Defaults { name, version, size, align, stamps } = C::defaults();
        let shape = Shape {
            capacity: 0,
            event_size: size,
            event_align: align,
            stamps,
            producers: 1,
            lines: 0,
            wait_queues: 0,
            participants: 64,
            seats: 0,
            cells: 0,
            shard_ids: 0,
            stages: 0,
            schema_length: 0,
        };
        let declaration = NewSegment {
            shape,
            first: 0,
            kind: C::KIND,
            type_name: name.to_owned(),
            type_version: version,
            producer_on_death: 0,
            stages: Vec::new(),
            schema: Vec::new(),
            initial: Vec::new(),
        };
        let notice = Duration::from_millis(20);
        let graph = Some(DeclaredGraph::default());
        Builder { location, notice, overcommit: false, declaration, graph, event: PhantomData }
    }

    /// Sets the number of slots: a power of two.
    ///
    /// Example: the [first page](crate).
    pub fn capacity(mut self, slots: u64) -> Builder<C> {
        self.declaration.shape.capacity = slots;
        self
    }

    /// Sets the number of processes that can be attached at once: 1 to 1,024, and 64 by default.
    /// Each place takes 128 bytes, and a check for dead processes takes longer with more places.
    ///
    /// Example: the [first page](crate).
    pub fn participants(mut self, places: u32) -> Builder<C> {
        self.declaration.shape.participants = places;
        self
    }

    /// Sets the *notice*, the longest time between two checks for dead processes by a waiting
    /// participant: 1 ms to 1 s, in whole milliseconds, and 20 ms by default.
    ///
    /// A participant that calls in a loop and never waits makes these checks, too. Its calls read a
    /// coarse kernel clock (ticks of 1 to 10 ms), and not every call reads it, so a check may come
    /// up to two ticks later. When a tight loop begins to pause between its calls, one check may
    /// come up to 15 calls later.
    ///
    /// Example: the [first page](crate).
    pub fn notice(mut self, time: Duration) -> Builder<C> {
        self.notice = time;
        self
    }

    /// Adds a required stage that reads each event. The stage comes directly behind the producer,
    /// unless [`after`](Builder::after) places it behind other stages. A slot is not overwritten
    /// before the stage has released it, even while no process runs the stage.
    ///
    /// Example: the [first page](crate).
    pub fn reader(mut self, name: impl Into<String>) -> Builder<C> {
        self.graph_mut(|graph| graph.add(name.into(), false, StageDelivery::Each));
        self
    }

    /// Adds a required stage that reads each event and may change it. Every other stage must come
    /// before or behind it, and not beside it.
    ///
    /// Example: [`after`](Builder::after).
    pub fn updater(mut self, name: impl Into<String>) -> Builder<C> {
        self.graph_mut(|graph| graph.add(name.into(), true, StageDelivery::Each));
        self
    }

    /// Adds a pool of up to `workers` workers that read: each event goes to one of them. `workers`
    /// is 1 to 64, and at most the number of slots.
    ///
    /// Workers come and go. Each one is a separate handle, in any process
    /// ([`Attached::pool_reader`](crate::Attached::pool_reader)). The stages behind the pool see
    /// the events in order. A slot is not overwritten before a worker has released its event, even
    /// while the pool has no worker.
    ///
    /// ```
    /// use slipring_shm::Segment;
    /// let segment =
    ///     Segment::<u64>::create_memfd("shared").capacity(8).pool_reader("print", 2).build()?;
    /// // SAFETY: no other process has the memfd.
    /// let attached = unsafe { segment.attach()? };
    /// let mut tx = attached.producer()?;
    /// let (mut one, mut other) = (attached.pool_reader("print")?, attached.pool_reader("print")?);
    /// for n in 0..8 { tx.publish(|slot| *slot = n)?; }
    /// let (mut sum, mut count) = (0, 0);
    /// for worker in [&mut one, &mut other] {
    ///     count += worker.poll(8, |event, _| sum += event)?;
    /// }
    /// assert_eq!((count, sum), (8, 28));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pool_reader(mut self, name: impl Into<String>, workers: usize) -> Builder<C> {
        self.graph_mut(|graph| graph.add(name.into(), false, StageDelivery::Pool(workers)));
        self
    }

    /// Adds a pool like [`pool_reader`](Builder::pool_reader), but its workers may change their
    /// events.
    ///
    /// ```
    /// use slipring_shm::Segment;
    /// let segment = Segment::<u64>::create_memfd("squared")
    ///     .capacity(8)
    ///     .pool_updater("square", 4)
    ///     .reader("sum")
    ///     .after(["square"])
    ///     .build()?;
    /// // SAFETY: no other process has the memfd.
    /// let attached = unsafe { segment.attach()? };
    /// let (mut tx, mut sum) = (attached.producer()?, attached.reader("sum")?);
    /// tx.publish(|slot| *slot = 3)?;
    /// attached.pool_updater("square")?.poll(8, |event, _| *event *= *event)?;
    /// sum.poll(8, |event, _| assert_eq!(*event, 9))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pool_updater(mut self, name: impl Into<String>, workers: usize) -> Builder<C> {
        self.graph_mut(|graph| graph.add(name.into(), true, StageDelivery::Pool(workers)));
        self
    }

    /// Adds a tap. Up to `room` readers (1 to 64), in any process, can join and leave it while the
    /// ring is in use. A tap without a reader holds up no party. When a reader dies, the parties
    /// that wait for it remove it.
    ///
    /// ```
    /// use slipring::handles::StartAt;
    /// use slipring_shm::Segment;
    /// let segment = Segment::<u64>::create_memfd("viewed")
    ///     .capacity(8)
    ///     .reader("journal")
    ///     .tap("viewers", 4)
    ///     .build()?;
    /// // SAFETY: no other process has the memfd.
    /// let attached = unsafe { segment.attach()? };
    /// let (mut tx, mut journal) = (attached.producer()?, attached.reader("journal")?);
    /// tx.publish(|slot| *slot = 1)?;
    /// let mut viewer = attached.subscribe("viewers", StartAt::Now)?;
    /// tx.publish(|slot| *slot = 2)?;
    /// viewer.poll(8, |event, at| assert_eq!((*event, at.seq), (2, 1)))?;
    /// journal.poll(8, |event, at| assert_eq!(*event, at.seq + 1))?;
    /// viewer.leave();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn tap(mut self, name: impl Into<String>, room: usize) -> Builder<C> {
        self.graph_mut(|graph| graph.add(name.into(), false, StageDelivery::Tap(room)));
        self
    }

    /// Puts the stage declared last behind the stages with these names, which must have been
    /// declared before it.
    ///
    /// ```
    /// use slipring_shm::Segment;
    /// let segment = Segment::<u64>::create_memfd("doubled")
    ///     .capacity(8)
    ///     .updater("double")
    ///     .reader("print")
    ///     .after(["double"])
    ///     .build()?;
    /// // SAFETY: no other process has the memfd.
    /// let attached = unsafe { segment.attach()? };
    /// let mut tx = attached.producer()?;
    /// let (mut double, mut print) = (attached.updater("double")?, attached.reader("print")?);
    /// tx.publish(|slot| *slot = 21)?;
    /// double.poll(8, |event, _| *event *= 2)?;
    /// print.poll(8, |event, _| assert_eq!(*event, 42))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn after<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Builder<C> {
        let names = names.into_iter().map(Into::into).collect();
        self.graph_mut(|graph| graph.after(names));
        self
    }

    /// Sets how the parties that wait for the stage declared last react when its process dies. By
    /// default, they continue to wait. A tap has no such setting, because no party waits for a
    /// tap's dead readers. [`OnDeath::Close`] is for producers only.
    ///
    /// Example: [`OnDeath`].
    pub fn on_death(mut self, on_death: OnDeath) -> Builder<C> {
        self.graph_mut(|graph| graph.on_death(on_death));
        self
    }

    /// Sets the number of producers that the ring has room for: 1 to 64, and 1 by default. With
    /// several producers, each producing process takes one of the places
    /// ([`Attached::shared_producer`](crate::Attached::shared_producer)), and a publication costs
    /// one compare-and-swap more.
    ///
    /// ```
    /// use slipring_shm::Segment;
    /// let segment = Segment::<u64>::create_memfd("merged")
    ///     .capacity(8)
    ///     .producers(2)
    ///     .reader("sum")
    ///     .build()?;
    /// // SAFETY: no other process has the memfd.
    /// let attached = unsafe { segment.attach()? };
    /// let mut sum = attached.reader("sum")?;
    /// let (mut one, mut other) = (attached.shared_producer()?, attached.shared_producer()?);
    /// one.publish(|slot| *slot = 40)?;
    /// other.publish(|slot| *slot = 2)?;
    /// drop((one, other)); // the last producer that leaves closes the ring
    /// let mut total = 0;
    /// sum.for_each(|event, _| total += event)?;
    /// assert_eq!(total, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn producers(mut self, places: u32) -> Builder<C> {
        self.graph_mut(|graph| graph.producers(places));
        self
    }

    /// Sets how waiting stages react when the producer's process dies. By default, they wait for
    /// the next producer.
    ///
    /// If there are several producers, only the death of the last living one counts. Until then,
    /// the other producers publish on, after the claims of the dead one.
    ///
    /// With [`OnDeath::Close`], the death of the last producer ends the stream as if that producer
    /// had left. A waiting stage finds the death within one notice interval, and closes the ring.
    /// All stages then handle the published events and end. A later producer is refused
    /// ([`Problem::Over`]). If another process takes a free producer's place before the death is
    /// found, the ring stays open.
    ///
    /// Example: [`OnDeath`].
    pub fn producer_on_death(mut self, on_death: OnDeath) -> Builder<C> {
        self.graph_mut(|graph| graph.producer_on_death(on_death));
        self
    }

    /// Sets the schema, which describes the events to programs in other languages. It may have any
    /// form that the programs agree on, such as a NumPy descr. It has up to 53,248 bytes, and is
    /// empty by default.
    ///
    /// Example: [`Blocks`].
    pub fn schema(mut self, schema: impl Into<Vec<u8>>) -> Builder<C> {
        self.declaration.schema = schema.into();
        let length = self.declaration.schema.len();
        self.declaration.shape.schema_length = u32::try_from(length).unwrap_or(u32::MAX);
        self
    }

    fn name_type(&mut self, name: String, version: u32) {
        (self.declaration.type_name, self.declaration.type_version) = (name, version);
    }

    /// Sets the position of the first event, which is 0 by default.
    ///
    /// Example: the [first page](crate).
    pub fn first_seq(mut self, seq: u64) -> Builder<C> {
        self.declaration.first = seq;
        self
    }

    /// Lets the segment take more memory than is available. Without this call,
    /// [`build`](Builder::build) fails in that case with [`Problem::MemoryShortage`], before it
    /// allocates anything. A segment on ext4 takes room on the disk, so its size is not compared
    /// with the memory.
    ///
    /// If the memory runs out, the system swaps, or kills this program or others. Use this setting
    /// if you know of memory that the system does not count as available: memory that will be free
    /// soon, or swap space.
    ///
    /// ```
    /// use slipring_shm::Segment;
    /// let segment =
    ///     Segment::<u64>::create_memfd("insists").capacity(8).reader("all").allow_overcommit();
    /// assert_eq!(segment.build()?.capacity(), 8);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn allow_overcommit(mut self) -> Builder<C> {
        self.overcommit = true;
        self
    }

    fn graph_mut(&mut self, change: impl FnOnce(&mut DeclaredGraph)) {
        if let Some(graph) = &mut self.graph {
            change(graph);
        }
    }

    /// Makes a segment without a ring, for tests of files and locks.
    #[doc(hidden)]
    pub fn without_ring(mut self) -> Builder<C> {
        self.graph = None;
        self
    }

    /// Lets `declare` change the declaration.
    #[doc(hidden)]
    pub fn declare(mut self, declare: impl FnOnce(&mut NewSegment)) -> Builder<C> {
        declare(&mut self.declaration);
        self
    }

    /// Makes the segment, whole or not at all. No process can remove the segment before this
    /// process has attached to it or dropped the result.
    ///
    /// Example: the [first page](crate).
    ///
    /// # Errors
    /// - [`Problem::Name`], [`Problem::TypeName`]: a name is not allowed.
    /// - [`Problem::Capacity`], [`Problem::Participants`], [`Problem::Notice`],
    ///   [`Problem::EventSize`], [`Problem::TooLarge`]: a number is not allowed.
    /// - [`Problem::Declaration`], [`Problem::Graph`], [`Problem::StageName`],
    ///   [`Problem::Follows`], [`Problem::Misplaced`], [`Problem::Key`], [`Problem::KeyRange`],
    ///   [`Problem::TapDeath`], [`Problem::StageDeath`]: a stage is not allowed, or stages do not
    ///   go together.
    /// - [`Problem::Exists`]: the name is taken.
    /// - [`Problem::NoSpace`], [`Problem::MemoryShortage`], [`Problem::FileSizeLimit`]: the segment
    ///   is too large for the file system, the memory, or a limit of the process.
    /// - [`Problem::File`]: the file system is refused.
    /// - [`Problem::System`]: a system call failed.
    ///
    /// # Cost
    /// The kernel allocates and zeroes all bytes. If the segment has 16 MiB or more, the call first
    /// compares its size with the available memory
    /// ([`MemoryShortage`](slipring::errors::MemoryShortage)), which takes a tenth of a
    /// millisecond.
    pub fn build(self) -> Result<Segment<C>, SegmentError> {
        let location = self.location?;
        let mut declaration = self.declaration;
        let made = match &self.graph {
            Some(graph) => declare::<C>(graph, &mut declaration),
            None => Ok(()),
        };
        match made.and_then(|()| make(&location, self.notice, &declaration, self.overcommit)) {
            Ok(opened) => Ok(Segment::from(location, opened)),
            Err(problem) => Err(SegmentError::at(&location, problem)),
        }
    }
}

/// Fills in the parts of a declaration that its graph determines: the counts, the stage table, and
/// the ring's first words.
fn declare<C: Contents>(
    graph: &DeclaredGraph,
    declaration: &mut NewSegment,
) -> Result<(), Problem> {
    let shape = &mut declaration.shape;
    if !shape.capacity.is_power_of_two() {
        return Err(Problem::Capacity { asked: shape.capacity });
    }
    let ring = graph.declaration(shape.capacity, declaration.first)?;
    if let Some(problem) = graph.wrong_key(shape.event_size) {
        // A wrong size or capacity is reported before a wrong key.
        shape.areas()?;
        return Err(problem);
    }
    let needs = C::needs(&ring, shape.event_size).map_err(Problem::Graph)?;
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    shape.lines = count(needs.lines);
    shape.wait_queues = count(needs.queues);
    shape.seats = count(needs.seats);
    (shape.cells, shape.shard_ids) = (count(needs.cells), count(needs.shard_ids));
    shape.producers = count(ring.producers);
    shape.stages = count(ring.stages.len());
    declaration.producer_on_death = stages::number(ring.producer_on_death).into();
    declaration.stages = stages::records(&ring, &needs);
    declaration.initial = vec![ring::initial(&ring, &needs, &shape.areas()?)?];
    Ok(())
}

fn type_name(declaration: &NewSegment) -> Problem {
    Problem::TypeName { given: declaration.type_name.clone() }
}

fn make(
    location: &Location,
    notice: Duration,
    declaration: &NewSegment,
    overcommit: bool,
) -> Result<Arc<OpenedFile>, Problem> {
    let notice_ms = u32::try_from(notice.as_millis()).ok().filter(|ms| NOTICE_MS.contains(ms));
    let mut header = Header::new_zeroed();
    header.notice_ms = notice_ms.ok_or(Problem::Notice { asked_ms: notice.as_millis() })?;
    let random = getrandom(&mut header.id, GetRandomFlags::empty());
    random.map_err(|error| Problem::system("drawing a random number", error))?;
    let boot = machine::boot_id();
    let boot = boot.map_err(|error| Problem::system("reading the number of this boot", error))?;
    header.boot = boot.unwrap_or_default();
    header.created = machine::now();
    header.uid = geteuid().as_raw();
    header.kind = declaration.kind;
    header.first = declaration.first;
    header.producer_on_death = declaration.producer_on_death;
    header.type_version = declaration.type_version;
    let name = declaration.type_name.as_bytes();
    let field = header.type_name.get_mut(..name.len());
    field.ok_or_else(|| type_name(declaration))?.copy_from_slice(name);
    if name.is_empty() || declaration.type_name.contains(char::is_control) {
        return Err(type_name(declaration));
    }
    let head = Head::new(header, &declaration.shape, &declaration.stages, &declaration.schema)?;
    let checked = head.check(head.header().length, |_| Ok(()))?;
    let new = NewFile { head: &head, initial: &declaration.initial, overcommit };
    match location {
        Location::Path(path) => {
            let file = create::create_named(path, &new)?;
            Ok(OpenedFile::new(file, checked, true))
        }
        Location::Memfd(label) => {
            let file = create::create_memfd(label, &new)?;
            Ok(OpenedFile::new(file, checked, false))
        }
    }
}
