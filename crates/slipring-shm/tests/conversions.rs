//! Each error of segments converts into `slipring::Error`, and loses nothing.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::fmt::Display;

use common::watched;
use slipring::Error;
use slipring::errors::{ClaimError, ErrorKind};
use slipring_shm::{
    Segment, SegmentError,
    errors::{MessageError, PromiseError},
    messages::Messages,
    promises::PromiseSegment,
};

/// Converts an error of a call, and checks its text and kind.
fn convert<X: Display + std::error::Error + 'static>(own: X) -> Error
where
    Error: From<X>,
{
    let text = own.to_string();
    let error = Error::from(own);
    assert_eq!(error.to_string(), text);
    assert!(matches!(error.kind(), ErrorKind::Call(_)), "{error:?}");
    assert!(error.downcast_ref::<X>().is_some() && error.failure().is_none());
    error
}

#[test]
fn the_error_of_a_call_is_kept() {
    let _watched = watched();
    convert::<SegmentError>(slipring_shm::remove("a/b").unwrap_err());
    let segment = Segment::<Messages>::create_memfd("lines").capacity(4).reader("all");
    let segment = segment.build().unwrap();
    // SAFETY: no other process has the memfd.
    let attached = unsafe { segment.attach().unwrap() };
    let mut tx = attached.producer().unwrap();
    let error = convert::<MessageError>(tx.publish(0, &[0; 999]).unwrap_err());
    assert!(error.to_string().contains("larger capacity"), "{error}");
    tx.publish(0, &[0; 200]).unwrap();
    convert::<MessageError>(tx.try_publish(0, &[0; 200]).unwrap_err());
    let segment = PromiseSegment::<u64>::create_memfd("broken").build().unwrap();
    // SAFETY: no other process has the memfd.
    let (promise, mut answer) = unsafe { (segment.promise().unwrap(), segment.awaited().unwrap()) };
    drop(promise);
    convert::<PromiseError>(answer.wait().unwrap_err());
}

#[test]
fn the_failure_of_the_graph_is_found() {
    let _watched = watched();
    let failed = || {
        let (mut tx, rx) = slipring::unicast(8, || 0u64).unwrap();
        drop(rx); // fails the graph
        tx.publish(|_| ()).unwrap_err()
    };
    for error in [
        Error::from(MessageError::Claim(ClaimError::Wait(failed()))),
        Error::from(PromiseError::Ended(failed())),
    ] {
        assert!(matches!(error.kind(), ErrorKind::Failed(_)), "{error:?}");
        assert_eq!(error.stage(), Some("reader"));
    }
}
