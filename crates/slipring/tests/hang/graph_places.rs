//! Runs the scenarios of `places.rs` as graphs. The stages are those of the chain, and the library
//! runs their handlers.

use std::sync::Arc;

use slipring::{
    Error, Graph,
    handles::{Events, EventsMut},
    stages::{Handlers, PoolReaderKey, PoolUpdaterKey, ReaderKey, UpdaterKey},
};

use crate::CAPACITY;
use crate::common::Fragile;
use crate::places::{Ev, FailingHandler, Scenario, Spot::*, factory, hook};

/// The key of the stage that fails.
enum Failing {
    Reader(ReaderKey),
    Updater(UpdaterKey),
    PoolReader(PoolReaderKey),
    PoolUpdater(PoolUpdaterKey),
}

/// Builds the graph of a scenario, and gives its stages their handlers: `before`, then `x`, alone
/// or beside another reader, then `after`.
pub fn handlers(scenario: &Arc<Scenario>) -> Result<Handlers<'static, Ev>, Error> {
    let spot = scenario.spot();
    let graph = Graph::new(CAPACITY, factory(scenario)).wait(scenario.wait());
    let graph = if scenario.shares_threads() { graph.threads(2) } else { graph };
    let before = graph.updater("before");
    let x = match spot {
        Write | WriteBatch | WriteStart | WriteEvent | WriteBatchEnd | WriteStop => {
            Failing::Updater(graph.updater("x").after(&before))
        }
        WritePool | WorkerFactory | WorkerDrop => {
            Failing::PoolUpdater(graph.pool_updater("x", 3).after(&before))
        }
        ReadPool => Failing::PoolReader(graph.pool_reader("x", 3).after(&before)),
        _ => Failing::Reader(graph.reader("x").after(&before)),
    };
    let reads = matches!(x, Failing::Reader(_) | Failing::PoolReader(_));
    let beside = reads.then(|| graph.reader("beside").after(&before));
    let after = graph.reader("after");
    let after = match &x {
        Failing::Reader(x) => after.after(x),
        Failing::Updater(x) => after.after(x),
        Failing::PoolReader(x) => after.after(x),
        Failing::PoolUpdater(x) => after.after(x),
    };
    let after = match &beside {
        Some(beside) => after.after(beside),
        None => after,
    };

    let mut handlers = graph.build()?.handlers();
    handlers.on_thread_start(hook(scenario));
    handlers.update(before, |ev, at| assert_eq!(ev.value, at.seq));
    give_handler(&mut handlers, x, scenario);
    if let Some(beside) = beside {
        handlers.read(beside, |ev, at| assert_eq!(ev.value, at.seq));
    }
    handlers.read(after, |ev, at| assert_eq!(ev.value, at.seq));
    Ok(handlers)
}

/// Gives the stage `x` its handler, which fails at the scenario's place.
fn give_handler(handlers: &mut Handlers<'static, Ev>, x: Failing, scenario: &Arc<Scenario>) {
    let (spot, s) = (scenario.spot(), scenario.clone());
    let fragile = Fragile(spot == HandlerDrop);
    match x {
        Failing::Reader(x) if spot == ReadBatch => handlers
            .read_batch(x, move |events: &Events<'_, Ev>, first| {
                s.events(ReadBatch, first, events.len() as u64)
            }),
        Failing::Reader(x) if matches!(spot, ReadStart | ReadEvent | ReadBatchEnd | ReadStop) => {
            handlers.read_with(x, FailingHandler(s))
        }
        Failing::Reader(x) => handlers.read(x, move |_, at| {
            let _captured = &fragile;
            s.event(Read, at.seq)
        }),
        Failing::Updater(x) if spot == Write => {
            handlers.update(x, move |_, at| s.event(Write, at.seq))
        }
        Failing::Updater(x) if spot == WriteBatch => {
            handlers.update_batch(x, move |events: &mut EventsMut<'_, Ev>, first| {
                s.events(WriteBatch, first, events.len() as u64)
            })
        }
        Failing::Updater(x) => handlers.update_with(x, FailingHandler(s)),
        Failing::PoolReader(x) => handlers.read_pool(x, move |_| {
            let s = s.clone();
            move |_: &Ev, at| s.event(ReadPool, at.seq)
        }),
        Failing::PoolUpdater(x) => handlers.update_pool(x, move |worker| {
            let fragile = s.makes_worker(worker);
            let s = s.clone();
            move |_: &mut Ev, at| {
                let _captured = &fragile;
                s.event(WritePool, at.seq)
            }
        }),
    };
}
