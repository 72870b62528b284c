//! Requests of Roadstead's processes to the API servers, from the audit logs.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::rounded;
use crate::audit::{self, Request};

/// Prefix of the user agents of Roadstead's processes.
const OURS: &str = "roadstead-";

/// How often one kind of request was sent.
#[derive(Debug, Clone, Serialize)]
pub struct Tally {
    /// The cluster's name.
    pub cluster: String,
    /// The user agent.
    pub agent: String,
    /// The verb, such as `get`, `list`, `create` or `patch`.
    pub verb: String,
    /// Plural of the resource, with a subresource after a slash.
    pub resource: String,
    /// The total count.
    pub count: usize,
    /// The count per job.
    pub per_job: f64,
}

/// Position in an audit log from which requests are counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark(usize);

/// The present end of the log.
pub(super) fn mark(log: &Path) -> Result<Mark, audit::Error> {
    audit::read(log).map(|requests| Mark(requests.len()))
}

/// Requests of our processes since a mark, without watches.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) writes: usize,
    pub(super) reads: usize,
    pub(super) failed: usize,
    by_kind: BTreeMap<(String, String, String), usize>,
    by_second: BTreeMap<String, usize>,
}

impl Counted {
    pub(super) fn since(log: &Path, mark: Mark, harness: &str) -> Result<Self, audit::Error> {
        Self::of_agents(OURS, log, mark, harness)
    }

    /// As [`Counted::since`], of the processes whose user agents begin so.
    pub(super) fn of_agents(
        prefix: &str,
        log: &Path,
        Mark(from): Mark,
        harness: &str,
    ) -> Result<Self, audit::Error> {
        let mut counted = Self::default();
        for request in audit::read(log)?.into_iter().skip(from) {
            counted.add(request, prefix, harness);
        }
        Ok(counted)
    }

    fn add(&mut self, request: Request, prefix: &str, harness: &str) {
        let Request {
            user_agent,
            verb,
            resource,
            subresource,
            code,
            second,
        } = request;
        let agent = user_agent.split(['/', ' ']).next().unwrap_or_default().to_owned();
        if !agent.starts_with(prefix) || agent == harness || verb == "watch" {
            return;
        }
        *self.by_second.entry(second).or_default() += 1;
        let reads = matches!(verb.as_str(), "get" | "list");
        if reads {
            self.reads += 1;
        } else {
            self.writes += 1;
        }
        // Why: a read of an object that does not exist is no failure.
        let is_answer = reads && code == 404;
        self.failed += usize::from(code >= 400 && !is_answer);
        let resource = if subresource.is_empty() {
            resource
        } else {
            format!("{resource}/{subresource}")
        };
        *self.by_kind.entry((agent, verb, resource)).or_default() += 1;
    }

    /// Most requests in one second.
    pub(super) fn busiest_second(&self) -> usize {
        self.by_second.values().copied().max().unwrap_or_default()
    }

    /// Requests to Jobs and Workloads, and to their statuses.
    pub(super) fn on_jobs(&self) -> usize {
        let is_on_jobs = |resource: &str| matches!(resource.split('/').next(), Some("jobs" | "workloads"));
        let counts = { self.by_kind.iter() }.filter(|((_, _, resource), _)| is_on_jobs(resource));
        counts.map(|(_, count)| count).sum()
    }

    /// Writes to objects of this kind and to their subresources.
    pub(super) fn writes_to(&self, plural: &str) -> usize {
        let counts = { self.by_kind.iter() }.filter(|((_, verb, resource), _)| {
            !matches!(verb.as_str(), "get" | "list") && resource.split('/').next() == Some(plural)
        });
        counts.map(|(_, count)| count).sum()
    }

    /// Requests with this verb to objects of these kinds.
    pub(super) fn writes_by(&self, verb: &str, plurals: &[&str]) -> usize {
        let counts = { self.by_kind.iter() }
            .filter(|((_, by, resource), _)| by == verb && plurals.contains(&resource.as_str()));
        counts.map(|(_, count)| count).sum()
    }

    pub(super) fn tallies(&self, cluster: &str, jobs: u32) -> Vec<Tally> {
        let tally = |((agent, verb, resource), count): (&(String, String, String), &usize)| Tally {
            cluster: cluster.to_owned(),
            agent: agent.clone(),
            verb: verb.clone(),
            resource: resource.clone(),
            count: *count,
            per_job: per_one(*count, jobs),
        };
        let mut tallies: Vec<Tally> = self.by_kind.iter().map(tally).collect();
        tallies.sort_by_key(|tally| std::cmp::Reverse(tally.count));
        tallies
    }
}

/// `count` divided by `of`, with two decimal digits.
pub(super) fn per_one(count: usize, of: u32) -> f64 {
    rounded(u32::try_from(count).map_or(f64::MAX, f64::from) / f64::from(of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_processes_count_and_watches_do_not() {
        let mut seconds = ["57", "58", "58", "58", "58", "59", "59", "59"].into_iter();
        let mut request = |agent: &str, verb: &str, code| Request {
            second: seconds.next().unwrap_or_default().to_owned(),
            user_agent: agent.to_owned(),
            verb: verb.to_owned(),
            resource: "jobs".to_owned(),
            subresource: "status".to_owned(),
            code,
        };
        let mut counted = Counted::default();
        for each in [
            request("roadstead-manager", "patch", 200),
            request("roadstead-manager/0.1", "patch", 409),
            request("roadstead-manager", "list", 200),
            request("roadstead-manager", "get", 404),
            request("roadstead-manager", "watch", 200),
            request("roadstead-harness", "patch", 200),
            request("kube-controller-manager/v1", "patch", 200),
        ] {
            counted.add(each, OURS, "roadstead-harness");
        }
        assert_eq!((counted.writes, counted.reads, counted.failed), (2, 2, 1));
        assert_eq!(counted.busiest_second(), 3);
        let tallies = counted.tallies("east", 2);
        assert_eq!((tallies[0].count, tallies[0].per_job), (2, 1.0));
        assert_eq!(tallies[0].resource, "jobs/status");
        let lease = Request {
            resource: "leases".to_owned(),
            subresource: String::new(),
            ..request("roadstead-manager", "patch", 200)
        };
        counted.add(lease, OURS, "roadstead-harness");
        assert_eq!((counted.writes, counted.on_jobs()), (3, 4));
    }
}
