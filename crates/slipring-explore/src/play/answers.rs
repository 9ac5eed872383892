//! Requests: waiting for their answers, and what may be learnt instead.

use std::time::Duration;

use slipring::segment::SegmentRequest;
use slipring::{
    Awaited,
    errors::{AwaitError, WaitError},
    stages::PRODUCER,
};
use slipring_coherence::sync;

use super::handles::poll_some;
use crate::oracle::deaths::Told;
use crate::oracle::{Log, goes_on};
use crate::plan::Answer;

/// Waits for the answer to a request, or does without. `goes_on`: checks an answer, and returns
/// whether another one may come.
pub fn await_answer(
    mut awaited: Awaited<u64>,
    how: Answer,
    goes_on: impl Fn(&Result<u64, AwaitError>) -> bool,
) {
    loop {
        let answer = match how {
            Answer::Wait => awaited.wait(),
            Answer::For(micros) => awaited.wait_for(Duration::from_micros(micros)),
            Answer::Task => {
                poll_some(&mut awaited, 0, &mut false).expect("it polls until it is done")
            }
            Answer::Try => match awaited.try_take() {
                Ok(None) => {
                    sync::spin_loop();
                    continue;
                }
                Ok(Some(value)) => Ok(value),
                Err(error) => Err(error),
            },
            Answer::Drop => return,
        };
        if !goes_on(&answer) {
            return;
        }
        sync::spin_loop();
    }
}

/// Waits until the last stage has handled the event of a request in a segment, and so has answered
/// it, or will not.
pub fn await_request(mut request: SegmentRequest, id: u64, how: Answer, log: &Log) -> bool {
    let mut told = Told::default();
    loop {
        let ended = match how {
            Answer::Try => request.poll(),
            _ => request.check(),
        };
        // No stage passes an event before the log knows.
        let answered = log.is_answered(id);
        match ended {
            None | Some(WaitError::Closed) if answered => return true,
            None => told.refused(log, log.plan().stages.len()),
            Some(WaitError::Closed) => {
                log.violation(format!("request {id:x} counts as passed, and was not handled"));
                return true;
            }
            Some(error) => {
                told.found();
                log.wait_error(PRODUCER, &error);
                if !goes_on(&error) {
                    return false;
                }
                sync::sleep(request.notice());
            }
        }
    }
}
