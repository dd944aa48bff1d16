//! What `heraldmq --version` says: enough to know which sources a binary comes from. `-V` gives the first line alone.

/// The lines of `--version`, behind the name.
pub(crate) const LONG: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit: ",
    env!("HERALD_BUILD_COMMIT"),
    "\ntarget: ",
    env!("HERALD_BUILD_TARGET"),
    "\noptimisation: ",
    env!("HERALD_BUILD_OPTIMISATION"),
    "\nfeatures: MQTT 3.1, 3.1.1, 5.0; TLS (rustls, aws-lc); WebSocket; PROXY protocol; PostgreSQL; jemalloc",
);
