//! Groups over a log on simulated and on real disks.

mod chaos;
mod checkpoints;
mod cluster;
mod damage;
mod faults;
mod floor;
mod folder;
mod ledger;
mod power_loss;
mod proposals;
mod replicas;
mod scrub;
mod splits;
