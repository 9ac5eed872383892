//! Servers of NATS, for tests and for trying things out.

use std::io;

use slipring_nats_server::{Cluster, Options, Server, binary};

use crate::{cli::Nats, say::say};

/// Prints which server program was found, or runs servers until standard input ends.
pub fn run(command: Option<&Nats>) -> io::Result<()> {
    match command {
        None => {
            let program = binary::find()?;
            say!("{} {}", program.display(), binary::version(&program)?);
        }
        Some(Nats::Run { cluster: false }) => {
            let server = Server::start(Options::new())?;
            say!("{}", server.url());
            wait_for_end()?;
        }
        Some(Nats::Run { cluster: true }) => {
            let cluster = Cluster::of_three()?;
            for url in cluster.urls() {
                say!("{url}");
            }
            wait_for_end()?;
        }
    }
    Ok(())
}

/// Reads standard input to its end or to an empty line.
fn wait_for_end() -> io::Result<()> {
    for line in io::stdin().lines() {
        if line?.trim().is_empty() {
            break;
        }
    }
    Ok(())
}
