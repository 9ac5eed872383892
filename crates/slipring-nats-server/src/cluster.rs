//! Three servers that form a cluster.

use std::{io, time::Duration};

use serde_json::{Value, json};

use crate::{Client, Options, Server, free_port, options::Routes, wait_for};

/// Time limit for the election of a leader.
const LIMIT: Duration = Duration::from_secs(60);
/// Time limit of one request, after which another server is asked.
const REQUEST: Duration = Duration::from_secs(2);
/// Number of servers.
const SERVERS: usize = 3;
/// Name of the stream that shows that the cluster is ready.
const PROBE: &str = "cluster-probe";

/// Three servers that form a cluster with JetStream. A stream with `"num_replicas": 3` survives the
/// loss of one.
///
/// The servers have a system account with the user `sys` and the password `sys`.
#[derive(Debug)]
pub struct Cluster {
    servers: Vec<Server>,
}

impl Cluster {
    /// Starts three servers, and returns once a stream with three replicas can be made.
    ///
    /// # Errors
    ///
    /// A server does not start, or the servers do not form a cluster within 60 s.
    pub fn of_three() -> io::Result<Self> {
        Self::with(&Options::new())
    }

    /// Starts three servers with these settings. The names, the ports and the folders are the
    /// cluster's own. Clients without credentials are let in, so the settings name no user.
    ///
    /// # Errors
    ///
    /// As those of [`of_three`](Self::of_three).
    pub fn with(options: &Options) -> io::Result<Self> {
        let id = fastrand::u32(..);
        let mut ports = Vec::new();
        while ports.len() < SERVERS {
            let port = free_port()?;
            if !ports.contains(&port) {
                ports.push(port);
            }
        }
        let mut servers = Vec::new();
        for (number, &port) in ports.iter().enumerate() {
            let routes = Routes { name: format!("c{id:08x}"), port, ports: ports.clone() };
            let mut own = options.clone().system_account().name(&format!("c{id:08x}-{number}"));
            (own.cluster, own.port, own.dir) = (Some(routes), None, None);
            servers.push(Server::start(own)?);
        }
        let mut cluster = Self { servers };
        wait_for("election of the meta leader", LIMIT, || cluster.probe())?;
        Ok(cluster)
    }

    /// Makes and deletes a stream with three replicas, and asks each server for the account's
    /// state.
    fn probe(&mut self) -> io::Result<()> {
        for server in &self.servers {
            Client::connect(server.port(), None)?.api_within("INFO", Value::Null, REQUEST)?;
        }
        let mut client = Client::connect(self.servers[0].port(), None)?;
        let config = json!({ "name": PROBE, "subjects": [PROBE], "num_replicas": SERVERS });
        client.create_stream(config)?;
        client.delete_stream(PROBE)
    }

    /// Returns the servers, killed ones among them.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Returns one server, e.g. to pause it.
    ///
    /// # Panics
    ///
    /// If there is no server with this number.
    pub fn server(&mut self, number: usize) -> &mut Server {
        &mut self.servers[number]
    }

    /// Returns the URLs of all servers.
    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(Server::url).collect()
    }

    /// Kills a server with SIGKILL.
    ///
    /// # Errors
    ///
    /// The system refuses.
    ///
    /// # Panics
    ///
    /// If there is no server with this number.
    pub fn kill(&mut self, number: usize) -> io::Result<()> {
        self.servers[number].kill()
    }

    /// Starts a server again with the same store and the same ports.
    ///
    /// # Errors
    ///
    /// It does not start within 20 s.
    ///
    /// # Panics
    ///
    /// If there is no server with this number.
    pub fn restart(&mut self, number: usize) -> io::Result<()> {
        self.servers[number].restart()
    }

    /// Connects to the first server that runs and answers.
    ///
    /// # Errors
    ///
    /// None does.
    pub fn client(&mut self) -> io::Result<Client> {
        let mut last = io::Error::other("no server runs");
        for server in &mut self.servers {
            if server.is_running() {
                match Client::connect(server.port(), None) {
                    Ok(client) => return Ok(client),
                    Err(error) => last = error,
                }
            }
        }
        Err(last)
    }

    /// Returns the number of the server that leads a stream.
    ///
    /// # Errors
    ///
    /// The stream has no leader now, there is no such stream, or no server answers within 2 s.
    pub fn leader_of(&mut self, stream: &str) -> io::Result<usize> {
        let info = self.info(stream)?;
        self.number_of(&info["cluster"]["leader"])
    }

    /// Waits until a running server leads a stream, and returns its number.
    ///
    /// # Errors
    ///
    /// None does within 60 s.
    pub fn wait_for_leader(&mut self, stream: &str) -> io::Result<usize> {
        wait_for(&format!("leader of {stream}"), LIMIT, || {
            let number = self.leader_of(stream)?;
            match self.servers[number].is_running() {
                true => Ok(number),
                false => Err(io::Error::other(format!("server {number} led it and is killed"))),
            }
        })
    }

    /// Waits until all replicas of a stream have all of its messages.
    ///
    /// # Errors
    ///
    /// One lacks some after 60 s.
    pub fn wait_for_replicas(&mut self, stream: &str) -> io::Result<()> {
        wait_for(&format!("replicas of {stream}"), LIMIT, || {
            let info = self.info(stream)?;
            let replicas = info["cluster"]["replicas"].as_array().map_or(&[][..], Vec::as_slice);
            let lags = |replica: &&Value| replica["current"] != true || replica["offline"] == true;
            match replicas.iter().find(lags) {
                None => Ok(()),
                Some(replica) => Err(io::Error::other(replica.to_string())),
            }
        })
    }

    /// Returns the number of the server that leads the cluster: it places and removes streams.
    ///
    /// # Errors
    ///
    /// None does now, or no server answers within 2 s.
    pub fn meta_leader(&mut self) -> io::Result<usize> {
        let mut last = io::Error::other("no server runs");
        for number in 0..self.servers.len() {
            if self.servers[number].is_running() {
                match self.meta_leader_by(number) {
                    Ok(leader) => return Ok(leader),
                    Err(error) => last = error,
                }
            }
        }
        Err(last)
    }

    /// Returns the number of the cluster's leader as one server knows it.
    fn meta_leader_by(&self, number: usize) -> io::Result<usize> {
        let mut client = Client::connect(self.servers[number].port(), Some(("sys", "sys")))?;
        let id = client.info()?["server_id"].as_str().unwrap_or_default().to_owned();
        let subject = format!("$SYS.REQ.SERVER.{id}.JSZ");
        let answer: Value =
            serde_json::from_slice(&client.request(&subject, b"", REQUEST)?.payload)?;
        self.number_of(&answer["data"]["meta_cluster"]["leader"])
    }

    fn info(&mut self, stream: &str) -> io::Result<Value> {
        self.client()?.api_within(&format!("STREAM.INFO.{stream}"), Value::Null, REQUEST)
    }

    /// The number of the server with this name.
    fn number_of(&self, name: &Value) -> io::Result<usize> {
        let is_named = |server: &Server| name.as_str() == Some(server.name());
        self.servers
            .iter()
            .position(is_named)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("leader is {name}")))
    }
}
