//! Observers of a mirror.

use std::time::Duration;

use slipring::{
    errors::ObserveError,
    handles::{MirrorHandle, Observed},
    waiting::WaitStrategy as _,
};
use slipring_coherence::sync;

use super::handles::poll_some;
use crate::oracle::Log;
use crate::plan::Waits;
use crate::program::{Look, Observes};

/// Observes a mirror until it is closed, and checks each value.
pub fn observe(mirror: &MirrorHandle<[u64; 3]>, stage: usize, how: Observes, log: &Log) {
    let Observes { look, oldest, wait } = how;
    let mut observer = if oldest { mirror.observe_from_oldest() } else { mirror.observe() };
    let mut may_time_out = matches!(look, Look::By(_));
    if let Some(wait) = wait.map(Waits::strategy) {
        may_time_out |= look == Look::Newest && wait.timeout().is_some();
        observer = observer.wait(wait);
    }
    let mut last = None;
    loop {
        let found = match look {
            Look::Try => observer.try_next(),
            Look::Latest => observer.try_latest(),
            Look::By(micros) => observer.next_by(sync::now() + Duration::from_micros(micros)),
            Look::Newest => observer.latest(),
            Look::Iterate => observer.next().ok_or(ObserveError::Closed),
            Look::Task(polls) => poll_some(observer.next_async(), polls, &mut false)
                .unwrap_or(Err(ObserveError::Unavailable)),
        };
        match found {
            Ok(observed) => check(observed, stage, &mut last, log),
            Err(ObserveError::Closed) => return,
            Err(ObserveError::TimedOut) if !may_time_out => {
                log.violation("an observer without a deadline timed out".to_owned());
                return;
            }
            Err(_) => sync::spin_loop(),
        }
    }
}

fn check(observed: Observed<[u64; 3]>, stage: usize, last: &mut Option<u64>, log: &Log) {
    let Observed { seq, value, missed, .. } = observed;
    if value != [value[0]; 3] {
        log.violation(format!("an observer got a torn value at {seq}: {value:x?}"));
    }
    let is_behind = |last: u64| log.place(last) >= log.place(seq);
    match *last {
        Some(last) if is_behind(last) => {
            log.violation(format!("an observer got {seq} out of order"));
        }
        Some(last) => log.missed(stage, last, seq, missed),
        None => {}
    }
    *last = Some(seq);
    log.observed(seq, value[0]);
}
