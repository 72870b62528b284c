//! What a user is told about a Workload that waits: the record in annotation `roadstead.dev/explanation`, and one Event for each
//! change of the top reason.
//!
//! Invariant: a Workload that is placed at once costs no write. A record is written only when the reason will stay, has stood for
//! [`PATIENCE`], and reads differently from the stored one; at most once per [`PACE`] and Workload. Only what is stored survives a
//! restart; at most [`MAX`] Workloads are remembered beside it.
//!
//! *Source*: `spec/experience.md 5`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use kube::{Api, Client};
use roadstead_api::constants::annotations::EXPLANATION;
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_convert::explanation;
use roadstead_core::dispatch::Plan;
use roadstead_core::dispatch::record::Record;
use roadstead_core::name::Key;
use roadstead_core::note::Note;
use roadstead_kubeio::failure::Failure;
use roadstead_kubeio::write;
use serde_json::{Value, json};

/// How long a reason must have stood before it is written.
const PATIENCE: SignedDuration = SignedDuration::from_secs(2);
/// The shortest time between two writes for one Workload.
const PACE: SignedDuration = SignedDuration::from_secs(5);
/// Workloads remembered at most.
const MAX: usize = 50_000;
/// The only reason that a placed Workload can have. It is removed when the worker is back.
const OF_PLACED: &str = "WorkerLost";

/// The newest record of each Workload that waits.
#[derive(Debug, Default)]
pub(crate) struct Journal(Mutex<BTreeMap<Key, Entry>>);

#[derive(Debug)]
struct Entry {
    record: Record,
    written: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Saying {
    /// Nothing is to be written until something changes.
    Nothing,
    /// Nothing is to be written before this time.
    Later(Timestamp),
    Now {
        /// The new value of the annotation; `null` takes it off.
        value: Value,
        /// The Event, when the reason is a new one.
        note: Option<Note>,
    },
}

/// Whether the stored record reads the same as this one. Why this one is printed and parsed too: a long text is cut when it is
/// stored.
fn stands(stored: &Record, record: &Record) -> bool {
    let cut = || explanation::parse(&explanation::print(record));
    stored.says_the_same_as(record) || cut().is_some_and(|cut| stored.says_the_same_as(&cut))
}

impl Journal {
    /// Remembers what a pass found, and returns what is to be written.
    pub(crate) fn note(&self, stored: &Workload, key: &Key, plan: &Plan, now: Timestamp) -> Saying {
        let stored = { stored.metadata.annotations.as_ref() }
            .and_then(|annotations| annotations.get(EXPLANATION))
            .and_then(|text| explanation::parse(text));
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(waiting) = &plan.waiting else {
            entries.remove(key);
            return match stored {
                Some(record) if record.reason == OF_PLACED => Saying::Now {
                    value: Value::Null,
                    note: None,
                },
                Some(_) | None => Saying::Nothing,
            };
        };
        let before = entries.remove(key);
        let written = before.as_ref().and_then(|entry| entry.written);
        let before = before.map(|entry| entry.record);
        let record = Record::after(before.as_ref().or(stored.as_ref()), waiting, &plan.seen, now);
        let saying = if !plan.is_settled() || stored.as_ref().is_some_and(|stored| stands(stored, &record)) {
            Saying::Nothing
        } else {
            let after = |at: Timestamp, pause| at.checked_add(pause).unwrap_or(Timestamp::MAX);
            let paced = written.map_or(Timestamp::MIN, |at| after(at, PACE));
            let due = after(record.since, PATIENCE).max(paced);
            if now < due {
                Saying::Later(due)
            } else {
                Saying::Now {
                    value: explanation::print(&record).into(),
                    note: (stored.map(|s| s.reason).as_deref() != Some(waiting.reason()))
                        .then(|| waiting.note()),
                }
            }
        };
        if entries.len() >= MAX {
            entries.pop_first();
        }
        entries.insert(key.clone(), Entry { record, written });
        saying
    }

    fn wrote(&self, key: &Key, now: Timestamp) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get_mut(key) {
            entry.written = Some(now);
        }
    }

    pub(crate) fn forget(&self, key: &Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Writes the annotation; returns the stored object, or `None` if the Workload is gone.
    pub(crate) async fn write(
        &self,
        client: &Client,
        (key, uid): (&Key, &str),
        value: &Value,
        now: Timestamp,
    ) -> Result<Option<Box<Workload>>, Failure> {
        let api: Api<Workload> = Api::namespaced(client.clone(), &key.namespace);
        let patch = json!({ "metadata": { "uid": uid, "annotations": { EXPLANATION: value } } });
        self.wrote(key, now);
        let answer = write::patch(&api, &key.name, &patch).await;
        { answer.stored() }.map_err(|failure| failure.in_doing("writing why the workload waits"))
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use roadstead_api::constants::annotations::EXPLANATION;
    use roadstead_api::kueue::v1beta2::Workload;
    use roadstead_core::dispatch::record::{Reply, Seen};
    use roadstead_core::dispatch::{Plan, Waiting};
    use roadstead_core::name::Key;
    use serde_json::Value;

    use super::{Journal, Saying};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn plan(waiting: Option<Waiting>, reply: Reply) -> Plan {
        Plan {
            epoch: 1,
            seen: vec![Seen {
                cluster: "east".into(),
                reply,
                detail: String::new(),
            }],
            waiting,
            ..Plan::default()
        }
    }

    fn queued() -> Waiting {
        Waiting::WaitingForWorkers {
            reserved: Vec::new(),
            queued: vec!["east".into()],
        }
    }

    fn annotated(value: &Value) -> Workload {
        let mut workload = Workload::default();
        let text = value
            .as_str()
            .map(|text| (EXPLANATION.to_owned(), text.to_owned()));
        workload.metadata.annotations = Some(text.into_iter().collect());
        workload
    }

    /// Spec: experience 5
    #[test]
    fn what_stands_for_a_while_is_written_once_and_told_once() {
        let (journal, key) = (Journal::default(), Key::new("ns", "w"));
        let bare = Workload::default();
        let unsettled = plan(Some(queued()), Reply::Asked);
        assert_eq!(journal.note(&bare, &key, &unsettled, at(0)), Saying::Nothing);
        let settled = plan(Some(queued()), Reply::NoRoom);
        assert_eq!(journal.note(&bare, &key, &settled, at(1)), Saying::Later(at(2)));
        let Saying::Now { value, note } = journal.note(&bare, &key, &settled, at(2)) else {
            panic!("due");
        };
        assert_eq!(note.unwrap().reason, "WaitingForWorkers");
        journal.wrote(&key, at(2));
        let stored = annotated(&value);
        assert_eq!(journal.note(&stored, &key, &settled, at(60)), Saying::Nothing);

        // Another answer is written without an Event, and never faster than the pace.
        let other = plan(Some(queued()), Reply::Reserved);
        journal.wrote(&key, at(60));
        assert_eq!(journal.note(&stored, &key, &other, at(61)), Saying::Later(at(65)));
        let Saying::Now { note, .. } = journal.note(&stored, &key, &other, at(65)) else {
            panic!("due");
        };
        assert_eq!(note, None);
        // After a restart the times are those that were written.
        let again = Journal::default();
        assert_eq!(again.note(&stored, &key, &settled, at(99)), Saying::Nothing);
    }

    /// A long text is cut in storage and is not written again.
    #[test]
    fn other_words_of_the_same_reason_are_written_once_and_told_by_no_event() {
        let (journal, key) = (Journal::default(), Key::new("ns", "w"));
        let refused = |words: &str| {
            let waiting = Waiting::StoppingOnWorker {
                cluster: "east".into(),
                refusal: words.to_owned(),
            };
            let mut plan = plan(Some(waiting), Reply::Stopping);
            plan.seen[0].detail = words.to_owned();
            plan
        };
        let first = refused("forbidden");
        journal.note(&Workload::default(), &key, &first, at(0));
        let Saying::Now { value, .. } = journal.note(&Workload::default(), &key, &first, at(2)) else {
            panic!("due");
        };
        journal.wrote(&key, at(2));
        let stored = annotated(&value);
        assert_eq!(journal.note(&stored, &key, &first, at(60)), Saying::Nothing);
        let long = refused(&"denied by a webhook, ".repeat(200));
        let Saying::Now { value, note } = journal.note(&stored, &key, &long, at(60)) else {
            panic!("other words");
        };
        assert_eq!(note, None);
        journal.wrote(&key, at(60));
        assert_eq!(
            journal.note(&annotated(&value), &key, &long, at(120)),
            Saying::Nothing
        );
    }

    #[test]
    fn a_lost_worker_that_is_back_is_no_longer_named() {
        let (journal, key) = (Journal::default(), Key::new("ns", "w"));
        let lost = Waiting::WorkerLost {
            cluster: "east".into(),
            since: None,
            until: None,
        };
        let lost = plan(Some(lost), Reply::NotConnected);
        journal.note(&Workload::default(), &key, &lost, at(0));
        let Saying::Now { value, .. } = journal.note(&Workload::default(), &key, &lost, at(2)) else {
            panic!("due");
        };
        let placed = plan(None, Reply::Admitted);
        let saying = journal.note(&annotated(&value), &key, &placed, at(3));
        assert_eq!(
            saying,
            Saying::Now {
                value: Value::Null,
                note: None
            }
        );
        assert_eq!(
            journal.note(&Workload::default(), &key, &placed, at(4)),
            Saying::Nothing
        );
    }
}
