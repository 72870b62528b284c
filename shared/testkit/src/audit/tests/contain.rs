//! I9, I10 and the rules about decisions.

use roadstead_api::config::WorkerLostPolicy;
use roadstead_apiserver::RESTORER;
use serde_json::json;

use super::scene::{
    CLUSTERS, CONFIGS, JOBS, MANAGER, PERSON, SYSTEM, Scene, WORKER, WORKLOADS, condition, rules, wl,
};
use crate::audit::Rules;

/// Spec: safety 1 I9, 2 W4.
#[test]
fn a_cluster_that_was_never_chosen_ends_nothing() {
    let mut scene = Scene::new();
    scene.start("a", "east");
    scene.offer("a", "west");
    let finished = json!({"conditions": [condition("Finished", "True", "Succeeded", 3)]});
    scene.status("west", SYSTEM, "a", finished.clone());
    scene.is_fine();
    scene.status("manager", MANAGER, "a", finished);
    assert_eq!(scene.broken(), ["I9"]);
}

/// Spec: safety 1 I9, 2 W9.
#[test]
fn the_end_of_the_job_on_the_chosen_cluster_is_enough() {
    let mut scene = Scene::new();
    scene.start("a", "east");
    scene.end_there("a", "east");
    scene.clean("a", "east");
    scene.mirror_end("a");
    scene.is_fine();
}

/// Spec: safety 1 I9, 2 W1 and W4.
#[test]
fn a_job_is_made_only_where_it_was_sent() {
    let mut scene = Scene::new();
    scene.submit("a");
    scene.offer("a", "west");
    scene.admit("a", "west");
    scene.make_job("a", "west");
    assert_eq!(scene.broken(), ["I9"]);
    let mut scene = Scene::new();
    scene.submit("a");
    scene.dispatch("a", "west");
    scene.make_job("a", "west");
    scene.is_fine();
}

/// Spec: safety 1 I9.
#[test]
fn a_worker_writes_nothing_on_the_manager() {
    let mut scene = Scene::new();
    scene.submit("a");
    scene.is_fine();
    scene.status("manager", WORKER, "a", json!({"clusterName": "east"}));
    assert!(scene.broken().contains(&"I9"));
}

/// Spec: safety 1 I10.
#[test]
fn what_is_made_on_a_worker_has_an_original() {
    let made = |namespace_of: &str, account: &str| {
        let mut scene = Scene::new();
        scene.submit("a");
        let spec = json!({"template": {"spec": {"serviceAccountName": "plain"}}});
        scene.edit("manager", PERSON, JOBS, "a", json!({"spec": spec}));
        let labels = json!({"kueue.x-k8s.io/multikueue-origin": "multikueue"});
        let spec = json!({"template": {"spec": {"serviceAccountName": account}}});
        scene.put(
            "east",
            MANAGER,
            JOBS,
            json!({"metadata": {"name": namespace_of, "labels": labels}, "spec": spec}),
        );
        scene.broken()
    };
    assert!(made("a", "plain").is_empty());
    assert_eq!(made("other", "plain"), ["I10"]);
    assert_eq!(made("a", "admin"), ["I10"]);
}

/// Spec: multikueue 3.3 R6.
#[test]
fn a_workload_is_given_to_a_cluster_that_admitted_it() {
    let mut scene = Scene::new();
    scene.submit("a");
    scene.offer("a", "east");
    let reserved = json!({"conditions": [condition("QuotaReserved", "True", "Ok", 1)]});
    scene.status("east", WORKER, "a", reserved);
    scene.choose("a", "east");
    assert_eq!(scene.broken(), ["multikueue 3.3 R6"]);
}

/// Spec: multikueue 3.3 R6, Appendix C #11378.
#[test]
fn what_a_cluster_admitted_before_an_eviction_counts_only_while_it_is_there() {
    let again = |admitted, cleaned| {
        let mut scene = Scene::new();
        scene.start("a", "east");
        let evicted = json!([
            condition("QuotaReserved", "True", "Ok", 0),
            condition("Evicted", "True", "Preempted", 4)
        ]);
        let pending = json!([{"name": "mk", "state": "Pending", "message": "again"}]);
        scene.status(
            "manager",
            MANAGER,
            "a",
            json!({"conditions": evicted, "admissionChecks": pending}),
        );
        if cleaned {
            scene.clean("a", "east");
            scene.offer("a", "east");
        }
        if admitted {
            scene.admit("a", "east");
        }
        scene.choose("a", "east");
        scene.broken()
    };
    assert!(again(true, true).is_empty());
    assert_eq!(again(false, true), ["multikueue 3.3 R6"]);
    assert!(
        again(false, false).is_empty(),
        "its worker was away when it was to be removed"
    );
}

fn taken_back(policy: WorkerLostPolicy, disturb: &dyn Fn(&mut Scene)) -> Vec<&'static str> {
    let mut scene = Scene::under(Rules { policy, ..rules() });
    scene.start("a", "east");
    disturb(&mut scene);
    let retry = json!([{"name": "mk", "state": "Retry", "message": "Admitting remote lost"}]);
    scene.status("manager", MANAGER, "a", json!({"admissionChecks": retry}));
    scene.broken()
}

/// Spec: multikueue 10.F8.
#[test]
fn a_run_that_nothing_disturbed_is_not_taken_back() {
    let ours = ["multikueue 10.F8"];
    assert_eq!(taken_back(WorkerLostPolicy::Wait, &|_| {}), ours);
    assert!(
        taken_back(WorkerLostPolicy::RetryAnyway, &|_| {}).is_empty(),
        "the worker may have been lost"
    );
    let evicted = json!({"conditions": [condition("Admitted", "False", "Evicted", 4), condition("Evicted", "True", "Preempted", 4)]});
    assert!(
        taken_back(WorkerLostPolicy::Wait, &|scene| scene.status(
            "east",
            WORKER,
            "a",
            evicted.clone()
        ))
        .is_empty()
    );
    // No finding either if the worker has admitted it again since: the manager may see that later.
    assert!(
        taken_back(WorkerLostPolicy::Wait, &|scene| {
            scene.status("east", WORKER, "a", evicted.clone());
            let again = [condition("Admitted", "True", "Ok", 5)];
            scene.status("east", WORKER, "a", json!({"conditions": again}));
        })
        .is_empty()
    );
    assert!(
        taken_back(WorkerLostPolicy::Wait, &|scene| scene.remove(
            "east",
            PERSON,
            WORKLOADS,
            &wl("a")
        ))
        .is_empty()
    );
    assert!(
        taken_back(WorkerLostPolicy::Wait, &|scene| scene
            .remove("east", PERSON, JOBS, "a"))
        .is_empty()
    );
    let lost = |given_up: bool| {
        taken_back(WorkerLostPolicy::Wait, &|scene| {
            scene.active("east", "False", "ClientConnectionFailed");
            if given_up {
                scene.give_up("east");
            }
            let without_east = json!({"spec": {"clusters": ["west"]}});
            scene.edit("manager", PERSON, CONFIGS, "all", without_east);
        })
    };
    assert!(lost(true).is_empty(), "the administrator gave the cluster up");
    assert_eq!(
        lost(false),
        ["multikueue 10.F8"],
        "what is taken out of the config is not given up"
    );
}

/// A backup from before the last restore brings back an earlier dispatch.
///
/// Spec: multikueue 10.F8, safety F15
#[test]
fn what_a_backup_puts_in_the_place_of_a_run_may_be_taken_back_and_the_run_itself_not() {
    let restored = |uid: Option<&'static str>| {
        taken_back(WorkerLostPolicy::Wait, &|scene| {
            for (resource, name) in [(WORKLOADS, &*wl("a")), (JOBS, "a")] {
                let mut object = scene.get("east", resource, name).clone();
                if let Some(uid) = uid {
                    object["metadata"]["uid"] = json!(format!("{uid}-{resource}"));
                }
                scene.put("east", RESTORER, resource, object);
            }
        })
    };
    assert!(restored(Some("earlier")).is_empty());
    assert_eq!(restored(None), ["multikueue 10.F8"]);
}

/// Spec: multikueue 10.F2, 11.11, Appendix C #13188.
#[test]
fn a_cluster_with_refused_credentials_is_not_used() {
    let used = |status: &str, reason: &str, wait| {
        let mut scene = Scene::new();
        scene.submit("a");
        scene.active("east", "False", "InsecureKubeConfig");
        scene.active("east", status, reason);
        scene.pass(wait);
        scene.auditor.troubled("east");
        scene.offer("a", "east");
        scene.broken()
    };
    assert_eq!(used("False", "InsecureKubeConfig", 600), ["multikueue 10.F2"]);
    assert!(
        used("False", "InsecureKubeConfig", 5).is_empty(),
        "a request may be under way"
    );
    assert!(used("True", "Active", 600).is_empty());
}

/// A kubeconfig as a Secret holds it.
fn kubeconfig(cluster: &serde_json::Value) -> serde_json::Value {
    use base64::Engine as _;
    let text = json!({"clusters": [{"name": "c", "cluster": cluster}]}).to_string();
    json!(base64::engine::general_purpose::STANDARD.encode(text))
}

/// The manager may be unable to correct condition `Active` for a long time, because it cannot write.
///
/// Spec: multikueue 10.F2.
#[test]
fn good_credentials_may_be_used_however_long_the_condition_is_out_of_date() {
    let good = json!({"server": "https://east", "certificate-authority-data": "Y2E="});
    let bad = json!({"server": "https://east", "certificate-authority-data": "Y2E=", "insecure-skip-tls-verify": true});
    let blind = json!({"server": "https://east"});
    let used = |then: &dyn Fn(&mut Scene)| {
        let mut scene = Scene::new();
        scene.submit("a");
        let source = json!({"spec": {"clusterSource": {"kubeConfig": {"location": "east-secret"}}}});
        scene.edit("manager", PERSON, CLUSTERS, "east", source);
        for name in ["east-secret", "other"] {
            let object = json!({"metadata": {"name": name}, "data": {"kubeconfig": kubeconfig(&blind)}});
            scene.put("manager", PERSON, "secrets", object);
        }
        scene.active("east", "False", "InsecureKubeConfig");
        scene.pass(600);
        then(&mut scene);
        scene.pass(600);
        scene.auditor.troubled("east");
        scene.offer("a", "east");
        scene.broken()
    };
    let write = |name: &'static str, cluster: &serde_json::Value| {
        let data = json!({"data": {"kubeconfig": kubeconfig(cluster)}});
        move |scene: &mut Scene| scene.edit("manager", PERSON, "secrets", name, data.clone())
    };
    assert!(used(&write("east-secret", &good)).is_empty());
    assert_eq!(used(&write("east-secret", &bad)), ["multikueue 10.F2"]);
    assert_eq!(used(&write("other", &good)), ["multikueue 10.F2"]);
    let removed = |scene: &mut Scene| {
        write("east-secret", &good)(scene);
        scene.remove("manager", PERSON, "secrets", "east-secret");
    };
    assert_eq!(used(&removed), ["multikueue 10.F2"]);
}

/// Spec: multikueue 10.F2: new credentials are not those that were refused.
#[test]
fn new_credentials_may_be_used_before_the_condition_says_so_and_no_longer_than_that() {
    let used = |secret: &str, data: &str, wait| {
        let mut scene = Scene::new();
        scene.submit("a");
        let source = json!({"spec": {"clusterSource": {"kubeConfig": {"location": "east-secret"}}}});
        scene.edit("manager", PERSON, CLUSTERS, "east", source);
        for name in ["east-secret", "other"] {
            let object = json!({"metadata": {"name": name}, "data": {"kubeconfig": "one"}});
            scene.put("manager", PERSON, "secrets", object);
        }
        scene.active("east", "False", "InsecureKubeConfig");
        scene.pass(600);
        let data = json!({"data": {"kubeconfig": data}});
        scene.edit("manager", PERSON, "secrets", secret, data);
        scene.pass(wait);
        scene.auditor.troubled("east");
        scene.offer("a", "east");
        scene.broken()
    };
    assert!(used("east-secret", "two", 1).is_empty());
    assert_eq!(used("east-secret", "two", 60), ["multikueue 10.F2"]);
    assert_eq!(used("east-secret", "one", 1), ["multikueue 10.F2"]);
    assert_eq!(used("other", "two", 1), ["multikueue 10.F2"]);
}
