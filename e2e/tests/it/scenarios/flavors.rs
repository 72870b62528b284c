//! The choice of a job's flavor.

use serde_json::{Value, json};

use super::ground::{FLAVOR, Ground, ask, cpu, groups, scenario};

/// The flavor of `cpu` that a running job got.
async fn flavor_of(ground: &Ground, job: &str) -> String {
    let workload = ground.runs(job).await;
    let flavor = &workload.data["status"]["admission"]["podSetAssignments"][0]["flavors"]["cpu"];
    flavor.as_str().unwrap().to_owned()
}

/// Spec: admission-engine B067.
#[test]
fn a_full_flavor_is_passed_over() {
    scenario("b067", async |ground| {
        ground.flavor("f2", json!({})).await;
        ground
            .queue(
                "q",
                json!({"resourceGroups": cpu(&[(FLAVOR, "4"), ("f2", "10")])}),
            )
            .await;
        ground.submit(ask("a", "q").cpu("3")).await;
        assert_eq!(flavor_of(&ground, "a").await, FLAVOR);
        ground.submit(ask("b", "q").cpu("2")).await;
        assert_eq!(flavor_of(&ground, "b").await, ground.own("f2"));
    });
}

/// Spec: admission-engine B068, B069.
#[test]
fn taints_keep_out_who_does_not_tolerate_them() {
    scenario("b068", async |ground| {
        let taint = json!([{"key": "instance", "value": "spot", "effect": "NoSchedule"}]);
        ground.flavor("spot", json!({"nodeTaints": taint})).await;
        let tolerant =
            json!({"nodeTaints": taint, "tolerations": [{"key": "instance", "operator": "Exists"}]});
        ground.flavor("open", tolerant).await;
        ground
            .queue(
                "q",
                json!({"resourceGroups": cpu(&[("spot", "9"), (FLAVOR, "1")])}),
            )
            .await;
        ground.submit(ask("a", "q")).await;
        assert_eq!(flavor_of(&ground, "a").await, FLAVOR);
        ground.submit(ask("b", "q")).await;
        let message = format!(
            "untolerated taint {{instance spot NoSchedule <nil>}} in flavor {}",
            ground.own("spot")
        );
        ground.waits("b", "WaitingForQuota", &message).await;
        ground
            .queue("r", json!({"resourceGroups": cpu(&[("open", "9")])}))
            .await;
        ground.submit(ask("c", "r")).await;
        assert_eq!(flavor_of(&ground, "c").await, ground.own("open"));
        let job = ground.jobs().get("c").await.unwrap();
        let tolerations = job
            .spec
            .unwrap()
            .template
            .spec
            .unwrap()
            .tolerations
            .unwrap_or_default();
        assert!(
            tolerations.iter().any(|t| t.key.as_deref() == Some("instance")),
            "{tolerations:?}"
        );
    });
}

/// Spec: admission-engine B071.
#[test]
fn a_node_selector_chooses_among_flavors() {
    scenario("b071", async |ground| {
        ground
            .flavor("spot", json!({"nodeLabels": {"type": "spot"}}))
            .await;
        ground.flavor("od", json!({"nodeLabels": {"type": "od"}})).await;
        ground
            .queue("q", json!({"resourceGroups": cpu(&[("spot", "9"), ("od", "9")])}))
            .await;
        let select = |key: &str, value: &str| -> Value {
            json!({"spec": {"template": {"spec": {"nodeSelector": {key: value}}}}})
        };
        ground.submit(ask("a", "q").with(select("type", "od"))).await;
        assert_eq!(flavor_of(&ground, "a").await, ground.own("od"));
        ground.submit(ask("b", "q").with(select("zone", "a"))).await;
        assert_eq!(flavor_of(&ground, "b").await, ground.own("spot"));
        let job = ground.jobs().get("b").await.unwrap();
        let selector = job
            .spec
            .unwrap()
            .template
            .spec
            .unwrap()
            .node_selector
            .unwrap_or_default();
        assert_eq!(selector.get("type").map(String::as_str), Some("spot"));
    });
}

/// Spec: admission-engine B074.
#[test]
fn each_resource_group_has_its_own_flavor() {
    scenario("b074", async |ground| {
        ground.flavor("a100", json!({})).await;
        let quota = groups(&[
            &[(FLAVOR, json!({"cpu": "9"}))],
            &[("a100", json!({"nvidia.com/gpu": "4"}))],
        ]);
        ground.queue("q", json!({"resourceGroups": quota})).await;
        ground
            .submit(ask("a", "q").requests(json!({"cpu": "1", "nvidia.com/gpu": "2"})))
            .await;
        let workload = ground.runs("a").await;
        let flavors = &workload.data["status"]["admission"]["podSetAssignments"][0]["flavors"];
        assert_eq!(
            *flavors,
            json!({"cpu": FLAVOR, "nvidia.com/gpu": ground.own("a100")})
        );
    });
}

/// Spec: admission-engine B076.
#[test]
fn borrowing_comes_before_the_next_flavor_unless_told_otherwise() {
    for (name, policy, borrows) in [
        ("b076", "MayStopSearch", true),
        ("b076-next", "TryNextFlavor", false),
    ] {
        scenario(name, async |ground| {
            ground.flavor("f2", json!({})).await;
            ground
                .queue(
                    "idle",
                    json!({"cohortName": "all", "resourceGroups": cpu(&[(FLAVOR, "4")])}),
                )
                .await;
            let spec = json!({
                "cohortName": "all",
                "flavorFungibility": {"whenCanBorrow": policy},
                "resourceGroups": cpu(&[(FLAVOR, "4"), ("f2", "10")]),
            });
            ground.queue("q", spec).await;
            ground.submit(ask("a", "q").cpu("4")).await;
            assert_eq!(flavor_of(&ground, "a").await, FLAVOR);
            ground.submit(ask("b", "q").cpu("2")).await;
            let wanted = if borrows {
                FLAVOR.to_owned()
            } else {
                ground.own("f2")
            };
            assert_eq!(flavor_of(&ground, "b").await, wanted);
        });
    }
}

/// Spec: admission-engine B077.
#[test]
fn the_next_flavor_comes_before_preemption_unless_told_otherwise() {
    for (name, policy, preempts) in [
        ("b077", "TryNextFlavor", false),
        ("b077-stop", "MayStopSearch", true),
    ] {
        scenario(name, async |ground| {
            ground.flavor("f2", json!({})).await;
            let spec = json!({
                "preemption": {"withinClusterQueue": "LowerPriority"},
                "flavorFungibility": {"whenCanPreempt": policy},
                "resourceGroups": cpu(&[(FLAVOR, "4"), ("f2", "10")]),
            });
            ground.queue("q", spec).await;
            ground.submit(ask("low", "q").cpu("4").priority(-1)).await;
            assert_eq!(flavor_of(&ground, "low").await, FLAVOR);
            ground.submit(ask("high", "q").cpu("2").priority(1)).await;
            let wanted = if preempts {
                FLAVOR.to_owned()
            } else {
                ground.own("f2")
            };
            assert_eq!(flavor_of(&ground, "high").await, wanted);
            if preempts {
                ground
                    .workload_when("low", |w| w.data["status"]["schedulingStats"].is_object())
                    .await;
                assert_eq!(flavor_of(&ground, "low").await, ground.own("f2"));
            } else {
                ground.still_runs("low", "tick").await;
            }
        });
    }
}
