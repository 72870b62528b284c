//! Where the Secrets of workers lead. A worker whose Secret leads to another worker of this manager must not be used, and its
//! condition must say why.
//!
//! Meanwhile the worker counts as lost. The other auditors judge that its jobs do not run twice, and that the worker to which the
//! Secret leads loses nothing.
//!
//! *Source*: `spec/safety.md 3`, `ClusterChanged` and `RegisteredTwice`.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::Findings;
use super::book::{Actor, Book, CLUSTERS, Seen};
use super::bulkhead::Bulkhead;
use super::contain::{SECRETS, kubeconfig, secret_of};
use super::object::{condition, is_deleting, is_true, list, text};

/// The reasons of condition `Active` for a Secret that leads to another cluster.
const SAID: &[&str] = &["ClusterChanged", "RegisteredTwice"];
/// Longest time until condition `Active` has one of these reasons, and until calls from before the change have ended.
const NOTICED_AFTER: SignedDuration = SignedDuration::from_secs(45);

/// The workers whose Secrets lead to another worker: to which one, and since when.
#[derive(Default)]
pub(super) struct Leads(BTreeMap<Arc<str>, (Arc<str>, Timestamp)>);

impl Leads {
    pub(super) fn saw(&mut self, book: &Book, bulkhead: &Bulkhead, seen: &Seen<'_>, findings: &mut Findings) {
        if !seen.on_manager {
            return;
        }
        if *seen.place.resource == *SECRETS {
            let name = &*seen.place.name;
            let workers = { book.rules.workers.iter() }.filter(|it| secret_of(book, it) == Some(name));
            for cluster in workers {
                self.judge(book, bulkhead, cluster, seen.now, findings);
                let leads = seen
                    .after()
                    .and_then(kubeconfig)
                    .map(|config| leads_to(book, &config));
                let astray = leads.flatten().filter(|to| **to != **cluster);
                let cluster: Arc<str> = cluster.as_str().into();
                match astray {
                    Some(to) => self.0.insert(cluster, (to, seen.now)),
                    None => self.0.remove(&cluster),
                };
            }
        } else if *seen.place.resource == *CLUSTERS
            && seen.by == Actor::Manager
            && let Some((to, since)) = self.0.get(&seen.place.name)
            && let Some((old, new)) = seen.both()
            && is_true(new, "Active")
            && !is_true(old, "Active")
            && seen.now.duration_since(*since) > NOTICED_AFTER
        {
            let what = format!("it is said to be usable, and its Secret has led to {to} since {since}");
            findings.of("safety 3.8", &seen.place, None, what);
        }
    }

    /// Judges the condition of a worker whose Secret has led to another worker for longer than [`NOTICED_AFTER`].
    fn judge(
        &self,
        book: &Book,
        bulkhead: &Bulkhead,
        cluster: &str,
        now: Timestamp,
        findings: &mut Findings,
    ) {
        let Some((to, since)) = self.0.get(cluster) else {
            return;
        };
        let are_well = [&*book.rules.manager, to]
            .iter()
            .all(|name| bulkhead.is_calm(book, name, *since));
        let of = |name: &str| book.object(&book.rules.manager, CLUSTERS, "", name);
        let (Some(object), Some(other)) = (of(cluster), of(to)) else {
            return;
        };
        if now.duration_since(*since) <= NOTICED_AFTER
            || !are_well
            || is_deleting(object)
            || is_deleting(other)
        {
            return;
        }
        let active = condition(object, "Active");
        let reason = active.map_or("", |said| text(said, &["reason"]));
        if is_true(object, "Active") || !SAID.contains(&reason) {
            let what =
                format!("its Secret has led to {to} since {since}, and what is said of it is \"{reason}\"");
            findings.of(
                "safety 3.8",
                &format!("{} {cluster}", book.rules.manager),
                None,
                what,
            );
        }
    }

    pub(super) fn at_rest(&self, book: &Book, bulkhead: &Bulkhead, now: Timestamp, findings: &mut Findings) {
        for cluster in self.0.keys() {
            self.judge(book, bulkhead, cluster, now, findings);
        }
    }
}

/// The worker that a kubeconfig leads to: in the simulation an address begins with the worker's name.
fn leads_to(book: &Book, config: &serde_json::Value) -> Option<Arc<str>> {
    let server = text(list(config, &["clusters"]).first()?, &["cluster", "server"]);
    let name = server.strip_prefix("https://")?.split('.').next()?;
    let mut workers = book.rules.workers.iter();
    workers
        .find(|worker| *worker == name)
        .map(|worker| worker.as_str().into())
}
