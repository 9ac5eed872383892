//! Joining and dropping pipelines.

use std::sync::mpsc;
use std::time::Duration;

use slipring::{Wait, errors::JoinError};

use crate::common::{LIMIT, Oops, ends};

#[test]
fn joining_a_pipeline_waits_for_its_stages() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        ends(&format!("join, {wait}"), move || {
            let (open, gate) = mpsc::channel::<()>();
            let (mut tx, pipeline) = slipring::ring(4, || 0u64)
                .wait(wait.clone())
                .update("quick", |v, _| *v += 1)
                .read("slow", move |_, _| gate.recv())
                .spawn()
                .unwrap();
            assert_eq!(format!("{pipeline:?}"), r#"["quick", "slow"]"#);
            let still = |error: JoinError, name: &str| {
                assert!(
                    matches!(&error, JoinError::StillRunning { stage, .. } if &**stage == name),
                    "{error}"
                );
                assert!(error.to_string().contains("still running"));
            };
            still(pipeline.join_within(Duration::ZERO).unwrap_err(), "quick");
            tx.publish(|_| ()).unwrap();
            tx.close();
            // `quick` ends soon, `slow` waits for its gate.
            loop {
                match pipeline.join_within(Duration::from_millis(1)).unwrap_err() {
                    JoinError::StillRunning { stage, .. } if &*stage == "quick" => {}
                    other => break still(other, "slow"),
                }
            }
            open.send(()).unwrap();
            let report = pipeline.join_within(Duration::MAX).unwrap();
            assert_eq!(report.stage("slow").unwrap().events, 1);
            // A second call returns the same report.
            assert_eq!(
                pipeline.join_within(Duration::ZERO).unwrap().stage("quick").unwrap().events,
                1
            );
            assert_eq!(pipeline.join().unwrap().producer().events, 1);

            let (tx, pipeline) = slipring::ring(4, || 0u64)
                .wait(wait)
                .read("r", |_, _| Err(Oops(3)))
                .spawn()
                .unwrap();
            let mut tx = tx;
            while tx.publish(|_| ()).is_ok() {}
            let error = pipeline.join_within(LIMIT).unwrap_err();
            let JoinError::Failed(error) = error else { panic!("{error}") };
            assert_eq!(error.downcast_ref::<Oops>(), Some(&Oops(3)));
            assert_eq!(pipeline.join().unwrap_err().seq(), Some(0));
        });
    }
    // `join_within` does not wait for destructors of thread-local values. The destructor here runs
    // until the scenario ends.
    ends("a slow destructor", || {
        struct Slow(mpsc::Receiver<()>);
        impl Drop for Slow {
            fn drop(&mut self) {
                let _ = self.0.recv_timeout(LIMIT);
            }
        }
        thread_local!(static SLOW: std::cell::Cell<Option<Slow>> = const { std::cell::Cell::new(None) });
        let (open, gate) = mpsc::channel();
        let mut gate = Some(Slow(gate));
        let (mut tx, pipeline) = slipring::ring(4, || 0u64)
            .read("r", move |_, _| SLOW.set(gate.take()))
            .spawn()
            .unwrap();
        tx.publish(|_| ()).unwrap();
        tx.close();
        assert_eq!(pipeline.join_within(Duration::MAX).unwrap().stage("r").unwrap().events, 1);
        drop(open);
        pipeline.join().unwrap();
    });
    // The stages of a dropped pipeline continue.
    ends("a dropped pipeline", || {
        let (sender, receiver) = mpsc::channel();
        let (mut tx, pipeline) =
            slipring::ring(4, || 0u64).read("r", move |v, _| sender.send(*v)).spawn().unwrap();
        drop(pipeline);
        tx.publish_all(0..20, |slot, i| *slot = i).unwrap();
        drop(tx);
        assert_eq!(receiver.iter().collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
    });
}
