//! How old our leases are, computed at each scrape.
//!
//! Invariant: no value is kept between two scrapes. So a worker that has left, or on which this manager keeps no lease, has no
//! series, and the age of a lease that is not renewed always grows.
//!
//! *Source*: `spec/multikueue.md 8`.

use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use roadstead_core::name::ClusterName;

use super::{CLUSTERS_MAX, Metrics};

const NAME: &str = "roadstead_cluster_lease_age_seconds";
const HELP: &str = "Time since this manager last renewed its lease on a worker; none where it keeps none";

/// The age of each lease, by worker.
pub(super) type Ages = Box<dyn Fn() -> Vec<(ClusterName, Duration)> + Send + Sync>;

pub(super) struct LeaseAges(pub(super) Metrics);

impl fmt::Debug for LeaseAges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseAges")
    }
}

impl Collector for LeaseAges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let ages = self.0.0.ages.get().map(|ages| ages()).unwrap_or_default();
        if ages.is_empty() {
            return Ok(());
        }
        let mut family = encoder.encode_descriptor(NAME, HELP, None, MetricType::Gauge)?;
        // Why no label for further clusters: one number cannot show the ages of several leases.
        for (cluster, age) in ages.iter().take(CLUSTERS_MAX) {
            let labels = [("cluster", cluster.as_str())];
            ConstGauge::new(age.as_secs_f64()).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
