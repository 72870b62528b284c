//! Gauges: the present state, computed from the brain's reports when `/metrics` is read.
//!
//! Invariant: nothing is stored, so a deleted queue has no series, and nothing can drift.

use std::collections::BTreeMap;
use std::sync::Arc;

use roadstead_api::kueue::v1beta2::ClusterQueue as ApiClusterQueue;
use roadstead_convert::cluster_queue;
use roadstead_core::amount::Amount;
use roadstead_core::condition::Truth;
use roadstead_core::name::{ClusterQueueName, CohortName, Key, ResourceName};
use roadstead_core::report::{ClusterQueueReport, FlavorTotal, LocalQueueReport};

use super::board::Labels;
use super::standing::{Group, Standing};
use super::table::Metric;
use crate::queue_status::Latest;

/// The data from which gauges are computed.
pub(super) struct Inputs<'a> {
    pub(super) reports: &'a Latest,
    /// LocalQueues that are reported.
    pub(super) shown: &'a dyn Fn(&Key) -> bool,
    pub(super) specs: &'a [Arc<ApiClusterQueue>],
    pub(super) groups: BTreeMap<Group, u64>,
    pub(super) asked: BTreeMap<(Key, ResourceName), i128>,
    /// Admitted Workloads by ClusterQueue and by the values of the administrator's labels; `None` without such labels.
    pub(super) admitted: Option<BTreeMap<Labels, u64>>,
}

pub(super) type Series = BTreeMap<Metric, BTreeMap<Labels, f64>>;

pub(super) fn of(inputs: &Inputs<'_>) -> Series {
    let mut page = Page::default();
    page.build();
    for (name, report) in &inputs.reports.cluster_queues {
        page.cluster_queue(name.as_str(), report);
        if inputs.admitted.is_none() {
            page.set(
                Metric::AdmittedActiveWorkloads,
                &[name.as_str()],
                f64::from(report.admitted),
            );
        }
    }
    for spec in inputs.specs {
        page.quotas(spec);
    }
    for (key, report) in &inputs.reports.local_queues {
        if (inputs.shown)(key) {
            page.local_queue(key, report);
        }
    }
    page.standings(inputs);
    page.cohorts(inputs.reports);
    page.0
}

#[derive(Default)]
struct Page(Series);

impl Page {
    fn set(&mut self, metric: Metric, labels: &[&str], value: f64) {
        let labels = labels.iter().map(|label| Arc::from(*label)).collect();
        self.0.entry(metric).or_default().insert(labels, value);
    }

    fn add(&mut self, metric: Metric, labels: &[&str], value: f64) {
        let labels = labels.iter().map(|label| Arc::from(*label)).collect();
        *self.0.entry(metric).or_default().entry(labels).or_default() += value;
    }

    fn build(&mut self) {
        let version = concat!("v", env!("CARGO_PKG_VERSION"));
        let arch = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let platform = format!("{}/{arch}", std::env::consts::OS);
        // Why empty: this is not a Go program, and a reproducible build has no date.
        let labels = [version, "", "", "", "rustc", platform.as_str()];
        self.set(Metric::BuildInfo, &labels, 1.0);
    }

    fn cluster_queue(&mut self, name: &str, report: &ClusterQueueReport) {
        let active = report.pending.saturating_sub(report.inadmissible);
        self.set(Metric::PendingWorkloads, &[name, "active"], count(active));
        self.set(
            Metric::PendingWorkloads,
            &[name, "inadmissible"],
            count(report.inadmissible),
        );
        for (status, classes) in [("active", report.requests.0), ("inadmissible", report.requests.1)] {
            self.set(Metric::PendingSchedulingHashes, &[name, status], count(classes));
        }
        self.set(
            Metric::ReservingActiveWorkloads,
            &[name],
            f64::from(report.reserving),
        );
        let state = match (report.active.truth, report.active.reason) {
            (Truth::True, _) => "active",
            (Truth::False | Truth::Unknown, "Terminating") => "terminating",
            (Truth::False | Truth::Unknown, _) => "pending",
        };
        for status in ["pending", "active", "terminating"] {
            self.set(Metric::ClusterQueueStatus, &[name, status], flag(status == state));
        }
        let kinship = report.kinship.as_ref();
        let cohort = kinship.map(|kinship| kinship.parent.as_str()).unwrap_or_default();
        let root = kinship.map(|kinship| kinship.root.as_str()).unwrap_or_default();
        self.set(Metric::ClusterQueueInfo, &[name, cohort, root], 1.0);
        let share = kinship.map_or(0.0, |kinship| kinship.share.value());
        // Wire: an infinite share is written as NaN here (`spec/admission-engine.md 2.8.1`).
        let share = if share.is_infinite() { f64::NAN } else { share };
        self.set(Metric::ClusterQueueWeightedShare, &[name, cohort], share);
        for (metric, totals) in [
            (Metric::ClusterQueueResourceReservation, &report.reservation),
            (Metric::ClusterQueueResourceUsage, &report.usage),
        ] {
            for (flavor, resource, total) in each(totals) {
                let labels = [cohort, name, flavor, resource.as_str()];
                self.set(metric, &labels, natural(resource, total));
            }
        }
    }

    fn quotas(&mut self, spec: &ApiClusterQueue) {
        let spec = cluster_queue(spec);
        let cohort = spec.cohort.as_ref().map_or("", CohortName::as_str);
        // Wire: a resource without requests is written as zero.
        for resource in spec.groups.iter().flat_map(|group| &group.covered) {
            let labels = [spec.name.as_str(), resource.as_str()];
            self.add(Metric::ClusterQueueResourcePending, &labels, 0.0);
        }
        for flavor in spec.groups.iter().flat_map(|group| &group.flavors) {
            for (resource, quota) in &flavor.quotas {
                let labels = [
                    cohort,
                    spec.name.as_str(),
                    flavor.name.as_str(),
                    resource.as_str(),
                ];
                let limit = |limit: Option<Amount>| natural(resource, limit.unwrap_or(Amount::UNLIMITED));
                self.set(
                    Metric::ClusterQueueNominalQuota,
                    &labels,
                    natural(resource, quota.nominal),
                );
                self.set(
                    Metric::ClusterQueueBorrowingLimit,
                    &labels,
                    limit(quota.borrowing_limit),
                );
                self.set(
                    Metric::ClusterQueueLendingLimit,
                    &labels,
                    limit(quota.lending_limit),
                );
            }
        }
    }

    fn local_queue(&mut self, key: &Key, report: &LocalQueueReport) {
        let (name, namespace) = (&*key.name, &*key.namespace);
        let labels = [name, namespace, "active"];
        self.set(
            Metric::LocalQueuePendingWorkloads,
            &labels,
            count(report.pending.saturating_sub(report.inadmissible)),
        );
        let labels = [name, namespace, "inadmissible"];
        self.set(
            Metric::LocalQueuePendingWorkloads,
            &labels,
            count(report.inadmissible),
        );
        let labels = [name, namespace];
        self.set(
            Metric::LocalQueueReservingActiveWorkloads,
            &labels,
            f64::from(report.reserving),
        );
        self.set(
            Metric::LocalQueueAdmittedActiveWorkloads,
            &labels,
            f64::from(report.admitted),
        );
        for (truth, word) in [
            (Truth::True, "True"),
            (Truth::False, "False"),
            (Truth::Unknown, "Unknown"),
        ] {
            let labels = [name, namespace, word];
            self.set(
                Metric::LocalQueueStatus,
                &labels,
                flag(report.active.truth == truth),
            );
        }
        for (metric, totals) in [
            (Metric::LocalQueueResourceReservation, &report.reservation),
            (Metric::LocalQueueResourceUsage, &report.usage),
        ] {
            for (flavor, resource, total) in each(totals) {
                let labels = [name, namespace, flavor, resource.as_str()];
                self.set(metric, &labels, natural(resource, total));
            }
        }
        if let Some((_, score)) = &report.past {
            let labels = [name, namespace, report.cluster_queue.as_str()];
            self.set(
                Metric::LocalQueueAdmissionFairSharingUsage,
                &labels,
                score.value(),
            );
        }
    }

    fn standings(&mut self, inputs: &Inputs<'_>) {
        let of_local = |key: &Key| {
            let report = inputs.reports.local_queues.get(key)?;
            Some(Arc::<str>::from(report.cluster_queue.as_str()))
        };
        let exists = |name: &Arc<str>| {
            let name = ClusterQueueName::new(name.clone());
            inputs.reports.cluster_queues.contains_key(&name)
        };
        for (group, count) in &inputs.groups {
            #[expect(clippy::cast_precision_loss, reason = "counts of objects are small")]
            let count = *count as f64;
            let key = &group.local_queue;
            let queue = group.cluster_queue.clone().or_else(|| of_local(key));
            let queue = queue.filter(|name| exists(name));
            let shown = inputs.reports.local_queues.contains_key(key) && (inputs.shown)(key);
            let queue = queue.as_deref();
            match &group.standing {
                Standing::Finished => {
                    if let Some(queue) = queue {
                        self.add(Metric::FinishedWorkloads, &[queue], count);
                    }
                    if shown {
                        self.add(
                            Metric::LocalQueueFinishedWorkloads,
                            &[&key.name, &key.namespace],
                            count,
                        );
                    }
                }
                Standing::Unadmitted { reason, cause } => {
                    let Some(queue) = queue else { continue };
                    self.add(Metric::UnadmittedWorkloads, &[queue, reason, cause], count);
                    if shown {
                        let labels = [&*key.name, &*key.namespace, queue, reason, cause];
                        self.add(Metric::LocalQueueUnadmittedWorkloads, &labels, count);
                    }
                }
            }
        }
        for (labels, count) in inputs.admitted.iter().flatten() {
            if labels.first().is_some_and(&exists) {
                let labels: Vec<&str> = labels.iter().map(AsRef::as_ref).collect();
                #[expect(clippy::cast_precision_loss, reason = "counts of objects are small")]
                self.add(Metric::AdmittedActiveWorkloads, &labels, *count as f64);
            }
        }
        for ((key, resource), sum) in &inputs.asked {
            if let Some(queue) = of_local(key).filter(exists) {
                let sum = i64::try_from(*sum).unwrap_or(i64::MAX);
                let value = natural(resource, Amount::new(sum));
                self.add(
                    Metric::ClusterQueueResourcePending,
                    &[&queue, resource.as_str()],
                    value,
                );
            }
        }
    }

    fn cohorts(&mut self, reports: &Latest) {
        for (name, report) in &reports.cohorts {
            let name = name.as_str();
            let kinship = report.kinship.as_ref();
            let parent = kinship.map(|kinship| kinship.parent.as_str()).unwrap_or_default();
            let root = kinship.map_or(name, |kinship| kinship.root.as_str());
            self.set(Metric::CohortInfo, &[name, parent, root], 1.0);
            let share = kinship.map_or(0.0, |kinship| kinship.share.value());
            self.set(Metric::CohortWeightedShare, &[name], share);
            self.set(
                Metric::CohortSubtreeAdmittedActiveWorkloads,
                &[name],
                f64::from(report.admitted),
            );
            for (metric, amounts) in [
                (Metric::CohortSubtreeQuota, &report.quota),
                (Metric::CohortSubtreeResourceReservations, &report.reservation),
            ] {
                // Wire: a pair without quota, or without reservation, has no series, so that the series of a deleted flavor
                // disappear.
                let some = amounts.iter().filter(|(_, _, amount)| *amount > Amount::ZERO);
                for (flavor, resource, amount) in some {
                    let labels = [name, flavor.as_str(), resource.as_str()];
                    self.set(metric, &labels, natural(resource, *amount));
                }
            }
        }
    }
}

fn each(totals: &[FlavorTotal]) -> impl Iterator<Item = (&str, &ResourceName, Amount)> {
    totals.iter().flat_map(|flavor| {
        let resources = flavor.resources.iter();
        resources.map(|resource| (flavor.name.as_str(), &resource.name, resource.total))
    })
}

/// In cores for `cpu`, in base units for everything else; infinite without limit.
fn natural(resource: &ResourceName, amount: Amount) -> f64 {
    if amount.is_unlimited() {
        return f64::INFINITY;
    }
    #[expect(clippy::cast_precision_loss, reason = "metrics are 64-bit floats")]
    let value = amount.get() as f64;
    if resource.as_str() == "cpu" {
        value / 1000.0
    } else {
        value
    }
}

fn count(number: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts of objects are small")]
    let number = number as f64;
    number
}

fn flag(is_it: bool) -> f64 {
    if is_it { 1.0 } else { 0.0 }
}
