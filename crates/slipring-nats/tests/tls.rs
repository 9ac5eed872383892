//! Connections with TLS, and several addresses of a server.

#[path = "common/checks.rs"]
mod checks;
mod common;

use std::fs;
use std::path::{Path, PathBuf};

use checks::{refused, until_next};
use common::*;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use slipring_nats::{Decoding, Error, Server as At, Sink, Source, StreamSettings};
use slipring_nats_server::{Options, Proxy, Server, free_port};

/// A folder with an authority's certificate, and certificates that it has signed.
struct Files(PathBuf);

impl Files {
    /// Makes the authority, and a certificate for the servers and one for clients.
    fn new() -> Files {
        let name = format!("slipring-nats-tls-{}-{:08x}", std::process::id(), fastrand::u32(..));
        let files = Files(std::env::temp_dir().join(name));
        fs::create_dir(&files.0).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        fs::write(files.path("ca.pem"), ca.pem()).unwrap();
        for (name, usage) in [
            ("server", ExtendedKeyUsagePurpose::ServerAuth),
            ("client", ExtendedKeyUsagePurpose::ClientAuth),
        ] {
            let names = ["127.0.0.1".into(), "localhost".into()];
            let mut params = CertificateParams::new(names).unwrap();
            params.extended_key_usages = vec![usage];
            let key = KeyPair::generate().unwrap();
            let certificate = params.signed_by(&key, &ca).unwrap();
            fs::write(files.path(&format!("{name}.pem")), certificate.pem()).unwrap();
            fs::write(files.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The options of a server with a certificate.
    fn server(&self) -> Options {
        Options::new().tls(self.path("server.pem"), self.path("server.key"))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn to(at: At) -> Sink {
    Sink::to(at, STREAM).create(StreamSettings::new(SUBJECT))
}

/// Publishes some events, and reads them again.
#[track_caller]
fn works(at: At) {
    let open = to(at.clone()).open(numbers()).unwrap();
    let first = open.next_seq();
    let (mut tx, running) = start(open, 64);
    feed(&mut tx, first + 1000).unwrap();
    tx.close();
    assert_eq!(running.join().unwrap().events, 1000);
    let open = Source::of(at, STREAM).until_end().open().unwrap();
    let (tx, mut rx) = ring(first, 64);
    let source = open.start(Decoding::<u64>::plain("number", 1), tx).unwrap();
    assert_eq!(rx.for_each(|number, at| assert_eq!(*number, event(at.seq))).unwrap(), 1000);
    source.join().unwrap();
}

/// Returns the errors with which a sink and a source fail to open.
#[track_caller]
fn both(at: At) -> [Error; 2] {
    let sink = to(at.clone()).open(numbers()).unwrap_err();
    [sink, Source::of(at, STREAM).open().unwrap_err()]
}

#[test]
fn a_server_of_a_trusted_authority_is_used_and_others_are_refused() {
    let _watched = watched();
    if !has_server() {
        return;
    }
    let (files, others) = (Files::new(), Files::new());
    let server = Server::start(files.server()).unwrap();
    let port = server.port();
    // The server requires TLS. The client uses it whatever the scheme of the address is.
    for url in [format!("tls://127.0.0.1:{port}"), format!("nats://localhost:{port}")] {
        let at = At::at(&url).root_certificates(files.path("ca.pem"));
        works(at.clone());
        works(at.require_tls());
        let wrong = At::at(&url).root_certificates(others.path("ca.pem"));
        for error in both(wrong).into_iter().chain(both(At::at(&url))) {
            refused!(error, Error::Tls { .. }, url, "certificate", "Server::root_certificates");
        }
    }
}

#[test]
fn a_server_may_begin_with_tls() {
    let _watched = watched();
    if !has_server() {
        return;
    }
    let files = Files::new();
    let server = Server::start(files.server().tls_first()).unwrap();
    works(At::at(server.url()).root_certificates(files.path("ca.pem")).tls_first());
}

#[test]
fn a_server_without_tls_is_refused_if_tls_is_required() {
    let _watched = watched();
    let Some(server) = server() else { return };
    for error in both(At::at(server.url()).require_tls()) {
        refused!(error, Error::Tls { .. }, server.url(), "TLS", "certificates");
    }
    works(At::at(server.url()));
}

#[test]
fn a_client_shows_its_certificate() {
    let _watched = watched();
    if !has_server() {
        return;
    }
    let (files, others) = (Files::new(), Files::new());
    let options = files.server().tls_clients(files.path("ca.pem"), true);
    let server = Server::start(options).unwrap();
    let at = || At::at(server.url()).root_certificates(files.path("ca.pem"));
    works(at().client_certificate(files.path("client.pem"), files.path("client.key")));
    let stranger = at().client_certificate(others.path("client.pem"), others.path("client.key"));
    for error in both(at()).into_iter().chain(both(stranger)) {
        refused!(error, Error::Tls { .. }, server.url(), "Server::client_certificate");
    }
}

#[test]
fn files_that_are_missing_or_none_are_named() {
    let _watched = watched();
    if !has_server() {
        return;
    }
    let files = Files::new();
    let server = Server::start(files.server()).unwrap();
    let (missing, none) = (files.path("missing.pem"), files.path("none.pem"));
    fs::write(&none, "no certificate").unwrap();
    let at = |ca: &Path| At::at(server.url()).root_certificates(ca);
    for (at, file, call) in [
        (at(&missing), "missing.pem", "Server::root_certificates"),
        (at(&none), "none.pem", "Server::root_certificates"),
        (
            at(&files.path("ca.pem")).client_certificate(&missing, files.path("client.key")),
            "missing.pem",
            "Server::client_certificate",
        ),
        (
            at(&files.path("ca.pem")).client_certificate(files.path("client.pem"), &none),
            "none.pem",
            "Server::client_certificate",
        ),
    ] {
        for error in both(at) {
            refused!(error, Error::Option { .. }, file, call);
        }
    }
}

#[test]
fn a_dead_address_beside_a_living_one_is_passed_over() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let dead = format!("nats://127.0.0.1:{}", free_port().unwrap());
    for _ in 0..4 {
        works(At::at(&dead).or_at(server.url()));
    }
    works(At::at(server.url()).or_at(&dead));
}

#[test]
fn a_sink_and_a_source_fail_over_to_another_address() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let doors = [Proxy::to(server.port()).unwrap(), Proxy::to(server.port()).unwrap()];
    let at = || At::at(doors[0].url()).or_at(doors[1].url());
    let (mut tx, running) = start(to(at()).open(numbers()).unwrap(), 64);
    let open = Source::of(at(), STREAM).open().unwrap();
    let (fed, mut rx) = ring(0, 64);
    let source = open.start(Decoding::<u64>::plain("number", 1), fed).unwrap();
    let reading = std::thread::spawn(move || {
        rx.for_each(|number, at| assert_eq!(*number, event(at.seq))).unwrap()
    });
    for round in 1..=4 {
        feed(&mut tx, round * 1000).unwrap();
        until_next(&source, round * 1000);
        let door = &doors[round as usize % 2];
        doors[(round + 1) as usize % 2].refuse(false);
        door.refuse(true);
        door.cut_now();
        feed(&mut tx, round * 1000 + 500).unwrap();
        until_next(&source, round * 1000 + 500);
        assert_eq!(door.counts().open, 0);
    }
    tx.close();
    let counters = running.join().unwrap();
    assert!(counters.reconnects >= 3 && counters.acknowledged == 4500, "{counters:?}");
    source.stop();
    assert_eq!(reading.join().unwrap(), 4500);
    source.join().unwrap();
    assert_eq!(scan(&mut client(&server)).last().unwrap().end(), 4500);
}
