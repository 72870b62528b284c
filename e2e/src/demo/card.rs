//! The result, as a card for users and as JSON for tests.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::observer::ledger::Violation;

/// The result of a demo.
#[derive(Debug, Clone, Serialize)]
pub struct Card {
    /// Jobs created on the manager.
    pub submitted: usize,
    /// Jobs that the manager knows to have succeeded.
    pub finished: usize,
    /// Jobs that are larger than every worker, and wait with a reason.
    pub never_fit: usize,
    /// The reason that each of the `never_fit` jobs shows.
    pub never_fit_reasons: Vec<String>,
    /// Jobs that should have finished and did not.
    pub unfinished: Vec<String>,
    /// Workloads that ran in two clusters at once, or to the end more than once.
    pub duplicate_runs: usize,
    /// Objects in workers without a counterpart on the manager, at the end.
    pub orphans: usize,
    /// From the creation of a job on the manager until it may run in a worker, the wait for quota included.
    pub dispatch_ms: Percentiles,
    /// As `dispatch_ms`, only for jobs that did not wait for quota or a lost cluster.
    pub dispatch_idle_ms: Percentiles,
    /// Which API servers: `embedded` or `real`.
    pub control_plane: &'static str,
    /// Names of the clusters, the manager's first.
    pub clusters: Vec<String>,
    /// The accident and its result; absent with `--calm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accident: Option<Accident>,
    /// Whether the job left the sick node; absent with `--calm`, and with real API servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evacuation: Option<Evacuation>,
    /// Where the pods of the group ran.
    pub pod_group: Option<PodGroup>,
    /// Broken invariants of `spec/safety.md` section 1.
    pub violations: Vec<Violation>,
    /// From the start of the program until the card, builds included, seconds.
    pub seconds: f64,
    /// From the start of the program until all workers were registered, seconds.
    pub setup_seconds: f64,
    /// Resident memory of the manager's process at the end, megabytes.
    pub manager_rss_mb: f64,
}

/// What happened while a worker could not be reached.
#[derive(Debug, Clone, Serialize)]
pub struct Accident {
    /// The name of the worker.
    pub cluster: String,
    /// How long the link was cut, seconds.
    pub seconds: f64,
    /// The job that was followed.
    pub job: String,
    /// Whether the job went on and ended while the manager could not reach the worker.
    pub ended_unseen: bool,
    /// From healing until the manager showed the job's end, milliseconds.
    pub seen_after_ms: Option<u64>,
}

/// What happened when the node under an `AppWrapper` was marked `EVICT`.
#[derive(Debug, Clone, Serialize)]
pub struct Evacuation {
    /// The `AppWrapper`.
    pub job: String,
    /// How it moved, if it did.
    pub moved: Option<Moved>,
}

/// A group of pods that were submitted one by one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PodGroup {
    /// The group.
    pub job: String,
    /// The number of its pods.
    pub pods: usize,
    /// The number of pods that ran, by worker.
    pub ran: BTreeMap<String, usize>,
}

impl PodGroup {
    /// Whether all its pods ran in one worker.
    pub fn ran_together(&self) -> bool {
        self.ran.len() == 1 && self.ran.values().all(|pods| *pods == self.pods)
    }
}

/// A move from one node to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// The name of the marked node.
    pub from: String,
    /// The name of the node where the job ran next.
    pub to: String,
}

/// Two percentiles, milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// The median.
    pub p50: u64,
    /// The 99th percentile.
    pub p99: u64,
}

impl Percentiles {
    /// The percentiles of these durations; zero if there are none.
    pub fn of(mut durations: Vec<Duration>) -> Self {
        durations.sort();
        let at = |hundredths: usize| {
            let rank = (durations.len() * hundredths).div_ceil(100).max(1);
            let duration = durations.get(rank - 1).copied().unwrap_or_default();
            u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
        };
        Self {
            p50: at(50),
            p99: at(99),
        }
    }
}

impl Card {
    /// Whether every job that can run has run and no invariant was broken.
    pub fn is_good(&self) -> bool {
        self.unfinished.is_empty()
            && self.violations.is_empty()
            && self.duplicate_runs == 0
            && self.orphans == 0
            && self.never_fit == self.never_fit_reasons.len()
            && self
                .accident
                .as_ref()
                .is_none_or(|accident| accident.ended_unseen)
            && { self.evacuation.as_ref() }.is_none_or(|evacuation| evacuation.moved.is_some())
            && self.pod_group.as_ref().is_none_or(PodGroup::ran_together)
    }
}

impl fmt::Display for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            submitted,
            finished,
            never_fit,
            never_fit_reasons,
            unfinished,
            duplicate_runs,
            orphans,
            dispatch_ms,
            dispatch_idle_ms,
            control_plane,
            clusters,
            accident,
            evacuation,
            pod_group,
            violations,
            seconds,
            setup_seconds,
            manager_rss_mb,
        } = self;
        writeln!(
            f,
            "clusters         {} ({control_plane} control planes)",
            clusters.join(", ")
        )?;
        writeln!(f, "submitted        {submitted}")?;
        writeln!(f, "finished         {finished}")?;
        writeln!(f, "never fit        {never_fit}")?;
        for reason in never_fit_reasons {
            writeln!(f, "                 {reason}")?;
        }
        for job in unfinished {
            writeln!(f, "NOT FINISHED     {job}")?;
        }
        writeln!(f, "duplicate runs   {duplicate_runs}")?;
        writeln!(f, "orphans          {orphans}")?;
        let Percentiles { p50, p99 } = dispatch_ms;
        writeln!(
            f,
            "submit to run    p50 {p50} ms, p99 {p99} ms, waiting for quota included"
        )?;
        let Percentiles { p50, p99 } = dispatch_idle_ms;
        writeln!(
            f,
            "                 p50 {p50} ms, p99 {p99} ms where there was room at once"
        )?;
        if let Some(accident) = accident {
            writeln!(f, "accident         {accident}")?;
        }
        if let Some(evacuation) = evacuation {
            writeln!(f, "sick node        {evacuation}")?;
        }
        if let Some(pod_group) = pod_group {
            writeln!(f, "pod group        {pod_group}")?;
        }
        for Violation { invariant, sentence } in violations {
            writeln!(f, "BROKEN {invariant:<9} {sentence}")?;
        }
        writeln!(f, "manager memory   {manager_rss_mb:.1} MB")?;
        write!(
            f,
            "time             {seconds:.0} s, {setup_seconds:.0} s of it to set up"
        )
    }
}

impl fmt::Display for PodGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { job, pods, ran } = self;
        let ran: Vec<String> = ran
            .iter()
            .map(|(cluster, pods)| format!("{pods} in {cluster}"))
            .collect();
        match ran.as_slice() {
            [] => write!(f, "{job}: none of its {pods} pods ran"),
            ran => write!(f, "{job}: of its {pods} pods ran {}", ran.join(", ")),
        }
    }
}

impl fmt::Display for Evacuation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { job, moved } = self;
        match moved {
            Some(Moved { from, to }) => write!(f, "{job} moved from {from}, which was marked EVICT, to {to}"),
            None => write!(f, "{job} did not move"),
        }
    }
}

impl fmt::Display for Accident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cluster,
            seconds,
            job,
            ended_unseen,
            seen_after_ms,
        } = self;
        write!(f, "{cluster} unreachable for {seconds:.0} s; {job} ")?;
        match (ended_unseen, seen_after_ms) {
            (true, Some(after)) => write!(f, "ended there meanwhile, known {after} ms after the return"),
            (true, None) => write!(f, "ended there meanwhile, never known"),
            (false, _) => write!(f, "did not end there meanwhile"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_nearest_rank() {
        let of = |millis: &[u64]| {
            Percentiles::of(millis.iter().map(|each| Duration::from_millis(*each)).collect())
        };
        assert_eq!(of(&[]), Percentiles { p50: 0, p99: 0 });
        assert_eq!(of(&[7]), Percentiles { p50: 7, p99: 7 });
        assert_eq!(of(&[4, 1, 3, 2]), Percentiles { p50: 2, p99: 4 });
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!(of(&hundred), Percentiles { p50: 50, p99: 99 });
    }
}
