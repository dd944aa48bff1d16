//! What `heraldmq --version` says: enough to know which sources a binary comes from, and which other nodes and data folders it
//! works with. `-V` gives the first line alone.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use peer_protocol::VERSIONS;
use store_state::Level;

/// The lines of `--version`, behind the name.
pub(crate) static LONG: LazyLock<String> = LazyLock::new(|| {
    format!(
        concat!(
            env!("CARGO_PKG_VERSION"),
            "\ncommit: ",
            env!("HERALD_BUILD_COMMIT"),
            "\ntarget: ",
            env!("HERALD_BUILD_TARGET"),
            "\noptimisation: ",
            env!("HERALD_BUILD_OPTIMISATION"),
            "\nprotocol: {}\nlevels: {}",
            "\nfeatures: MQTT 3.1, 3.1.1, 5.0; TLS (rustls, aws-lc); WebSocket; PROXY protocol; PostgreSQL{}",
        ),
        range(&VERSIONS),
        range(&(Level::OLDEST.0..=Level::NEWEST.0)),
        if cfg!(feature = "jemalloc") {
            "; jemalloc"
        } else {
            ""
        },
    )
});

/// Such as `1-8`, as `cluster status` writes levels.
fn range<T: Display>(numbers: &RangeInclusive<T>) -> String {
    format!("{}-{}", numbers.start(), numbers.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_and_the_levels_are_told() {
        let told = |name: &str| {
            let line = LONG.lines().find(|line| line.starts_with(name));
            line.unwrap_or_default().split_once(": ").unwrap().1
        };
        assert_eq!(told("protocol"), range(&VERSIONS));
        let (oldest, newest) = told("levels").split_once('-').unwrap();
        assert_eq!(oldest.parse(), Ok(Level::OLDEST.0));
        assert_eq!(newest.parse(), Ok(Level::NEWEST.0));
    }
}
