//! The state of a child. *Source*: `spec/appwrapper.md 8.2`.

use roadstead_core::appwrapper::observed::{Nature, Verdict};
use serde_json::Value;

use crate::json;

/// Kinds of the training operator that have an end.
const TRAINING: [&str; 6] = [
    "PyTorchJob",
    "TFJob",
    "XGBoostJob",
    "PaddleJob",
    "JAXJob",
    "MPIJob",
];

/// How the controller learns that a component of this kind has ended.
pub fn nature(api_version: &str, kind: &str) -> Nature {
    let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    match (group, kind) {
        ("batch", "Job")
        | ("jobset.x-k8s.io", "JobSet")
        | ("ray.io", "RayJob")
        | ("trainer.kubeflow.org", "TrainJob") => Nature::Reports,
        ("kubeflow.org", kind) if TRAINING.contains(&kind) => Nature::Reports,
        ("apps", "Deployment" | "StatefulSet" | "ReplicaSet" | "DaemonSet")
        | ("ray.io", "RayCluster" | "RayService")
        | ("leaderworkerset.x-k8s.io", "LeaderWorkerSet") => Nature::Endless,
        _ => Nature::Counted,
    }
}

/// How a child ended, if its status reports that. A malformed status reports nothing.
pub fn verdict(api_version: &str, kind: &str, child: &Value) -> Option<Verdict> {
    let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    let by = |succeeded: &str| {
        let said = |kind: &str| is_true(child, kind);
        if said(succeeded) {
            Some(Verdict::Succeeded)
        } else {
            said("Failed").then_some(Verdict::Failed)
        }
    };
    match (group, kind) {
        ("batch", "Job") => {
            let active = json::int(child, &["status", "active"]).unwrap_or(0);
            let met = is_true(child, "SuccessCriteriaMet") && active == 0;
            if met {
                Some(Verdict::Succeeded)
            } else {
                by("Complete")
            }
        }
        ("jobset.x-k8s.io", "JobSet") => by("Completed"),
        ("trainer.kubeflow.org", "TrainJob") => by("Complete"),
        ("kubeflow.org", kind) if TRAINING.contains(&kind) => by("Succeeded"),
        ("ray.io", "RayJob") => {
            let said = |field: &str| json::text(child, &["status", field]).unwrap_or_default();
            match (said("jobDeploymentStatus"), said("jobStatus")) {
                ("Complete", "SUCCEEDED") => Some(Verdict::Succeeded),
                ("Failed", _) | ("Complete", "FAILED" | "STOPPED") => Some(Verdict::Failed),
                _ => None,
            }
        }
        _ => None,
    }
}

fn is_true(child: &Value, kind: &str) -> bool {
    let conditions = json::list(child, &["status", "conditions"]);
    conditions.iter().any(|condition| {
        json::text(condition, &["type"]) == Some(kind) && json::text(condition, &["status"]) == Some("True")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with(kind: &str, status: &str) -> Value {
        json!({"status": {"conditions": [{"type": kind, "status": status}]}})
    }

    /// Spec: appwrapper B65, B66, B67, N-20, N-28, N-29.
    #[test]
    fn each_kind_says_in_its_own_words_how_it_ended() {
        let check = |kind: (&str, &str), child: Value, expect: Option<Verdict>| {
            assert_eq!(verdict(kind.0, kind.1, &child), expect, "{kind:?} {child}");
        };
        let job = ("batch/v1", "Job");
        check(job, with("Complete", "True"), Some(Verdict::Succeeded));
        check(job, with("Failed", "True"), Some(Verdict::Failed));
        check(job, with("SuccessCriteriaMet", "True"), Some(Verdict::Succeeded));
        let active = json!({"status": {"active": 1, "conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]}});
        check(job, active, None);
        check(job, json!({"status": {"succeeded": 2}}), None);
        let torch = ("kubeflow.org/v1", "PyTorchJob");
        check(torch, with("Failed", "True"), Some(Verdict::Failed));
        check(torch, with("Failed", "False"), None);
        check(torch, with("Succeeded", "True"), Some(Verdict::Succeeded));
        check(
            ("jobset.x-k8s.io/v1alpha2", "JobSet"),
            with("Completed", "True"),
            Some(Verdict::Succeeded),
        );
        let train = ("trainer.kubeflow.org/v1alpha1", "TrainJob");
        check(train, with("Complete", "True"), Some(Verdict::Succeeded));
        check(train, with("Failed", "True"), Some(Verdict::Failed));
        check(train, with("Suspended", "True"), None);
        let ray = |deployment: &str, job: &str| json!({"status": {"jobDeploymentStatus": deployment, "jobStatus": job}});
        let kind = ("ray.io/v1", "RayJob");
        check(kind, ray("Complete", "SUCCEEDED"), Some(Verdict::Succeeded));
        check(kind, ray("Running", "FAILED"), None);
        check(kind, ray("Complete", "FAILED"), Some(Verdict::Failed));
        check(kind, ray("Failed", ""), Some(Verdict::Failed));
        check(
            ("ray.io/v1", "RayCluster"),
            json!({"status": {"state": "failed"}}),
            None,
        );
        for garbage in [
            json!({"status": 7}),
            json!({"status": {"conditions": {"a": 1}}}),
            Value::Null,
        ] {
            check(job, garbage.clone(), None);
            check(kind, garbage, None);
        }
        assert_eq!(nature("example.com/v1", "Thing"), Nature::Counted);
        assert_eq!(nature("apps/v1", "Deployment"), Nature::Endless);
        assert_eq!(nature("v1", "Pod"), Nature::Counted);
    }
}
