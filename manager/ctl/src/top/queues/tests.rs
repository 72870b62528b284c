use serde_json::json;

use super::*;

#[test]
fn a_cluster_queue_has_a_row_for_each_flavor_and_resource_of_its_quota() {
    let queues: Vec<ClusterQueue> = [
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "pool"},
            "spec": {"cohortName": "all", "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": [
                {"name": "spot", "resources": [{"name": "cpu", "nominalQuota": "4"}, {"name": "memory", "nominalQuota": "8Gi"}]}]}]},
            "status": {"pendingWorkloads": 3, "admittedWorkloads": 2,
                "flavorsUsage": [{"name": "spot", "resources": [{"name": "cpu", "total": "4", "borrowed": "0"}]}],
                "flavorsReservation": [{"name": "spot", "resources": [{"name": "cpu", "total": "6", "borrowed": "2"}]}]},
        }),
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "void"}, "spec": {},
        }),
    ]
    .map(|queue| serde_json::from_value(queue).unwrap())
    .into();
    let rows = of_cluster_queues(&queues);
    assert_eq!(
        render(&rows, None),
        "QUEUE   COHORT   FLAVOR   RESOURCE   USED   RESERVED   NOMINAL   BORROWED   WAITING   ADMITTED\n\
         pool    all      spot     cpu        4      6          4         2          3         2\n\
         pool    all      spot     memory     0      0          8Gi       0          3         2\n\
         void    -        -        -          -      -          -         -          0         0"
    );
    let json = serde_json::to_value(&rows).unwrap();
    assert_eq!(
        (json[0]["borrowed"].as_str(), &json[0]["waiting"]),
        (Some("2"), &json!(3))
    );
}

#[test]
fn a_local_queue_shows_what_its_jobs_hold() {
    let queue: LocalQueue = serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "main", "namespace": "team-a"},
        "spec": {"clusterQueue": "pool"},
        "status": {"pendingWorkloads": 1, "admittedWorkloads": 1,
            "flavorsReservation": [{"name": "spot", "resources": [{"name": "cpu", "total": "3"}]}],
            "flavorsUsage": [{"name": "spot", "resources": [{"name": "cpu", "total": "1"}]}]},
    }))
    .unwrap();
    let rows = of_local_queues(&[queue]);
    assert_eq!(
        render(&rows, Some(&Scope::All)),
        "NAMESPACE   QUEUE   FLAVOR   RESOURCE   USED   RESERVED   WAITING   ADMITTED\n\
         team-a      main    spot     cpu        1      3          1         1"
    );
    let of_one = render(&rows, Some(&Scope::One("team-a".to_owned())));
    assert!(of_one.starts_with("QUEUE   FLAVOR"), "{of_one}");
    assert_eq!(render(&[], None), "");
}
