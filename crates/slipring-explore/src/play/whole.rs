//! Handlers that are called between events, too.

use std::sync::Arc;

use slipring::{
    At,
    faults::{Fault, Faulted, Verdict},
    stages::{ReadHandler, UpdateHandler},
};

use crate::event::Event;
use crate::oracle::Log;

/// A handler that checks when it is called.
pub struct Whole<H> {
    handle: H,
    life: Life,
}

impl<H> Whole<H> {
    pub fn new(handle: H, log: &Arc<Log>, stage: usize) -> Whole<H> {
        let life = Life { log: log.clone(), stage, begun: 0, ended: 0, last: None };
        Whole { handle, life }
    }
}

/// The calls that a handler got.
struct Life {
    log: Arc<Log>,
    stage: usize,
    begun: u32,
    ended: u32,
    /// Position of its last event.
    last: Option<u64>,
}

impl Life {
    fn starts(&mut self) {
        self.begun += 1;
        self.check("begins", (1, 0));
    }

    fn gets(&mut self, seq: u64) {
        self.check("gets an event", (1, 0));
        self.last = Some(seq);
    }

    fn ends_batch(&mut self, next_seq: u64) {
        self.check("ends a batch", (1, 0));
        if self.last.is_some_and(|last| self.log.place(next_seq) <= self.log.place(last)) {
            let wrong = format!("a batch of s{} ends at {next_seq}", self.stage);
            self.log.violation(format!("{wrong}, behind {:?}", self.last));
        }
    }

    fn idles(&mut self) {
        self.check("is idle", (1, 0));
        if self.log.plan().is_inline() {
            self.log.violation(format!("s{} is idle, although it never waits", self.stage));
        }
    }

    fn stops(&mut self) {
        self.ended += 1;
        self.check("ends", (1, 1));
    }

    fn check(&self, what: &str, calls: (u32, u32)) {
        if calls != (self.begun, self.ended) {
            self.log.violation(format!(
                "the handler of s{} {what} after {} calls of `start` and {} of `stop`",
                self.stage, self.begun, self.ended
            ));
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if self.begun != self.ended {
            self.check("is dropped", (self.begun, self.begun));
        }
    }
}

macro_rules! calls {
    ($trait:ident, $event:ty) => {
        impl<H: FnMut($event, At) -> Result<(), String>> $trait<Event> for Whole<H> {
            fn start(&mut self) -> Result<(), Fault> {
                self.life.starts();
                Ok(())
            }
            fn event(&mut self, event: $event, at: At) -> Result<(), Fault> {
                self.life.gets(at.seq);
                (self.handle)(event, at).map_err(Fault::msg)
            }
            fn batch_end(&mut self, next_seq: u64) -> Result<(), Fault> {
                self.life.ends_batch(next_seq);
                Ok(())
            }
            fn idle(&mut self) -> Result<(), Fault> {
                self.life.idles();
                Ok(())
            }
            fn stop(&mut self) -> Result<(), Fault> {
                self.life.stops();
                Ok(())
            }
        }
    };
}
calls!(ReadHandler, &Event);
calls!(UpdateHandler, &mut Event);

/// The hook for failures that a stage survives.
pub fn survives(log: &Arc<Log>) -> impl Fn(&Faulted) + Send + Sync + 'static {
    let log = log.clone();
    move |fault| {
        log.survived(&fault.stage.to_string(), fault.seq, fault.verdict == Verdict::Skipped);
    }
}
