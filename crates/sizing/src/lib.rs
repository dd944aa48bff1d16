//! How many nodes of which machine a load takes, what each resource is used for, and what that costs.
//!
//! Call order: a [`Demand`], [`Slopes`] and [`Prices`]; [`fit`] finds the cheapest cluster that carries the demand, and
//! [`Needs::of`] says term by term what it takes, with the formula and the slope of each, and [`Cluster::costs`] what it costs.
//!
//! Invariants: everything is linear in the demand, but for what messages of a batch share (`slopes.rs`); each term names the slope that it rests on; what is not a measured slope is a
//! constant of this crate, and said to be one.
//!
//! Deliberately absent: measuring slopes (`heraldmq bench slopes`), and reading files.
//!
//! Where to read next: `needs.rs`.

#![forbid(unsafe_code)]

mod costs;
mod demand;
mod fit;
mod needs;
mod prices;
mod slopes;

pub use costs::{Cost, DISKS, MACHINES, Purchase, ZONE_TRAFFIC};
pub use demand::{Demand, Quality};
pub use fit::{Cluster, USED_MOST, fit};
pub use needs::{Needs, Resource, Term};
pub use prices::{Beyond, Machine, Plan, PlanTerm, Prices, Pricing, Traffic};
pub use slopes::{Batched, OfQuality, Slopes};

/// Slopes measured on the machine of the project's measurements: YAML of [`Slopes`].
pub const SLOPES: &str = include_str!("../data/slopes.yml");

/// A price list: YAML of [`Prices`].
pub const PRICES: &str = include_str!("../data/prices.yml");
