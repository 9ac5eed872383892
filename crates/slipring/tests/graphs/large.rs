//! Graphs of many stages. A build that visited each path of such a graph would not end.

use slipring::{Graph, stages::ReaderKey};

/// Number of stages of each graph.
const STAGES: usize = 300;

/// A function that returns the stages that a given stage follows.
type Follows = fn(usize) -> Vec<usize>;

/// Graphs of [`STAGES`] stages: each entry has a name, and a function that returns the stages that
/// a stage follows.
const SHAPES: [(&str, Follows); 5] = [
    ("beside each other", |_| Vec::new()),
    ("a chain", |stage| stage.checked_sub(1).into_iter().collect()),
    ("fan-outs of three, one after the other", |stage| {
        let fan_out = stage / 3;
        if fan_out == 0 { Vec::new() } else { (3 * (fan_out - 1)..3 * fan_out).collect() }
    }),
    ("diamonds, one after the other", |stage| match stage % 3 {
        0 if stage == 0 => Vec::new(),
        0 => vec![stage - 2, stage - 1],
        side => vec![stage - side],
    }),
    ("each after all before it", |stage| (0..stage).collect()),
];

/// Where the stages run.
const THREADS: [&str; 4] = ["own", "named", "two named", "shared"];

fn graph(follows: Follows, threads: &str) -> (Graph<'static, u64>, Vec<ReaderKey>) {
    let mut graph = Graph::new(64, || 0u64);
    if threads == "shared" {
        graph = graph.threads(2);
    }
    let mut keys: Vec<ReaderKey> = Vec::new();
    for stage in 0..STAGES {
        let mut key = graph.reader(&format!("stage-{stage}"));
        for earlier in follows(stage) {
            key = key.after(&keys[earlier]);
        }
        keys.push(match threads {
            "named" => key.on("t"),
            "two named" => key.on(if stage % 2 == 0 { "even" } else { "odd" }),
            _ => key,
        });
    }
    (graph, keys)
}

/// Each shape builds, prints itself, reports and handles events on few threads.
#[test]
fn graphs_of_many_stages_build_and_run() {
    let _watched = crate::common::watched();
    for (shape, follows) in SHAPES {
        for threads in THREADS {
            let (graph, keys) = graph(follows, threads);
            let ring = graph.build().unwrap_or_else(|error| panic!("{shape}, {threads}: {error}"));
            assert_eq!(ring.to_string().matches("reads, after").count(), STAGES);
            assert_eq!(ring.report().stages().len(), STAGES + 1); // and the producers
            if threads == "own" {
                continue; // 300 threads would tell nothing more.
            }
            let mut handled = vec![0u64; STAGES];
            let mut handlers = ring.handlers();
            for (key, handled) in keys.into_iter().zip(&mut handled) {
                handlers.read(key, move |_, _| *handled += 1);
            }
            handlers.feed(0..100u64, |slot, i| *slot = i).unwrap();
            assert!(handled.iter().all(|&events| events == 100), "{shape}, {threads}: {handled:?}");
        }
    }
}
