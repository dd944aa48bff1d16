//! What the rules of a configuration would remove from the data folder of a node that does not run.

use std::path::Path;

use config::Config;
use mqtt_session::Timestamp;
use net::Clock;
use store::{FolderError, RetainedForecast, forecast_retained};

use crate::settings::retained_rules;

/// What `retain` of a configuration would remove from a data folder now. `None`: it keeps everything.
///
/// # Errors
/// As of [`forecast_retained`]: a broker uses the folder, it is no data folder, or it cannot be read.
pub fn retained_forecast(
    config: &Config,
    folder: &Path,
) -> Result<Option<RetainedForecast>, FolderError> {
    let rules = retained_rules(&config.retain);
    if rules.keep_all() {
        return Ok(None);
    }
    forecast_retained(folder, &rules, Timestamp(Clock::system_ms())).map(Some)
}
