//! What a broker or a load asks of the machine.

/// Which end of the connections is on this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The one that listens.
    Broker,
    /// The one that connects.
    LoadTool,
}

/// What is asked of the machine by one side.
#[derive(Clone, PartialEq, Debug)]
pub struct Need {
    /// Whose settings matter.
    pub side: Side,
    /// Connections at the same time, of all processes together.
    pub connections: u64,
    /// Processes that share them evenly; 0 is taken as 1.
    pub processes: u32,
    /// Bytes that the program itself holds for a connection; 0 if that is not known.
    pub bytes_per_connection: u64,
    /// Addresses that connections come from, on the side of the load; 0 is taken as 1.
    pub source_addresses: u32,
    /// Pairs of address and port that they go to, on the side of the load; 0 is taken as 1.
    pub targets: u32,
    /// At which rate they are opened, if that is known. Otherwise all may come at once, as they do after a
    /// restart of the broker.
    pub connects_per_second: Option<f64>,
    /// Where the broker listens, on its side.
    pub listening_port: Option<u16>,
    /// Whether both ends are on this machine.
    pub targets_loopback: bool,
}

impl Need {
    /// Of a side with so many connections: one process, address and target, remote, at any rate.
    #[must_use]
    pub fn new(side: Side, connections: u64) -> Self {
        Self {
            side,
            connections,
            processes: 1,
            bytes_per_connection: 0,
            source_addresses: 1,
            targets: 1,
            connects_per_second: None,
            listening_port: None,
            targets_loopback: false,
        }
    }

    pub(super) fn connections_per_process(&self) -> u64 {
        self.connections.div_ceil(self.processes.max(1).into())
    }

    /// Sockets on this machine: of a connection over loopback both ends.
    pub(super) fn sockets(&self) -> u64 {
        match self.targets_loopback {
            true => self.connections.saturating_mul(2),
            false => self.connections,
        }
    }

    /// Connections that may have the same source port, since something else tells them apart.
    pub(super) fn connections_per_port(&self) -> u64 {
        u64::from(self.source_addresses.max(1)) * u64::from(self.targets.max(1))
    }
}
