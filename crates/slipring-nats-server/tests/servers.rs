//! A server starts, ends and starts again; the client's requests do what they say.

mod common;

use std::io::{BufRead, BufReader, ErrorKind};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use common::{SOON, has_server, server};
use serde_json::json;
use slipring_nats_server::{ApiError, Client, HOST, Options, Purge, Server, binary, wait_for};

#[test]
fn a_restarted_server_has_its_port_and_its_streams() {
    let _watched = common::watched();
    let Some(mut server) = server() else { return };
    let (port, dir, pid) = (server.port(), server.dir().to_owned(), server.pid());
    let mut client = Client::connect(port, None).unwrap();
    client.create_stream(json!({ "name": "S", "subjects": ["s.>"] })).unwrap();
    assert_eq!(client.publish_acknowledged("s.a", None, b"one").unwrap(), (1, false));
    server.kill().unwrap();
    assert!(!server.is_running() && server.pid().is_none());
    assert!(client.flush().is_err() && Client::connect(port, None).is_err());
    assert_eq!(server.pause().unwrap_err().kind(), ErrorKind::NotFound);
    server.restart().unwrap();
    assert!(server.is_running() && server.pid() != pid);
    assert_eq!((server.port(), server.url()), (port, format!("nats://127.0.0.1:{port}")));
    let mut client = Client::connect(port, None).unwrap();
    let stored = client.get_message("S", 1).unwrap().unwrap();
    assert_eq!((stored.subject.as_str(), stored.payload.as_slice()), ("s.a", &b"one"[..]));
    server.stop().unwrap();
    assert!(!server.is_running() && server.log().contains("Server Exiting"));
    drop(server);
    assert!(!dir.exists());
}

#[test]
fn a_paused_server_answers_once_it_goes_on() {
    let _watched = common::watched();
    let Some(mut server) = server() else { return };
    let mut client = Client::connect(server.port(), None).unwrap();
    server.pause().unwrap();
    assert!(server.is_running());
    client.write_raw(b"SUB later 7\r\n").unwrap();
    let sid = thread::scope(|scope| {
        let subscribing = scope.spawn(|| client.subscribe("echo"));
        server.resume().unwrap();
        subscribing.join().unwrap().unwrap()
    });
    client.publish("echo", Some(&[("A", "b"), ("Empty", "")]), b"x").unwrap();
    let message = client.next(sid, SOON).unwrap();
    assert_eq!((message.header("a"), message.header("empty")), (Some("b"), Some("")));
    assert_eq!(message.status, None);
    assert!(server.lame_duck().is_ok());
}

#[test]
fn credentials_are_asked_for() {
    let _watched = common::watched();
    if !has_server() {
        return;
    }
    let server = Server::start(Options::new().user("a", "p \"w\" $x")).unwrap();
    assert!(Client::connect(server.port(), None).is_err());
    assert!(Client::connect(server.port(), Some(("a", "other"))).is_err());
    let mut client = Client::connect(server.port(), Some(("a", "p \"w\" $x"))).unwrap();
    assert!(client.api("INFO", json!(null)).is_ok());

    // The configuration's language does not know all escapes of JSON.
    let (odd, also) = ("u\u{1}\u{8}\u{c}é", "\0\t\r\n\u{1f}\u{7f}\\x41\\ß");
    let server = Server::start(Options::new().user(odd, also)).unwrap();
    Client::connect(server.port(), Some((odd, also))).unwrap();
    assert!(Client::connect(server.port(), Some((odd, "other"))).is_err());

    let server = Server::start(Options::new().token("t0")).unwrap();
    assert!(Client::connect(server.port(), None).is_err());
    Client::connect_with_token(server.port(), "t0").unwrap();

    let server = Server::start(Options::new().system_account()).unwrap();
    let mut client = Client::connect(server.port(), None).unwrap();
    assert!(client.api("INFO", json!(null)).is_ok());
    let mut system = Client::connect(server.port(), Some(("sys", "sys"))).unwrap();
    assert!(system.request("$SYS.REQ.SERVER.PING", b"", SOON).is_ok());

    let server = Server::start(Options::new().system_account().user("u", "v")).unwrap();
    assert!(Client::connect(server.port(), None).is_err());
    let mut client = Client::connect(server.port(), Some(("u", "v"))).unwrap();
    assert!(client.api("INFO", json!(null)).is_ok());
}

#[test]
fn settings_reach_the_server() {
    let _watched = common::watched();
    if !has_server() {
        return;
    }
    let options =
        Options::new().max_payload(1000).max_file_store(1 << 20).max_memory_store(1 << 16);
    let server = Server::start(options.sync_always().name("own")).unwrap();
    let mut client = Client::connect(server.port(), None).unwrap();
    let info = client.info().unwrap();
    assert_eq!((&info["max_payload"], &info["server_name"]), (&json!(1000), &json!("own")));
    let version = binary::version(&binary::find().unwrap()).unwrap();
    assert_eq!(info["version"], json!(version));
    let refused = client.create_stream(json!({ "name": "S", "max_bytes": 2 << 20 })).unwrap_err();
    assert_eq!(ApiError::of(&refused).unwrap().err_code, 10_047, "{refused}");
    let log = server.log();
    assert!(log.contains("Max Memory:      64.00 KB"), "{log}");

    let server = Server::start(Options::new().jetstream(false)).unwrap();
    let mut client = Client::connect(server.port(), None).unwrap();
    assert_eq!(client.api("INFO", json!(null)).unwrap_err().kind(), ErrorKind::NotFound);

    let wrong = Server::start(Options::new().extra("no_such_setting: 1")).unwrap_err();
    assert!(wrong.to_string().contains("no_such_setting"), "{wrong}");
    let taken = Server::start(Options::new().port(server.port())).unwrap_err();
    assert!(taken.to_string().contains("address already in use"), "{taken}");
}

#[test]
fn all_messages_of_a_stream_are_read() {
    let _watched = common::watched();
    let Some(server) = server() else { return };
    let mut client = Client::connect(server.port(), None).unwrap();
    let config = json!({ "name": "S", "subjects": ["s"], "retention": "workqueue" });
    client.create_stream(config).unwrap();
    assert!(client.messages("S").unwrap().is_empty());
    for number in 0..2999_u32 {
        let bytes = number.to_le_bytes().repeat(number as usize % 5);
        client.publish("s", Some(&[("Number", &number.to_string())]), &bytes).unwrap();
    }
    // The stream stores a message after the server has read it, so the last acknowledgement shows
    // that all messages are stored.
    let bytes = 2999_u32.to_le_bytes().repeat(4);
    let last = client.publish_acknowledged("s", Some(&[("Number", "2999")]), &bytes).unwrap();
    assert_eq!(last, (3000, false));
    client.delete_message("S", 1500).unwrap();
    let again = client.delete_message("S", 1500).unwrap_err();
    assert!(ApiError::of(&again).is_some(), "{again}");
    assert_eq!(client.get_message("S", 1500).unwrap(), None);

    let messages = client.messages("S").unwrap();
    assert_eq!(messages.len(), 2999);
    for (message, seq) in messages.iter().zip((1..=3000).filter(|seq| *seq != 1500)) {
        let number = seq as u32 - 1;
        assert_eq!(message.seq, seq);
        assert_eq!(message.header("number"), Some(number.to_string().as_str()));
        assert_eq!(message.payload, number.to_le_bytes().repeat(number as usize % 5));
    }
    assert_eq!(client.stream_info("S").unwrap()["state"]["messages"], 2999, "it keeps them");

    assert_eq!(client.purge("S", Purge::Below(1001)).unwrap(), 1000);
    assert_eq!(client.purge("S", Purge::Keep(10)).unwrap(), 1989);
    let seqs: Vec<u64> = client.messages("S").unwrap().iter().map(|message| message.seq).collect();
    assert_eq!(seqs, (2991..=3000).collect::<Vec<u64>>());
    assert_eq!(client.purge("S", Purge::All).unwrap(), 10);
    assert!(client.messages("S").unwrap().is_empty());
    client.delete_stream("S").unwrap();
    let missing = client.messages("S").unwrap_err();
    assert_eq!(ApiError::of(&missing).unwrap().err_code, 10_059);
}

#[test]
fn a_repeated_message_is_a_duplicate() {
    let _watched = common::watched();
    let Some(server) = server() else { return };
    let mut client = Client::connect(server.port(), None).unwrap();
    client.create_stream(json!({ "name": "S", "subjects": ["s"] })).unwrap();
    let id = [("Nats-Msg-Id", "1")];
    assert_eq!(client.publish_acknowledged("s", Some(&id), b"x").unwrap(), (1, false));
    assert_eq!(client.publish_acknowledged("s", Some(&id), b"x").unwrap(), (1, true));
    let wrong = [("Nats-Expected-Last-Sequence", "7")];
    let refused = client.publish_acknowledged("s", Some(&wrong), b"x").unwrap_err();
    assert_eq!(ApiError::of(&refused).unwrap().err_code, 10_071, "{refused}");
    let nobody = client.publish_acknowledged("t", None, b"x").unwrap_err();
    assert_eq!(nobody.kind(), ErrorKind::NotFound);
    let sid = client.subscribe("silent").unwrap();
    let silent = client.request("silent", b"", Duration::from_millis(1)).unwrap_err();
    assert_eq!(silent.kind(), ErrorKind::TimedOut);
    assert!(client.next(sid, SOON).unwrap().reply.is_some());
    client.unsubscribe(sid).unwrap();
}

#[test]
fn a_server_asks_for_tls() {
    let _watched = common::watched();
    if !has_server() {
        return;
    }
    let plain = Server::start(Options::new().jetstream(false)).unwrap();
    let (cert, key) = (plain.dir().join("cert.pem"), plain.dir().join("key.pem"));
    let made = Command::new("openssl")
        .args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes".split(' '))
        .args(["-subj", "/CN=localhost", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&cert)
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        return common::skip("openssl makes no certificate");
    }
    let options = Options::new().tls(&cert, &key);
    let mut server = Server::start(options.clone().tls_clients(&cert, true)).unwrap();
    assert!(server.url().starts_with("tls://127.0.0.1:"));
    let mut line = String::new();
    let stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    BufReader::new(stream).read_line(&mut line).unwrap();
    assert!(line.contains("\"tls_required\":true") && line.contains("\"tls_verify\":true"));
    server.restart().unwrap();
    let mut first = Server::start(options.tls_first()).unwrap();
    first.restart().unwrap();
    let missing = Server::start(Options::new().tls("no-cert.pem", "no-key.pem")).unwrap_err();
    assert!(missing.to_string().contains("no-cert.pem"), "{missing}");
}

/// Environment variable that marks the child process: the child starts a server and is then killed.
const CHILD: &str = "SLIPRING_NATS_CHILD";

#[test]
fn a_server_ends_with_a_process_that_is_killed() {
    let _watched = common::watched();
    if std::env::var_os(CHILD).is_some() {
        let server = Server::start(Options::new()).unwrap();
        println!("\nport {}", server.port());
        loop {
            std::thread::park();
        }
    }
    if !common::has_server() {
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_server_ends_with_a_process_that_is_killed", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let port = lines.find_map(|line| line.unwrap().strip_prefix("port ")?.parse::<u16>().ok());
    child.kill().unwrap();
    child.wait().unwrap();
    let port = port.unwrap();
    wait_for("end of the server", common::SOON, || match TcpStream::connect((HOST, port)) {
        Ok(_) => Err(std::io::Error::other("it runs")),
        Err(_) => Ok(()),
    })
    .unwrap();
}
