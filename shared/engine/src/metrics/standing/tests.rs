use std::collections::BTreeMap;

use roadstead_core::name::{Key, ResourceName};
use serde_json::json;

use super::super::transitions::tests::{condition, workload};
use super::{Requests, Standing, Standings, Workload};

/// Spec: admission-engine 8.
#[test]
fn every_workload_is_counted_where_it_stands_and_only_there() {
    let standings = Standings::new(Requests::Counted);
    let note = |key: &Key, old: Option<&Workload>, new: Option<&Workload>| {
        standings.note(key, (old, new), &roadstead_convert::workload, &|_| {
            vec!["gold".into()]
        });
    };
    let key = Key::new("ns", "w");
    let local = Key::new("ns", "lq");
    let new = workload(&json!({}));
    let reserved = workload(&json!({
        "conditions": [condition("QuotaReserved", "True", "QuotaReserved", ""),
            condition("Admitted", "False", "UnsatisfiedAdmissionChecks", "")],
        "admission": { "clusterQueue": "cq", "podSetAssignments": [] },
    }));
    let admitted = workload(&json!({
        "conditions": [condition("QuotaReserved", "True", "QuotaReserved", ""), condition("Admitted", "True", "Admitted", "")],
        "admission": { "clusterQueue": "cq", "podSetAssignments": [] },
    }));
    let finished = workload(&json!({
        "conditions": [condition("Finished", "True", "Succeeded", "")],
        "admission": { "clusterQueue": "cq", "podSetAssignments": [] },
    }));
    let told = || {
        let groups = standings.groups().into_iter();
        groups
            .map(|(group, count)| (group.cluster_queue.map(|q| q.to_string()), group.standing, count))
            .collect::<Vec<_>>()
    };
    let unadmitted = |reason: &str, cause: &str| Standing::Unadmitted {
        reason: reason.to_owned(),
        cause: cause.to_owned(),
    };
    note(&key, None, Some(&new));
    assert_eq!(
        told(),
        [(None, unadmitted("NoReservation", "PendingEvaluation"), 1)]
    );
    let cpu = (local, ResourceName::from("cpu"));
    assert_eq!(standings.asked(), BTreeMap::from([(cpu.clone(), 4_000)]));
    let reclaimed = workload(&json!({"reclaimablePods": [{"name": "main", "count": 1}]}));
    note(&key, Some(&new), Some(&reclaimed));
    assert_eq!(
        standings.asked(),
        BTreeMap::from([(cpu, 2_000)]),
        "what is reclaimable is not asked for"
    );
    note(&key, Some(&new), Some(&reserved));
    let cq = Some("cq".to_owned());
    assert_eq!(
        told(),
        [(cq.clone(), unadmitted("UnsatisfiedAdmissionChecks", ""), 1)]
    );
    assert!(standings.asked().is_empty());
    note(&key, Some(&reserved), Some(&admitted));
    assert_eq!(
        standings.admitted(),
        BTreeMap::from([(vec!["cq".into(), "gold".into()], 1)])
    );
    note(&key, Some(&admitted), Some(&finished));
    assert!(standings.admitted().is_empty());
    assert_eq!(told(), [(cq, Standing::Finished, 1)]);
    note(&key, Some(&finished), None);
    assert_eq!(told(), []);
}
