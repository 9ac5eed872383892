//@ writes: publish by one handle on two threads
//@ says: borrow of moved value: `tx`
//@ says: value moved into closure here
//@ page: a shared ring (`spawn_shared`, `run_shared`, `Graph::shared`), and a clone for each thread
fn main() {
    let graph = slipring::Graph::new(8, || 0u64);
    let _log = graph.reader("log");
    let mut tx = graph.build().unwrap().producer();
    std::thread::spawn(move || tx.publish(|slot| *slot = 1));
    tx.publish(|slot| *slot = 2).unwrap();
}
