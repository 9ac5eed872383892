//! The simulated client, in the place of the client library.
//!
//! Invariants
//! - I1: like the library, a client buffers messages while it has no connection, and sends them
//!   once it is connected again (`network`).

use std::sync::Arc;
use std::time::Duration;

use async_nats::Message;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::network::Network;
use crate::nats::{Notice, Outgoing, Simulated, SimulatedNetwork};

/// Time after which an attempt to connect fails while no message arrives.
const CONNECT: Duration = Duration::from_secs(5);

struct Client {
    network: Network,
    number: usize,
}

impl SimulatedNetwork for Network {
    /// The address ends with the number of the connection's owner.
    fn connect(
        &self,
        address: &str,
        notices: UnboundedSender<Notice>,
    ) -> Result<Arc<dyn Simulated>, Duration> {
        if self.is_silent() {
            return Err(CONNECT);
        }
        if self.is_down() {
            return Err(Duration::ZERO);
        }
        let owner = address.rsplit(':').next().and_then(|owner| owner.parse().ok()).unwrap_or(0);
        let (network, number) = (self.clone(), self.connected(owner, notices));
        Ok(Arc::new(Client { network, number }))
    }
}

impl Simulated for Client {
    fn new_inbox(&self) -> String {
        format!("_INBOX.{}.{}", self.number, self.network.count())
    }

    fn subscribe(&self, subject: String) -> UnboundedReceiver<Message> {
        let (sender, answers) = unbounded_channel();
        let inbox = subject.trim_end_matches('>').to_owned();
        self.network.subscribe(self.number, inbox, sender);
        answers
    }

    fn publish(&self, message: Outgoing) {
        self.network.send(self.number, message);
    }

    fn is_connected(&self) -> bool {
        self.network.is_connected(self.number)
    }

    fn connects(&self) -> u64 {
        self.network.connects(self.number)
    }
}
