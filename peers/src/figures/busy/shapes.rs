//! A pipeline of two busy stages behind a full ring, on two cores. The figures are the overhead
//! above the work of one handler, because each core does the work of one handler.
//!
//! Either the producer has a thread of its own, and the system's scheduler fits it in between the
//! stages' threads; or the producer and the first stage share a thread.

use std::hint::spin_loop;
use std::thread;
use std::time::Duration;

use disruptor::wait_strategies::WaitStrategy;
use disruptor::{BusySpin, Polling, Producer as _, Sequence, Sleep, build_single_producer};
use slipring::{Chain, Graph, Reader, Wait, markers::Layout, placement::Threads};
use slipring_machine::pin;

use super::RINGS;
use super::full::WORK;
use crate::contenders::foreign::{Form, Producers, Programs, Work};
use crate::contenders::gil::Gil;
use crate::contenders::queues::{Array, Blocking, Crossbeam, Crossfire, Queue, Yring};
use crate::figures::oversubscribed::rings::Yielding;
use crate::figures::oversubscribed::timing::{Timing, TwoCores};
use crate::measure::{Contender, ContenderKind, Figure, Size};
use crate::work::{amount, baseline, steps_for};

/// The parameters of a pipeline.
#[derive(Clone, Copy)]
struct Pipeline {
    ring: usize,
    events: u64,
    /// Steps of each handler's work on an event.
    steps: u32,
}

impl Pipeline {
    fn ours(self, wait: Wait) -> f64 {
        self.chain(slipring::ring(self.ring, || 0u64).wait(wait))
    }

    /// Runs the stages on threads that they share. There is one thread for each core, and the
    /// producer runs on one of these threads.
    fn ours_on_shared_threads(self) -> f64 {
        self.chain(slipring::ring(self.ring, || 0u64).threads(Threads::Auto))
    }

    fn chain<'env>(self, chain: Chain<'env, u64>) -> f64 {
        let _cores = TwoCores::take();
        let timing = Timing::new(2, self.events);
        let (mut first, mut second) =
            (timing.working_stage(self.steps), timing.working_stage(self.steps));
        let done = chain
            .read("first", move |event, _| first(event))
            .read("second", move |event, _| second(event))
            .run(|tx| {
                timing.produce(0, |event| {
                    tx.publish(|slot| *slot = event).expect("the ring is open");
                });
                Ok(())
            });
        done.expect("the stream ended with a failure");
        timing.result()
    }

    /// Runs the first stage on the producer's thread, which publishes until the ring is full, then
    /// handles a part of the ring, and so on.
    fn ours_on_two_threads<L: Layout>(self, graph: Graph<u64, L>) -> f64 {
        let timing = Timing::new(2, self.events);
        let (mut first, mut second) =
            (timing.working_stage(self.steps), timing.working_stage(self.steps));
        let key = graph.reader("first");
        let next = graph.reader("second").after(&key);
        let ring = graph.build().expect("the graph is sound");
        let (mut tx, mut rx, mut rx_next) = (ring.producer(), ring.reader(key), ring.reader(next));
        thread::scope(|scope| {
            scope.spawn(move || {
                pin(1);
                rx_next.for_each(|event, _| second(event)).expect("the stream ended well");
            });
            let timing = &timing;
            scope.spawn(move || {
                pin(0);
                let mut handle = |rx: &mut Reader<u64, L>| {
                    rx.poll(self.ring / 4, |event, _| first(event)).expect("the ring is open")
                };
                timing.produce_polling(
                    |event| tx.try_publish(|slot| *slot = event).is_ok(),
                    || {
                        handle(&mut rx);
                    },
                );
                drop(tx);
                rx.for_each(|event, _| first(event)).expect("the stream ended well");
            });
        });
        timing.result()
    }

    /// Runs the first stage on the producer's thread, as [`Pipeline::ours_on_two_threads`] does.
    fn disruptor_on_two_threads(self) -> f64 {
        let timing = Timing::new(2, self.events);
        let (mut first, mut second) =
            (timing.working_stage(self.steps), timing.working_stage(self.steps));
        let (mut rx, builder) =
            build_single_producer(self.ring, || 0u64, BusySpin).new_event_poller();
        let (mut rx_next, builder) = builder.and_then().new_event_poller();
        let mut tx = builder.build();
        let quarter = self.ring as u64 / 4;
        thread::scope(|scope| {
            scope.spawn(move || {
                pin(1);
                loop {
                    match rx_next.take(quarter) {
                        Ok(mut events) => (&mut events).for_each(&mut second),
                        Err(Polling::NoEvents) => spin_loop(),
                        Err(Polling::Shutdown) => return,
                    }
                }
            });
            let timing = &timing;
            scope.spawn(move || {
                pin(0);
                timing.produce_polling(
                    |event| tx.try_publish(|slot| *slot = event).is_ok(),
                    || {
                        if let Ok(mut events) = rx.take(quarter) {
                            (&mut events).for_each(&mut first);
                        }
                    },
                );
                thread::scope(|scope| {
                    // Dropping the producer waits until all events are handled, so another thread
                    // does it.
                    scope.spawn(move || drop(tx));
                    loop {
                        match rx.poll() {
                            Ok(mut events) => (&mut events).for_each(&mut first),
                            Err(Polling::NoEvents) => spin_loop(),
                            Err(Polling::Shutdown) => return,
                        }
                    }
                });
            });
        });
        timing.result()
    }

    fn disruptor<W: WaitStrategy + 'static>(self, wait: W, yields: bool) -> f64 {
        let _cores = TwoCores::take();
        let timing = Timing::new(2, self.events);
        let (mut first, mut second) =
            (timing.working_stage(self.steps), timing.working_stage(self.steps));
        let mut tx = build_single_producer(self.ring, || 0u64, wait)
            .handle_events_with(move |event: &u64, _: Sequence, _: bool| first(event))
            .and_then()
            .handle_events_with(move |event: &u64, _: Sequence, _: bool| second(event))
            .build();
        timing.produce(0, |event| {
            if !yields {
                return tx.publish(|slot| *slot = event);
            }
            while tx.try_publish(|slot| *slot = event).is_err() {
                thread::yield_now();
            }
        });
        drop(tx);
        timing.result()
    }

    /// Runs two queues in a row. `push` waits while a queue is full, and `pop` while a queue is
    /// empty.
    fn queues<Q: Queue<u64> + 'static>(
        self,
        push: impl Fn(&mut Q::Tx, u64) + Copy + Send,
        pop: impl Fn(&mut Q::Rx) -> u64 + Copy + Send,
    ) -> f64 {
        let _cores = TwoCores::take();
        let timing = Timing::new(2, self.events);
        let (mut first, mut second) =
            (timing.working_stage(self.steps), timing.working_stage(self.steps));
        let (mut tx, mut rx) = Q::new(self.ring);
        let (mut next_tx, mut next_rx) = Q::new(self.ring);
        thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..self.events {
                    let event = pop(&mut rx);
                    first(&event);
                    push(&mut next_tx, event);
                }
            });
            scope.spawn(move || (0..self.events).for_each(|_| second(&pop(&mut next_rx))));
            timing.produce(0, |event| push(&mut tx, event));
        });
        timing.result()
    }

    fn yielding<Q: Queue<u64> + 'static>(self) -> f64 {
        let push = |tx: &mut Q::Tx, event| {
            while !Q::try_send(tx, event) {
                thread::yield_now();
            }
        };
        let pop = |rx: &mut Q::Rx| loop {
            match Q::try_receive(rx) {
                Some(event) => return event,
                None => thread::yield_now(),
            }
        };
        self.queues::<Q>(push, pop)
    }

    fn blocking<Q: Blocking + 'static>(self) -> f64 {
        self.queues::<Q>(
            |tx, event| Q::send(tx, event),
            |rx| Q::receive(rx).expect("the sender is open"),
        )
    }
}

/// Returns the figures of a pipeline of two busy stages.
pub fn figures(size: Size, programs: &Programs) -> Vec<Figure> {
    let figure = |ring, nanos| {
        let full = 100_000_000 / u64::from(nanos + 40);
        let events = size.pick(500, full / 5, full);
        let pipeline = Pipeline { ring, events, steps: steps_for(nanos) };
        let mut contenders = contenders(pipeline);
        let Pipeline { steps: handler_steps, .. } = pipeline;
        let form = Form::Pipeline(2);
        let work = |_| Work::Shape { form, ring, events, steps: 0, handler_steps };
        contenders.extend(programs.contenders(Producers::One, true, work));
        Figure {
            table: format!("busy pipeline of 2 on two cores, full ring of {ring}, overhead"),
            column: amount(nanos),
            baseline: baseline(nanos, events),
            contenders,
        }
    };
    RINGS.into_iter().flat_map(|ring| WORK.map(|nanos| figure(ring, nanos))).collect()
}

/// A function that runs a pipeline and returns the nanoseconds per event.
type PipelineRun = fn(Pipeline) -> f64;

fn contenders(pipeline: Pipeline) -> Vec<Contender> {
    use ContenderKind::{Ours, Peer};
    let ours = [
        ("slipring, default wait", Wait::ADAPTIVE),
        ("slipring, blocking", Wait::Blocking),
        ("slipring, sleeping", Wait::SLEEPING),
        ("slipring, yielding", Wait::YIELDING),
    ];
    let graph = move || Graph::new(pipeline.ring, || 0u64).wait(Wait::BusySpin);
    let on_two_threads =
        Contender::new(Ours, "slipring, first stage on the producer's thread", move || {
            pipeline.ours_on_two_threads(graph())
        });
    let contiguous = Contender::new(
        Ours,
        "slipring contiguous, first stage on the producer's thread",
        move || pipeline.ours_on_two_threads(graph().contiguous()),
    );
    let shared =
        Contender::new(Ours, "slipring, shared threads", move || pipeline.ours_on_shared_threads());
    let ours = ours
        .into_iter()
        .map(|(name, wait)| Contender::new(Ours, name, move || pipeline.ours(wait.clone())));
    let peers: [(&str, PipelineRun); 8] = [
        ("disruptor, first stage on the producer's thread", Pipeline::disruptor_on_two_threads),
        ("disruptor, own strategy and producer that yield", |pipeline| {
            pipeline.disruptor(Yielding, true)
        }),
        ("disruptor, Sleep(1 µs)", |pipeline| {
            pipeline.disruptor(Sleep::new(Duration::from_micros(1)), false)
        }),
        ("crossbeam-channel, blocking", Pipeline::blocking::<Crossbeam>),
        ("crossbeam ArrayQueue, yielding", Pipeline::yielding::<Array>),
        ("crossfire, yielding", Pipeline::yielding::<Crossfire>),
        ("yring, yielding", Pipeline::yielding::<Yring>),
        ("gil, yielding", Pipeline::yielding::<Gil>),
    ];
    let peers =
        peers.into_iter().map(|(name, run)| Contender::new(Peer, name, move || run(pipeline)));
    [on_two_threads, contiguous, shared].into_iter().chain(ours).chain(peers).collect()
}
