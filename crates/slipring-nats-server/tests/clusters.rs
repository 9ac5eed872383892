//! A cluster elects leaders, and continues without one of its servers.

mod common;

use std::time::Duration;

use serde_json::json;
use slipring_nats_server::{Client, Cluster};

#[test]
fn a_cluster_survives_the_loss_of_a_leader() {
    let _watched = common::watched();
    if !common::has_server() {
        return;
    }
    let mut cluster = Cluster::of_three().unwrap();
    assert_eq!((cluster.servers().len(), cluster.urls().len()), (3, 3));
    assert!(cluster.meta_leader().unwrap() < 3);
    let mut client = Client::connect(cluster.servers()[0].port(), None).unwrap();
    let config = json!({ "name": "S", "subjects": ["s"], "num_replicas": 3 });
    client.create_stream(config).unwrap();
    let first = cluster.wait_for_leader("S").unwrap();
    assert_eq!(cluster.leader_of("S").unwrap(), first);
    for number in 1..=100_u64 {
        let (seq, _) = client.publish_acknowledged("s", None, &number.to_le_bytes()).unwrap();
        assert_eq!(seq, number);
    }
    cluster.kill(first).unwrap();
    let second = cluster.wait_for_leader("S").unwrap();
    assert_ne!(first, second);
    let mut client = cluster.client().unwrap();
    assert_eq!(client.publish_acknowledged("s", None, b"last").unwrap(), (101, false));
    cluster.restart(first).unwrap();
    cluster.wait_for_replicas("S").unwrap();
    let messages = cluster.client().unwrap().messages("S").unwrap();
    assert_eq!(messages.len(), 101);
    assert!(messages[..100].iter().all(|message| message.payload == message.seq.to_le_bytes()));
    cluster.client().unwrap().step_down("S").unwrap();
    cluster.wait_for_leader("S").unwrap();
}

/// An isolated leader acknowledges nothing, the others elect another one, and all agree in the end.
#[test]
fn a_cluster_survives_the_isolation_of_a_leader() {
    let _watched = common::watched();
    if !common::has_server() {
        return;
    }
    let mut cluster = Cluster::with_links().unwrap();
    let config = json!({ "name": "S", "subjects": ["s"], "num_replicas": 3 });
    cluster.client().unwrap().create_stream(config).unwrap();
    let first = cluster.wait_for_leader("S").unwrap();
    cluster.isolate(first);
    let mut client = Client::connect(cluster.servers()[first].port(), None).unwrap();
    let answer = client.request("s", b"isolated", Duration::from_secs(1));
    assert!(answer.is_err(), "it has no majority, and acknowledges: {answer:?}");
    let second = cluster.wait_for_leader("S").unwrap();
    assert_ne!(first, second);
    let mut client = cluster.client().unwrap();
    assert_eq!(client.publish_acknowledged("s", None, b"kept").unwrap(), (1, false));
    cluster.heal(fastrand::bool());
    cluster.wait_for_replicas("S").unwrap();
    let messages = cluster.client().unwrap().messages("S").unwrap();
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].payload, b"kept");
}
