//! Selects events, and renders an event as one line. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt as _;
use kube::core::DynamicObject;
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_kinds::TABLE;

use crate::table::age;

pub(crate) const COLUMNS: &[&str] = &["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"];
pub(crate) const WIDE: &[&str] = &["REPORTER", "FIRST SEEN"];

/// API group of Workloads and queues.
const GROUP: &str = "kueue.x-k8s.io";

/// Which events are selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// Those about Workloads, LocalQueues, and objects of all kinds that can be jobs.
    AnyJob,
    Only(Vec<Target>),
}

/// An object that events are about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    kind: String,
    name: String,
    uid: String,
}

/// A Workload and its job, or the members of it.
pub(crate) fn targets(workload: &Workload) -> Vec<Target> {
    let owners = workload.owner_references().iter().map(|owner| Target {
        kind: owner.kind.clone(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
    });
    let itself = Target {
        kind: "Workload".to_owned(),
        name: workload.name_any(),
        uid: workload.uid().unwrap_or_default(),
    };
    owners.chain([itself]).collect()
}

/// A job itself.
pub(crate) fn target(kind: &str, job: &DynamicObject) -> Target {
    Target {
        kind: kind.to_owned(),
        name: job.name_any(),
        uid: job.uid().unwrap_or_default(),
    }
}

impl About {
    pub(crate) fn means(&self, event: &Event) -> bool {
        let of = &event.involved_object;
        let kind = of.kind.as_deref().unwrap_or_default();
        match self {
            Self::AnyJob => {
                let version = of.api_version.as_deref().unwrap_or_default();
                let group = version.split_once('/').map_or("", |(group, _)| group);
                let is_job = TABLE.iter().any(|row| row.kind == kind && row.group == group);
                is_job || (group == GROUP && matches!(kind, "Workload" | "LocalQueue"))
            }
            // Why the UID: an earlier job of the same name is another one. An event without a UID is selected too, because some
            // reporters leave it out.
            Self::Only(targets) => targets.iter().any(|target| {
                target.kind == kind
                    && Some(&target.name) == of.name.as_ref()
                    && of
                        .uid
                        .as_ref()
                        .is_none_or(|uid| uid.is_empty() || *uid == target.uid)
            }),
        }
    }
}

/// When the event was last seen.
pub(crate) fn time(event: &Event) -> Timestamp {
    let of_series = event
        .series
        .as_ref()
        .and_then(|series| series.last_observed_time.as_ref());
    let last = of_series
        .map(|time| time.0)
        .or_else(|| Some(event.last_timestamp.as_ref()?.0));
    last.unwrap_or_else(|| first(event))
}

fn first(event: &Event) -> Timestamp {
    let early = event.first_timestamp.as_ref().map(|time| time.0);
    let early = early.or_else(|| Some(event.event_time.as_ref()?.0));
    let early = early.or_else(|| Some(event.metadata.creation_timestamp.as_ref()?.0));
    early.unwrap_or(Timestamp::UNIX_EPOCH)
}

pub(crate) fn cells(event: &Event, now: Timestamp) -> Vec<String> {
    let series = event.series.as_ref().and_then(|series| series.count);
    let times = series.or(event.count).unwrap_or(1);
    let last = age(time(event), now);
    let of = &event.involved_object;
    let kind = of.kind.as_deref().unwrap_or_default().to_lowercase();
    vec![
        if times > 1 {
            format!("{last} (x{times})")
        } else {
            last
        },
        event.type_.clone().unwrap_or_default(),
        event.reason.clone().unwrap_or_default(),
        format!("{kind}/{}", of.name.as_deref().unwrap_or_default()),
        event.message.clone().unwrap_or_default(),
    ]
}

/// The columns of `-o wide`: the controller that reported the event, and when the event was first seen.
pub(super) fn wide(event: &Event) -> Vec<String> {
    let of_source = event.source.as_ref().and_then(|source| source.component.clone());
    let reporter = event.reporting_component.clone().filter(|name| !name.is_empty());
    vec![
        reporter.or(of_source).unwrap_or_default(),
        format!("{:.0}", first(event)),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::table::table;

    fn event(of: &Value, more: &Value) -> Event {
        let mut event = json!({"metadata": {"name": "e"}, "involvedObject": of, "type": "Normal", "reason": "R", "message": "m"});
        event
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        serde_json::from_value(event).unwrap()
    }

    fn workload() -> Workload {
        serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": "job-train", "namespace": "team", "uid": "w",
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "j"}]},
            "spec": {"podSets": []},
        }))
        .unwrap()
    }

    #[test]
    fn events_of_a_job_are_its_own_and_those_of_its_workload_but_not_of_an_earlier_one() {
        let about = About::Only(targets(&workload()));
        for (kind, name, uid, is_meant) in [
            ("Job", "train", "j", true),
            ("Job", "train", "", true),
            ("Job", "train", "earlier", false),
            ("Workload", "job-train", "w", true),
            ("JobSet", "train", "", false),
            ("Job", "other", "", false),
        ] {
            let event = event(&json!({"kind": kind, "name": name, "uid": uid}), &json!({}));
            assert_eq!(about.means(&event), is_meant, "{kind} {name} {uid}");
        }
    }

    #[test]
    fn without_a_name_events_are_those_of_jobs_workloads_and_local_queues() {
        for (version, kind, is_meant) in [
            ("batch/v1", "Job", true),
            ("jobset.x-k8s.io/v1alpha2", "JobSet", true),
            ("kueue.x-k8s.io/v1beta2", "Workload", true),
            ("kueue.x-k8s.io/v1beta2", "LocalQueue", true),
            ("example.com/v1", "Job", false),
            ("v1", "Node", false),
        ] {
            let event = event(
                &json!({"apiVersion": version, "kind": kind, "name": "a"}),
                &json!({}),
            );
            assert_eq!(About::AnyJob.means(&event), is_meant, "{version} {kind}");
        }
    }

    #[test]
    fn an_event_of_any_reporter_has_a_time_and_says_how_often_it_came() {
        let now = "2026-11-21T10:05:00Z".parse().unwrap();
        let job = json!({"kind": "Job", "name": "train"});
        let stamp = "2026-11-21T10:04:00Z";
        let forms = [
            json!({"eventTime": "2026-11-21T10:04:00.000000Z"}),
            json!({"firstTimestamp": "2026-11-21T09:00:00Z", "lastTimestamp": stamp, "count": 3}),
            json!({"eventTime": "2026-11-21T09:00:00.000000Z", "series": {"count": 2, "lastObservedTime": "2026-11-21T10:04:00.000000Z"}}),
            json!({"metadata": {"name": "e", "creationTimestamp": stamp}}),
        ];
        let rows = forms.iter().map(|form| cells(&event(&job, form), now)).collect();
        assert_eq!(
            table(COLUMNS, rows),
            "LAST SEEN   TYPE     REASON   OBJECT      MESSAGE\n\
             60s         Normal   R        job/train   m\n\
             60s (x3)    Normal   R        job/train   m\n\
             60s (x2)    Normal   R        job/train   m\n\
             60s         Normal   R        job/train   m"
        );
    }
}
