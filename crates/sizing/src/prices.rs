//! What machines and disks cost.

use serde::Deserialize;

/// A price list.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Whose prices, and of when.
    pub source: String,
    /// In which the prices are.
    pub currency: String,
    /// Of a GiB of disk for a month.
    pub disk_gib_month: f64,
    /// To choose from.
    pub machines: Vec<Machine>,
}

/// A kind of machine.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// As its vendor calls it.
    pub name: String,
    /// Cores.
    pub cores: f64,
    /// Memory in GiB.
    pub memory_gib: f64,
    /// What its network carries for long, in Gbit/s each way.
    pub network_gbps: f64,
    /// Price of a month.
    pub month: f64,
}
