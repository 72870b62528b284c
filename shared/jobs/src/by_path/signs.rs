//! What a status of a kind says about the pods and the end of a job.

use std::collections::BTreeMap;

use jiff::Timestamp;
use roadstead_core::lifecycle::Outcome;
use roadstead_core::name::PodSetName;
use serde_json::{Value, json};

use super::Path;
use super::places::Group;
use crate::json;
use crate::kind::Member;

/// A sign in a status.
#[derive(Clone, Copy, Debug)]
pub enum Sign {
    /// A condition of this type is True.
    Condition(&'static str),
    /// A condition of this type is True, in a job that runs: the controller of the kind leaves the status of a suspended job unchanged.
    ConditionUnheld {
        /// The condition.
        kind: &'static str,
        /// The boolean field that suspends the job.
        held: Path,
    },
    /// A field has this value.
    Word {
        /// The field.
        field: Path,
        /// The value.
        is: &'static str,
        /// The value when all pods of the job are gone.
        without: &'static str,
    },
    /// A field has a value that is none of these.
    Other {
        /// The field.
        field: Path,
        /// The values that do not count.
        than: &'static [&'static str],
        /// The value when all pods of the job are gone.
        without: &'static str,
    },
    /// A field has this value, and as many values of a map are one of these words as the last pod set has replicas.
    Words {
        /// The field.
        field: Path,
        /// Its value.
        is: &'static str,
        /// The map.
        of: Path,
        /// The words.
        are: &'static [&'static str],
    },
    /// An entry of a list or a map counts at least one.
    Any {
        /// The list or map.
        of: Path,
        /// The number in an entry.
        count: &'static str,
    },
    /// The entries of a list or a map together count as many as all pod sets have replicas.
    All {
        /// The list or map.
        of: Path,
        /// The numbers in an entry that are added.
        counts: &'static [&'static str],
    },
}

impl Sign {
    /// Whether the status of a job with these pod sets shows the sign.
    pub(super) fn shows(self, job: &Value, groups: &[Group]) -> bool {
        match self {
            Self::Condition(kind) => true_condition(job, kind).is_some(),
            Self::ConditionUnheld { kind, held } => {
                !json::is_true(job, held) && true_condition(job, kind).is_some()
            }
            Self::Word {
                field,
                is,
                without: _,
            } => json::text(job, field) == Some(is),
            Self::Other {
                field,
                than,
                without: _,
            } => json::text(job, field).is_some_and(|word| !word.is_empty() && !than.contains(&word)),
            Self::Words { field, is, of, are } => {
                let said = entries(job, of).filter_map(Value::as_str);
                let counted = said.filter(|word| are.contains(word)).count();
                let wanted = groups.last().map_or(0, |group| group.replicas);
                json::text(job, field) == Some(is) && u32::try_from(counted).is_ok_and(|many| many >= wanted)
            }
            Self::Any { of, count } => entries(job, of).any(|entry| number(entry, count) != 0),
            Self::All { of, counts } => {
                let each = |entry| {
                    counts
                        .iter()
                        .map(|count| number(entry, count))
                        .fold(0, i64::saturating_add)
                };
                let counted = entries(job, of).map(each).fold(0, i64::saturating_add);
                let wanted = groups.iter().map(|group| i64::from(group.replicas));
                counted >= wanted.fold(0, i64::saturating_add)
            }
        }
    }

    /// Changes the status so that it shows no pods.
    pub(super) fn clear(self, job: &mut Value) {
        match self {
            Self::Condition(kind) | Self::ConditionUnheld { kind, .. } => {
                for condition in conditions_mut(job) {
                    if json::text(condition, &["type"]) == Some(kind) {
                        json::set(condition, &["status"], json!("False"));
                    }
                }
            }
            Self::Word { field, is, without } => {
                if json::text(job, field) == Some(is) {
                    json::set(job, field, json!(without));
                }
            }
            Self::Other { field, without, .. } => {
                if self.shows(job, &[]) {
                    json::set(job, field, json!(without));
                }
            }
            Self::Words { of, .. } => json::remove(job, of),
            Self::Any { of, count } => zero(job, of, &[count]),
            Self::All { of, counts } => zero(job, of, counts),
        }
    }
}

/// How a status shows that the job has ended.
#[derive(Clone, Copy, Debug)]
pub enum Ends {
    /// By condition.
    Conditions(Conditions),
    /// By the word in a field.
    Words(Words),
}

impl Ends {
    pub(super) fn of(self, job: &Value) -> Option<Outcome> {
        match self {
            Self::Conditions(ends) => ends.of(job),
            Self::Words(ends) => ends.of(job),
        }
    }

    /// Whether the job failed at or after its deletion. Its pods were terminated first, so this end says nothing about their work.
    pub(super) fn is_by_deletion(self, job: Member<'_>) -> bool {
        match self {
            Self::Conditions(ends) => ends.is_by_deletion(job),
            // Why: the controllers of these kinds ignore objects that are being deleted.
            Self::Words(_) => false,
        }
    }

    pub(super) fn write(self, job: &mut Value, outcome: &Outcome, now: Timestamp) {
        match self {
            Self::Conditions(ends) => ends.write(job, outcome, now),
            Self::Words(ends) => ends.write(job, outcome),
        }
    }
}

/// The field whose word shows that a job has ended.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// The field.
    pub field: Path,
    /// Its value in a job that succeeded, unless `result` says otherwise.
    pub succeeded: &'static str,
    /// Its values in a job that failed; the first one is written.
    pub failed: &'static [&'static str],
    /// A field that says whether an ended job succeeded, with its values for yes and for no.
    pub result: Option<(Path, [&'static str; 2])>,
    /// The path of the reason.
    pub message: Path,
}

impl Words {
    fn of(self, job: &Value) -> Option<Outcome> {
        let word = json::text(job, self.field)?;
        if word != self.succeeded && !self.failed.contains(&word) {
            return None;
        }
        let success = match self.result {
            Some((field, [yes, _])) => json::text(job, field) == Some(yes),
            None => word == self.succeeded,
        };
        let message = json::text(job, self.message).unwrap_or_default().to_owned();
        Some(Outcome { success, message })
    }

    fn write(self, job: &mut Value, outcome: &Outcome) {
        let failed = self.failed.first().copied().unwrap_or_default();
        let word = if outcome.success { self.succeeded } else { failed };
        json::set(job, self.field, json!(word));
        if let Some((field, [yes, no])) = self.result {
            json::set(job, field, json!(if outcome.success { yes } else { no }));
        }
        json::set(job, self.message, json!(outcome.message));
    }
}

/// The conditions that say that a job has ended.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// The condition of a job that succeeded.
    pub succeeded: &'static str,
    /// The condition of a job that failed.
    pub failed: &'static str,
    /// A field that repeats the name of that condition.
    pub repeated: Option<Path>,
}

impl Conditions {
    /// How it ended, if it ended.
    pub(crate) fn of(self, job: &Value) -> Option<Outcome> {
        let ended = [(self.failed, false), (self.succeeded, true)];
        ended.into_iter().find_map(|(kind, success)| {
            let condition = true_condition(job, kind)?;
            let message = json::text(condition, &["message"]).unwrap_or_default().to_owned();
            Some(Outcome { success, message })
        })
    }

    /// Whether the job failed at or after its deletion.
    pub(crate) fn is_by_deletion(self, job: Member<'_>) -> bool {
        let Some(deleted) = &job.meta.deletion_timestamp else {
            return false;
        };
        let failed = true_condition(job.data, self.failed);
        let since = failed.and_then(|failed| {
            json::text(failed, &["lastTransitionTime"])?
                .parse::<Timestamp>()
                .ok()
        });
        since.is_some_and(|since| since >= deleted.0)
    }

    /// Writes this end into the status.
    pub(crate) fn write(self, job: &mut Value, outcome: &Outcome, now: Timestamp) {
        let kind = if outcome.success {
            self.succeeded
        } else {
            self.failed
        };
        let mut conditions = json::list(job, &CONDITIONS).to_vec();
        conditions.retain(|condition| json::text(condition, &["type"]) != Some(kind));
        conditions.push(json!({
            "type": kind,
            "status": "True",
            "reason": "WorkloadFinished",
            "message": outcome.message,
            "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }));
        json::set(job, &CONDITIONS, Value::Array(conditions));
        if let Some(field) = self.repeated {
            json::set(job, field, json!(kind));
        }
    }
}

/// Where a status counts the succeeded parts of each pod set, which need no pods any more.
#[derive(Clone, Copy, Debug)]
pub struct Spare {
    /// A list with an entry for each pod set.
    pub of: Path,
    /// The field that names the pod set of an entry.
    pub name: &'static str,
    /// The number of succeeded parts.
    pub succeeded: &'static str,
}

impl Spare {
    /// The pods that are no longer needed, by pod set; only positive numbers.
    pub(super) fn of(self, job: &Value, groups: &[Group]) -> BTreeMap<PodSetName, u32> {
        let spare = |entry| {
            let name = json::text(entry, &[self.name])?.to_lowercase();
            let group = groups.iter().find(|group| group.name == name)?;
            let done = u32::try_from(number(entry, self.succeeded)).ok()?;
            let pods = done.checked_mul(group.each)?;
            (pods > 0 && done <= group.replicas).then(|| (PodSetName::from(name.as_str()), pods))
        };
        json::list(job, self.of).iter().filter_map(spare).collect()
    }
}

const CONDITIONS: [&str; 2] = ["status", "conditions"];

fn true_condition<'a>(job: &'a Value, kind: &str) -> Option<&'a Value> {
    let mut conditions = json::list(job, &CONDITIONS).iter();
    conditions
        .find(|c| json::text(c, &["type"]) == Some(kind))
        .filter(|c| json::text(c, &["status"]) == Some("True"))
}

fn conditions_mut(job: &mut Value) -> impl Iterator<Item = &mut Value> {
    let conditions = job
        .pointer_mut("/status/conditions")
        .and_then(Value::as_array_mut);
    conditions.into_iter().flatten()
}

/// The entries of a list, or the values of a map.
fn entries(job: &Value, of: Path) -> impl Iterator<Item = &Value> {
    let found = json::at(job, of);
    let list = found.and_then(Value::as_array).into_iter().flatten();
    let map = found
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|map| map.values());
    list.chain(map)
}

fn number(entry: &Value, field: &str) -> i64 {
    json::int(entry, &[field]).unwrap_or(0)
}

/// Sets the positive ones of these numbers to zero in each entry.
fn zero(job: &mut Value, of: Path, counts: &[&str]) {
    let pointer = format!("/{}", of.join("/"));
    let entries: Vec<&mut Value> = match job.pointer_mut(&pointer) {
        Some(Value::Array(entries)) => entries.iter_mut().collect(),
        Some(Value::Object(entries)) => entries.values_mut().collect(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => Vec::new(),
    };
    for entry in entries {
        for count in counts {
            if number(entry, count) != 0 {
                json::set(entry, &[count], json!(0));
            }
        }
    }
}
