//! Groups over a log on simulated and on real disks.

mod checkpoints;
mod damage;
mod faults;
mod folder;
mod ledger;
mod power_loss;
mod proposals;
