//! When the certificates of listeners end and their revocation lists should be replaced, as metrics.

use net_api::Kind;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::listeners::{Certificate, Listening};

/// The certificate of each listener, as it was read last.
#[derive(Debug)]
pub(crate) struct CertificateCollector(Vec<(Kind, String, Certificate)>);

impl CertificateCollector {
    pub(crate) fn new(listeners: &[Listening]) -> Self {
        let shown = |one: &Listening| (one.kind, one.address.clone(), one.certificate.clone());
        Self(listeners.iter().map(shown).collect())
    }
}

impl Collector for CertificateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let name = "certificate_not_after_timestamp_seconds";
        let help = "When the certificate of a listener ends, in seconds since the Unix epoch";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (kind, address, certificate) in &self.0 {
            if let Some(facts) = &*certificate.read() {
                let labels = [("listener", kind.name()), ("address", address)];
                let end = i64::try_from(facts.not_after.as_secs()).unwrap_or(i64::MAX);
                ConstGauge::new(end).encode(family.encode_family(&labels)?)?;
            }
        }
        let name = "revocation_list_next_update_timestamp_seconds";
        let help = "When the first of a listener's revocation lists should be replaced, in seconds since the Unix epoch";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (kind, address, certificate) in &self.0 {
            if let Some(next) = certificate
                .read()
                .as_ref()
                .and_then(|facts| facts.next_update)
            {
                let labels = [("listener", kind.name()), ("address", address)];
                let next = i64::try_from(next.as_secs()).unwrap_or(i64::MAX);
                ConstGauge::new(next).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
