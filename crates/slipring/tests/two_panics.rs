//! Two panics at once abort a process. So where user code may panic while the library owns another
//! value of the user's, the library catches the panic first and drops that value afterwards.
//!
//! Each scenario runs in a child process, because an abort would end the process.
#![cfg(not(miri))]

mod common;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Stdio;
use std::sync::Arc;

use common::{PURPOSE, child, ends_well, plays, quiet};
use slipring::{
    Error, Graph, OnFault, Wait,
    waiting::{WaitAction, WaitContext, WaitStrategy},
};

/// A value whose drop panics, even while another panic is unwinding.
struct Touchy;

impl Drop for Touchy {
    fn drop(&mut self) {
        panic!("dropped {PURPOSE}");
    }
}

/// An error whose drop panics, and whose `Display` panics if the flag is set.
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
    fn next_action(&self, _: &WaitContext) -> WaitAction {
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

/// Runs a scenario in a child process. `test` is the name of the calling test.
fn survives(test: &str, scenario: impl FnOnce()) {
    if plays(test) {
        quiet();
        return scenario();
    }
    ends_well(test, child(test, Stdio::inherit()));
}

#[test]
fn a_hook_that_panics_before_its_errors_drop_panics_does_not_abort() {
    let _watched = crate::common::watched();
    survives("a_hook_that_panics_before_its_errors_drop_panics_does_not_abort", || {
        let ended = |shows: bool, hook: fn(&slipring::faults::Faulted)| -> Result<(), Error> {
            slipring::ring(8, || 0u64)
                .on_faults(hook)
                .read("stage", move |_, _| Err::<(), _>(TouchyError(Touchy, shows)))
                .on_error(OnFault::skip())
                .feed(0..1, |slot, i| *slot = i)
                .map(drop)
        };
        // In the first two cases, the hook or the error's text panics, and then the error's drop.
        // In the last case, only the drop panics.
        for (shows, hook, cause) in [
            (false, (|_| panic!("hooked {PURPOSE}")) as fn(&slipring::faults::Faulted), "hooked"),
            (true, |_| (), "shown"),
            (false, |_| (), "dropped"),
        ] {
            let error = catch_unwind(AssertUnwindSafe(|| ended(shows, hook)))
                .expect("no panic leaves `feed`")
                .expect_err("a failure");
            let text = error.to_string();
            assert!(
                text.contains("stage") && text.contains(&format!("{cause} {PURPOSE}")),
                "{text}"
            );
        }
    });
}

#[test]
fn a_refused_strategy_whose_drop_panics_does_not_abort() {
    let _watched = crate::common::watched();
    survives("a_refused_strategy_whose_drop_panics_does_not_abort", || {
        let graph = Graph::new(8, || 0u64);
        // Panics whose text contains [`PURPOSE`] stay out of the output, so the stage's name
        // contains it.
        let key = graph.reader(&format!("refused {PURPOSE}"));
        let _ring = graph.build().expect("a graph");
        let panic = catch_unwind(AssertUnwindSafe(|| key.wait(touchy_wait())))
            .expect_err("the graph was built already");
        let text = panic.downcast_ref::<String>().expect("a message");
        assert!(text.contains("refused") && text.contains("built already"), "{text}");

        let chain =
            catch_unwind(AssertUnwindSafe(|| slipring::ring(8, || 0u64).stage_wait(touchy_wait())));
        let error = chain
            .expect("no panic leaves `stage_wait`")
            .run(|_| Ok(()))
            .expect_err("no stage to wait for");
        assert!(error.to_string().contains("stage_wait"), "{error}");
    });
}

#[test]
fn a_handler_for_a_foreign_key_whose_drop_panics_does_not_abort() {
    let _watched = crate::common::watched();
    survives("a_handler_for_a_foreign_key_whose_drop_panics_does_not_abort", || {
        let foreign = || {
            let graph = Graph::new(8, || 0u64);
            // Panics whose text contains [`PURPOSE`] stay out of the output, so the stage's name
            // contains it.
            let (one, pool) =
                (graph.reader(PURPOSE), graph.pool_reader(&format!("pool {PURPOSE}"), 1));
            (one, pool, graph.build().expect("a graph"))
        };
        let (one, pool, _theirs) = foreign();
        let (_one, _pool, ring) = foreign();
        let mut handlers = ring.handlers();
        let touchy = Touchy;
        let refused = catch_unwind(AssertUnwindSafe(|| {
            handlers.read(one, move |_, _| {
                let _captured = &touchy;
            });
        }));
        assert!(refused.is_err());
        let touchy = Touchy;
        let refused = catch_unwind(AssertUnwindSafe(|| {
            handlers.read_pool(pool, move |_| {
                let _captured = &touchy;
                |_: &u64, _| ()
            });
        }));
        assert!(refused.is_err());
    });
}
