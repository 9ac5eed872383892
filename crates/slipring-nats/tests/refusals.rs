//! Servers, users and streams that a sink or a source cannot use. Each error is one line that says
//! what to do.

#[path = "common/checks.rs"]
mod checks;
mod common;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use checks::refused;
use common::*;
use serde_json::{Value, json};
use slipring_nats::{Decoding, Encoding, Error, Server as At, Sink, Source, StreamSettings};
use slipring_nats_server::{Client, Options, Server, free_port};

/// Opens a sink to the tests' stream, and returns its error.
#[track_caller]
fn sink_error(at: At) -> Error {
    Sink::to(at, STREAM).create(StreamSettings::new(SUBJECT)).open(numbers()).unwrap_err()
}

/// Opens a source, and returns its error.
#[track_caller]
fn source_error(at: At) -> Error {
    Source::of(at, STREAM).open().unwrap_err()
}

/// Returns the address of a listener that calls `behaviour` with its first client, and the
/// listener's thread.
fn port(behaviour: impl FnOnce(TcpStream) + Send + 'static) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("nats://{}", listener.local_addr().unwrap());
    (url, std::thread::spawn(move || behaviour(listener.accept().unwrap().0)))
}

#[test]
fn no_server_at_the_address() {
    let _watched = watched();
    let port = free_port().unwrap();
    let url = format!("nats://127.0.0.1:{port}");
    for error in [sink_error(At::at(&url)), source_error(At::at(&url))] {
        refused!(error, Error::Unreachable { .. }, url, "refused", "check the address");
    }
    let both = At::at(&url).or_at("nats://127.0.0.1:1");
    refused!(
        sink_error(both),
        Error::Unreachable { .. },
        url,
        "nats://127.0.0.1:1",
        "check the address"
    );
}

#[test]
fn an_address_that_is_none() {
    let _watched = watched();
    for url in ["", "nats://", "no address", "127.0.0.1:many", "http://127.0.0.1:4222"] {
        refused!(sink_error(At::at(url)), Error::Unreachable { .. }, url, "check the address");
    }
}

#[test]
fn a_password_in_an_address_is_not_shown() {
    let _watched = watched();
    let error = sink_error(At::at("nats://writer:secret@127.0.0.1:1"));
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    refused!(error, Error::Unreachable { .. }, "nats://127.0.0.1:1", "check the address");
}

#[test]
fn a_login_in_an_address() {
    let _watched = watched();
    if !has_server() {
        return;
    }
    let open = |url: String| {
        let sink = Sink::to(At::at(url), STREAM).create(StreamSettings::new(SUBJECT));
        sink.open(numbers()).map(drop)
    };
    let server = Server::start(Options::new().user("writer", "se:cr@t/%")).unwrap();
    let host = server.url().replace("nats://", "");
    open(format!("nats://writer:se%3Acr%40t%2F%25@{host}")).unwrap();
    open(format!("writer:se:cr@t/%25@{host}")).unwrap();
    for (login, part) in [("writer:guess", "check the credentials"), ("guess", "credentials")] {
        let error = open(format!("nats://{login}@{host}")).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("guess"), "{error:?}");
        refused!(error, Error::Denied { .. }, server.url(), part);
    }
    let error = open(format!("nats://writer:gu%ss@{host}")).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("gu%ss"), "{error:?}");
    refused!(error, Error::Option { .. }, "%", "Server::user");
    // A login that is set by a call replaces the login in the address.
    let chosen = At::at(format!("nats://writer:guess@{host}")).user("writer", "se:cr@t/%");
    Source::of(chosen, STREAM).open().unwrap();
    let two = At::at(format!("nats://a:b@{host}")).or_at(format!("nats://c:d@{host}"));
    refused!(sink_error(two), Error::Option { .. }, "different logins", "Server::user");

    let server = Server::start(Options::new().token("secret")).unwrap();
    open(server.url().replace("nats://", "nats://secret@")).unwrap();
}

/// The test takes five seconds, the time limit of a connection attempt.
#[test]
fn a_port_that_is_silent() {
    let _watched = watched();
    let (url, silent) = port(|mut client| {
        let _ = client.read(&mut [0]); // until the sink gives up
    });
    refused!(sink_error(At::at(&url)), Error::Unreachable { .. }, url, "check the address");
    silent.join().unwrap();
}

#[test]
fn a_port_that_says_something_else() {
    let _watched = watched();
    for answer in ["HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-x\r\n", "INFO {\r\n", "\r\n"] {
        let (url, other) = port(move |mut client| {
            client.write_all(answer.as_bytes()).unwrap();
            let _ = client.read(&mut [0]);
        });
        refused!(sink_error(At::at(&url)), Error::Unreachable { .. }, url, "check the address");
        other.join().unwrap();
    }
}

#[test]
fn a_port_that_closes() {
    let _watched = watched();
    let (url, closing) = port(drop);
    refused!(sink_error(At::at(&url)), Error::Unreachable { .. }, url, "check the address");
    closing.join().unwrap();
}

#[test]
fn a_server_without_jetstream() {
    let _watched = watched();
    if !has_server() {
        return;
    }
    let server = Server::start(Options::new().jetstream(false)).unwrap();
    for error in [sink_error(At::at(server.url())), source_error(At::at(server.url()))] {
        refused!(error, Error::NoJetStream { .. }, server.url(), "-js");
    }
}

#[test]
fn an_account_without_jetstream() {
    let _watched = watched();
    if !has_server() {
        return;
    }
    let accounts = "accounts { PLAIN { users: [{ user: p, password: p }] }\n\
                    JS { jetstream: enabled, users: [{ user: j, password: j }] } }";
    let server = Server::start(Options::new().extra(accounts)).unwrap();
    let plain = At::at(server.url()).user("p", "p");
    for error in [sink_error(plain.clone()), source_error(plain)] {
        refused!(
            error,
            Error::NoJetStream { .. },
            server.url(),
            "enable JetStream for the account"
        );
    }
    let able = At::at(server.url()).user("j", "j");
    Sink::to(able, STREAM).create(StreamSettings::new(SUBJECT)).open(numbers()).unwrap();
}

#[test]
fn a_user_with_a_wrong_password_or_without_one() {
    let _watched = watched();
    if !has_server() {
        return;
    }
    let server = Server::start(Options::new().user("writer", "secret")).unwrap();
    let at = || At::at(server.url());
    for wrong in [at(), at().user("writer", "guess"), at().user("", ""), at().token("secret")] {
        for error in [sink_error(wrong.clone()), source_error(wrong.clone())] {
            assert!(!format!("{error:?}").contains("guess"));
            refused!(error, Error::Denied { .. }, server.url(), "check the credentials");
        }
    }
    let right = Sink::to(at().user("writer", "secret"), STREAM);
    right.create(StreamSettings::new(SUBJECT)).open(numbers()).unwrap();
}

#[test]
fn a_wrong_token_or_none() {
    let _watched = watched();
    if !has_server() {
        return;
    }
    let server = Server::start(Options::new().token("secret")).unwrap();
    for wrong in [At::at(server.url()), At::at(server.url()).token("guess")] {
        let error = sink_error(wrong);
        refused!(error, Error::Denied { .. }, server.url(), "check the credentials");
    }
    let right = Sink::to(At::at(server.url()).token("secret"), STREAM);
    right.create(StreamSettings::new(SUBJECT)).open(numbers()).unwrap();
}

#[test]
fn seeds_and_credentials_that_are_none() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let file = server.dir().join("missing.creds");
    refused!(
        sink_error(At::at(server.url()).credentials(&file)),
        Error::Option { .. },
        "missing.creds",
        "Server::credentials"
    );
    std::fs::write(&file, "no credentials").unwrap();
    refused!(
        sink_error(At::at(server.url()).credentials(&file)),
        Error::Option { .. },
        "missing.creds",
        "Server::credentials"
    );
    let nkeys = "authorization { users: [\
                 { nkey: UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4 }] }";
    let server = Server::start(Options::new().extra(nkeys)).unwrap();
    let error = sink_error(At::at(server.url()).nkey("SUno-seed"));
    assert!(!format!("{error} {error:?}").contains("SUno-seed"));
    refused!(error, Error::Denied { .. }, server.url(), "check the credentials");
}

/// A server whose user may use all subjects except for `denied`.
fn restricted(denied: &str) -> Server {
    let users = format!(
        "authorization {{ users: [{{ user: w, password: w, permissions: {{ {denied} }} }},\n\
         {{ user: all, password: all }}] }}"
    );
    Server::start(Options::new().extra(&users)).unwrap()
}

#[test]
fn a_user_who_may_not_ask_jetstream() {
    let _watched = watched();
    if !has_server() {
        return;
    }
    let server = restricted("publish: { deny: \"$JS.API.>\" }");
    let error = sink_error(At::at(server.url()).user("w", "w"));
    refused!(error, Error::Denied { .. }, server.url(), "$JS.API.STREAM.INFO", "permissions");
}

#[test]
fn a_user_who_may_not_publish() {
    let _watched = watched();
    if !has_server() {
        return;
    }
    let server = restricted("publish: { deny: \"orders\" }");
    let sink = Sink::to(At::at(server.url()).user("w", "w"), STREAM);
    let sink = sink.create(StreamSettings::new(SUBJECT)).ack_timeout(Duration::from_millis(200));
    let error = sink.open(numbers()).unwrap_err();
    refused!(error, Error::Denied { .. }, server.url(), "orders", "permissions");
}

/// Starts a server whose user may not use the subject `denied`, and runs a source as that user.
/// Returns the source's error, and the server.
fn source_denied(denied: &str) -> (Error, Server) {
    let server = restricted(denied);
    let at = |user: &str| At::at(server.url()).user(user, user);
    let sink = Sink::to(at("all"), STREAM).create(StreamSettings::new(SUBJECT));
    let (mut tx, running) = start(sink.open(numbers()).unwrap(), 64);
    feed(&mut tx, 20).unwrap();
    tx.close();
    running.join().unwrap();
    let open = Source::of(at("w"), STREAM).open().unwrap();
    let (tx, mut rx) = ring(0, 64);
    let source = open.start(Decoding::plain("number", 1), tx).unwrap();
    assert!(rx.for_each(|_, _| ()).is_err(), "the ring halts");
    (source.join().unwrap_err(), server)
}

#[test]
fn a_user_who_may_not_read_by_a_consumer() {
    let _watched = watched();
    if !has_server() {
        return;
    }
    for request in ["CREATE", "MSG.NEXT"] {
        let denied = format!("publish: {{ deny: \"$JS.API.CONSUMER.{request}.>\" }}");
        let (error, server) = source_denied(&denied);
        refused!(error, Error::Denied { .. }, server.url(), request, "permissions");
    }
}

#[test]
fn a_server_without_jetstream_leads_to_one_with_it() {
    let _watched = watched();
    if !has_server() {
        return;
    }
    let port = free_port().unwrap();
    let hub = format!("leafnodes {{ listen: \"127.0.0.1:{port}\" }}\njetstream {{ domain: hub }}");
    let _hub = Server::start(Options::new().extra(&hub)).unwrap();
    let leaf = format!("leafnodes {{ remotes: [{{ url: \"nats://127.0.0.1:{port}\" }}] }}");
    let leaf = Server::start(Options::new().jetstream(false).extra(&leaf)).unwrap();
    let at = || At::at(leaf.url()).domain("hub");
    let sink = || Sink::to(at(), STREAM).create(StreamSettings::new(SUBJECT)).open(numbers());
    // The leaf node connects by itself after a moment.
    let deadline = Instant::now() + SOON;
    let open = loop {
        match sink() {
            Ok(open) => break open,
            Err(Error::NoJetStream { .. }) if Instant::now() < deadline => {}
            Err(error) => panic!("{error}"),
        }
    };
    let (mut tx, running) = start(open, 64);
    feed(&mut tx, 100).unwrap();
    tx.close();
    assert_eq!(running.join().unwrap().acknowledged, 100);
    let open = Source::of(at(), STREAM).until_end().open().unwrap();
    let (tx, mut rx) = ring(0, 64);
    let source = open.start(Decoding::<u64>::plain("number", 1), tx).unwrap();
    assert_eq!(rx.for_each(|number, at| assert_eq!(*number, event(at.seq))).unwrap(), 100);
    source.join().unwrap();
}

#[test]
fn a_stream_is_created_only_on_request() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let sink = || Sink::to(At::at(server.url()), STREAM);
    for error in [sink().open(numbers()).unwrap_err(), source_error(At::at(server.url()))] {
        refused!(error, Error::NoStream { .. }, STREAM, "Sink::create");
    }
    assert!(client(&server).stream_info(STREAM).is_err());
    sink().create(StreamSettings::new(SUBJECT)).open(numbers()).unwrap();
    let config = client(&server).stream_info(STREAM).unwrap()["config"].clone();
    assert_eq!((&config["storage"], &config["discard"]), (&json!("file"), &json!("new")));
    sink().open(numbers()).unwrap();
}

/// Opens a sink to a stream with these settings, and returns the error.
#[track_caller]
fn shaped(client: &mut Client, url: &str, settings: Value) -> Error {
    let mut config = json!({ "name": STREAM, "subjects": [SUBJECT] });
    for (key, value) in settings.as_object().unwrap() {
        config[key] = value.clone();
    }
    if config["subjects"].is_null() {
        config.as_object_mut().unwrap().remove("subjects");
    }
    let _ = client.delete_stream(STREAM);
    client.create_stream(config).unwrap();
    Sink::to(At::at(url), STREAM).open(numbers()).unwrap_err()
}

/// Settings of a stream that appends a marker when the last message of a subject is removed.
fn marking() -> Value {
    let second = 1_000_000_000;
    json!({ "allow_msg_ttl": true, "subject_delete_marker_ttl": second, "max_age": second })
}

#[test]
fn a_source_of_a_stream_that_stores_markers() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let _ = shaped(&mut client(&server), &server.url(), marking());
    let error = source_error(At::at(server.url()));
    refused!(error, Error::WrongStream { .. }, "subject_delete_marker_ttl", "another stream");
}

#[test]
fn a_stream_of_another_shape() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let mut client = client(&server);
    client.create_stream(json!({ "name": "OTHER", "subjects": ["other"] })).unwrap();
    for (settings, what) in [
        (json!({ "retention": "workqueue" }), "retention is workqueue, and must be limits"),
        (json!({ "retention": "interest" }), "retention is interest, and must be limits"),
        (json!({ "max_msgs_per_subject": 3 }), "3 messages of a subject, and must keep all"),
        (json!({ "subjects": null, "mirror": { "name": "OTHER" } }), "is a mirror"),
        (json!({ "sources": [{ "name": "OTHER" }] }), "has sources"),
        (json!({ "no_ack": true }), "does not acknowledge (no_ack), and must"),
        (json!({ "allow_msg_counter": true }), "counters (allow_msg_counter)"),
        (marking(), "stores messages of its own where others are removed"),
    ] {
        let error = shaped(&mut client, &server.url(), settings);
        refused!(error, Error::WrongStream { .. }, STREAM, what, "use another stream");
    }
    // All mistakes are reported at once.
    let both = json!({ "retention": "interest", "max_msgs_per_subject": 3, "no_ack": true });
    let error = shaped(&mut client, &server.url(), both);
    refused!(error, Error::WrongStream { .. }, "interest", "3 messages", "no_ack");
}

#[test]
fn a_sealed_stream() {
    let _watched = watched();
    let Some(server) = server() else { return };
    sink(&server.url()).open(numbers()).unwrap();
    let mut client = client(&server);
    let mut config = client.stream_info(STREAM).unwrap()["config"].clone();
    config["sealed"] = json!(true);
    client.api(&format!("STREAM.UPDATE.{STREAM}"), config).unwrap();
    let error = sink_error(At::at(server.url()));
    refused!(error, Error::WrongStream { .. }, STREAM, "sealed", "use another stream");
    // The stream can still be read.
    let open = Source::of(At::at(server.url()), STREAM).open().unwrap();
    assert_eq!(open.end(), Some(0));
}

#[test]
fn a_stream_that_is_sealed_while_a_sink_writes_it() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let (mut tx, running) = start(sink(&server.url()).open(numbers()).unwrap(), 64);
    feed(&mut tx, 10).unwrap();
    let mut client = client(&server);
    let mut config = client.stream_info(STREAM).unwrap()["config"].clone();
    config["sealed"] = json!(true);
    client.api(&format!("STREAM.UPDATE.{STREAM}"), config).unwrap();
    let _ = feed(&mut tx, 20);
    tx.close();
    refused!(
        running.join().unwrap_err(),
        Error::WrongStream { .. },
        STREAM,
        "sealed",
        "another stream"
    );
}

#[test]
fn subjects_that_the_stream_does_not_have() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let mut client = client(&server);
    client.create_stream(json!({ "name": STREAM, "subjects": ["a.*", "b"] })).unwrap();
    let sink = || Sink::to(At::at(server.url()), STREAM);
    refused!(
        sink().open(numbers()).unwrap_err(),
        Error::Option { .. },
        STREAM,
        "a.*, b",
        "Sink::subject"
    );
    for subject in ["c", "a", "a.b.c"] {
        let error = sink().subject(subject).open(numbers()).unwrap_err();
        refused!(error, Error::WrongStream { .. }, "a.*, b", subject, "use another stream");
    }
    for subject in ["a.frames", "b"] {
        sink().subject(subject).open(numbers()).unwrap();
    }
    let subjects: Vec<_> =
        client.messages(STREAM).unwrap().into_iter().map(|message| message.subject).collect();
    assert_eq!(subjects, ["a.frames", "b"]);
    // The stream's only subject is a pattern, which does not say under which subject to publish
    // frames.
    client.delete_stream(STREAM).unwrap();
    client.create_stream(json!({ "name": STREAM, "subjects": ["a.>"] })).unwrap();
    refused!(sink().open(numbers()).unwrap_err(), Error::Option { .. }, "a.>", "Sink::subject");
}

#[test]
fn names_that_no_stream_can_have() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let long = "x".repeat(256);
    for name in ["", "a.b", "a b", "a>", "*", "a/b", "a\\b", "a\tb", "a\nb", &long] {
        let at = At::at(server.url());
        let sink = Sink::to(at.clone(), name).create(StreamSettings::new("s"));
        let error = sink.open(numbers()).unwrap_err();
        refused!(error, Error::Option { .. }, "is no name of a stream", "1 to 255 characters");
        let error = Source::of(at, name).open().unwrap_err();
        refused!(error, Error::Option { .. }, "is no name of a stream", "1 to 255 characters");
    }
    let long = "x".repeat(200);
    Sink::to(At::at(server.url()), long).create(StreamSettings::new("s")).open(numbers()).unwrap();
}

#[test]
fn a_stream_whose_subject_another_stream_has() {
    let _watched = watched();
    let Some(server) = server() else { return };
    client(&server).create_stream(json!({ "name": "OTHER", "subjects": [SUBJECT] })).unwrap();
    let error = sink_error(At::at(server.url()));
    refused!(error, Error::Server { .. }, "subjects overlap", "configuration");
}

#[test]
fn a_stream_of_another_type() {
    let _watched = watched();
    let Some(server) = server() else { return };
    sink(&server.url()).open(numbers()).unwrap();
    let (ours, theirs) = (Encoding::<u64>::plain("number", 2), numbers());
    let (ours, theirs) = (ours.fingerprint(), theirs.fingerprint());
    let error = sink(&server.url()).open(Encoding::<u64>::plain("number", 2)).unwrap_err();
    refused!(
        error,
        Error::WrongType { .. },
        format!("{ours:016x}"),
        format!("{theirs:016x}"),
        "use the type's name and version"
    );
}
