//! The faults of a proxy, seen by both ends: plain sockets, and a server.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use common::{SOON, server};
use serde_json::json;
use slipring_nats_server::{Client, Direction, HOST, Proxy, free_port};

use Direction::{ToClient, ToServer};

/// A proxy with a listener behind it.
struct Ends {
    proxy: Proxy,
    listener: TcpListener,
}

impl Ends {
    fn new() -> Ends {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy::to(listener.local_addr().unwrap().port()).unwrap();
        Ends { proxy, listener }
    }

    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(("127.0.0.1", self.proxy.port())).unwrap();
        client.set_read_timeout(Some(SOON)).unwrap();
        client
    }

    /// Makes a connection from a client to the server.
    fn pair(&self) -> (TcpStream, TcpStream) {
        let client = self.connect();
        let (server, _) = self.listener.accept().unwrap();
        server.set_read_timeout(Some(SOON)).unwrap();
        (client, server)
    }
}

fn read(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// Reads until the connection ends, by a close or by a reset.
fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => bytes,
    }
}

#[test]
fn bytes_pass_both_ways() {
    let _watched = common::watched();
    let ends = Ends::new();
    let (mut client, mut server) = ends.pair();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| client.write_all(&bytes).unwrap());
        assert!(read(&mut server, bytes.len()) == bytes);
    });
    server.write_all(b"pong").unwrap();
    assert_eq!(read(&mut client, 4), b"pong");
    drop(client);
    assert!(read_to_end(&mut server).is_empty());
    drop(server);
    let counts = ends.proxy.wait_until(SOON, |counts| counts.open == 0).unwrap();
    assert_eq!((counts.connections, counts.refused), (1, 0));
    assert_eq!((counts.to_server.passed, counts.to_client.passed), (3_000_000, 4));
}

#[test]
fn a_cut_comes_behind_exactly_so_many_bytes() {
    let _watched = common::watched();
    let ends = Ends::new();
    let (mut client, mut server) = ends.pair();
    ends.proxy.cut_after(ToServer, 5);
    client.write_all(b"0123456789").unwrap();
    assert_eq!(read_to_end(&mut server), b"01234");
    assert!(read_to_end(&mut client).is_empty());
    // A cut comes only once, so nothing cuts the next connection.
    let (mut client, mut server) = ends.pair();
    client.write_all(b"0123456789").unwrap();
    assert_eq!(read(&mut server, 10), b"0123456789");
    ends.proxy.cut_after(ToClient, 0);
    server.write_all(b"x").unwrap();
    assert!(read_to_end(&mut client).is_empty());
    let (mut client, mut server) = ends.pair();
    ends.proxy.cut_now();
    assert!(read_to_end(&mut client).is_empty() && read_to_end(&mut server).is_empty());
    assert_eq!(ends.proxy.counts().open, 0);
}

#[test]
fn swallowed_bytes_are_gone() {
    let _watched = common::watched();
    let ends = Ends::new();
    let (mut client, mut server) = ends.pair();
    ends.proxy.swallow(ToClient, true);
    server.write_all(b"lost").unwrap();
    ends.proxy.wait_until(SOON, |counts| counts.to_client.swallowed == 4).unwrap();
    client.write_all(b"sent").unwrap();
    assert_eq!(read(&mut server, 4), b"sent", "the other direction is whole");
    ends.proxy.swallow(ToClient, false);
    server.write_all(b"seen").unwrap();
    assert_eq!(read(&mut client, 4), b"seen");
}

#[test]
fn held_bytes_arrive_after_their_sender_has_gone() {
    let _watched = common::watched();
    let ends = Ends::new();
    for by_proxy in [false, true] {
        let (mut client, mut server) = ends.pair();
        ends.proxy.hold(ToServer, true);
        client.write_all(b"late").unwrap();
        ends.proxy.wait_until(SOON, |counts| counts.to_server.held == 4).unwrap();
        if by_proxy {
            ends.proxy.cut_clients();
            assert!(read_to_end(&mut client).is_empty());
        }
        drop(client);
        // Writing to the client, which is gone, does not close the server's side.
        server.write_all(b"one").unwrap();
        server.write_all(b"two").unwrap();
        server.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        // A process that is stopped and continued breaks off such a read; `read_exact` reads again.
        let early = server.read_exact(&mut [0]).unwrap_err();
        assert!(matches!(early.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{early}");
        server.set_read_timeout(Some(SOON)).unwrap();
        ends.proxy.hold(ToServer, false);
        assert_eq!(read_to_end(&mut server), b"late");
        drop(server);
        ends.proxy.wait_until(SOON, |counts| counts.open == 0).unwrap();
    }
    let (mut client, mut server) = ends.pair();
    ends.proxy.hold(ToClient, true);
    server.write_all(b"last words").unwrap();
    drop(server);
    ends.proxy.wait_until(SOON, |counts| counts.to_client.held == 10).unwrap();
    ends.proxy.hold(ToClient, false);
    assert_eq!(read_to_end(&mut client), b"last words");
}

#[test]
fn new_connections_are_refused_or_lead_elsewhere() {
    let _watched = common::watched();
    let ends = Ends::new();
    let (mut old, mut server) = ends.pair();
    ends.proxy.refuse(true);
    assert!(read_to_end(&mut ends.connect()).is_empty());
    old.write_all(b"open").unwrap();
    assert_eq!(read(&mut server, 4), b"open");
    ends.proxy.refuse(false);
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    ends.proxy.retarget(other.local_addr().unwrap().port());
    let mut client = ends.connect();
    let (mut elsewhere, _) = other.accept().unwrap();
    ends.proxy.delay(Duration::from_millis(20));
    client.write_all(b"hello").unwrap();
    assert_eq!(read(&mut elsewhere, 5), b"hello");
    let counts = ends.proxy.counts();
    assert_eq!((counts.connections, counts.refused, counts.open), (2, 1, 2));
    drop(ends.proxy);
    assert!(read_to_end(&mut old).is_empty() && read_to_end(&mut client).is_empty());
    drop(other);
    let nowhere = Ends::new();
    drop(nowhere.listener);
    let mut client = TcpStream::connect(("127.0.0.1", nowhere.proxy.port())).unwrap();
    client.set_read_timeout(Some(SOON)).unwrap();
    assert!(read_to_end(&mut client).is_empty(), "no server accepts");
}

#[test]
fn a_held_publication_reaches_the_stream_after_its_client_has_gone() {
    let _watched = common::watched();
    let Some(server) = server() else { return };
    let proxy = Proxy::to(server.port()).unwrap();
    let mut oracle = Client::connect(server.port(), None).unwrap();
    oracle.create_stream(json!({ "name": "S", "subjects": ["s"] })).unwrap();
    let mut client = Client::connect(proxy.port(), None).unwrap();

    // The acknowledgement is lost, but not the message.
    proxy.swallow(ToClient, true);
    let lost = client.request("s", b"first", Duration::from_millis(200)).unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::TimedOut);
    proxy.wait_until(SOON, |counts| counts.to_client.swallowed > 0).unwrap();
    assert_eq!(oracle.messages("S").unwrap().len(), 1);
    proxy.swallow(ToClient, false);

    // A frame that is cut in the middle is no message.
    let mut client = Client::connect(proxy.port(), None).unwrap();
    proxy.cut_after(ToServer, 12);
    client.publish("s", None, b"cut in the middle").unwrap();
    proxy.wait_until(SOON, |counts| counts.open == 0).unwrap();
    assert!(client.flush().is_err());
    assert_eq!(oracle.messages("S").unwrap().len(), 1);

    // The proxy holds two publications of a client that has gone. Both still arrive, behind the
    // message that another client publishes meanwhile.
    let mut client = Client::connect(proxy.port(), None).unwrap();
    proxy.hold(ToServer, true);
    client.publish("s", None, b"third").unwrap();
    client.publish("s", None, b"fourth").unwrap();
    proxy.wait_until(SOON, |counts| counts.to_server.held > 30).unwrap();
    drop(client);
    oracle.publish_acknowledged("s", None, b"second").unwrap();
    proxy.hold(ToServer, false);
    proxy.wait_until(SOON, |counts| counts.open == 0).unwrap();
    let payloads: Vec<Vec<u8>> =
        oracle.messages("S").unwrap().into_iter().map(|message| message.payload).collect();
    assert_eq!(payloads, [&b"first"[..], b"second", b"third", b"fourth"]);
}

/// A process that has just been forked holds each socket of its parent until it runs its program.
#[test]
fn a_free_port_stays_free_while_processes_start() {
    let _watched = common::watched();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    Command::new("true").status().unwrap();
                }
            });
        }
        let bound = (0..2_000).try_for_each(|_| {
            let port = free_port()?;
            TcpListener::bind((HOST, port)).map(drop)
        });
        over.store(true, Relaxed);
        bound.unwrap();
    });
}
