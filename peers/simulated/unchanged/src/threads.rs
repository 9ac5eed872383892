//! The threads of all contenders. They publish and receive the same events at the same pace, and
//! check the events that they receive.
//!
//! - I1: An event is the number of its producer, above the number of the event among this
//!   producer's. [`END`] is none of these.
//! - I2: Nothing here is shared by threads beside the contender itself, so all transfers are its
//!   own.

/// Bits of an event that hold its number among its producer's events.
const NUMBER_BITS: u32 = 40;
/// Event that ends a worker.
const END: u64 = u64::MAX;

/// Which events a consumer gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// There is one consumer, which gets all events.
    Stream,
    /// Each consumer gets all events.
    Multicast,
    /// Each event goes to one of the consumers.
    Pool,
}

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Which events a consumer gets.
    pub shape: Shape,
    /// Number of producers; 1 except for a stream.
    pub producers: usize,
    /// Number of consumers.
    pub consumers: usize,
    /// Capacity of the ring or queue, in events.
    pub capacity: usize,
    /// Number of events before the measurement begins.
    pub warm_up: u64,
    /// Number of measured events.
    pub events: u64,
    /// Work of a producer before each event, in nanoseconds.
    pub pace: u64,
    /// Work of a consumer on each event, in nanoseconds.
    pub work: u64,
}

impl Spec {
    /// Returns the number of events of each producer.
    pub fn each(&self) -> u64 {
        (self.warm_up + self.events).div_ceil(self.producers as u64)
    }

    /// Returns the number of all events.
    pub fn all(&self) -> u64 {
        self.each() * self.producers as u64
    }

    /// Returns the number of events that the measurement covers, without those that end workers.
    pub fn measured(&self) -> u64 {
        self.all() - self.warm_up
    }

    /// Returns whether a consumer begins the measurement. In all other runs the single producer
    /// does.
    fn consumer_begins(&self) -> bool {
        self.shape == Shape::Stream
    }
}

/// Calls of a thread to its simulation or measurement. These are pointers, so that no instrumented
/// code contains the functions.
#[derive(Clone, Copy)]
pub struct Host {
    /// Spins once.
    pub pause: fn(),
    /// Works for this number of nanoseconds.
    pub work: fn(u64),
    /// Begins the measurement.
    pub begin: fn(),
    /// Takes the number and the sum of a consumer's events.
    pub done: fn(u64, u64),
}

/// The body of a thread.
pub type Body = Box<dyn FnOnce() + Send>;
/// Threads with their names.
pub type Threads = Vec<(String, Body)>;

/// The events that a consumer has received.
pub struct Seen {
    spec: Spec,
    host: Host,
    begins: bool,
    count: u64,
    sum: u64,
    ended: bool,
    /// The number of the next event of each producer, or in a pool the least that it can be.
    next: Vec<u64>,
}

impl Seen {
    /// Handles an event.
    ///
    /// # Panics
    ///
    /// If an event is lost, repeated or out of order.
    #[inline]
    pub fn see(&mut self, event: u64) {
        if event == END {
            self.ended = true;
            return;
        }
        let (producer, number) = (event >> NUMBER_BITS, event & ((1 << NUMBER_BITS) - 1));
        let next = &mut self.next[producer as usize];
        let right = if self.spec.shape == Shape::Pool { number >= *next } else { number == *next };
        assert!(right, "event {number} of producer {producer} after those before {next}");
        *next = number + 1;
        self.sum = self.sum.wrapping_add(event);
        self.count += 1;
        if self.begins && self.count == self.spec.warm_up {
            (self.host.begin)();
        }
        if self.spec.work > 0 {
            (self.host.work)(self.spec.work);
        }
    }

    /// Returns whether the consumer has received all of its events.
    #[inline]
    pub fn is_complete(&self) -> bool {
        if self.spec.shape == Shape::Pool { self.ended } else { self.count == self.spec.all() }
    }

    /// Handles events that `poll` finds, until there are no more. `poll` returns whether it has
    /// found one.
    #[inline]
    pub fn receive(&mut self, mut poll: impl FnMut(&mut Seen) -> bool) {
        while !self.is_complete() {
            if !poll(self) {
                (self.host.pause)();
            }
        }
    }
}

/// How a contender ends the workers of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// By an event for each of them.
    ByEvents,
    /// The contender's own way: its producer is dropped.
    Itself,
}

/// Returns the threads of a contender: producers, which publish by calls that return whether there
/// was room, and consumers.
pub fn threads<P, C>(
    spec: Spec,
    host: Host,
    ends: Ends,
    producers: impl IntoIterator<Item = P>,
    consumers: impl IntoIterator<Item = C>,
) -> Threads
where
    P: FnMut(u64) -> bool + Send + 'static,
    C: FnOnce(&mut Seen) + Send + 'static,
{
    let producer = |(number, publish): (usize, P)| -> (String, Body) {
        (format!("producer {number}"), Box::new(move || produce(spec, host, ends, number, publish)))
    };
    let consumer = |(number, receive): (usize, C)| -> (String, Body) {
        let body = move || {
            let mut seen = Seen {
                spec,
                host,
                begins: spec.consumer_begins() && number == 0,
                count: 0,
                sum: 0,
                ended: false,
                next: vec![0; spec.producers],
            };
            receive(&mut seen);
            (host.done)(seen.count, seen.sum);
        };
        (format!("consumer {number}"), Box::new(body))
    };
    let producers = producers.into_iter().enumerate().map(producer);
    producers.chain(consumers.into_iter().enumerate().map(consumer)).collect()
}

fn produce<P>(spec: Spec, host: Host, ends: Ends, producer: usize, mut publish: P)
where
    P: FnMut(u64) -> bool,
{
    let mut send = |event| {
        while !publish(event) {
            (host.pause)();
        }
    };
    let first = (producer as u64) << NUMBER_BITS;
    for number in 0..spec.each() {
        if !spec.consumer_begins() && number == spec.warm_up {
            (host.begin)();
        }
        if spec.pace > 0 {
            (host.work)(spec.pace);
        }
        send(first | number);
    }
    if spec.shape == Shape::Pool && ends == Ends::ByEvents {
        (0..spec.consumers).for_each(|_| send(END));
    }
}

/// Returns the number and the sum of all events that the consumers of a run receive.
pub fn expected(spec: Spec) -> (u64, u64) {
    let copies = if spec.shape == Shape::Multicast { spec.consumers as u64 } else { 1 };
    let event = |producer: u64, number| producer << NUMBER_BITS | number;
    let events = (0..spec.producers as u64)
        .flat_map(|producer| (0..spec.each()).map(move |number| event(producer, number)));
    let sum = events.fold(0, u64::wrapping_add);
    (copies * spec.all(), sum.wrapping_mul(copies))
}
