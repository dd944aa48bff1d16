//! The limits of a configuration, in the form that they are compared in.

use std::num::NonZero;

use config::{AbuseConfig, Network};

use crate::slow_start::{Bounds, Logins};
use crate::source::Source;

/// `None`: no limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) connections: Option<NonZero<u32>>,
    pub(crate) connections_per_second: Option<NonZero<u32>>,
    pub(crate) failed_logins: Option<NonZero<u16>>,
    pub(crate) logins: Option<NonZero<u32>>,
    pub(crate) failed_logins_of_address: Option<NonZero<u32>>,
    pub(crate) longest_wait_ms: u64,
    pub(crate) flapping_connections: Option<NonZero<u16>>,
    pub(crate) flapping_window_ms: u64,
    pub(crate) flapping_ban_ms: u64,
    include_loopback: bool,
}

impl From<&AbuseConfig> for Limits {
    fn from(config: &AbuseConfig) -> Self {
        // The configuration counts all three in seconds, up to a day or a week.
        let ms = |time: std::time::Duration| time.as_secs() * 1_000;
        Self {
            connections: config.connections_per_address,
            connections_per_second: config.connections_per_second_per_address,
            failed_logins: config.failed_logins,
            logins: config.logins_per_address,
            failed_logins_of_address: config.failed_logins_per_minute_per_address,
            longest_wait_ms: ms(config.failed_login_wait),
            flapping_connections: config.flapping_connections,
            flapping_window_ms: ms(config.flapping_window),
            flapping_ban_ms: ms(config.flapping_ban),
            include_loopback: config.include_loopback,
        }
    }
}

impl Limits {
    /// Whether anything is limited of logins that show credentials.
    pub(crate) fn judges_attempts(&self) -> bool {
        self.failed_logins.is_some()
            || self.logins.is_some()
            || self.failed_logins_of_address.is_some()
    }

    /// How many logins for one user name at one address, or with the same credentials there, are judged at the same time.
    pub(crate) fn logins_of_address(&self) -> Bounds {
        let most = self.logins.map_or(u32::MAX, NonZero::get);
        let first = self.failed_logins.map_or(u32::MAX, |n| n.get().into());
        Bounds {
            first: Logins(first),
            most: Logins(most),
        }
    }

    /// How many logins for one user name are judged at the same time, of all addresses that it has not logged in
    /// from.
    pub(crate) fn logins_of_account(&self) -> Bounds {
        let most = Logins(u32::MAX);
        Bounds {
            most,
            ..self.logins_of_address()
        }
    }

    /// What an address is counted as; `None`: it is not.
    pub(crate) fn counted(&self, source: Source) -> Option<Network> {
        let is_counted = self.include_loopback || !source.is_this_machine();
        is_counted.then(|| source.network())
    }
}
