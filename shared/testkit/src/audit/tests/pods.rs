//! Plain pods, single and in groups: where they may be let go, and where they run.

use serde_json::{Value, json};

use super::scene::{MANAGER, PERSON, PODS, SYSTEM, Scene, WORKER, WORKLOADS, condition};

const GATES: [&str; 1] = ["kueue.x-k8s.io/admission"];

/// A held pod, with these additional labels and annotations.
fn pod(name: &str, uid: &str, more: &Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": name, "uid": uid, "labels": {"kueue.x-k8s.io/queue-name": "lq"}, "annotations": {}},
        "spec": {"schedulingGates": GATES.map(|name| json!({"name": name}))},
        "status": {"phase": "Pending"},
    });
    for place in ["labels", "annotations"] {
        for (key, value) in more[place].as_object().into_iter().flatten() {
            pod["metadata"][place][key] = value.clone();
        }
    }
    pod
}

impl Scene {
    /// A group `a` of two pods on the manager, with a Workload of its name that is offered to both workers.
    fn group(&mut self) {
        let member = json!({"labels": {"kueue.x-k8s.io/pod-group-name": "a"}});
        let names = ["a-0", "a-1"];
        for name in names {
            self.put(
                "manager",
                PERSON,
                PODS,
                pod(name, &format!("pod-{name}"), &member),
            );
            self.auditor.submitted(PODS, "ns", name, self.now);
        }
        let owners = names.map(|name| json!({"kind": "Pod", "name": name, "uid": format!("pod-{name}")}));
        let workload = json!({
            "metadata": {"name": "a", "generation": 1, "ownerReferences": owners},
            "spec": {"queueName": "lq", "active": true},
        });
        self.put("manager", MANAGER, WORKLOADS, workload);
        self.says(
            "manager",
            MANAGER,
            &json!({
                "conditions": [condition("QuotaReserved", "True", "QuotaReserved", 0)],
                "admissionChecks": [{"name": "mk", "state": "Pending", "message": "offered"}],
                "nominatedClusterNames": ["east", "west"],
            }),
        );
    }

    fn says(&mut self, cluster: &str, user: &str, status: &Value) {
        self.edit(cluster, user, WORKLOADS, "a", json!({"status": status}));
    }

    /// Both workers get a copy of the group's Workload. Worker `cluster` admits its copy, and the manager chooses it.
    fn place(&mut self, cluster: &str) {
        let labels = json!({"kueue.x-k8s.io/multikueue-origin": "multikueue"});
        let copy = json!({"metadata": {"name": "a", "labels": labels}, "spec": {"active": true}});
        self.put(cluster, MANAGER, WORKLOADS, copy);
        let held = [
            condition("QuotaReserved", "True", "Ok", 1),
            condition("Admitted", "True", "Ok", 1),
        ];
        self.says(cluster, WORKER, &json!({"conditions": held}));
        self.says("manager", MANAGER, &json!({
            "conditions": [condition("QuotaReserved", "True", "Ok", 0), condition("Admitted", "True", "Ok", 2)],
            "admissionChecks": [{"name": "mk", "state": "Ready", "message": "there"}],
            "nominatedClusterNames": null, "clusterName": cluster,
        }));
    }

    /// Puts the copy of a member, which is held, on a cluster.
    fn send(&mut self, name: &str, cluster: &str) {
        let marks = json!({
            "labels": {
                "kueue.x-k8s.io/pod-group-name": "a", "kueue.x-k8s.io/multikueue-origin": "multikueue",
                "kueue.x-k8s.io/prebuilt-workload-name": "a",
            },
        });
        self.put(
            cluster,
            MANAGER,
            PODS,
            pod(name, &format!("{cluster}-{name}"), &marks),
        );
    }

    fn let_go(&mut self, name: &str, cluster: &str, user: &str) {
        self.edit(
            cluster,
            user,
            PODS,
            name,
            json!({"spec": {"schedulingGates": null}}),
        );
    }

    fn phase(&mut self, name: &str, cluster: &str, user: &str, phase: &str) {
        self.edit(cluster, user, PODS, name, json!({"status": {"phase": phase}}));
    }
}

/// A group whose two pods run in east and show it on the manager.
fn runs() -> Scene {
    let mut scene = Scene::new();
    scene.group();
    scene.place("east");
    for name in ["a-0", "a-1"] {
        scene.send(name, "east");
        scene.let_go(name, "east", WORKER);
        scene.phase(name, "east", SYSTEM, "Running");
        scene.phase(name, "manager", MANAGER, "Running");
    }
    scene
}

/// Spec: jobs 12.8, 12.9
#[test]
fn a_pod_is_let_go_only_where_its_workload_is_admitted_and_never_on_the_manager() {
    runs().is_fine();
    let mut scene = runs();
    scene.let_go("a-0", "manager", MANAGER);
    assert_eq!(scene.broken(), ["jobs 12.9", "I1"], "it would run twice");

    let mut scene = Scene::new();
    scene.group();
    scene.place("east");
    scene.send("a-0", "east");
    scene.says(
        "east",
        WORKER,
        &json!({"conditions": [condition("Admitted", "False", "Evicted", 3)]}),
    );
    scene.let_go("a-0", "east", WORKER);
    assert_eq!(scene.broken(), ["jobs 12.8"]);
}

/// Spec: safety 1 I1; jobs 12.9
#[test]
fn all_pods_of_a_group_run_on_one_cluster() {
    let mut scene = runs();
    scene.place("west");
    scene.send("a-1", "west");
    scene.is_fine();
    scene.let_go("a-1", "west", WORKER);
    assert_eq!(scene.broken(), ["I1"]);
}

/// Spec: safety 1 I3, I5
#[test]
fn a_group_has_ended_when_its_workload_has_and_leaves_nothing() {
    let end = |cleans: bool| {
        let mut scene = runs();
        for (name, phase) in [("a-0", "Succeeded"), ("a-1", "Failed")] {
            scene.phase(name, "east", SYSTEM, phase);
            scene.phase(name, "manager", MANAGER, phase);
        }
        let finished = json!({"conditions": [condition("Finished", "True", "Succeeded", 3)]});
        scene.says("east", WORKER, &finished);
        scene.says("manager", MANAGER, &finished);
        if cleans {
            for name in ["a-0", "a-1"] {
                scene.remove("east", MANAGER, PODS, name);
            }
            scene.remove("east", MANAGER, WORKLOADS, "a");
        }
        scene.rest();
        scene
    };
    end(true).is_fine();
    assert_eq!(end(false).broken(), ["I5"; 3]);

    let mut scene = runs();
    scene.phase("a-0", "east", SYSTEM, "Succeeded");
    scene.phase("a-0", "manager", MANAGER, "Succeeded");
    scene.rest();
    scene.is_fine();
    scene.phase("a-1", "east", SYSTEM, "Failed");
    scene.rest();
    assert_eq!(scene.broken(), ["I3"; 2], "none of it runs any more");
    let mut scene = runs();
    scene.remove("manager", MANAGER, PODS, "a-0");
    assert_eq!(scene.broken(), ["I2"], "the manager deletes no pod of people");
}
