//! The durability that sinks report, and the streams that they refuse because of it.

#[path = "common/checks.rs"]
mod checks;
mod common;

use checks::refused;
use common::*;
use serde_json::json;
use slipring_nats::{Durability, Error, Server as At, Sink, StreamSettings};
use slipring_nats_server::{Client, Options, Server, free_port};

/// Starts a server with a system account. Returns `None` if the server's program is not installed.
fn server_with_system(options: Options) -> Option<Server> {
    has_server().then(|| Server::start(options.system_account()).unwrap())
}

/// A user of the system account.
fn system(server: &Server) -> At {
    At::at(server.url()).user("sys", "sys")
}

/// Returns the durability of a new stream with these settings.
#[track_caller]
fn durability(sink: Sink) -> Durability {
    let open = sink.open(numbers()).unwrap();
    let durability = open.durability();
    let (tx, running) = start(open, 8);
    assert_eq!(running.durability(), durability);
    tx.close();
    running.join().unwrap();
    durability
}

#[test]
fn storage_and_the_servers_settings_say_what_holds() {
    let _watched = watched();
    let Some(server) = server_with_system(Options::new()) else { return };
    let file = || sink(&server.url());
    let memory = || {
        Sink::to(At::at(server.url()), "MEMORY").create(StreamSettings::new("memory").in_memory())
    };
    assert_eq!(durability(file()), Durability::Process);
    assert_eq!(durability(memory()), Durability::Memory);
    assert_eq!(durability(file().confirm_power()), Durability::Power);
    assert_eq!(durability(memory().confirm_power()), Durability::Memory);
    assert_eq!(durability(file().check_power(system(&server))), Durability::Process);
    for (sink, required) in [
        (file(), Durability::Process),
        (file(), Durability::Memory),
        (memory(), Durability::Memory),
        (file().confirm_power(), Durability::Power),
    ] {
        sink.require(required).open(numbers()).unwrap();
    }
    for required in [Durability::Process, Durability::Power] {
        for sink in [memory(), memory().confirm_power(), memory().check_power(system(&server))] {
            let error = sink.require(required).open(numbers()).unwrap_err();
            refused!(error, Error::NotDurable { .. }, "MEMORY", "use file storage");
        }
    }
    let power = || file().require(Durability::Power);
    refused!(
        power().open(numbers()).unwrap_err(),
        Error::NotDurable { .. },
        "Sink::check_power",
        "Sink::confirm_power"
    );
    refused!(
        power().check_power(system(&server)).open(numbers()).unwrap_err(),
        Error::NotDurable { .. },
        "sync_interval: always",
        "Durability::Process"
    );
}

#[test]
fn a_server_that_always_syncs_is_found_by_the_check() {
    let _watched = watched();
    let Some(server) = server_with_system(Options::new().sync_always()) else { return };
    let checked = sink(&server.url()).check_power(system(&server));
    assert_eq!(durability(checked.clone()), Durability::Power);
    assert_eq!(durability(checked.require(Durability::Power)), Durability::Power);
    // Without the check, the sink does not know whether the servers sync.
    assert_eq!(durability(sink(&server.url())), Durability::Process);
}

#[test]
fn a_stream_that_is_written_after_its_acknowledgements_counts_as_memory() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let config = json!({ "name": STREAM, "subjects": [SUBJECT], "persist_mode": "async" });
    client(&server).create_stream(config).unwrap();
    assert_eq!(durability(sink(&server.url())), Durability::Memory);
    let error = sink(&server.url()).require(Durability::Process).open(numbers()).unwrap_err();
    refused!(error, Error::NotDurable { .. }, STREAM, "persist_mode");
}

#[test]
fn a_refused_sink_leaves_the_stream_to_the_one_that_writes_it() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let (mut tx, running) = start(sink(&server.url()).open(numbers()).unwrap(), 64);
    feed(&mut tx, 100).unwrap();
    sink(&server.url()).require(Durability::Power).open(numbers()).unwrap_err();
    feed(&mut tx, 200).unwrap();
    tx.close();
    assert_eq!(running.join().unwrap().acknowledged, 200);
}

#[test]
fn a_check_that_cannot_be_made_is_an_error() {
    let _watched = watched();
    let Some(server) = server_with_system(Options::new()) else { return };
    let checked = |at: At| sink(&server.url()).check_power(at).open(numbers()).unwrap_err();
    // A user of another account.
    refused!(
        checked(At::at(server.url())),
        Error::NotDurable { .. },
        server.url(),
        "user of the system account",
        "Sink::confirm_power"
    );
    let guess = At::at(server.url()).user("sys", "guess");
    refused!(checked(guess), Error::Denied { .. }, server.url(), "check the credentials");
    let nowhere = format!("nats://127.0.0.1:{}", free_port().unwrap());
    refused!(checked(At::at(&nowhere)), Error::Unreachable { .. }, nowhere, "check the address");
    let mut client = Client::connect(server.port(), None).unwrap();
    assert!(client.messages(STREAM).unwrap().is_empty(), "no sink has begun");
}
