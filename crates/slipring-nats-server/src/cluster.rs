//! Three servers that form a cluster.

use std::{io, time::Duration};

use serde_json::{Value, json};

use crate::{
    client::Client,
    host::{free_port, wait_for},
    options::{Options, Routes},
    proxy::Proxy,
    server::{Server, with_free_ports},
    traffic::Direction,
};

/// Time limit for the election of a leader.
const LIMIT: Duration = Duration::from_secs(60);
/// Time limit of one request to a server.
const REQUEST: Duration = Duration::from_secs(2);
/// Number of servers.
const SERVERS: usize = 3;
/// Name of the stream that shows that the cluster is ready.
const PROBE: &str = "cluster-probe";

/// Three servers that form a cluster with JetStream. A stream with `"num_replicas": 3` survives the
/// loss of one server.
///
/// The servers have a system account with the user `sys` and the password `sys`.
#[derive(Debug)]
pub struct Cluster {
    servers: Vec<Server>,
    /// The connections between servers, if the cluster was made
    /// [`with_links`](Cluster::with_links).
    links: Vec<Link>,
    /// Number of the server whose links are held up.
    isolated: Option<usize>,
}

/// The connections that one server makes to another.
#[derive(Debug)]
struct Link {
    ends: [usize; 2],
    proxy: Proxy,
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

    /// Starts three servers with these settings. The cluster chooses the servers' names, ports and
    /// folders itself. The cluster lets in clients without credentials, so the settings must not
    /// name a user.
    ///
    /// # Errors
    ///
    /// The errors of [`of_three`](Self::of_three).
    pub fn with(options: &Options) -> io::Result<Self> {
        Self::start(options, false)
    }

    /// Starts three servers, any of which [`isolate`](Self::isolate) can cut off from the others.
    ///
    /// # Errors
    ///
    /// The errors of [`of_three`](Self::of_three).
    pub fn with_links() -> io::Result<Self> {
        Self::start(&Options::new(), true)
    }

    fn start(options: &Options, with_links: bool) -> io::Result<Self> {
        with_free_ports(|| Self::start_once(options, with_links))
    }

    fn start_once(options: &Options, with_links: bool) -> io::Result<Self> {
        let id = fastrand::u32(..);
        let mut ports = Vec::new();
        while ports.len() < SERVERS {
            let port = free_port()?;
            if !ports.contains(&port) {
                ports.push(port);
            }
        }
        let (mut servers, mut links) = (Vec::new(), Vec::new());
        for (number, &port) in ports.iter().enumerate() {
            let mut to = ports.clone();
            if with_links {
                to.clear();
                for other in (0..SERVERS).filter(|&other| other != number) {
                    let proxy = Proxy::to(ports[other])?;
                    to.push(proxy.port());
                    links.push(Link { ends: [number, other], proxy });
                }
            }
            let routes = Routes { name: format!("c{id:08x}"), port, to, hides: with_links };
            let mut own = options.clone().system_account().name(&format!("c{id:08x}-{number}"));
            (own.cluster, own.port, own.dir) = (Some(routes), None, None);
            servers.push(Server::start(own)?);
        }
        let mut cluster = Self { servers, links, isolated: None };
        wait_for("election of the meta leader", LIMIT, || cluster.probe())?;
        Ok(cluster)
    }

    /// Makes and deletes a stream with three replicas, and asks each server for the account's
    /// state.
    fn probe(&mut self) -> io::Result<()> {
        (0..self.servers.len()).try_for_each(|number| self.answers(number))?;
        let mut client = Client::connect(self.servers[0].port(), None)?;
        let config = json!({ "name": PROBE, "subjects": [PROBE], "num_replicas": SERVERS });
        client.create_stream(config)?;
        client.delete_stream(PROBE)
    }

    /// Asks a server for the account's state. The server refuses while the cluster has no leader.
    fn answers(&self, number: usize) -> io::Result<()> {
        let mut client = Client::connect(self.servers[number].port(), None)?;
        client.api_within("INFO", Value::Null, REQUEST).map(drop)
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
    /// The server does not start within 20 s.
    ///
    /// # Panics
    ///
    /// If there is no server with this number.
    pub fn restart(&mut self, number: usize) -> io::Result<()> {
        self.servers[number].restart()
    }

    /// Cuts a server off from the others, but not from its clients: the bytes that the servers send
    /// each other are held up.
    ///
    /// # Panics
    ///
    /// If the cluster was not made [`with_links`](Self::with_links).
    pub fn isolate(&mut self, number: usize) {
        assert!(!self.links.is_empty(), "the servers of this cluster have no links");
        self.isolated = Some(number);
        self.hold_links_of(number, true);
    }

    /// Ends the isolation that [`isolate`](Self::isolate) began. The servers get the bytes that
    /// were held up. If `lost` is set, the isolated server's connections to the others are cut
    /// first, and the bytes are lost.
    pub fn heal(&mut self, lost: bool) {
        let Some(number) = self.isolated.take() else { return };
        if lost {
            self.links_of(number).for_each(Proxy::cut_now);
        }
        self.hold_links_of(number, false);
    }

    /// Returns the links between a server and the others.
    fn links_of(&self, number: usize) -> impl Iterator<Item = &Proxy> {
        self.links.iter().filter(move |link| link.ends.contains(&number)).map(|link| &link.proxy)
    }

    fn hold_links_of(&self, number: usize, on: bool) {
        self.links_of(number).for_each(|proxy| {
            Direction::BOTH.into_iter().for_each(|direction| proxy.hold(direction, on));
        });
    }

    /// Asks the servers that run and are not isolated, one after the other, until one answers.
    fn ask_first<T>(&mut self, ask: impl Fn(&Self, usize) -> io::Result<T>) -> io::Result<T> {
        let mut answer = Err(io::Error::other("no server runs"));
        for number in 0..self.servers.len() {
            if answer.is_err() && self.is_with_others(number) {
                answer = ask(self, number);
            }
        }
        answer
    }

    /// Returns whether a server runs, and is not isolated.
    fn is_with_others(&mut self, number: usize) -> bool {
        self.servers[number].is_running() && self.isolated != Some(number)
    }

    /// Connects to the first server that runs, is not isolated, and answers.
    ///
    /// # Errors
    ///
    /// No server does.
    pub fn client(&mut self) -> io::Result<Client> {
        self.ask_first(|cluster, number| Client::connect(cluster.servers[number].port(), None))
    }

    /// Returns the number of the server that leads a stream. All servers that run and are not
    /// isolated must agree on the leader, because a server that was cut off may still believe that
    /// it leads the stream.
    ///
    /// # Errors
    ///
    /// The servers do not agree, there is no such stream, or a server does not answer within 2 s.
    pub fn leader_of(&mut self, stream: &str) -> io::Result<usize> {
        let mut leader = None;
        for number in 0..self.servers.len() {
            if self.is_with_others(number) {
                let named = self.number_of(&self.view_of(number, stream)?["cluster"]["leader"])?;
                if leader.replace(named).is_some_and(|before| before != named) {
                    return Err(io::Error::other("the servers do not agree who leads"));
                }
            }
        }
        leader.ok_or_else(|| io::Error::other("no server runs"))
    }

    /// Waits until a stream is led by a server that runs and is not isolated, and returns the
    /// number of that server.
    ///
    /// # Errors
    ///
    /// No server that runs and is not isolated leads the stream within 60 s.
    pub fn wait_for_leader(&mut self, stream: &str) -> io::Result<usize> {
        wait_for(&format!("leader of {stream}"), LIMIT, || {
            let number = self.leader_of(stream)?;
            match self.is_with_others(number) {
                true => Ok(number),
                false => Err(io::Error::other(format!("server {number} led it, and has gone"))),
            }
        })
    }

    /// Waits until all servers know the same leader of a stream, have all messages of the leader,
    /// and answer requests.
    ///
    /// # Errors
    ///
    /// A server still lacks messages after 60 s.
    pub fn wait_for_replicas(&mut self, stream: &str) -> io::Result<()> {
        wait_for(&format!("replicas of {stream}"), LIMIT, || {
            let leader = self.leader_of(stream)?;
            let last = |number| {
                let view = self.view_of(number, stream)?;
                view["state"]["last_seq"].as_u64().ok_or_else(|| io::Error::other(view.to_string()))
            };
            let end = last(leader)?;
            for number in 0..self.servers.len() {
                self.answers(number)?;
                let has = last(number)?;
                if has < end {
                    return Err(io::Error::other(format!("server {number} has {has} of {end}")));
                }
            }
            Ok(())
        })
    }

    /// Returns the number of the server that leads the cluster. The leader places and removes
    /// streams.
    ///
    /// # Errors
    ///
    /// No server leads the cluster now, or none answers within 2 s.
    pub fn meta_leader(&mut self) -> io::Result<usize> {
        self.ask_first(Self::meta_leader_by)
    }

    /// Returns the number of the cluster's leader as one server knows it.
    fn meta_leader_by(&self, number: usize) -> io::Result<usize> {
        self.number_of(&self.jetstream_of(number, json!({}))?["meta_cluster"]["leader"])
    }

    /// Returns one server's view of a stream.
    fn view_of(&self, number: usize, stream: &str) -> io::Result<Value> {
        let data = self.jetstream_of(number, json!({ "accounts": true, "streams": true }))?;
        let accounts = data["account_details"].as_array().into_iter().flatten();
        let streams = accounts.filter_map(|account| account["stream_detail"].as_array()).flatten();
        let found = streams.into_iter().find(|found| found["name"] == stream).cloned();
        found.ok_or_else(|| io::Error::other(format!("server {number} knows no {stream}")))
    }

    /// Returns one server's view of JetStream.
    fn jetstream_of(&self, number: usize, asked: Value) -> io::Result<Value> {
        let mut client = Client::connect(self.servers[number].port(), Some(("sys", "sys")))?;
        let id = client.info()?["server_id"].as_str().unwrap_or_default().to_owned();
        let subject = format!("$SYS.REQ.SERVER.{id}.JSZ");
        let answer = client.request(&subject, asked.to_string().as_bytes(), REQUEST)?;
        let mut answer: Value = serde_json::from_slice(&answer.payload)?;
        Ok(answer["data"].take())
    }

    /// Returns the number of the server with this name.
    fn number_of(&self, name: &Value) -> io::Result<usize> {
        let is_named = |server: &Server| name.as_str() == Some(server.name());
        self.servers
            .iter()
            .position(is_named)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("leader is {name}")))
    }
}
