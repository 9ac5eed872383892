//! Calls of producers within handlers.
//!
//! - I1: Such a call may wait for its own thread, and then says so. No other error is let pass that
//!   nothing explains.

use slipring::{
    Producer,
    errors::{AwaitError, WaitError},
    markers::{Layout, Many},
    stages::PRODUCER,
};

use crate::event::Event;
use crate::oracle::Log;
use crate::plan::{Kind, StagePlan};

/// Publishes one event within a handler, or makes a request there.
pub fn publish_one<L: Layout>(mut producer: Producer<Event, L, Many>, log: &Log) {
    let id = log.begin();
    let single = |stage: &StagePlan| matches!(stage.kind, Kind::Reader | Kind::Writer);
    if id.is_multiple_of(2) && log.plan().stages.iter().all(single) {
        return ask_inside(producer, id, log);
    }
    match producer.publish(|event| event.fill(id)) {
        Ok(seq) => log.published(id, Some(seq)),
        Err(error) => {
            log.unfilled(id);
            // The ring may be closed already, or the call would wait for its own thread.
            if !matches!(error, WaitError::Closed | WaitError::WaitsForItself(_)) {
                log.wait_error(PRODUCER, &error);
            }
        }
    }
}

/// Makes a request within a handler, and waits for the answer, which may wait for that handler.
fn ask_inside<L: Layout>(mut producer: Producer<Event, L, Many>, id: u64, log: &Log) {
    match producer.ask(|event, promise| event.request(id, promise)) {
        Ok(mut awaited) => {
            log.published(id, None);
            let ends = |error: &WaitError| {
                matches!(error, WaitError::Closed | WaitError::WaitsForItself(_))
            };
            while match awaited.wait() {
                Err(AwaitError::Wait(error)) if ends(&error) => false,
                answer => log.answer(id, &answer),
            } {}
        }
        Err(error) => {
            log.unfilled(id);
            if !matches!(error, WaitError::Closed | WaitError::WaitsForItself(_)) {
                log.wait_error(PRODUCER, &error);
            }
        }
    }
}
