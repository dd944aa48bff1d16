//! What machines, disks and traffic cost.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A price list.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Whose prices, and of when: those of machines and of the space on disks.
    pub source: String,
    /// In which the prices are.
    pub currency: String,
    /// Of a GiB of disk for a month.
    pub disk_gib_month: f64,
    /// Of operations per second of a disk.
    #[serde(default)]
    pub disk_operations: Beyond,
    /// Of MB per second of a disk.
    #[serde(default)]
    pub disk_throughput: Beyond,
    /// Of traffic from a zone to another.
    #[serde(default)]
    pub zone_traffic: Traffic,
    /// Ways to pay for machines, beside the list price.
    #[serde(default)]
    pub pricings: Vec<Pricing>,
    /// To choose from.
    pub machines: Vec<Machine>,
    /// What others say that their clusters cost.
    #[serde(default)]
    pub plans: Vec<Plan>,
}

impl Prices {
    /// The way to pay of this name; `None`: the list has none.
    #[must_use]
    pub fn pricing(&self, name: &str) -> Option<&Pricing> {
        self.pricings.iter().find(|pricing| pricing.name == name)
    }
}

/// The price of what goes beyond that which comes with a disk. By default nothing costs anything.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beyond {
    /// So much comes with each disk.
    pub included: f64,
    /// Price of one more for a month.
    pub month: f64,
    /// Whose price, and of when.
    pub source: String,
}

/// The price of traffic. By default none.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// Of a GB (10⁹ bytes), once on its way out of a zone and once more on its way into another.
    pub gb_each_way: f64,
    /// Whose price, and of when.
    pub source: String,
}

/// A way to pay for machines.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pricing {
    /// What `--pricing` calls it.
    pub name: String,
    /// Share of the list price, above 0, for machines that do not say their own in `months`.
    pub share: f64,
    /// Whether the share is an estimate.
    #[serde(default)]
    pub estimate: bool,
    /// What is bought, whose price, and of when.
    pub source: String,
}

/// A kind of machine.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
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
    /// List price of a month.
    pub month: f64,
    /// Prices of a month by names of ways to pay, where they are known and not a share.
    #[serde(default)]
    pub months: BTreeMap<String, f64>,
}

impl Machine {
    /// Price of a month; `None`: the list price.
    #[must_use]
    pub fn price(&self, pricing: Option<&Pricing>) -> f64 {
        pricing.map_or(self.month, |pricing| {
            let own = self.months.get(&pricing.name);
            own.copied().unwrap_or(self.month * pricing.share)
        })
    }
}

/// What somebody else says that a cluster for a scenario costs.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Name of the scenario.
    pub scenario: String,
    /// Who says it.
    pub name: String,
    /// Where, and when.
    pub source: String,
    /// Each part.
    pub terms: Vec<PlanTerm>,
}

/// A part of a plan.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanTerm {
    /// What for; `machines`, `disks` and `traffic between zones` stand beside those of a cluster.
    pub what: String,
    /// How many of what.
    pub of: String,
    /// What the plan says for a month; none: it does not count it.
    pub month: Option<f64>,
    /// The same by list prices; none: not known.
    pub list: Option<f64>,
}
