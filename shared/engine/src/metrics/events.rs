//! Events that could not be written, counted.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use roadstead_kubeio::events::Recorder;

/// Wire: ours; the library adds the suffix of counters.
const NAME: &str = "roadstead_events_unwritten";
const HELP: &str = "Kubernetes Events that were not written: failed are those that the API server did not take or did not answer about, \
                    dropped those of which there were too many";

/// Where the counts come from.
pub(super) type Counts = Box<dyn Fn() -> [(&'static str, u64); 2] + Send + Sync>;

/// The metric of Events that were not written.
pub(super) struct Unwritten(pub(super) Counts);

impl Unwritten {
    pub(super) fn of(recorder: Recorder) -> Self {
        Self(Box::new(move || {
            [("failed", recorder.failed()), ("dropped", recorder.dropped())]
        }))
    }
}

impl fmt::Debug for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAME)
    }
}

impl Collector for Unwritten {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family = encoder.encode_descriptor(NAME, HELP, None, MetricType::Counter)?;
        for (cause, count) in (self.0)() {
            let labels = [("cause", cause)];
            family
                .encode_family(&labels)?
                .encode_counter(&count, None::<&Exemplar<NoLabelSet, f64>>)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn events_that_were_not_written_are_told_by_cause() {
        let (mut registry, mut text) = (Registry::default(), String::new());
        let counts = Box::new(|| [("failed", 3), ("dropped", 0)]);
        registry.register_collector(Box::new(Unwritten(counts)));
        encode(&mut text, &registry).unwrap();
        assert!(
            text.contains("roadstead_events_unwritten_total{cause=\"failed\"} 3"),
            "{text}"
        );
        assert!(
            text.contains("roadstead_events_unwritten_total{cause=\"dropped\"} 0"),
            "{text}"
        );
    }
}
