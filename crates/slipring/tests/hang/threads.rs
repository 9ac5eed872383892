//! Threads that the system does not start.

use slipring::{Error, errors::Cause};

use crate::common::{Fragile, ends, quiet};

/// The test runs again in a child process whose threads ask for stacks larger than the machine's
/// memory.
#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn a_thread_that_the_system_refuses_is_an_error() {
    let _watched = crate::common::watched();
    if std::env::var_os("REFUSED").is_none() {
        let test = "threads::a_thread_that_the_system_refuses_is_an_error";
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--test-threads=1", "--nocapture"])
            .envs([("REFUSED", "1"), ("RUST_MIN_STACK", "140737488355328")])
            .output()
            .unwrap();
        assert!(
            child.status.success(),
            "{}{}",
            String::from_utf8_lossy(&child.stdout),
            String::from_utf8_lossy(&child.stderr)
        );
        return;
    }
    quiet();
    let chain = |shared: bool| {
        let (a, b) = (Fragile(true), Fragile(true));
        let chain = slipring::ring(4, || 0u64);
        let chain = if shared { chain.threads(2) } else { chain };
        chain
            .update("first", move |_, _| {
                let _ = &a;
            })
            .read("second", move |_, _| {
                let _ = &b;
            })
    };
    let refused = |error: Error| {
        assert!(matches!(error.failure().unwrap().cause(), Cause::Thread(_)), "{error}");
        assert_eq!(error.stage(), Some("first"));
    };
    for shared in [false, true] {
        refused(chain(shared).feed(0.., |slot, i| *slot = i).unwrap_err());
        refused(chain(shared).run_shared(|p| Ok(p.publish(|_| ()).is_ok())).unwrap_err());
        refused(chain(shared).spawn().map(drop).unwrap_err());
    }
}

/// The closure of `run_inline` waits for an event that a stage must handle first.
#[test]
fn a_closure_of_run_inline_that_waits_for_an_event_runs_the_stages() {
    let _watched = crate::common::watched();
    let seen = ends("a subscription inside of run_inline", || {
        let tap = slipring::Tap::new();
        let mut seen = Vec::new();
        slipring::ring(4, || 0u64)
            .update("double", |value, _| *value *= 2)
            .tap(&tap)
            .run_inline(|p| {
                let mut reader = tap.subscribe(slipring::handles::StartAt::Now)?;
                p.publish(|value| *value = 4)?;
                let batch = reader.batch(1)?;
                seen.extend(batch.iter().copied());
                batch.release();
                Ok(())
            })
            .unwrap();
        seen
    });
    assert_eq!(seen, [8]);
}
