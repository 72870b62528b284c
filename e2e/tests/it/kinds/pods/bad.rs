//! Mistakes of users with pods, and manual changes.

use kube::Error;

use super::*;

/// Creates a pod that must be refused. Returns the message of the refusal.
async fn refused(room: Room, pod: Value) -> String {
    let object = serde_json::from_value(pod).unwrap();
    let api = room.api(EAST, &pods());
    match api.create(&PostParams::default(), &object).await {
        Err(Error::Api(status)) => status.message,
        other => panic!("it must be refused: {other:?}"),
    }
}

/// Removes the gates of a pod, as an impatient user does.
async fn open_by_hand(room: Room, name: &str) {
    let none = json!({"spec": {"schedulingGates": null}});
    room.merge(EAST, &pods(), name, none).await;
}

/// Spec: jobs 12.1, 15.111
#[test]
fn a_pod_that_says_nonsense_is_refused_with_the_field_and_what_it_may_hold() {
    play_pods("pod-nonsense", 1, async |room| {
        let mut managed = pod(room, "managed", LONG_SECS);
        managed["metadata"]["labels"][MANAGED] = json!("false");
        let managed = create(room, managed).await;
        assert_eq!(
            managed["metadata"]["labels"][MANAGED], "true",
            "its queue says so"
        );
        let change = json!({"metadata": {"labels": {MANAGED: "false"}}});
        let api = room.api(EAST, &pods());
        let said = api
            .patch("managed", &PatchParams::default(), &Patch::Merge(change))
            .await;
        let said = said.unwrap_err().to_string();
        assert!(said.contains("managed label value can only be 'true'"), "{said}");
        let mut alone = member(room, "g", 2, "alone", 1);
        alone["metadata"]["labels"] = json!({QUEUE: room.name});
        let said = refused(room, alone).await;
        assert!(said.contains("should be set"), "{said}");
        for count in ["0", "many"] {
            let mut none = member(room, "g", 2, "none", 1);
            none["metadata"]["annotations"][COUNT] = json!(count);
            let said = refused(room, none).await;
            assert!(
                said.contains("should be a number from 1") && said.contains(COUNT),
                "{said}"
            );
        }
        let mut name = member(room, "g", 2, "name", 1);
        name["metadata"]["labels"].as_object_mut().unwrap().remove(GROUP);
        name["metadata"]["annotations"][GROUP] = json!("No Name");
        let said = refused(room, name).await;
        assert!(said.contains("must be a DNS-1123 subdomain"), "{said}");
        let mut placed = pod(room, "placed", 1);
        placed["spec"]["nodeName"] = json!("east-1");
        let said = refused(room, placed).await;
        assert!(said.contains("nodeName"), "a held pod has no node: {said}");
    });
}

/// Spec: jobs 12.8
#[test]
fn a_pod_whose_gate_is_removed_by_hand_does_not_run_without_quota() {
    play_pods("pod-opened", 1, async |room| {
        create(room, pod(room, "first", LONG_SECS)).await;
        room.until(EAST, &pods(), "first", is_in("Running")).await;
        create(room, pod(room, "alone", LONG_SECS)).await;
        for name in ["a", "b"] {
            create(room, member(room, "g", 2, name, LONG_SECS)).await;
        }
        room.workload(EAST, "alone", |w| condition(w, "QuotaReserved").is_some())
            .await;
        workload(room, "g", |w| condition(w, "QuotaReserved").is_some()).await;
        open_by_hand(room, "alone").await;
        gone(room, &pods(), "alone").await;
        open_by_hand(room, "a").await;
        let is_leaving = |pod: &Value| pod["metadata"].get("deletionTimestamp").is_some();
        room.until(EAST, &pods(), "a", is_leaving).await;
        // It is counted until another one is there in its place.
        create(room, member(room, "g", 2, "c", LONG_SECS)).await;
        gone(room, &pods(), "a").await;
        let rest = room.until(EAST, &pods(), "b", |_| true).await;
        assert!(is_gated(&rest) && !is_leaving(&rest));
        room.until(EAST, &pods(), "first", is_in("Running")).await;
    });
}

/// Spec: jobs 12.7
#[test]
fn quota_is_free_again_whatever_is_deleted_and_whenever() {
    play_pods("pod-deleted", 1, async |room| {
        // Running, without our finalizer.
        create(room, pod(room, "bare", LONG_SECS)).await;
        room.until(EAST, &pods(), "bare", is_in("Running")).await;
        create(room, pod(room, "waits", LONG_SECS)).await;
        room.workload(EAST, "waits", |w| condition(w, "QuotaReserved").is_some())
            .await;
        let bare = json!({"metadata": {"finalizers": null}});
        room.merge(EAST, &pods(), "bare", bare).await;
        room.delete(EAST, &pods(), "bare").await;
        room.until(EAST, &pods(), "waits", is_in("Running")).await;
        // Waiting, and running.
        create(room, pod(room, "never", LONG_SECS)).await;
        room.workload(EAST, "never", |w| condition(w, "QuotaReserved").is_some())
            .await;
        for name in ["never", "waits"] {
            room.delete(EAST, &pods(), name).await;
            gone(room, &pods(), name).await;
        }
        // Ended.
        create(room, pod(room, "ends", 1)).await;
        room.until(EAST, &pods(), "ends", |pod| {
            is_in("Succeeded")(pod) && !is_held(pod)
        })
        .await;
        room.delete(EAST, &pods(), "ends").await;
        room.is_empty(EAST, &[pods(), workloads()]).await;
    });
}

/// Spec: jobs 12.3, 12.10
#[test]
fn a_member_that_asks_for_more_than_its_role_says_never_runs() {
    play_pods("pod-liar", 8, async |room| {
        let worker = |name: &str, cpu: &str| {
            let mut pod = member(room, "g", 2, name, LONG_SECS);
            pod["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"] = json!("worker");
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
            pod
        };
        for (name, cpu) in [("a", "1"), ("b", "4")] {
            create(room, worker(name, cpu)).await;
        }
        let said = told(room, "PodExceedsPodSet").await;
        assert!(said.contains("pod set 'worker'"), "{said}");
        assert!(room.api(EAST, &workloads()).get_opt("g").await.unwrap().is_none());
        room.delete(EAST, &pods(), "b").await;
        gone(room, &pods(), "b").await;
        create(room, worker("c", "1")).await;
        for name in ["a", "c"] {
            room.until(EAST, &pods(), name, is_in("Running")).await;
        }
        fail(room, "a").await;
        workload(room, "g", |w| is_true(w, "WaitingForReplacementPods")).await;
        create(room, worker("liar", "2")).await;
        create(room, worker("d", "1")).await;
        room.until(EAST, &pods(), "d", is_in("Running")).await;
        let liar = room.until(EAST, &pods(), "liar", |_| true).await;
        assert!(is_gated(&liar));
        room.delete(EAST, &workloads(), "g").await;
        room.is_empty(EAST, &[pods(), workloads()]).await;
    });
}

/// Spec: jobs 15.113
#[test]
fn a_pod_that_runs_longer_than_it_may_is_deleted() {
    play_pods("pod-overdue", 1, async |room| {
        let mut overdue = pod(room, "overdue", LONG_SECS);
        overdue["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!("1");
        create(room, overdue).await;
        gone(room, &pods(), "overdue").await;
        room.is_empty(EAST, &[workloads()]).await;
    });
}
