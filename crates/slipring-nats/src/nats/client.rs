//! The part of the client library that this crate uses.
//!
//! Tests put a simulated client in the library's place, so that sinks and sources run without a
//! socket and under a clock of their own.

use std::sync::atomic::Ordering::Relaxed;

use async_nats::connection::State;
use async_nats::{HeaderMap, Message, ServerAddr};
use bytes::Bytes;
use futures_util::StreamExt as _;

/// A client of the library, or of the simulation.
#[derive(Clone)]
pub enum Client {
    Library(async_nats::Client),
    #[cfg(test)]
    Simulated(std::sync::Arc<dyn Simulated>),
}

/// The messages that the server sends to the subscription of a client.
pub enum Answers {
    Library(async_nats::Subscriber),
    #[cfg(test)]
    Simulated(tokio::sync::mpsc::UnboundedReceiver<Message>),
}

/// A message to the server.
pub struct Outgoing {
    pub subject: String,
    /// Subject of the answer; `None` if no answer is wanted.
    pub reply: Option<String>,
    pub headers: HeaderMap,
    pub payload: Bytes,
}

impl Client {
    pub fn new_inbox(&self) -> String {
        match self {
            Client::Library(client) => client.new_inbox(),
            #[cfg(test)]
            Client::Simulated(client) => client.new_inbox(),
        }
    }

    /// Subscribes to `subject`. If that fails, returns the reason.
    pub async fn subscribe(&self, subject: String) -> Result<Answers, String> {
        match self {
            Client::Library(client) => {
                let answers = client.subscribe(subject).await;
                answers.map(Answers::Library).map_err(|error| error.to_string())
            }
            #[cfg(test)]
            Client::Simulated(client) => Ok(Answers::Simulated(client.subscribe(subject))),
        }
    }

    /// Hands a message to the library's buffer, and waits for room there. If that fails, returns
    /// the reason.
    pub async fn publish(&self, message: Outgoing) -> Result<(), String> {
        match self {
            Client::Library(client) => {
                let Outgoing { subject, reply, headers, payload } = message;
                let published = match reply {
                    Some(reply) if headers.is_empty() => {
                        client.publish_with_reply(subject, reply, payload).await
                    }
                    Some(reply) => {
                        client
                            .publish_with_reply_and_headers(subject, reply, headers, payload)
                            .await
                    }
                    None => client.publish_with_headers(subject, headers, payload).await,
                };
                published.map_err(|error| error.to_string())
            }
            #[cfg(test)]
            Client::Simulated(client) => {
                client.publish(message);
                Ok(())
            }
        }
    }

    /// Sends a request. Returns its answer, or the reason why none came.
    pub async fn request(&self, subject: String, body: Bytes) -> Result<Message, String> {
        match self {
            Client::Library(client) => {
                client.request(subject, body).await.map_err(|error| error.to_string())
            }
            #[cfg(test)]
            Client::Simulated(client) => {
                let inbox = client.new_inbox();
                let mut answers = client.subscribe(inbox.clone());
                let headers = HeaderMap::new();
                client.publish(Outgoing { subject, reply: Some(inbox), headers, payload: body });
                let no_responders = Some(async_nats::StatusCode::NO_RESPONDERS);
                match tokio::time::timeout(super::REQUEST, answers.recv()).await {
                    Ok(Some(message)) if message.status == no_responders => {
                        Err("no responders".into())
                    }
                    Ok(Some(message)) => Ok(message),
                    Ok(None) => Err("the client has given up".into()),
                    Err(_) => Err("request timed out".into()),
                }
            }
        }
    }

    pub fn is_connected(&self) -> bool {
        match self {
            Client::Library(client) => client.connection_state() == State::Connected,
            #[cfg(test)]
            Client::Simulated(client) => client.is_connected(),
        }
    }

    /// Returns how often the client has connected. The client library counts with relaxed
    /// additions, and nothing here depends on their memory order.
    pub fn connects(&self) -> u64 {
        match self {
            Client::Library(client) => client.statistics().connects.load(Relaxed),
            #[cfg(test)]
            Client::Simulated(client) => client.connects(),
        }
    }

    /// Returns the addresses that the client knows of the servers.
    pub async fn pool(&self) -> Vec<ServerAddr> {
        match self {
            Client::Library(client) => {
                let pool = client.server_pool().await.unwrap_or_default();
                pool.into_iter().map(|server| server.addr).collect()
            }
            #[cfg(test)]
            Client::Simulated(_) => Vec::new(),
        }
    }

    /// Leaves the server for another one. Returns `false` if the client has given up.
    pub async fn reconnect(&self) -> bool {
        match self {
            Client::Library(client) => client.force_reconnect().await.is_ok(),
            #[cfg(test)]
            Client::Simulated(_) => true,
        }
    }

    /// Returns the server's own number.
    pub fn server_id(&self) -> String {
        match self {
            Client::Library(client) => client.server_info().server_id,
            #[cfg(test)]
            Client::Simulated(_) => String::new(),
        }
    }

    pub fn version(&self) -> String {
        match self {
            Client::Library(client) => client.server_info().version,
            #[cfg(test)]
            Client::Simulated(_) => "2.14.0".into(),
        }
    }

    pub fn is_in_cluster(&self) -> bool {
        match self {
            Client::Library(client) => client.server_info().cluster.is_some(),
            #[cfg(test)]
            Client::Simulated(_) => false,
        }
    }

    /// Returns the server's size limit for messages, in bytes, headers included.
    pub fn max_payload(&self) -> usize {
        match self {
            Client::Library(client) => client.max_payload(),
            #[cfg(test)]
            Client::Simulated(_) => 1 << 20,
        }
    }
}

impl Answers {
    /// Waits for the next message. Returns `None` if the connection is closed.
    pub async fn next(&mut self) -> Option<Message> {
        match self {
            Answers::Library(answers) => answers.next().await,
            #[cfg(test)]
            Answers::Simulated(answers) => answers.recv().await,
        }
    }
}

/// A client of a simulated network.
#[cfg(test)]
pub trait Simulated: Send + Sync {
    fn new_inbox(&self) -> String;
    fn subscribe(&self, subject: String) -> tokio::sync::mpsc::UnboundedReceiver<Message>;
    fn publish(&self, message: Outgoing);
    fn is_connected(&self) -> bool;
    fn connects(&self) -> u64;
}

/// A network in the place of the system's.
#[cfg(test)]
pub trait SimulatedNetwork: Send + Sync {
    /// Connects to the server at `address`. If that fails, returns the time that it takes.
    fn connect(
        &self,
        address: &str,
        notices: tokio::sync::mpsc::UnboundedSender<super::Notice>,
    ) -> Result<std::sync::Arc<dyn Simulated>, std::time::Duration>;
}

#[cfg(test)]
thread_local! {
    /// Network of this thread's connections, if it is simulated.
    pub static NETWORK: std::cell::RefCell<Option<std::sync::Arc<dyn SimulatedNetwork>>> =
        const { std::cell::RefCell::new(None) };
}
