//! Observers of a mirror.

use std::time::Duration;

use slipring::{MirrorHandle, ObserveError, Observed};
use slipring_coherence::sync;

use crate::oracle::Log;
use crate::program::Look;

/// Observes a mirror until it is closed, and checks each value.
pub fn observe(mirror: &MirrorHandle<[u64; 3]>, look: Look, log: &Log) {
    let mut observer = mirror.observe();
    let mut last = None;
    loop {
        let found = match look {
            Look::Try => observer.try_next(),
            Look::Latest => observer.latest(),
            Look::By(micros) => observer.next_by(sync::now() + Duration::from_micros(micros)),
            Look::Iterate => observer.next().ok_or(ObserveError::Closed),
        };
        match found {
            Ok(observed) => check(observed, &mut last, log),
            Err(ObserveError::Closed) => return,
            Err(ObserveError::TimedOut) if !matches!(look, Look::By(_)) => {
                log.violation("an observer without a deadline timed out".to_owned());
                return;
            }
            Err(_) => sync::spin_loop(),
        }
    }
}

fn check(observed: Observed<[u64; 3]>, last: &mut Option<u64>, log: &Log) {
    let Observed { seq, value, .. } = observed;
    if value != [value[0]; 3] {
        log.violation(format!("an observer got a torn value at {seq}: {value:x?}"));
    }
    let place = log.place(seq);
    if last.is_some_and(|last| last >= place) {
        log.violation(format!("an observer got {seq} out of order"));
    }
    *last = Some(place);
    log.observed(seq, value[0]);
}
