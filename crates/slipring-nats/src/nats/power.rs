//! The check whether servers sync to disk before they acknowledge.

use std::time::Duration;

use async_nats::HeaderMap;
use serde_json::Value;

use super::client::Outgoing;
use super::connection::Connection;
use super::server::Server;
use crate::errors::Error;

/// Time for which the servers' answers are collected.
const COLLECT: Duration = Duration::from_millis(500);

/// Asks all servers, as a user of their system account. Returns whether the servers always sync.
/// Only servers count that have JetStream and answer.
pub async fn syncs_always(system: &Server) -> Result<bool, Error> {
    let connection = Connection::open(system).await?;
    let client = &connection.client;
    let failed = |why: String| Error::Unreachable { address: system.address(), why };
    let inbox = client.new_inbox();
    let mut answers = client.subscribe(inbox.clone()).await.map_err(failed)?;
    let asked = Outgoing {
        subject: "$SYS.REQ.SERVER.PING.VARZ".into(),
        reply: Some(inbox),
        headers: HeaderMap::new(),
        payload: "".into(),
    };
    client.publish(asked).await.map_err(failed)?;
    let (mut servers, mut always) = (0, true);
    while let Ok(Some(answer)) = tokio::time::timeout(COLLECT, answers.next()).await {
        if answer.status == Some(async_nats::StatusCode::NO_RESPONDERS) {
            break;
        }
        let Ok(value) = serde_json::from_slice::<Value>(&answer.payload) else { continue };
        let config = &value["data"]["jetstream"]["config"];
        if config.is_object() {
            servers += 1;
            always &= config["sync_always"] == true;
        }
    }
    if servers == 0 {
        let why = format!(
            "no server tells its settings to the user at {}: use a user of the system account \
             (Sink::check_power), or confirm the settings (Sink::confirm_power)",
            system.address()
        );
        return Err(Error::NotDurable { why });
    }
    Ok(always)
}
