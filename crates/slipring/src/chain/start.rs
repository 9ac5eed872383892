//! Starts a chain: on scoped threads, or on threads that outlive the call.

use super::declare::{Chain, Declared};
use crate::base::fault::Fault;
use crate::base::panics::Contained;
use crate::errors::Error;
use crate::producer::{Producer, SharedProducer};
use crate::ring::owner::Owner;
use crate::ring::slots::Layout;
use crate::run::Pipeline;
use crate::run::groups::Groups;
use crate::run::judge::Judges;
use crate::run::launch::{Built, Done, feeding};
use crate::run::placement::{assign, build_in_place};
use crate::run::threads::Caller;

impl<'env, E: Send + 'env, L: Layout> Chain<'env, E, L> {
    /// Builds the ring and makes all handlers. `caller` says what the calling thread does while the
    /// stages run.
    pub(super) fn build(
        self,
        many_producers: bool,
        caller: Caller,
    ) -> Result<Built<'env, E, L>, Error> {
        let Declared {
            mut ring,
            stages,
            mut hooks,
            make_runners,
            monitors,
            threads,
            placement,
            ..
        } = *self.declared;
        ring.settings.many_producers = many_producers;
        let mut specs = stages.checked()?;
        let shared = threads.map(|threads| threads.share(&mut specs, caller)).transpose()?;
        let shared = shared.unwrap_or_default();
        let settings = &mut ring.settings;
        let places = placement.map(|placement| assign(&**placement, &specs, shared, settings));
        hooks.places = places.transpose()?;
        let core: Owner<E, L> = build_in_place(hooks.places.as_ref(), || ring.build(specs))?;
        let mut groups = Groups::default();
        let made = monitors.iter().try_for_each(|monitored| monitored.bind(&core)).and_then(|()| {
            make_runners.into_iter().enumerate().try_for_each(|(stage, make)| {
                groups.add(&core.control.plan, make.into_inner()(&core, stage, Judges::default())?);
                Ok(())
            })
        });
        if let Err(problem) = made {
            // Before the build failed, readers may have joined through a tap, and workers through a
            // pool. The stages of a failed build never run, so only a halt ends their waits.
            core.owners.end_run();
            core.control.halt();
            drop(groups);
            core.take_apart();
            return Err(problem.into());
        }
        Ok(Built::new(core, groups, shared, hooks))
    }

    /// Publishes every item of an iterator from this thread; `fill` writes an item into a slot.
    /// Returns when all stages have handled all events. [`Done::value`] is the number of items.
    ///
    /// ```
    /// let mut words = Vec::new();
    /// let done = slipring::ring(8, String::new)
    ///     .read("collect", |word, _| words.push(word.clone()))
    ///     .feed("to be or not".split(' '), |slot, word| word.clone_into(slot))?;
    /// assert_eq!((done.value, words.len()), (4, 4));
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`ErrorKind::Build`](crate::errors::ErrorKind::Build): the chain has a mistake, cannot
    ///   start, or has no stage that would see an item.
    /// - [`ErrorKind::Failed`](crate::errors::ErrorKind::Failed): the first failure: an error or
    ///   panic of a handler, a panic of the iterator or of `fill`, or a passed deadline.
    /// - [`ErrorKind::EventDrop`](crate::errors::ErrorKind::EventDrop): the run has ended well, and
    ///   then the drop of an event panicked.
    pub fn feed<I: IntoIterator>(
        mut self,
        items: I,
        fill: impl FnMut(&mut E, I::Item),
    ) -> Result<Done<u64>, Error> {
        let stages = &mut self.declared.stages;
        if stages.specs().is_empty() {
            stages.reject(
                "the chain has no stage, so its events would be overwritten unseen: declare one, \
                 such as `.read(\"print\", |event, _| ...)`",
            );
        }
        self.run(feeding(items, fill))
    }

    /// Starts the stages, calls `produce` with the producer on this thread, and closes the ring.
    /// Returns when all stages have handled all events.
    ///
    /// ```
    /// let mut sum = 0;
    /// let done = slipring::ring(8, || 0u64)
    ///     .read("sum", |value, _| sum += value)
    ///     .run(|tx| {
    ///         for i in 1..=3 { tx.publish(|slot| *slot = i)?; }
    ///         Ok("all sent")
    ///     })?;
    /// assert_eq!((done.value, sum), ("all sent", 6));
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`ErrorKind::Build`](crate::errors::ErrorKind::Build): the chain has a mistake, or cannot
    ///   start. No handler has run.
    /// - [`ErrorKind::Failed`](crate::errors::ErrorKind::Failed): the first failure: an error or
    ///   panic of a handler, an error or panic of `produce`, or a passed deadline.
    /// - [`ErrorKind::EventDrop`](crate::errors::ErrorKind::EventDrop): the run has ended well, and
    ///   then the drop of an event panicked.
    pub fn run<T>(
        self,
        produce: impl FnOnce(&mut Producer<E, L>) -> Result<T, Fault>,
    ) -> Result<Done<T>, Error> {
        let produce = Contained::new(produce);
        let built = self.build(false, Caller::Helps)?;
        let producer = Producer::of_run(&built.core);
        built.run(producer, produce)
    }

    /// Runs the chain as [`Chain::run`] does, with a producer that can be cloned for other threads.
    ///
    /// The ring closes when `produce` has returned and the last clone of the producer is dropped. A
    /// clone may outlive `produce`, for instance inside the value that it returns: `run_shared`
    /// waits until all clones are dropped, or until the chain's [`deadline`](Chain::deadline)
    /// passes. `produce` borrows its producer, so a call that takes one gets a clone, such as
    /// `tx.clone().into_publisher()`.
    ///
    /// ```
    /// let mut sum = 0;
    /// slipring::ring(8, || 0u64)
    ///     .read("sum", |value, _| sum += value)
    ///     .run_shared(|tx| {
    ///         std::thread::scope(|scope| {
    ///             for i in 1..=3 {
    ///                 let mut tx = tx.clone();
    ///                 scope.spawn(move || tx.publish(|slot| *slot = i));
    ///             }
    ///         });
    ///         Ok(())
    ///     })?;
    /// assert_eq!(sum, 6);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`ErrorKind::Build`](crate::errors::ErrorKind::Build): the chain has a mistake, or cannot
    ///   start. No handler has run.
    /// - [`ErrorKind::Failed`](crate::errors::ErrorKind::Failed): the first failure: an error or
    ///   panic of a handler, an error or panic of `produce`, or a passed deadline.
    /// - [`ErrorKind::EventDrop`](crate::errors::ErrorKind::EventDrop): the run has ended well, and
    ///   then the drop of an event panicked.
    pub fn run_shared<T>(
        self,
        produce: impl FnOnce(&mut SharedProducer<E, L>) -> Result<T, Fault>,
    ) -> Result<Done<T>, Error> {
        let produce = Contained::new(produce);
        let built = self.build(true, Caller::Helps)?;
        let producer = Producer::of_run(&built.core);
        built.run(producer, produce)
    }
}

impl<E: Send + 'static, L: Layout> Chain<'static, E, L> {
    /// Starts the stages on threads that outlive this call. Publish through the producer, close the
    /// producer, then join the pipeline.
    ///
    /// ```
    /// let (mut tx, pipeline) = slipring::ring(8, || 0u64)
    ///     .read("print", |value, _| println!("{value}"))
    ///     .spawn()?;
    /// for i in 0..3 { tx.publish(|slot| *slot = i)?; }
    /// tx.close();
    /// assert_eq!(pipeline.join()?.stage("print").unwrap().events, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`ErrorKind::Build`](crate::errors::ErrorKind::Build): the chain has a mistake, or cannot
    ///   start.
    /// - [`ErrorKind::Failed`](crate::errors::ErrorKind::Failed): the system refuses to start a
    ///   thread.
    pub fn spawn(self) -> Result<(Producer<E, L>, Pipeline), Error> {
        let built = self.build(false, Caller::Leaves)?;
        let producer = Contained::new(Producer::of_run(&built.core));
        let pipeline = built.spawn()?;
        Ok((producer.into_inner(), pipeline))
    }

    /// Starts the stages as [`Chain::spawn`] does, with a producer that can be cloned. The ring
    /// closes when the producer and all its clones are dropped.
    ///
    /// Example: [`Pipeline::join_within`].
    ///
    /// # Errors
    /// - [`ErrorKind::Build`](crate::errors::ErrorKind::Build): the chain has a mistake, or cannot
    ///   start.
    /// - [`ErrorKind::Failed`](crate::errors::ErrorKind::Failed): the system refuses to start a
    ///   thread.
    pub fn spawn_shared(self) -> Result<(SharedProducer<E, L>, Pipeline), Error> {
        let built = self.build(true, Caller::Leaves)?;
        let producer = Contained::new(Producer::of_run(&built.core));
        let pipeline = built.spawn()?;
        Ok((producer.into_inner(), pipeline))
    }
}
