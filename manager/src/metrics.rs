//! Metrics of the federation: the reference's two counters, and what tells a slow worker from a slow manager.
//!
//! Invariant: labels are names of clusters and of ClusterQueues, and tokens from closed lists; never names of jobs. At most
//! [`CLUSTERS_MAX`] clusters are told apart, the others share one label.
//!
//! *Source*: `spec/multikueue.md 8`.

mod leases;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use roadstead_core::dispatch::Cause;
use roadstead_core::name::ClusterName;
use roadstead_engine::leader::Leadership;

use self::leases::{Ages, LeaseAges};

/// Clusters with a label of their own: those of fifty `MultiKueueConfig`s, which list 20 each.
const CLUSTERS_MAX: usize = 1_000;
/// The label of all further clusters.
const OTHER: &str = "other";

type Labels = Vec<(&'static str, String)>;
type Counters = Family<Labels, Counter>;
type Gauges = Family<Labels, Gauge<f64, AtomicU64>>;
type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// A step on the way of a Workload, and from when to when its time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hop {
    /// From quota on the manager to a copy on a worker.
    Offer,
    /// From quota on the manager to the choice of a worker.
    Place,
    /// From the choice to the job on the worker.
    Start,
}

impl Hop {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Offer => "offer",
            Self::Place => "place",
            Self::Start => "start",
        }
    }
}

/// Why a Workload is to be dispatched under a new number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anew {
    /// The run of the dispatch before has stopped.
    Stopped,
    /// The run of the dispatch before is given up.
    WorkerLost,
    /// A copy showed a higher number: our storage was restored from a backup, or another client wrote that number.
    HigherSeen,
}

impl Anew {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Stopped => "Stopped",
            Self::WorkerLost => "WorkerLost",
            Self::HigherSeen => "HigherNumberSeen",
        }
    }
}

/// How a request to a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was answered; some refusals are expected answers.
    Answered,
    Failed,
}

#[derive(Clone)]
pub(crate) struct Metrics(Arc<Inner>);

struct Inner {
    leadership: Leadership,
    known: Mutex<BTreeSet<ClusterName>>,
    /// The watches with a series of their own, so that the series can be removed.
    watched: Mutex<BTreeSet<(ClusterName, Labels)>>,
    dispatched: Counters,
    admitted: Counters,
    hops: Histograms,
    requests: Histograms,
    errors: Counters,
    conflicts: Counters,
    connected: Gauges,
    contact: Gauges,
    lag: Gauges,
    orphans: Counters,
    removed: Counters,
    told: Counters,
    epochs: Counters,
    fenced: Counters,
    ages: OnceLock<Ages>,
}

impl Metrics {
    pub(crate) fn new(leadership: Leadership) -> Self {
        // `quick` reaches from 1 ms to about 8 s, `slow` from 10 ms to about 4.4 h.
        let quick: fn() -> Histogram = || Histogram::new(exponential_buckets(0.001, 2.0, 14));
        let slow: fn() -> Histogram = || Histogram::new(exponential_buckets(0.01, 3.0, 14));
        Self(Arc::new(Inner {
            leadership,
            known: Mutex::default(),
            watched: Mutex::default(),
            dispatched: Family::default(),
            admitted: Family::default(),
            hops: Family::new_with_constructor(slow),
            requests: Family::new_with_constructor(quick),
            errors: Family::default(),
            conflicts: Family::default(),
            connected: Family::default(),
            contact: Family::default(),
            lag: Family::default(),
            orphans: Family::default(),
            removed: Family::default(),
            told: Family::default(),
            epochs: Family::default(),
            fenced: Family::default(),
            ages: OnceLock::new(),
        }))
    }

    /// Registers all metrics for `/metrics`.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let all = &*self.0;
        // Wire: the first two are the reference's, the rest is ours.
        let counters = [
            (
                "multikueue_workloads_dispatched",
                "Copies of workloads created on workers",
                &all.dispatched,
            ),
            (
                "multikueue_workloads_admitted",
                "Workloads for which a worker was chosen",
                &all.admitted,
            ),
            (
                "roadstead_cluster_request_errors",
                "Writes to a worker, or questions for a sign of life, that failed",
                &all.errors,
            ),
            (
                "roadstead_cluster_conflicts",
                "Writes to a worker that met a newer version",
                &all.conflicts,
            ),
            (
                "roadstead_orphans_found",
                "Objects of ours on a worker whose owner is gone",
                &all.orphans,
            ),
            (
                "roadstead_candidates_removed",
                "Times a worker became no candidate for a workload, by reason",
                &all.removed,
            ),
            (
                "roadstead_reasons_told",
                "Times a top reason for waiting was told, by reason",
                &all.told,
            ),
            (
                "roadstead_dispatches_begun_anew",
                "Times a dispatch ended and the next one of the workload got a higher number, by the worker that held it, if one did, \
                 and by reason",
                &all.epochs,
            ),
            (
                "roadstead_fenced_copies_seen",
                "Copies of workloads that a worker was seen to have stopped because it had not heard of this manager",
                &all.fenced,
            ),
        ];
        for (name, help, family) in counters {
            registry.register(name, help, family.clone());
        }
        registry.register(
            "roadstead_dispatch_hop_seconds",
            "Time of each step from quota on the manager to the job on a worker",
            all.hops.clone(),
        );
        registry.register(
            "roadstead_cluster_request_seconds",
            "Time of writes to a worker and of the signs of life it is asked for",
            all.requests.clone(),
        );
        registry.register(
            "roadstead_cluster_connected",
            "Whether a worker is connected",
            all.connected.clone(),
        );
        registry.register(
            "roadstead_cluster_last_contact_timestamp_seconds",
            "When a worker last gave a sign of life",
            all.contact.clone(),
        );
        registry.register(
            "roadstead_cluster_watch_lag_seconds",
            "Time since the last event or bookmark of a watch on a worker; about a minute when nothing happens there",
            all.lag.clone(),
        );
        registry.register_collector(Box::new(LeaseAges(self.clone())));
    }

    pub(crate) fn show_lease_ages(&self, ages: Ages) {
        // Why the result does not matter: there is one registry of workers in a process.
        let _ = self.0.ages.set(ages);
    }

    /// Counts a dispatch that is over; called when the number of the next one is stored. `holder` is the cluster on which it was
    /// placed.
    pub(crate) fn begun_anew(&self, holder: Option<&ClusterName>, why: Anew) {
        let mut labels = holder.map_or_else(|| vec![("cluster", String::new())], |cluster| self.of(cluster));
        labels.push(("reason", why.as_str().to_owned()));
        self.0.epochs.get_or_create(&labels).inc();
    }

    /// Counts a copy that a worker has stopped by itself.
    pub(crate) fn fenced(&self, cluster: &ClusterName) {
        self.0.fenced.get_or_create(&self.of(cluster)).inc();
    }

    /// Counts a copy that was created.
    pub(crate) fn dispatched(&self, cluster_queue: &str, cluster: &ClusterName) {
        self.0
            .dispatched
            .get_or_create(&self.placed(cluster_queue, cluster))
            .inc();
    }

    /// Counts a worker that was chosen.
    pub(crate) fn admitted(&self, cluster_queue: &str, cluster: &ClusterName) {
        self.0
            .admitted
            .get_or_create(&self.placed(cluster_queue, cluster))
            .inc();
    }

    /// Records a step that began at `since`, which is known to the second.
    pub(crate) fn hop(&self, hop: Hop, cluster: &ClusterName, since: Timestamp, now: Timestamp) {
        let mut labels = self.of(cluster);
        labels.push(("hop", hop.as_str().to_owned()));
        let took = now.duration_since(since).as_secs_f64().max(0.0);
        self.0.hops.get_or_create(&labels).observe(took);
    }

    /// Records a write to a worker, or a question for a sign of life.
    pub(crate) fn request(&self, cluster: &ClusterName, took: Duration, ended: Ended) {
        let labels = self.of(cluster);
        self.0.requests.get_or_create(&labels).observe(took.as_secs_f64());
        if ended == Ended::Failed {
            self.0.errors.get_or_create(&labels).inc();
        }
    }

    /// Counts a write to a worker that met a newer version.
    pub(crate) fn conflict(&self, cluster: &ClusterName) {
        self.0.conflicts.get_or_create(&self.of(cluster)).inc();
    }

    /// Records a sign of life of a worker.
    #[expect(clippy::cast_precision_loss, reason = "seconds fit for some million years")]
    pub(crate) fn contact(&self, cluster: &ClusterName, now: Timestamp) {
        let labels = self.of(cluster);
        self.0.contact.get_or_create(&labels).set(now.as_second() as f64);
    }

    /// Records how long a watch of this kind has been silent, if it ever received something.
    pub(crate) fn lag(&self, cluster: &ClusterName, kind: &str, silent_for: Option<Duration>) {
        let mut labels = self.of(cluster);
        labels.push(("kind", kind.to_owned()));
        if let Some(silent_for) = silent_for {
            let seconds = silent_for.as_secs_f64();
            self.0.lag.get_or_create(&labels).set(seconds);
            self.watched().insert((cluster.clone(), labels));
        }
    }

    pub(crate) fn connected(&self, cluster: &ClusterName, is_connected: bool) {
        let labels = self.of(cluster);
        self.0
            .connected
            .get_or_create(&labels)
            .set(f64::from(u8::from(is_connected)));
        if !is_connected {
            self.unwatched(cluster);
        }
    }

    /// Removes the series of the watches on a worker. Why: a lag that does not change would look like a healthy watch.
    fn unwatched(&self, cluster: &ClusterName) {
        self.watched().retain(|(name, labels)| {
            let stays = name != cluster;
            if !stays {
                self.0.lag.remove(labels);
            }
            stays
        });
    }

    /// Removes the gauges of a worker that has left; its counters stay.
    pub(crate) fn left(&self, cluster: &ClusterName) {
        let labels = self.of(cluster);
        self.0.connected.remove(&labels);
        self.0.contact.remove(&labels);
        self.unwatched(cluster);
        self.known().remove(cluster);
    }

    /// Counts a Workload that is gone on the manager and has objects on a worker.
    pub(crate) fn orphan(&self, cluster: &ClusterName) {
        self.0.orphans.get_or_create(&self.of(cluster)).inc();
    }

    /// Counts a worker that was excluded for a Workload.
    pub(crate) fn removed(&self, cluster: &ClusterName, cause: Cause) {
        let mut labels = self.of(cluster);
        labels.push(("reason", cause.as_str().to_owned()));
        self.0.removed.get_or_create(&labels).inc();
    }

    /// Counts a reason for waiting that was told to the user.
    pub(crate) fn told(&self, reason: &str) {
        let labels = vec![("reason", reason.to_owned())];
        self.0.told.get_or_create(&labels).inc();
    }

    fn placed(&self, cluster_queue: &str, cluster: &ClusterName) -> Labels {
        let mut labels = vec![("cluster_queue", cluster_queue.to_owned())];
        labels.extend(self.of(cluster));
        labels.push(("replica_role", self.0.leadership.role().to_owned()));
        labels
    }

    fn of(&self, cluster: &ClusterName) -> Labels {
        let mut known = self.known();
        let fits = known.contains(cluster) || known.len() < CLUSTERS_MAX;
        if fits {
            known.insert(cluster.clone());
        }
        let name = if fits { cluster.as_str() } else { OTHER };
        vec![("cluster", name.to_owned())]
    }

    fn watched(&self) -> std::sync::MutexGuard<'_, BTreeSet<(ClusterName, Labels)>> {
        self.0.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeSet<ClusterName>> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use jiff::Timestamp;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;
    use roadstead_api::config::Config;
    use roadstead_api::kueue::v1beta2::Workload;
    use roadstead_core::cluster::link::{Event, Link};
    use roadstead_core::dispatch::Cause;
    use roadstead_core::lease::{Grant, Moment, Terms};
    use roadstead_engine::clock::Uptime;
    use roadstead_engine::leader::Leadership;
    use serde_json::{from_value, json};

    use super::{Anew, CLUSTERS_MAX, Ended, Hop, Metrics};
    use crate::remote::Remote;
    use crate::remote::registry::Registry as Workers;

    fn alone() -> Metrics {
        let mut config = Config::without_file("own");
        config.leader_election.leader_elect = false;
        Metrics::new(Leadership::assumed(&config))
    }

    fn shown(metrics: &Metrics) -> String {
        let (mut registry, mut text) = (Registry::default(), String::new());
        metrics.register(&mut registry);
        encode(&mut text, &registry).unwrap();
        text
    }

    /// Spec: multikueue 8
    #[test]
    fn the_two_of_the_reference_have_its_names_and_labels_and_ours_name_the_cluster() {
        let (metrics, east) = (alone(), "east".into());
        let at = |second| Timestamp::from_second(second).unwrap();
        metrics.dispatched("team", &east);
        metrics.admitted("team", &east);
        metrics.hop(Hop::Place, &east, at(10), at(12));
        metrics.request(&east, Duration::from_millis(3), Ended::Answered);
        metrics.request(&east, Duration::from_millis(3), Ended::Failed);
        metrics.conflict(&east);
        metrics.orphan(&east);
        metrics.removed(&east, Cause::NameConflict);
        metrics.told("WaitingForWorkers");
        metrics.connected(&east, true);
        metrics.contact(&east, at(99));
        metrics.lag(&east, "Workload", Some(Duration::from_millis(1500)));
        metrics.lag(&east, "Job", None);
        let text = shown(&metrics);
        for line in [
            "multikueue_workloads_dispatched_total{cluster_queue=\"team\",cluster=\"east\",replica_role=\"standalone\"} 1",
            "multikueue_workloads_admitted_total{cluster_queue=\"team\",cluster=\"east\",replica_role=\"standalone\"} 1",
            "roadstead_dispatch_hop_seconds_sum{cluster=\"east\",hop=\"place\"} 2.0",
            "roadstead_cluster_request_seconds_count{cluster=\"east\"} 2",
            "roadstead_cluster_request_errors_total{cluster=\"east\"} 1",
            "roadstead_cluster_conflicts_total{cluster=\"east\"} 1",
            "roadstead_orphans_found_total{cluster=\"east\"} 1",
            "roadstead_candidates_removed_total{cluster=\"east\",reason=\"NameConflictOnCluster\"} 1",
            "roadstead_reasons_told_total{reason=\"WaitingForWorkers\"} 1",
            "roadstead_cluster_connected{cluster=\"east\"} 1.0",
            "roadstead_cluster_last_contact_timestamp_seconds{cluster=\"east\"} 99.0",
            "roadstead_cluster_watch_lag_seconds{cluster=\"east\",kind=\"Workload\"} 1.5",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} in\n{text}");
        }
        assert!(!text.contains("kind=\"Job\""), "nothing was heard of it");
        metrics.connected(&east, false);
        assert!(!shown(&metrics).contains("roadstead_cluster_watch_lag_seconds{"));
        metrics.left(&east);
        assert!(!shown(&metrics).contains("roadstead_cluster_connected{"));
    }

    /// Spec: multikueue 8; safety 3.1, 3.3
    #[tokio::test(start_paused = true)]
    async fn leases_numbers_and_fences_are_told_for_each_cluster() {
        let (metrics, workers) = (alone(), Arc::<Workers>::default());
        assert!(!shown(&metrics).contains("roadstead_cluster_lease_age_seconds"));
        let uptime = Uptime::start();
        let shown_of = workers.clone();
        metrics.show_lease_ages(Box::new(move || shown_of.lease_ages(uptime.now())));
        let remote = |name: &str| {
            let grant = Grant::new(Moment::default(), Terms::of(Duration::from_secs(30)));
            let link = Link::new(Timestamp::UNIX_EPOCH, grant);
            Arc::new(Remote::new(name.into(), (&[], &Arc::default()), link))
        };
        let (east, west) = (remote("east"), remote("west"));
        workers.insert(east.clone());
        workers.insert(west);
        east.step(Event::LeaseRenewed(uptime.now()));
        tokio::time::advance(Duration::from_secs(7)).await;
        let age = |text: &str| {
            let lines = text
                .lines()
                .filter(|line| line.starts_with("roadstead_cluster_lease_age_seconds{"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let wanted = "roadstead_cluster_lease_age_seconds{cluster=\"east\"} 7.0";
        assert_eq!(age(&shown(&metrics)), [wanted], "no lease is kept in west");
        east.step(Event::LeaseRefused);
        assert!(age(&shown(&metrics)).is_empty());

        east.tell_fences(&metrics);
        let copy = |version: u32, fenced: bool| -> Workload {
            let notes = if fenced {
                json!({"roadstead.dev/fenced": "1"})
            } else {
                json!({})
            };
            let metadata = json!({"namespace": "ns", "name": "w", "resourceVersion": version.to_string(), "annotations": notes});
            from_value(json!({"metadata": metadata, "spec": {"podSets": []}})).unwrap()
        };
        for (version, fenced) in [(1, false), (2, true), (3, true)] {
            east.workloads.observe(copy(version, fenced));
        }
        metrics.begun_anew(Some(&"east".into()), Anew::WorkerLost);
        metrics.begun_anew(None, Anew::HigherSeen);
        let text = shown(&metrics);
        for line in [
            "roadstead_fenced_copies_seen_total{cluster=\"east\"} 1",
            "roadstead_dispatches_begun_anew_total{cluster=\"east\",reason=\"WorkerLost\"} 1",
            "roadstead_dispatches_begun_anew_total{cluster=\"\",reason=\"HigherNumberSeen\"} 1",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} in\n{text}");
        }
    }

    #[test]
    fn clusters_beyond_the_limit_share_a_label() {
        let metrics = alone();
        for index in 0..CLUSTERS_MAX + 5 {
            metrics.conflict(&format!("c{index}").into());
        }
        let text = shown(&metrics);
        let series = text
            .lines()
            .filter(|line| line.starts_with("roadstead_cluster_conflicts_total{"));
        assert_eq!(series.count(), CLUSTERS_MAX + 1);
        assert!(text.contains("{cluster=\"other\"} 5"));
    }
}
