//! `AppWrappers` across two clusters, with the controller in `roadstead-worker`.

use std::fs;

use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use serde_json::{Value, json};

use super::ground::{
    EAST, KUEUE, LONG_SECS, MANAGER, Room, WEST, WEST_CHANGES, condition, is_true, join, play, pods, resource,
};
use super::kubeflow::{MASTER_AND_WORKER, replicas};
use super::served::{definitions, take_away};
use crate::shared::{chain, client_as};

const WRAPPERS: &str = "appwrappers.workload.codeflare.dev";
const ORIGIN: &str = "kueue.x-k8s.io/multikueue-origin";
const EXPLANATION: &str = "roadstead.dev/explanation";

pub(super) fn wrappers() -> ApiResource {
    resource("workload.codeflare.dev/v1beta2", "AppWrapper")
}

/// Everything that is wrapped, and what stands for it in a queue.
fn all_of_it() -> [ApiResource; 5] {
    [
        wrappers(),
        resource("batch/v1", "Job"),
        resource("v1", "Pod"),
        resource("v1", "Service"),
        resource(KUEUE, "Workload"),
    ]
}

/// A Job of two pods, a pod, and a Service before them, in the queue of the test; three pods of one core.
fn wrapper(room: Room, name: &str, secs: u32) -> Value {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80}]},
    });
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": pods(secs)},
    });
    let mut pod = pods(secs);
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = name.into();
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
        "metadata": {
            "name": name, "namespace": room.name, "labels": {"kueue.x-k8s.io/queue-name": room.name},
        },
        "spec": {"components": [{"template": service}, {"template": job}, {"template": pod}]},
    })
}

async fn submit(room: Room, wrapper: Value) -> Value {
    let object = serde_json::from_value(wrapper).unwrap();
    let created = room
        .api(MANAGER, &wrappers())
        .create(&PostParams::default(), &object)
        .await;
    serde_json::to_value(created.unwrap_or_else(|error| panic!("{}", chain(&error)))).unwrap()
}

/// Spec: appwrapper 5.7, B141, B142, B143, N-24; multikueue 11.57, 11.60
#[test]
fn a_wrapper_of_the_manager_runs_on_a_worker_as_one_and_shows_all_of_its_status() {
    play("wrap-far", &[(MANAGER, "16"), (EAST, "8")], async |room| {
        let created = submit(room, wrapper(room, "train", 5)).await;
        assert_eq!(created["spec"]["managedBy"], "kueue.x-k8s.io/multikueue");
        assert_eq!(created["spec"]["suspend"], true);
        let user = |object: &Value| object["metadata"]["labels"]["workload.codeflare.dev/user"].clone();
        assert!(user(&created).is_string());
        room.running(EAST, 3).await;
        let there = room
            .until(EAST, &wrappers(), "train", |w| is_true(w, "PodsReady"))
            .await;
        assert_eq!(there["spec"].get("managedBy"), None);
        assert!(there["metadata"]["labels"][ORIGIN].is_string());
        assert_eq!(user(&there), user(&created), "the submitter, not the manager");
        let here = room
            .until(MANAGER, &wrappers(), "train", |w| is_true(w, "PodsReady"))
            .await;
        for field in ["phase", "componentStatus", "conditions"] {
            assert_eq!(here["status"][field], there["status"][field], "{field}");
        }
        assert_eq!(here["status"]["phase"], "Running");
        assert_eq!(here["status"]["componentStatus"][1]["kind"], "Job");

        let workload = room.workload(MANAGER, "train", |w| is_true(w, "Finished")).await;
        assert_eq!(condition(&workload, "Finished").unwrap(), "True Succeeded");
        assert_eq!(workload["status"]["clusterName"], EAST);
        let finished = workload["status"]["conditions"].as_array().unwrap();
        let finished = finished.iter().find(|c| c["type"] == "Finished").unwrap();
        assert_eq!(finished["message"], "AppWrapper finished successfully");
        let ended = room
            .until(MANAGER, &wrappers(), "train", |w| {
                w["status"]["phase"] == "Succeeded"
            })
            .await;
        assert_ne!(ended["spec"]["suspend"], true, "it is not held any more");
        room.is_empty(EAST, &all_of_it()).await;
        assert!(
            room.phases(MANAGER).await.is_empty(),
            "nothing of it has ever run here"
        );
        room.delete(MANAGER, &wrappers(), "train").await;
        room.is_empty(MANAGER, &all_of_it()).await;
    });
}

/// As the sample of the reference: a `PyTorchJob` of a master and a worker, with the real training operator.
///
/// Spec: appwrapper 1.5, 8.2, 9; multikueue 11.57
#[test]
fn a_wrapped_pytorchjob_of_the_manager_runs_on_a_worker_and_shows_its_end() {
    play("wrap-torch", &[(MANAGER, "4"), (EAST, "4")], async |room| {
        let torch = resource("kubeflow.org/v1", "PyTorchJob");
        let mut all = all_of_it().to_vec();
        all.push(torch.clone());
        let template = json!({
            "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "train"},
            "spec": {"pytorchReplicaSpecs": replicas("pytorch", &MASTER_AND_WORKER, 20)},
        });
        let mut whole = wrapper(room, "train", 20);
        whole["spec"]["components"] = json!([{"template": template}]);
        submit(room, whole).await;
        room.running(EAST, 2).await;
        let child = room
            .until(EAST, &torch, "train", |job| is_true(job, "Running"))
            .await;
        let owner = &child["metadata"]["ownerReferences"][0];
        assert_eq!(
            (&owner["kind"], &owner["controller"]),
            (&json!("AppWrapper"), &json!(true))
        );
        let workloads = room.api(EAST, &resource(KUEUE, "Workload"));
        let queued = workloads.list(&ListParams::default()).await.unwrap().items;
        let [workload] = queued.as_slice() else {
            panic!("the wrapped job is not queued again: {queued:?}")
        };
        let sets = workload.data["spec"]["podSets"].as_array();
        assert_eq!(sets.map(Vec::len), Some(2), "one for each role");

        let workload = room.workload(MANAGER, "train", |w| is_true(w, "Finished")).await;
        assert_eq!(condition(&workload, "Finished").unwrap(), "True Succeeded");
        let succeeded = |w: &Value| w["status"]["phase"] == "Succeeded";
        let ended = room.until(MANAGER, &wrappers(), "train", succeeded).await;
        assert_eq!(ended["status"]["componentStatus"][0]["kind"], "PyTorchJob");
        room.is_empty(EAST, &all).await;
        room.delete(MANAGER, &wrappers(), "train").await;
        room.is_empty(MANAGER, &all).await;
    });
}

/// Spec: appwrapper 5.7, B22; multikueue 3.9
#[test]
fn of_a_wrapper_that_is_deleted_while_it_runs_elsewhere_nothing_stays() {
    play("wrap-gone", &[(MANAGER, "16"), (EAST, "8")], async |room| {
        submit(room, wrapper(room, "train", LONG_SECS)).await;
        room.running(EAST, 3).await;
        room.delete(MANAGER, &wrappers(), "train").await;
        room.is_empty(MANAGER, &all_of_it()).await;
        room.is_empty(EAST, &all_of_it()).await;
    });
}

/// Spec: appwrapper 5.7, N-25; safety 1 I1
#[test]
fn a_wrapper_that_is_stopped_by_the_manager_goes_with_its_children_and_runs_anew() {
    play("wrap-anew", &[(MANAGER, "16"), (EAST, "8")], async |room| {
        submit(room, wrapper(room, "train", LONG_SECS)).await;
        room.running(EAST, 3).await;
        let first = room.until(EAST, &wrappers(), "train", |_| true).await;
        let workload = room.workload(MANAGER, "train", |w| is_true(w, "Admitted")).await;
        let name = workload["metadata"]["name"].as_str().unwrap().to_owned();
        let workloads = resource(KUEUE, "Workload");
        room.merge(MANAGER, &workloads, &name, json!({"spec": {"active": false}}))
            .await;
        room.is_empty(EAST, &all_of_it()).await;
        let released = |w: &Value| !is_true(w, "QuotaReserved") && w["status"].get("clusterName").is_none();
        room.workload(MANAGER, "train", released).await;
        room.until(MANAGER, &wrappers(), "train", |w| {
            w["spec"]["suspend"] == true && !is_true(w, "QuotaReserved") && !is_true(w, "PodsReady")
        })
        .await;
        room.merge(MANAGER, &workloads, &name, json!({"spec": {"active": true}}))
            .await;
        room.running(EAST, 3).await;
        let second = room.until(EAST, &wrappers(), "train", |_| true).await;
        assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
        room.delete(MANAGER, &wrappers(), "train").await;
        room.is_empty(MANAGER, &all_of_it()).await;
        room.is_empty(EAST, &all_of_it()).await;
    });
}

/// Spec: appwrapper 5.7; safety F26; multikueue 10.F6 (deviation)
#[test]
fn a_worker_without_wrappers_is_no_candidate_until_it_serves_them() {
    play("wrap-comes", &[(MANAGER, "16"), (WEST, "8")], async |room| {
        let _alone = WEST_CHANGES.lock().await;
        join(room.stage(), WEST).await;
        let definition = take_away(room, WRAPPERS).await;
        submit(room, wrapper(room, "train", 3)).await;
        let waits = |w: &Value| {
            let record = w["metadata"]["annotations"][EXPLANATION].as_str();
            record.is_some_and(|record| record.contains("KindNotServedOnCluster"))
        };
        room.workload(MANAGER, "train", waits).await;
        let params = PostParams::default();
        definitions(room).create(&params, &definition).await.unwrap();
        room.until(MANAGER, &wrappers(), "train", |w| {
            w["status"]["phase"] == "Succeeded"
        })
        .await;
        let workload = room.workload(MANAGER, "train", |w| is_true(w, "Finished")).await;
        assert_eq!(workload["status"]["clusterName"], WEST);
        room.delete(MANAGER, &wrappers(), "train").await;
        room.is_empty(MANAGER, &all_of_it()).await;
        room.is_empty(WEST, &all_of_it()).await;
    });
}

/// Its pods fit no node of the worker that has more room, which gives it up; the other one has the node.
///
/// Spec: multikueue 3.3 R3 (deviation); safety 1 I11, 3.1
#[test]
fn a_wrapper_that_a_worker_gives_up_is_tried_on_another_one() {
    let cores = [(MANAGER, "16"), (EAST, "8"), (WEST, "4")];
    play("wrap-elsewhere", &cores, async |room| {
        let _alone = WEST_CHANGES.lock().await;
        join(room.stage(), WEST).await;
        let mut stubborn = wrapper(room, "train", 3);
        let knob = |name: &str| format!("workload.codeflare.dev.appwrapper/{name}");
        stubborn["metadata"]["annotations"] = json!({
            "roadstead.dev/retry-elsewhere": "1", knob("retryLimit"): "0",
            knob("admissionGracePeriodDuration"): "3s", knob("warmupGracePeriodDuration"): "3s",
        });
        for (component, spec) in [(1, "/spec/template/spec"), (2, "/spec")] {
            let template = &mut stubborn["spec"]["components"][component]["template"];
            let pods = template.pointer_mut(spec).unwrap();
            pods["nodeSelector"] = json!({"kubernetes.io/hostname": format!("{WEST}-1")});
        }
        submit(room, stubborn).await;
        room.until(EAST, &wrappers(), "train", |_| true).await;
        let workload = room.workload(MANAGER, "train", |w| is_true(w, "Finished")).await;
        assert_eq!(condition(&workload, "Finished").unwrap(), "True Succeeded");
        assert_eq!(workload["status"]["clusterName"], WEST);
        assert_eq!(
            workload["metadata"]["annotations"]["roadstead.dev/failed-on"],
            EAST
        );
        let succeeded = |w: &Value| w["status"]["phase"] == "Succeeded";
        room.until(MANAGER, &wrappers(), "train", succeeded).await;
        room.delete(MANAGER, &wrappers(), "train").await;
        for cluster in [MANAGER, EAST, WEST] {
            room.is_empty(cluster, &all_of_it()).await;
        }
    });
}

/// The manager's account on the worker may create `AppWrappers`, and the worker's controller Jobs: the user may not.
///
/// Spec: appwrapper 3.4, B103, N-24
#[test]
fn a_user_wraps_nothing_on_the_manager_that_the_user_may_not_create() {
    play("wrap-rights", &[(MANAGER, "16"), (EAST, "8")], async |room| {
        let may = |name: &str, group: &str, plural: &str| {
            let rule = json!({"apiGroups": [group], "resources": [plural], "verbs": ["create"]});
            let version = "rbac.authorization.k8s.io/v1";
            let metadata = json!({"name": name, "namespace": room.name});
            [
                json!({"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": [rule]}),
                json!({
                    "apiVersion": version, "kind": "RoleBinding", "metadata": metadata,
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
                    "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}],
                }),
            ]
        };
        for (name, group, plural) in [
            ("wrap", "workload.codeflare.dev", "appwrappers"),
            ("serve", "", "services"),
            ("run", "", "pods"),
        ] {
            for object in may(name, group, plural) {
                room.apply(MANAGER, object).await;
            }
        }
        let kubeconfig = fs::read_to_string(room.stage().kubeconfig(MANAGER)).unwrap();
        let alice = client_as(&kubeconfig, "alice").await;
        let alice: Api<DynamicObject> = Api::namespaced_with(alice, room.name, &wrappers());
        let object: DynamicObject = serde_json::from_value(wrapper(room, "train", 3)).unwrap();
        let refused = alice.create(&PostParams::default(), &object).await.unwrap_err();
        let text = format!("User alice is not authorized to create jobs in {}", room.name);
        assert!(refused.to_string().contains(&text), "{refused}");
        room.is_empty(MANAGER, &[wrappers()]).await;

        for object in may("batch", "batch", "jobs") {
            room.apply(MANAGER, object).await;
        }
        alice.create(&PostParams::default(), &object).await.unwrap();
        let there = room
            .until(EAST, &wrappers(), "train", |w| is_true(w, "PodsReady"))
            .await;
        assert_eq!(
            there["metadata"]["labels"]["workload.codeflare.dev/user"],
            "alice"
        );
        room.delete(MANAGER, &wrappers(), "train").await;
        room.is_empty(MANAGER, &all_of_it()).await;
        room.is_empty(EAST, &all_of_it()).await;
    });
}

/// Spec: appwrapper 5.7, B144
#[test]
fn a_wrapper_with_another_controller_is_rejected_by_its_queue() {
    play("wrap-other", &[(MANAGER, "16"), (EAST, "8")], async |room| {
        let mut other = wrapper(room, "train", 3);
        other["spec"]["managedBy"] = "example.com/mine".into();
        submit(room, other).await;
        let words = "The owner is not managed by Kueue: Expecting spec.managedBy to be \"kueue.x-k8s.io/multikueue\" not \"example.com/mine\"";
        // Why not the state of the check: the eviction sets it to Pending again at once.
        let rejected = |workload: &Value| {
            let conditions = workload["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|condition| {
                condition["type"] == "Evicted"
                    && condition["status"] == "True"
                    && condition["reason"] == "DeactivatedDueToAdmissionCheck"
                    && condition["message"].as_str().unwrap().contains(words)
            })
        };
        room.workload(MANAGER, "train", rejected).await;
        room.is_empty(EAST, &all_of_it()).await;
        room.delete(MANAGER, &wrappers(), "train").await;
        room.is_empty(MANAGER, &all_of_it()).await;
    });
}

/// Spec: appwrapper 5.7, B145
#[test]
fn a_wrapper_of_the_same_name_that_a_worker_has_already_is_let_alone() {
    play("wrap-taken", &[(MANAGER, "16"), (EAST, "8")], async |room| {
        let mut stranger = wrapper(room, "train", LONG_SECS);
        stranger["metadata"]["labels"] = json!({"mine": "yes"});
        stranger["spec"]["suspend"] = true.into();
        let before = room.apply(EAST, stranger).await;
        submit(room, wrapper(room, "train", 3)).await;
        let waits = |w: &Value| {
            w["metadata"]["annotations"][EXPLANATION]
                .as_str()
                .is_some_and(|said| said.contains(EAST))
        };
        room.workload(MANAGER, "train", waits).await;
        room.delete(MANAGER, &wrappers(), "train").await;
        room.is_empty(MANAGER, &all_of_it()).await;
        let after = room.until(EAST, &wrappers(), "train", |_| true).await;
        for field in ["uid", "labels"] {
            assert_eq!(after["metadata"][field], before["metadata"][field], "{field}");
        }
        assert_eq!(after["spec"], before["spec"]);
        assert!(after["metadata"].get("deletionTimestamp").is_none());
        room.delete(EAST, &wrappers(), "train").await;
        room.is_empty(EAST, &all_of_it()).await;
    });
}
