//! The same names on systems without segments: each call that would make, open or remove one
//! returns [`Problem::Unsupported`].

mod blocks;

use std::convert::Infallible;
use std::ffi::OsStr;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use slipring::segment::OnDeath;
use slipring::{Producer, Report, StartAt, Wait, WaitError};
use zerocopy::{Immutable, IntoBytes};

use crate::contents::Contents;
use crate::errors::{Problem, PromiseError, SegmentError};
use crate::event::Event;
use crate::place::Place;
use crate::{
    CopyingPoolReader, CopyingPoolWriter, CopyingProducer, CopyingReader, CopyingShardReader,
    CopyingShardWriter, CopyingSharedProducer, CopyingSubscription, CopyingWriter, PoolReader,
    PoolWriter, Reader, ShardReader, ShardWriter, SharedProducer, Subscription, Writer,
};

fn unsupported<T>(place: Result<Place, SegmentError>) -> Result<T, SegmentError> {
    Err(SegmentError::at(&place?, Problem::Unsupported))
}

fn named(name: impl AsRef<OsStr>) -> Result<Place, SegmentError> {
    let given = name.as_ref();
    Place::named(given).map_err(|error| SegmentError::new(format!("{given:?}"), error))
}

/// The shared memory of one ring. This system has none.
#[derive(Debug)]
pub struct Segment<E>(Infallible, PhantomData<fn() -> E>);

/// A mapped segment. This system has none.
#[derive(Debug)]
pub struct Attached<E>(Infallible, PhantomData<fn() -> E>);

/// A segment as declared.
#[derive(Debug)]
#[must_use = "nothing is made before `build`"]
pub struct Builder<E>(Result<Place, SegmentError>, PhantomData<fn() -> E>);

impl<E: Contents> Segment<E> {
    /// Declares a new segment of that name.
    pub fn create(name: impl AsRef<OsStr>) -> Builder<E> {
        E::defaults();
        Builder(named(name), PhantomData)
    }

    /// Declares a new segment at `path`.
    pub fn create_at(path: impl Into<PathBuf>) -> Builder<E> {
        Builder(Ok(Place::Path(path.into())), PhantomData)
    }

    /// Declares a new segment without a name.
    pub fn create_memfd(label: impl Into<String>) -> Builder<E> {
        Builder(Ok(Place::Memfd(label.into())), PhantomData)
    }

    /// Returns [`Problem::Unsupported`].
    pub fn open(name: impl AsRef<OsStr>) -> Result<Segment<E>, SegmentError> {
        unsupported(named(name))
    }

    /// Returns [`Problem::Unsupported`].
    pub fn open_at(path: impl Into<PathBuf>) -> Result<Segment<E>, SegmentError> {
        unsupported(Ok(Place::Path(path.into())))
    }

    /// Never called: there is no segment.
    ///
    /// # Safety
    /// As on 64-bit Linux.
    pub unsafe fn attach(&self) -> Result<Attached<E>, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn attach_copies(&self) -> Result<Copies<E>, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn capacity(&self) -> u64 {
        match self.0 {}
    }
}

/// A mapped segment whose other processes are not trusted. This system has none.
#[derive(Debug)]
pub struct Copies<E>(Infallible, PhantomData<fn() -> E>);

impl<E: Event> Copies<E> {
    /// Never called: there is no segment.
    pub fn wait(self, _wait: Wait) -> Result<Copies<E>, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn producer(&self) -> Result<CopyingProducer<E>, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn shared_producer(&self) -> Result<CopyingSharedProducer<E>, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn reader(&self, _stage: &str) -> Result<CopyingReader<E>, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn writer(&self, _stage: &str) -> Result<CopyingWriter<E>, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn subscribe(
        &self,
        _tap: &str,
        _at: StartAt,
    ) -> Result<CopyingSubscription<E>, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn pool_reader(&self, _pool: &str) -> Result<CopyingPoolReader<E>, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn pool_writer(&self, _pool: &str) -> Result<CopyingPoolWriter<E>, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn shard_reader(&self, _: &str, _: usize) -> Result<CopyingShardReader<E>, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn shard_writer(&self, _: &str, _: usize) -> Result<CopyingShardWriter<E>, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn report(&self) -> Option<Report> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn participant(&self) -> u32 {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn capacity(&self) -> u64 {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn type_name(&self) -> String {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn type_version(&self) -> u32 {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn schema(&self) -> Vec<u8> {
        match self.0 {}
    }
}

impl<E: Event> Attached<E> {
    /// Never called: there is no segment.
    pub fn wait(self, _wait: Wait) -> Result<Attached<E>, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn producer(&self) -> Result<Producer<E>, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn shared_producer(&self) -> Result<SharedProducer<E>, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn reader(&self, _stage: &str) -> Result<Reader<E>, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn writer(&self, _stage: &str) -> Result<Writer<E>, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn subscribe(&self, _tap: &str, _at: StartAt) -> Result<Subscription<E>, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn pool_reader(&self, _pool: &str) -> Result<PoolReader<E>, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn pool_writer(&self, _pool: &str) -> Result<PoolWriter<E>, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn shard_reader(&self, _: &str, _: usize) -> Result<ShardReader<E>, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn shard_writer(&self, _: &str, _: usize) -> Result<ShardWriter<E>, SegmentError> {
        match self.0 {}
    }
}

impl<E: Contents> Attached<E> {
    /// Never called: there is no segment.
    pub fn require_name(self) -> Attached<E> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn has_lost_name(&self) -> Result<bool, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn report(&self) -> Option<Report> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn participant(&self) -> u32 {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn capacity(&self) -> u64 {
        match self.0 {}
    }
}

impl<E: Contents> Builder<E> {
    /// Lets the segment take more memory than is available.
    pub fn allow_overcommit(self) -> Builder<E> {
        self
    }

    /// Adds a stage that reads.
    pub fn reader(self, _name: impl Into<String>) -> Builder<E> {
        self
    }

    /// Adds a stage that may write.
    pub fn writer(self, _name: impl Into<String>) -> Builder<E> {
        self
    }

    /// Adds a pool that reads.
    pub fn pool_reader(self, _name: impl Into<String>, _workers: usize) -> Builder<E> {
        self
    }

    /// Adds a pool that may write.
    pub fn pool_writer(self, _name: impl Into<String>, _workers: usize) -> Builder<E> {
        self
    }

    /// Adds a tap.
    pub fn tap(self, _name: impl Into<String>, _room: usize) -> Builder<E> {
        self
    }

    /// Puts the stage declared last behind others.
    pub fn after<N: Into<String>>(self, _names: impl IntoIterator<Item = N>) -> Builder<E> {
        self
    }

    /// Sets what becomes of the parties that wait for the stage declared last when its process
    /// dies.
    pub fn on_death(self, _on_death: OnDeath) -> Builder<E> {
        self
    }

    /// Sets the number of producers that the ring has room for.
    pub fn producers(self, _places: u32) -> Builder<E> {
        self
    }

    /// Sets what becomes of the stages that wait when the producer's process dies.
    pub fn producer_on_death(self, _on_death: OnDeath) -> Builder<E> {
        self
    }

    /// Sets the schema.
    pub fn schema(self, _schema: impl Into<Vec<u8>>) -> Builder<E> {
        self
    }

    /// Sets the position of the first event.
    pub fn first_seq(self, _seq: u64) -> Builder<E> {
        self
    }

    /// Sets the number of slots.
    pub fn capacity(self, _slots: u64) -> Builder<E> {
        self
    }

    /// Sets the number of processes that can be attached at once.
    pub fn participants(self, _places: u32) -> Builder<E> {
        self
    }

    /// Sets the longest time between two checks for deaths.
    pub fn notice(self, _time: Duration) -> Builder<E> {
        self
    }

    /// Returns [`Problem::Unsupported`].
    pub fn build(self) -> Result<Segment<E>, SegmentError> {
        unsupported(self.0)
    }
}

impl<E: Event> Builder<E> {
    /// Adds shards that read.
    pub fn shard_reader<K: IntoBytes + Immutable + ?Sized>(
        self,
        _name: impl Into<String>,
        _shards: usize,
        _key: impl FnOnce(&E) -> &K,
    ) -> Builder<E> {
        self
    }

    /// Adds shards that may write.
    pub fn shard_writer<K: IntoBytes + Immutable + ?Sized>(
        self,
        _name: impl Into<String>,
        _shards: usize,
        _key: impl FnOnce(&E) -> &K,
    ) -> Builder<E> {
        self
    }
}

/// Returns [`Problem::Unsupported`].
pub fn remove(name: impl AsRef<OsStr>) -> Result<(), SegmentError> {
    unsupported(named(name))
}

/// Returns [`Problem::Unsupported`].
pub fn remove_at(path: impl Into<PathBuf>) -> Result<(), SegmentError> {
    unsupported(Ok(Place::Path(path.into())))
}

/// The shared memory of one promise. This system has none.
#[derive(Debug)]
pub struct PromiseSegment<T>(Infallible, PhantomData<fn() -> T>);

/// A promise between processes as declared.
#[derive(Debug)]
#[must_use = "nothing is made before `build`"]
pub struct PromiseBuilder<T>(Builder<T>);

/// The place of the process that owes the value. This system has none.
#[derive(Debug)]
pub struct Promise<T>(Infallible, PhantomData<fn() -> T>);

/// The place of the process that waits for the value. This system has none.
#[derive(Debug)]
pub struct Awaited<T>(Infallible, PhantomData<fn() -> T>);

/// The value of a promise, lent where it lies. This system has none.
#[derive(Debug)]
pub struct Promised<'a, T>(Infallible, PhantomData<&'a T>);

impl<T: Event> PromiseSegment<T> {
    /// Declares a new promise of that name.
    pub fn create(name: impl AsRef<OsStr>) -> PromiseBuilder<T> {
        PromiseBuilder(Segment::create(name))
    }

    /// Declares a new promise at `path`.
    pub fn create_at(path: impl Into<PathBuf>) -> PromiseBuilder<T> {
        PromiseBuilder(Segment::create_at(path))
    }

    /// Declares a new promise without a name.
    pub fn create_memfd(label: impl Into<String>) -> PromiseBuilder<T> {
        PromiseBuilder(Segment::create_memfd(label))
    }

    /// Returns [`Problem::Unsupported`].
    pub fn open(name: impl AsRef<OsStr>) -> Result<PromiseSegment<T>, SegmentError> {
        unsupported(named(name))
    }

    /// Returns [`Problem::Unsupported`].
    pub fn open_at(path: impl Into<PathBuf>) -> Result<PromiseSegment<T>, SegmentError> {
        unsupported(Ok(Place::Path(path.into())))
    }

    /// Never called: there is no segment.
    pub fn with_wait(self, _wait: Wait) -> PromiseSegment<T> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    ///
    /// # Safety
    /// As on 64-bit Linux.
    pub unsafe fn promise(&self) -> Result<Promise<T>, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    ///
    /// # Safety
    /// As on 64-bit Linux.
    pub unsafe fn awaited(&self) -> Result<Awaited<T>, SegmentError> {
        match self.0 {}
    }
}

impl<T: Event> PromiseBuilder<T> {
    /// Lets the segment of a large value take more memory than is available.
    pub fn allow_overcommit(self) -> PromiseBuilder<T> {
        self
    }

    /// Sets what a waiter gets when the process that owns the promise dies.
    pub fn on_death(self, _on_death: OnDeath) -> PromiseBuilder<T> {
        self
    }

    /// Sets the longest time between a waiter's checks for a death.
    pub fn notice(self, _time: Duration) -> PromiseBuilder<T> {
        self
    }

    /// Sets the number of processes that can be attached at once.
    pub fn participants(self, _places: u32) -> PromiseBuilder<T> {
        self
    }

    /// Returns [`Problem::Unsupported`].
    pub fn build(self) -> Result<PromiseSegment<T>, SegmentError> {
        unsupported(self.0.0)
    }
}

impl<T: Event> Promise<T> {
    /// Never called: there is no segment.
    pub fn fulfil(self, _value: T) -> Result<(), WaitError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn fulfil_with(self, _fill: impl FnOnce(&mut T)) -> Result<(), WaitError> {
        match self.0 {}
    }
}

impl<T: Event> Awaited<T> {
    /// Never called: there is no segment.
    pub fn wait(&mut self) -> Result<Promised<'_, T>, PromiseError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn wait_for(&mut self, _time: Duration) -> Result<Promised<'_, T>, PromiseError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn wait_until(&mut self, _deadline: Instant) -> Result<Promised<'_, T>, PromiseError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn try_take(&mut self) -> Result<Option<Promised<'_, T>>, PromiseError> {
        match self.0 {}
    }
}

impl<T: Event> Promised<'_, T> {
    /// Never called: there is no segment.
    pub fn is_redelivered(&self) -> bool {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn release(self) {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn take(self) -> T {
        match self.0 {}
    }
}

impl<T: Event> std::ops::Deref for Promised<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self.0 {}
    }
}
