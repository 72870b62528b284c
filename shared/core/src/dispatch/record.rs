//! What each cluster has answered about one Workload, and since when: the record behind `roadstead explain`.
//!
//! Invariant: a record has exactly one top reason with one next step, and one answer per cluster. A time changes only when its
//! answer or reason changes, never because the manager looked again.
//!
//! *Source*: `spec/experience.md 5`.

use jiff::Timestamp;

use super::observed::{Answer, Cause, Copies, Cordon, Remote};
use super::seek::failure_of;
use super::waiting::{NOT_READABLE, NOT_SERVED, Waiting};
use super::{Pass, Plan};
use crate::kind::KindState;
use crate::name::ClusterName;

/// The detail of [`Reply::Mute`].
const MUTE: &str = "its queue has not tried this workload yet, or Roadstead or Kueue does not run there";

/// The last answer of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The name of the cluster.
    pub cluster: ClusterName,
    /// Its answer.
    pub reply: Reply,
    /// What explains the answer, mostly in the words of the cluster; may be empty.
    pub detail: String,
}

/// The answer of a cluster about a Workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It cannot be reached.
    NotConnected,
    /// It has not been asked.
    NotAsked,
    /// It takes nothing new: an administrator has cordoned it.
    Cordoned,
    /// Its queue cannot take it, as the queue itself shows.
    NotSuitable,
    /// It does not serve the kind of the job, so it was not asked.
    NotServed,
    /// Jobs of this kind cannot be read there; the detail says why.
    NotReadable,
    /// It has been asked and may still answer in time.
    Asked,
    /// It has been asked and has not answered in time.
    Mute,
    /// Its queue has looked at the copy and has no room.
    NoRoom,
    /// Its copy holds quota and waits for checks of the cluster.
    Reserved,
    /// It has admitted it.
    Admitted,
    /// It still stops, or removes, an earlier run.
    Stopping,
    /// It failed; the detail begins with the cause.
    Failed,
}

impl Reply {
    /// The token of this answer for programs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotConnected => "NotConnected",
            Self::NotAsked => "NotAsked",
            Self::Cordoned => "Cordoned",
            Self::NotSuitable => "NotSuitable",
            Self::NotServed => NOT_SERVED,
            Self::NotReadable => NOT_READABLE,
            Self::Asked => "Asked",
            Self::Mute => "NoAnswer",
            Self::NoRoom => "NoRoom",
            Self::Reserved => "Reserved",
            Self::Admitted => "Admitted",
            Self::Stopping => "Stopping",
            Self::Failed => "Failed",
        }
    }
}

/// Why a Workload waits, as it is stored for users and programs. Tokens are texts, so that a record of another release can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The token of the top reason.
    pub reason: String,
    /// The reason in a sentence.
    pub message: String,
    /// What the user or the administrator can do about it.
    pub next: String,
    /// Since when this is the reason.
    pub since: Timestamp,
    /// The last answer of each cluster, in the order of the MultiKueueConfig.
    pub answers: Vec<Answered>,
}

/// One line of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The name of the cluster.
    pub cluster: String,
    /// The token of the answer, see [`Reply`].
    pub reply: String,
    /// What explains the answer, mostly in the words of the cluster; may be empty.
    pub detail: String,
    /// Since when it gives this answer.
    pub since: Timestamp,
}

impl Record {
    /// The record after one more pass. A time is kept as long as its reason or reply is the same as in `before`, even if the sentence
    /// changes.
    pub fn after(before: Option<&Self>, waiting: &Waiting, seen: &[Seen], now: Timestamp) -> Self {
        let reason = waiting.reason();
        let answers = seen.iter().map(|seen| {
            let reply = seen.reply.as_str();
            let since = before
                .and_then(|record| {
                    let mut answers = record.answers.iter();
                    answers.find(|a| a.cluster == seen.cluster.as_str() && a.reply == reply)
                })
                .map_or(now, |answer| answer.since);
            Answered {
                cluster: seen.cluster.to_string(),
                reply: reply.to_owned(),
                detail: seen.detail.clone(),
                since,
            }
        });
        Self {
            reason: reason.to_owned(),
            message: waiting.to_string(),
            next: waiting.next_step(),
            since: before
                .filter(|record| record.reason == reason)
                .map_or(now, |record| record.since),
            answers: answers.collect(),
        }
    }

    /// Whether a user would read the same: the reason, its sentence, the next step and each cluster's answer. Times are not
    /// compared, and neither are numbers in the text of a cluster. Why: the missing quota of its queue changes with every job
    /// there, and all records of waiting Workloads would be written each time.
    pub fn says_the_same_as(&self, other: &Self) -> bool {
        let top = |record: &Self| [&record.reason, &record.message, &record.next].map(String::clone);
        let answers = |record: &Self| -> Vec<[String; 3]> {
            let answers = record.answers.iter();
            answers
                .map(|a| [a.cluster.clone(), a.reply.clone(), without_numbers(&a.detail)])
                .collect()
        };
        top(self) == top(other) && answers(self) == answers(other)
    }
}

fn without_numbers(words: &str) -> String {
    let mut kept = String::with_capacity(words.len());
    for letter in words.chars() {
        if !letter.is_ascii_digit() {
            kept.push(letter);
        } else if !kept.ends_with('0') {
            kept.push('0');
        }
    }
    kept
}

impl Plan {
    /// Whether the reason will last long enough to be worth a write.
    pub fn is_settled(&self) -> bool {
        let answered = |seen: &Seen| !matches!(seen.reply, Reply::Asked);
        match &self.waiting {
            None => false,
            Some(Waiting::WaitingForWorkers { .. }) => self.seen.iter().all(answered),
            Some(_) => true,
        }
    }
}

impl Pass<'_> {
    /// The answer of each cluster at the end of the pass: the clusters of the config in its order, then others that still hold the
    /// Workload.
    pub(super) fn look_round(&self) -> Vec<Seen> {
        let listed = self.o.clusters;
        let holder = self.plan.status.cluster.as_ref();
        let others = self.o.remotes.keys().filter(|cluster| {
            let is_there = match self.o.remotes.get(*cluster) {
                Some(Remote::Reachable(copies)) => copies.our_job().is_some(),
                Some(Remote::Unreachable { .. } | Remote::Unreadable { .. }) | None => {
                    Some(*cluster) == holder
                }
            };
            is_there && !listed.contains(cluster)
        });
        let all = listed.iter().chain(others);
        all.map(|cluster| self.look_at(cluster)).collect()
    }

    fn look_at(&self, cluster: &ClusterName) -> Seen {
        let said = |reply, detail: &str| Seen {
            cluster: cluster.clone(),
            reply,
            detail: detail.to_owned(),
        };
        let copies = match self.o.remotes.get(cluster) {
            Some(Remote::Reachable(copies)) => copies,
            Some(Remote::Unreadable { why }) => return said(Reply::NotReadable, why),
            Some(Remote::Unreachable { .. }) | None => return said(Reply::NotConnected, ""),
        };
        if self.site(cluster).cordon != Cordon::Open && self.plan.status.cluster.as_ref() != Some(cluster) {
            let (reply, detail) = self.unasked(cluster);
            return said(reply, &detail);
        }
        if self.site(cluster).kind == KindState::NotServed
            && self.plan.status.cluster.as_ref() != Some(cluster)
        {
            return said(Reply::NotServed, &self.kind());
        }
        if self.has_lapsed(cluster) && self.plan.status.cluster.as_ref() != Some(cluster) {
            return said(Reply::Failed, Cause::LeaseLapsed.as_str());
        }
        if self.o.elsewhere.failed_on.contains(cluster) {
            return said(Reply::Failed, Cause::JobFailed.as_str());
        }
        if let Some(failure) = self.o.failures.get(cluster).filter(|f| f.excludes(self.now)) {
            let words = with_cause(failure.cause.as_str(), &failure.detail);
            return said(Reply::Failed, &words);
        }
        if let Some((cause, detail)) = failure_of(copies) {
            return said(Reply::Failed, &with_cause(cause.as_str(), detail));
        }
        if copies.our_job().is_some() && self.plan.status.cluster.as_ref() != Some(cluster) {
            return said(Reply::Stopping, self.refusal(cluster));
        }
        let has_quota = { copies.our_workload() }.is_some_and(|w| w.answer == Answer::Reserved);
        if let Some(why) = self.site(cluster).room.closed_queue().filter(|_| !has_quota) {
            return said(Reply::NotSuitable, &why.to_string());
        }
        let asked = self.plan.status.nominated.contains(cluster);
        reply_of(copies, asked, self.may_yet_answer(cluster)).map_or_else(
            || {
                let (reply, detail) = self.unasked(cluster);
                said(reply, &detail)
            },
            |(reply, detail)| said(reply, detail),
        )
    }
}

fn with_cause(cause: &str, detail: &str) -> String {
    if detail.is_empty() {
        cause.to_owned()
    } else {
        format!("{cause}: {detail}")
    }
}

fn reply_of(copies: &Copies, asked: bool, may_yet_answer: bool) -> Option<(Reply, &str)> {
    let silent = if may_yet_answer {
        (Reply::Asked, "")
    } else {
        (Reply::Mute, MUTE)
    };
    match copies.our_workload() {
        Some(w) if w.admitted.is_some() => Some((Reply::Admitted, "")),
        Some(w) => Some(match w.answer {
            Answer::Reserved => (Reply::Reserved, &w.words),
            Answer::TurnedDown => (Reply::NoRoom, &w.words),
            Answer::None => silent,
        }),
        None if asked => Some(silent),
        None => None,
    }
}
