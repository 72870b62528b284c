//! I9 and I10: which process may cause which change, as far as objects show it. It also judges that the manager decides only by
//! what the clusters showed before.
//!
//! The rules, each by the name under which it is reported:
//!
//! - I9: only a cluster that a Workload was sent to can end it, and its job is created on no other cluster. A worker's process writes
//!   nothing on the manager's cluster.
//! - I10: an object that the manager creates on a worker has the namespace, name and kind of an object on the manager, and
//!   runs under the same service account.
//! - `multikueue 3.3 R6`: a Workload is given to a cluster that has admitted it.
//! - `multikueue 10.F8`: under policy Wait the manager does not take back a run that nothing disturbed.
//! - `multikueue 10.F2`: the manager does not use credentials that it refuses. The rule is about the credentials, not the
//!   cluster: with new ones the manager may use the cluster at once, even before it can write condition `Active`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine as _;
use jiff::{SignedDuration, Timestamp};
use roadstead_api::config::WorkerLostPolicy;
use roadstead_apiserver::RESTORER;
use serde_json::Value;

use super::Findings;
use super::book::{Actor, Book, CLUSTERS, Name, Run, Seen};
use super::hands::NO_LABEL;
use super::object::{
    at, condition, is_deleting, is_let_go, is_true, job_end, list, text, uid, winner, workload_end,
};
use super::word::Words;

/// Reasons of condition `Active` that mean that the credentials cannot be used.
const REFUSED: &[&str] = &["BadKubeConfig", "InsecureKubeConfig", "BadClusterProfile"];

pub(super) const SECRETS: &str = "secrets";

/// How long a request may be under way, and how long it may take to refuse new credentials.
const UNDER_WAY_MAX: SignedDuration = SignedDuration::from_secs(20);

/// A copy or a job on a worker since it was made.
#[derive(Default)]
struct Life {
    uid: Arc<str>,
    /// The copy was admitted, or the job was let go.
    began: bool,
    /// After it began it was changed, stopped, deleted or ended; or a restored backup brought it here.
    disturbed: bool,
}

/// What happened to a case on one worker.
#[derive(Default)]
struct There {
    copy: Option<Life>,
    job: Option<Life>,
}

/// The auditor of I9 and I10.
#[derive(Default)]
pub(super) struct Contain {
    there: BTreeMap<(Arc<str>, Name), There>,
    admitted: BTreeSet<(Run, Arc<str>)>,
    /// Copies that were admitted before an eviction on the manager and were not removed since.
    outlasting: BTreeSet<(Run, Arc<str>)>,
    ended: BTreeSet<(Run, Arc<str>)>,
    /// Resource, namespace and name of every object that was ever on the manager.
    originals: BTreeSet<(Arc<str>, Arc<str>, Arc<str>)>,
    refused: BTreeMap<Arc<str>, Timestamp>,
    /// Names of Secrets with a trustworthy kubeconfig.
    trusted: BTreeSet<Arc<str>>,
}

impl Contain {
    pub(super) fn saw(&mut self, book: &Book, words: &Words, seen: &Seen<'_>, findings: &mut Findings) {
        if seen.on_manager {
            if seen.before().is_none() {
                self.originals.insert(kind_and_name(seen));
            }
            if seen.by == Actor::Worker {
                let what = format!("{} wrote on the manager's cluster", seen.change.user);
                findings.of("I9", &seen.place, seen.case(), what);
            }
            if *seen.place.resource == *CLUSTERS {
                self.note_refusal(seen);
            } else if *seen.place.resource == *SECRETS {
                self.note_credentials(book, seen);
            } else if seen.is_workload() {
                self.judge_decision((book, words), seen, findings);
            }
            return;
        }
        self.judge_creation(book, seen, findings);
        self.follow(seen);
    }

    fn note_refusal(&mut self, seen: &Seen<'_>) {
        let refused = seen.after().is_none_or(|cluster| {
            let active = condition(cluster, "Active");
            active.is_some_and(|c| c["status"] == "False" && REFUSED.contains(&text(c, &["reason"])))
        });
        if refused {
            self.refused.entry(seen.place.name.clone()).or_insert(seen.now);
        } else {
            self.refused.remove(&seen.place.name);
        }
    }

    /// New data in a Secret restarts the time since which its credentials are refused: the manager must read the new ones first.
    fn note_credentials(&mut self, book: &Book, seen: &Seen<'_>) {
        if seen.after().is_some_and(is_trustworthy) {
            self.trusted.insert(seen.place.name.clone());
        } else {
            self.trusted.remove(&seen.place.name);
        }
        let same = seen.both().is_some_and(|(old, new)| old["data"] == new["data"]);
        for (cluster, since) in self.refused.iter_mut().filter(|_| !same) {
            if secret_of(book, cluster) == Some(&*seen.place.name) {
                *since = seen.now;
            }
        }
    }

    /// Whether the Secret of a cluster holds a trustworthy kubeconfig. If so, a refusal in condition `Active` is out of date: the
    /// manager may be unable to write the condition.
    fn is_mended(&self, book: &Book, cluster: &str) -> bool {
        secret_of(book, cluster).is_some_and(|secret| self.trusted.contains(secret))
    }

    /// Judges an object that the manager created on a worker.
    fn judge_creation(&self, book: &Book, seen: &Seen<'_>, findings: &mut Findings) {
        let (Actor::Manager, None, Some(new)) = (seen.by, seen.before(), seen.after()) else {
            return;
        };
        let place = &seen.place;
        if NO_LABEL.contains(&&*place.resource) {
            return;
        }
        if !self.originals.contains(&kind_and_name(seen)) {
            let what = "made on a worker, and nothing of this kind and name was ever on the manager";
            findings.of("I10", place, seen.case(), what.to_owned());
        }
        let original = book.object(
            &book.rules.manager,
            &place.resource,
            &place.namespace,
            &place.name,
        );
        let account = |object| text(object, &["spec", "template", "spec", "serviceAccountName"]);
        if let Some(original) = original.filter(|original| account(original) != account(new)) {
            let what = format!(
                "made with service account \"{}\" from \"{}\"",
                account(new),
                account(original)
            );
            findings.of("I10", place, seen.case(), what);
        }
        if let Some(run) = seen.run.as_ref().filter(|_| seen.is_part_of_job())
            && !book.cases[&run.case].named_ever.contains(&place.cluster)
        {
            let what = format!(
                "its job was made on {}, to which it was never sent",
                place.cluster
            );
            findings.about("I9", &run.case, what);
        }
        let since = { self.refused.get(&place.cluster) }.filter(|_| !self.is_mended(book, &place.cluster));
        if let Some(since) = since.filter(|since| seen.now.duration_since(**since) > UNDER_WAY_MAX) {
            let what = format!("made with credentials that have been refused since {since}");
            findings.of("multikueue 10.F2", place, seen.case(), what);
        }
    }

    /// Keeps what happened to a case on one worker.
    fn follow(&mut self, seen: &Seen<'_>) {
        let Some(run) = &seen.run else { return };
        // Why one pod of a group is enough: the cluster had the group, and its copy may be deleted before it is Finished.
        if seen.is_part_of_job() && seen.after().is_some_and(|pod| job_end(pod).is_some()) {
            self.ended.insert((run.clone(), seen.place.cluster.clone()));
        }
        if !seen.is_workload() && !seen.is_job() {
            return;
        }
        let here = (seen.place.cluster.clone(), run.case.clone());
        let there = self.there.entry(here).or_default();
        let kept = if seen.is_workload() {
            &mut there.copy
        } else {
            &mut there.job
        };
        let Some(new) = seen.after() else {
            *kept = None;
            if seen.is_workload() {
                self.outlasting.remove(&(run.clone(), seen.place.cluster.clone()));
            }
            return;
        };
        if kept.as_ref().is_none_or(|life| *life.uid != *uid(new)) {
            *kept = Some(Life {
                uid: uid(new).into(),
                // Why: a restore brings back the object of the time of the backup, which may be of an earlier dispatch.
                disturbed: *seen.change.user == *RESTORER,
                ..Life::default()
            });
        }
        let Some(life) = kept else { return };
        let place = || (run.clone(), seen.place.cluster.clone());
        let (is_well, has_ended) = if seen.is_workload() {
            let evicted = is_true(new, "Evicted") || at(new, &["spec", "active"]) == false;
            let ended = is_true(new, "Finished");
            let same = seen.both().is_none_or(|(old, _)| old["spec"] == new["spec"]);
            (is_true(new, "Admitted") && !evicted && !ended && same, ended)
        } else {
            (is_let_go(new), job_end(new).is_some())
        };
        if is_well && !is_deleting(new) {
            if seen.is_workload() {
                self.admitted.insert(place());
            }
            life.began = true;
        } else if life.began {
            life.disturbed = true;
        }
        if has_ended {
            self.ended.insert(place());
        }
    }

    /// Judges a change of the manager's Workload.
    fn judge_decision(&mut self, (book, words): (&Book, &Words), seen: &Seen<'_>, findings: &mut Findings) {
        let (Some((old, new)), Some(run)) = (seen.both(), &seen.run) else {
            return;
        };
        let (before, after) = (winner(old), winner(new));
        if is_true(new, "Evicted") && !is_true(old, "Evicted") {
            // An admission counts only until the next eviction on the manager. Exception: a worker that was cut off when the manager
            // removed its copy still has this copy, admitted.
            let there = &self.there;
            let is_there = |cluster: &Arc<str>| {
                let there = there.get(&(cluster.clone(), run.case.clone()));
                there.is_some_and(|there| is_well(there.copy.as_ref()))
            };
            let of_it = self.admitted.iter().filter(|(other, _)| other == run);
            self.outlasting
                .extend(of_it.filter(|(_, cluster)| is_there(cluster)).cloned());
            self.admitted.retain(|(other, _)| other != run);
        }
        let state = |workload| book.dispatch_check(workload).map(|check| &check["state"]);
        let is_given =
            after != before || (state(new) != state(old) && state(new).is_some_and(|s| s == "Ready"));
        let given = (run.clone(), Arc::from(after));
        let is_admitted = self.admitted.contains(&given) || self.outlasting.contains(&given);
        if !after.is_empty() && is_given && !is_admitted {
            let what = format!("it is given to {after}, which has not admitted it");
            findings.about("multikueue 3.3 R6", &run.case, what);
        }
        let Some(check) = book.dispatch_check(new) else {
            return;
        };
        if workload_end(new).is_some() && !is_true(old, "Finished") {
            let named = &book.cases[&run.case].named;
            if !named
                .iter()
                .any(|cluster| self.ended.contains(&(run.clone(), cluster.clone())))
            {
                let what = format!(
                    "it is Finished and ended on none of the clusters that it was sent to: {named:?}"
                );
                findings.about("I9", &run.case, what);
            }
        }
        let was_ready = state(old).is_some_and(|state| state == "Ready");
        let is_taken_back = was_ready && check["state"] == "Retry" && !before.is_empty();
        let same = old["spec"] == new["spec"] && at(new, &["metadata", "generation"]).as_u64() <= Some(1);
        if is_taken_back
            && same
            && book.policy(&run.case) == WorkerLostPolicy::Wait
            && !words.stands(before)
            && !book.is_drained(before)
            && self.is_undisturbed(before, &run.case)
        {
            let what = format!(
                "nothing happened to its run on {before} and it is taken back: {}",
                text(check, &["message"])
            );
            findings.about("multikueue 10.F8", &run.case, what);
        }
    }

    /// Whether the copy on this cluster has stayed admitted, and its job let go, since each was first seen so.
    fn is_undisturbed(&self, cluster: &str, case: &Name) -> bool {
        let Some(there) = self.there.get(&(cluster.into(), case.clone())) else {
            return false;
        };
        is_well(there.copy.as_ref()) && is_well(there.job.as_ref())
    }
}

/// The Secret that holds a cluster's credentials.
pub(super) fn secret_of<'a>(book: &'a Book, cluster: &str) -> Option<&'a str> {
    let of_it = book.object(&book.rules.manager, CLUSTERS, "", cluster)?;
    Some(text(of_it, &["spec", "clusterSource", "kubeConfig", "location"]))
}

/// Whether a Secret holds a kubeconfig that verifies the server. A text that cannot be read is not trusted; the simulation writes
/// JSON.
fn is_trustworthy(secret: &Value) -> bool {
    let Some(config) = kubeconfig(secret) else {
        return false;
    };
    let clusters = list(&config, &["clusters"]);
    let checks = |cluster: &Value| {
        let cluster = &cluster["cluster"];
        !text(cluster, &["certificate-authority-data"]).is_empty()
            && cluster["insecure-skip-tls-verify"] != true
    };
    !clusters.is_empty() && clusters.iter().all(checks)
}

pub(super) fn kubeconfig(secret: &Value) -> Option<Value> {
    let encoded = text(secret, &["data", "kubeconfig"]);
    let decoded = base64::engine::general_purpose::STANDARD.decode(encoded);
    serde_json::from_slice(&decoded.ok()?).ok()
}

fn is_well(life: Option<&Life>) -> bool {
    life.is_some_and(|life| life.began && !life.disturbed)
}

fn kind_and_name(seen: &Seen<'_>) -> (Arc<str>, Arc<str>, Arc<str>) {
    let place = &seen.place;
    (
        place.resource.clone(),
        place.namespace.clone(),
        place.name.clone(),
    )
}
