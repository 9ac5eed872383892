//! The events of explored programs. They show a torn read, a write that is missing, and a slot
//! that is overwritten while it is lent.
//!
//! - I1: All virtual threads share one system thread, so no two accesses to an event happen at
//!   once, even if the library lends its slot twice.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use slipring::Promise;

/// Lets the schedule choose another thread here, in the middle of a handler.
pub fn point() {
    slipring_coherence::work(Duration::ZERO);
}

/// One step of splitmix64: every bit of the input affects every bit of the output.
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The trail after a write by a stage. A write that is missing, repeated or out of order gives
/// another trail.
pub fn after_write(trail: u64, stage: usize) -> u64 {
    mix(trail ^ ((stage as u64 + 1) << 56))
}

/// An event: its identity at both ends, and the trail of its writers between.
#[derive(Debug, Default)]
pub struct Event {
    parts: Parts,
    /// The request that its first reader answers with the event's identity, or keeps. This lock is
    /// real, and never held where another thread can be chosen.
    request: Mutex<Option<Request>>,
    life: Dropped,
}

/// Notices whether its event is dropped exactly once.
#[derive(Debug)]
struct Dropped(slipring_coherence::Life);

impl Default for Dropped {
    fn default() -> Dropped {
        Dropped(slipring_coherence::Life::begin())
    }
}

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The fate of a request's promise.
#[derive(Debug)]
enum Promised {
    Fulfilled,
    Broken,
    Kept(Kept),
}

/// Promises that are neither fulfilled nor dropped. This lock is real, as that of an event.
pub type Kept = Arc<Mutex<Vec<Promise<u64>>>>;

#[derive(Debug)]
struct Request {
    promise: Promise<u64>,
    fate: Promised,
}

/// The plain parts of an event, and the whole event of a segment.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    id: u64,
    trail: u64,
    again: u64,
}

/// An event of either kind.
pub trait Seen {
    /// Its plain parts.
    fn parts(&self) -> &Parts;
    /// Answers the request that it has, if any.
    fn answer(&self) {}
    /// How the bytes beside its parts differ from those that its producer wrote.
    fn flaw(&self) -> Option<String> {
        None
    }
}

impl Seen for Event {
    fn parts(&self) -> &Parts {
        self.life.0.go_on();
        &self.parts
    }
    fn answer(&self) {
        // Only an event that is overwritten while it is lent can be locked.
        let request = self.request.try_lock().ok().and_then(|mut request| request.take());
        match request {
            Some(Request { promise, fate: Promised::Kept(kept) }) => {
                kept.lock().expect("no thread panics with it").push(promise);
            }
            Some(Request { promise, fate: Promised::Broken }) => drop(promise),
            // The other side may have dropped its half.
            Some(Request { promise, fate: Promised::Fulfilled }) => {
                _ = promise.fulfil(self.parts.id);
            }
            None => {}
        }
    }
}

impl Seen for Parts {
    fn parts(&self) -> &Parts {
        self
    }
}

impl Parts {
    /// The place of the key by which shards divide the events of a segment: the identity. Its
    /// offset and its length, in bytes.
    pub const KEY: (usize, usize) = (0, 8);

    /// An event that was copied word by word.
    pub fn of_words([id, trail, again]: [u64; 3]) -> Parts {
        Parts { id, trail, again }
    }

    /// An event as its producer fills it.
    pub fn of(id: u64) -> Parts {
        Parts { id, trail: mix(id), again: id }
    }

    /// Its words.
    pub fn words(&self) -> [u64; 3] {
        [self.id, self.trail, self.again]
    }

    /// The event's identity.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The trail of its writers.
    pub fn trail(&self) -> u64 {
        self.trail
    }

    /// The trail before any write.
    pub fn first_trail(&self) -> u64 {
        mix(self.id)
    }

    /// Whether both ends have the same identity.
    pub fn is_whole(&self) -> bool {
        self.id == self.again
    }

    /// Fills the event, with points between its parts at which a reader would see it torn.
    pub fn fill(&mut self, id: u64) {
        self.id = id;
        point();
        self.trail = mix(id);
        point();
        self.again = id;
        point();
        // The compiler must not remember the stores: if the library lends the slot to two
        // producers, another virtual thread has written to it.
        // SAFETY: I1: the reference is valid for reads.
        let stored = unsafe { std::ptr::read_volatile(self) };
        if stored != Parts::of(id) {
            slipring_coherence::give_up("two producers have the same slot");
        }
    }

    /// Fills the event. Between processes there are no requests.
    pub fn request(&mut self, id: u64, _: Promise<u64>) {
        self.fill(id);
    }

    /// The same.
    pub fn request_broken(&mut self, id: u64, _: Promise<u64>) {
        self.fill(id);
    }

    /// The same.
    pub fn request_in_vain(&mut self, id: u64, _: Promise<u64>, _: &Kept) {
        self.fill(id);
    }

    /// Stores the trail of a writer, whose result `Watch::look` is.
    pub fn write(&mut self, trail: u64) {
        self.trail = trail;
    }
}

impl Event {
    /// Fills the event, with points between its parts at which a reader would see it torn.
    pub fn fill(&mut self, id: u64) {
        self.parts.fill(id);
        self.request = Mutex::new(None);
    }

    /// Fills the event, with a request.
    pub fn request(&mut self, id: u64, promise: Promise<u64>) {
        self.fill(id);
        self.request = Mutex::new(Some(Request { promise, fate: Promised::Fulfilled }));
    }

    /// Fills the event, with a request whose promise its first reader drops.
    pub fn request_broken(&mut self, id: u64, promise: Promise<u64>) {
        self.fill(id);
        self.request = Mutex::new(Some(Request { promise, fate: Promised::Broken }));
    }

    /// Fills the event, with a request whose promise its first reader puts into `kept`.
    pub fn request_in_vain(&mut self, id: u64, promise: Promise<u64>, kept: &Kept) {
        self.fill(id);
        self.request = Mutex::new(Some(Request { promise, fate: Promised::Kept(kept.clone()) }));
    }

    /// Stores the trail of a writer, whose result `Watch::look` is.
    pub fn write(&mut self, trail: u64) {
        self.parts.trail = trail;
    }

    /// The key by which shards divide events. It depends on the trail, so a key that is computed
    /// too early or too late is another one.
    pub fn key(&self) -> u64 {
        self.parts.trail % 16
    }
}
