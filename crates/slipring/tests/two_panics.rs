//! Two panics at once end a process. So where user code may panic while the library holds something
//! else of the user's, that is dropped by itself, after the first panic is caught.
//!
//! Each scenario runs in a process of its own, which an abort would end.
#![cfg(not(miri))]

mod common;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Stdio;
use std::sync::Arc;

use common::{PURPOSE, child, ends_well, plays, quiet};
use slipring::{Error, Graph, OnFault, Wait, WaitAction, WaitContext, WaitStrategy};

/// Panics when it is dropped, also while another panic unwinds.
struct Touchy;

impl Drop for Touchy {
    fn drop(&mut self) {
        panic!("dropped {PURPOSE}");
    }
}

/// An error whose drop panics, and its text if that is asked for.
struct TouchyError(Touchy, bool);

impl fmt::Debug for TouchyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("touchy")
    }
}

impl fmt::Display for TouchyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        assert!(!self.1, "shown {PURPOSE}");
        f.write_str("touchy")
    }
}

impl std::error::Error for TouchyError {}

/// A strategy whose drop panics.
struct TouchyWait(Touchy);

impl fmt::Debug for TouchyWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("touchy")
    }
}

impl WaitStrategy for TouchyWait {
    fn idle(&self, _: &WaitContext) -> WaitAction {
        WaitAction::Yield
    }
    fn parks(&self) -> bool {
        false
    }
    fn alias(&self) -> String {
        "touchy".into()
    }
}

fn touchy_wait() -> Wait {
    Wait::Custom(Arc::new(TouchyWait(Touchy)))
}

/// Runs a scenario in a process of its own, under the name of the test that calls this.
fn survives(test: &str, scenario: impl FnOnce()) {
    if plays(test) {
        quiet();
        return scenario();
    }
    ends_well(test, child(test, Stdio::inherit()));
}

#[test]
fn a_hook_that_panics_while_an_error_is_held() {
    let _watched = crate::common::watched();
    survives("a_hook_that_panics_while_an_error_is_held", || {
        let ended = |shows: bool, hook: fn(&slipring::Faulted)| -> Result<(), Error> {
            slipring::ring(8, || 0u64)
                .on_faults(hook)
                .read("stage", move |_, _| Err::<(), _>(TouchyError(Touchy, shows)))
                .on_error(OnFault::skip())
                .feed(0..1, |slot, i| *slot = i)
                .map(drop)
        };
        // The hook, the error's text, and last the error's drop alone.
        for (shows, hook, says) in [
            (false, (|_| panic!("hooked {PURPOSE}")) as fn(&slipring::Faulted), "hooked"),
            (true, |_| (), "shown"),
            (false, |_| (), "dropped"),
        ] {
            let error = catch_unwind(AssertUnwindSafe(|| ended(shows, hook)))
                .expect("no panic leaves `feed`")
                .expect_err("a failure");
            let said = error.to_string();
            assert!(
                said.contains("stage") && said.contains(&format!("{says} {PURPOSE}")),
                "{said}"
            );
        }
    });
}

#[test]
fn a_strategy_that_is_refused() {
    let _watched = crate::common::watched();
    survives("a_strategy_that_is_refused", || {
        let graph = Graph::new(8, || 0u64);
        // Its name keeps the panic out of the output.
        let key = graph.reader(&format!("refused {PURPOSE}"));
        let _ring = graph.build().expect("a graph");
        let panic = catch_unwind(AssertUnwindSafe(|| key.wait(touchy_wait())))
            .expect_err("the graph was built already");
        let said = panic.downcast_ref::<String>().expect("a message");
        assert!(said.contains("refused") && said.contains("built already"), "{said}");

        let chain =
            catch_unwind(AssertUnwindSafe(|| slipring::ring(8, || 0u64).stage_wait(touchy_wait())));
        let error = chain
            .expect("no panic leaves `stage_wait`")
            .run(|_| Ok(()))
            .expect_err("no stage to wait for");
        assert!(error.to_string().contains("stage_wait"), "{error}");
    });
}
