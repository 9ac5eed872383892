//! The directions through a proxy, and counts of the bytes and connections that pass.

/// The direction of bytes through a [`Proxy`](crate::Proxy).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

impl Direction {
    /// Both directions.
    pub(crate) const BOTH: [Self; 2] = [Self::ToServer, Self::ToClient];

    /// Returns this direction's index in an array that has one value for each direction.
    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// Bytes of one direction, over all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes forwarded.
    pub passed: u64,
    /// Bytes thrown away by [`Proxy::swallow`](crate::Proxy::swallow).
    pub swallowed: u64,
    /// Bytes received and not forwarded yet.
    pub held: u64,
}

/// Counts of a [`Proxy`](crate::Proxy).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections made since the start, without the refused ones.
    pub connections: u64,
    /// Connections closed at once, because of [`Proxy::refuse`](crate::Proxy::refuse) or because
    /// the server did not accept.
    pub refused: u64,
    /// Connections that are open now. A connection whose client is gone still counts until the
    /// client's bytes have reached the server.
    pub open: u64,
    /// Bytes from clients to the server.
    pub to_server: Traffic,
    /// Bytes from the server to clients.
    pub to_client: Traffic,
}
