//! List modes, compacted versions, bookmarks, reviews, owners, grace periods and discovery.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::conformance::trace::{Dice, MERGE, Step};
use crate::conformance::values::{CONFIG_MAP, JOB, POD, Sample, WIDGET};

/// A version that was compacted before the first trace.
const FORGOTTEN: u64 = 2;

fn pair(sample: Sample, dice: &mut Dice) -> (Vec<Step>, String, String) {
    let stem = sample.name(dice);
    let names = [format!("{stem}-a"), format!("{stem}-b")];
    let steps = names
        .iter()
        .map(|name| Step::post(sample.list(), sample.object(name, dice)))
        .collect();
    let version = |name: &str| format!("$rv:{}/{name}", sample.kind);
    (steps, version(&names[0]), version(&names[1]))
}

/// Every combination of `resourceVersion` and `resourceVersionMatch` of a list.
pub(super) fn consistency(dice: &mut Dice) -> Vec<Step> {
    let sample = *dice.pick(&[CONFIG_MAP, WIDGET, JOB]);
    let list = sample.list();
    let (mut steps, first, second) = pair(sample, dice);
    let mut asked = vec![
        format!("resourceVersion={first}&resourceVersionMatch=Exact"),
        format!("resourceVersion={first}&resourceVersionMatch=Exact&limit=1"),
        format!("resourceVersion={second}&resourceVersionMatch=NotOlderThan"),
        format!("resourceVersion={second}&resourceVersionMatch=NotOlderThan&limit=1"),
        format!("resourceVersion={second}"),
        format!("resourceVersion={first}&limit=5"),
        "resourceVersion=0&resourceVersionMatch=NotOlderThan".to_owned(),
        "resourceVersionMatch=NotOlderThan".to_owned(),
        "resourceVersionMatch=Exact".to_owned(),
        "resourceVersion=0&resourceVersionMatch=Exact".to_owned(),
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(),
        "limit=0".to_owned(),
        "limit=-1".to_owned(),
        "limit=x".to_owned(),
        "resourceVersion=-1".to_owned(),
    ];
    while asked.len() > 8 {
        let at = dice.below(asked.len());
        asked.remove(at);
    }
    // Why first: after this consistent list the caches of a real server have caught up.
    steps.push(Step::get(format!(
        "{list}?resourceVersion={second}&resourceVersionMatch=NotOlderThan"
    )));
    steps.extend(asked.iter().map(|query| Step::get(format!("{list}?{query}"))));
    if dice.chance(15) {
        let mode = *dice.pick(&[
            "",
            "&resourceVersionMatch=Exact",
            "&resourceVersionMatch=NotOlderThan",
        ]);
        steps.push(Step::get(format!("{list}?resourceVersion=99999999{mode}")));
    }
    steps
}

/// Lists, pages and watches of a compacted version.
pub(super) fn forgotten(dice: &mut Dice) -> Vec<Step> {
    let sample = *dice.pick(&[CONFIG_MAP, WIDGET]);
    let list = sample.list();
    let (mut steps, _, _) = pair(sample, dice);
    let token = URL_SAFE_NO_PAD
        .encode(json!({"v": "meta.k8s.io/v1", "rv": FORGOTTEN, "start": "a\u{0}"}).to_string());
    steps.extend([
        Step::get(format!("{list}?limit=1&continue={token}")),
        // The refusal carried a token for the rest in the present state.
        Step::get(format!("{list}?limit=1&continue=$continue")),
        Step::get(format!("{list}?limit=1&continue=$continue")),
        Step::get(format!(
            "{list}?resourceVersion={FORGOTTEN}&resourceVersionMatch=Exact"
        )),
        Step::get(format!("{list}?resourceVersion={FORGOTTEN}&limit=1")),
        Step::get(format!("{list}?resourceVersion={FORGOTTEN}&continue={token}")),
    ]);
    // Why not of a built-in kind: a real server keeps its changes from the start.
    if sample == WIDGET {
        steps.push(Step::watch(
            format!("{list}?watch=true&resourceVersion={FORGOTTEN}&timeoutSeconds=5"),
            1,
        ));
    }
    steps
}

/// Watches with a bookmark at the beginning. Why not later ones: their time depends on a real server's load.
pub(super) fn bookmarks(dice: &mut Dice) -> Vec<Step> {
    let sample = *dice.pick(&[CONFIG_MAP, WIDGET, POD]);
    let list = sample.list();
    let (mut steps, _, second) = pair(sample, dice);
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let label = "labelSelector=nobody%3Dhas";
    steps.extend([
        Step::get(format!("{list}?resourceVersion={second}")),
        Step::watch(
            format!("{list}?watch=true&{initial}&allowWatchBookmarks=true&timeoutSeconds=5&{label}"),
            1,
        ),
        Step::get(format!(
            "{list}?watch=true&{initial}&resourceVersion=x&allowWatchBookmarks=true&timeoutSeconds=1"
        )),
        Step::get(format!(
            "{list}?watch=true&sendInitialEvents=false&resourceVersion={second}&timeoutSeconds=1"
        )),
        Step::get(format!(
            "{list}?watch=true&timeoutSeconds=1&{label}&resourceVersion={second}"
        )),
    ]);
    steps
}

/// Reviews about the own user and others, valid and invalid.
pub(super) fn reviews(dice: &mut Dice) -> Vec<Step> {
    let ask = |kind: &str, spec: Value| {
        let group = if kind == "SelfSubjectReview" || kind == "TokenReview" {
            "authentication.k8s.io/v1"
        } else {
            "authorization.k8s.io/v1"
        };
        let space = if kind.starts_with("Local") {
            "/namespaces/{ns}"
        } else {
            ""
        };
        Step::post(
            format!("/apis/{group}{space}/{}s", kind.to_lowercase()),
            json!({"apiVersion": group, "kind": kind, "spec": spec}),
        )
    };
    let accounts = "/api/v1/namespaces/{ns}/serviceaccounts";
    let who = "system:serviceaccount:{ns}:asker";
    let groups = json!(["system:serviceaccounts", "system:authenticated"]);
    let role = *dice.pick(&["system:discovery", "system:basic-user", "cluster-admin"]);
    let verb = *dice.pick(&["get", "create", "delete", "*"]);
    let resource = *dice.pick(&["pods", "configmaps", "secrets", "nodes", "*"]);
    let attributes = json!({"verb": verb, "resource": resource, "namespace": "{ns}"});
    let mut steps = vec![
        Step::post(
            accounts,
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "asker"}}),
        ),
        Step::post(
            format!("{accounts}/asker/token"),
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}),
        ),
        ask("TokenReview", json!({"token": "$token"})),
        ask(
            "TokenReview",
            json!({"token": "$token", "audiences": ["elsewhere"]}),
        ),
        ask("TokenReview", json!({})),
        Step::post(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings",
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "asker"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": "asker", "namespace": "{ns}"}],
            }),
        ),
        ask(
            "SubjectAccessReview",
            json!({"user": who, "groups": groups, "nonResourceAttributes": {"verb": "get", "path": "/version"}}),
        ),
        ask(
            "SubjectAccessReview",
            json!({"user": who, "resourceAttributes": attributes, "nonResourceAttributes": {"verb": "get", "path": "/"}}),
        ),
        ask(
            "LocalSubjectAccessReview",
            json!({"user": who, "resourceAttributes": attributes}),
        ),
        ask(
            "LocalSubjectAccessReview",
            json!({"user": who, "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "other"}}),
        ),
        ask(
            "SelfSubjectAccessReview",
            json!({"resourceAttributes": attributes}),
        ),
        ask("SelfSubjectAccessReview", json!({})),
        ask("SelfSubjectRulesReview", json!({"namespace": "{ns}"})),
        ask("SelfSubjectRulesReview", json!({})),
        ask("SelfSubjectReview", json!({"x": 1})),
    ];
    while steps.len() > 11 {
        let at = 3 + dice.below(steps.len() - 3);
        steps.remove(at);
    }
    steps
}

/// Owner references, valid and invalid.
pub(super) fn owners(dice: &mut Dice) -> Vec<Step> {
    let sample = *dice.pick(&[CONFIG_MAP, WIDGET, POD]);
    let (stem, boss) = (sample.name(dice), CONFIG_MAP.name(dice));
    let uid = format!("$uid:ConfigMap/{boss}");
    let whole = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": boss, "uid": uid});
    let with = |more: &[(&str, Value)]| {
        let mut owner = whole.clone();
        for (field, value) in more {
            owner[*field] = value.clone();
        }
        owner
    };
    let lists = [
        json!([with(&[
            ("controller", true.into()),
            ("blockOwnerDeletion", true.into())
        ])]),
        json!([
            with(&[("controller", true.into())]),
            with(&[("controller", true.into()), ("uid", "other".into())])
        ]),
        json!([whole, whole]),
        json!([with(&[("uid", "".into())])]),
        json!([with(&[("name", "".into())])]),
        json!([with(&[("apiVersion", "".into()), ("kind", "".into())])]),
        json!([with(&[("apiVersion", "a/b/c".into())])]),
        json!([with(&[("kind", "Event".into())])]),
    ];
    let mut steps = vec![Step::post(CONFIG_MAP.list(), CONFIG_MAP.object(&boss, dice))];
    for at in 0..4 {
        let name = format!("{stem}-{at}");
        let mut object = sample.object(&name, dice);
        object["metadata"]["ownerReferences"] = dice.pick(&lists).clone();
        steps.push(Step::post(sample.list(), object));
        steps.push(Step::patch(
            sample.at(&name),
            MERGE,
            json!({"metadata": {"ownerReferences": dice.pick(&lists).clone()}}),
        ));
    }
    let policy = *dice.pick(&["Background", "Foreground", "Orphan"]);
    let at = CONFIG_MAP.at(&boss);
    steps.push(Step::delete(format!("{at}?propagationPolicy={policy}")));
    steps.push(Step::get(at.clone()));
    let other = *dice.pick(&["Background", "Foreground", "Orphan"]);
    steps.push(Step::delete(format!("{at}?propagationPolicy={other}")));
    steps.push(Step::get(at.clone()));
    steps.push(Step::patch(
        at.clone(),
        MERGE,
        json!({"metadata": {"finalizers": null}}),
    ));
    steps.push(Step::get(at));
    steps
}

/// A pod that is deleted with a grace period, once or more than once.
pub(super) fn grace(dice: &mut Dice) -> Vec<Step> {
    let name = POD.name(dice);
    let at = POD.at(&name);
    let mut object = POD.object(&name, dice);
    object["spec"]["schedulingGates"] = Value::Null;
    if dice.chance(50) {
        object["spec"]["terminationGracePeriodSeconds"] = (*dice.pick(&[0, 1, 7])).into();
    }
    if dice.chance(30) {
        object["metadata"]["finalizers"] = json!(["example.com/held"]);
    }
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}});
    let mut steps = vec![
        Step::post(POD.list(), object),
        Step::post(format!("{at}/binding"), binding),
        // Why: a real server first deletes what its watch cache shows, and reads etcd only if that was out of date. A pod without
        // a node has no grace period, and that result also stands for the second attempt. This list waits for the cache.
        Step::get(POD.list()),
    ];
    for _ in 0..3 {
        let seconds = *dice.pick(&[
            "",
            "?gracePeriodSeconds=20",
            "?gracePeriodSeconds=5",
            "?gracePeriodSeconds=-1",
        ]);
        steps.push(Step::delete(format!("{at}{seconds}")));
    }
    steps.push(Step::get(at.clone()));
    steps.push(Step::patch(
        at.clone(),
        MERGE,
        json!({"metadata": {"labels": {"a": "b"}}}),
    ));
    steps.push(
        Step::delete(at.clone())
            .body(json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})),
    );
    steps.push(Step::get(at.clone()));
    steps.push(Step::patch(
        at.clone(),
        MERGE,
        json!({"metadata": {"finalizers": null}}),
    ));
    steps.push(Step::get(at));
    steps
}

/// Steps that ask for the lists of groups and kinds.
pub(super) fn discovery(dice: &mut Dice) -> Vec<Step> {
    let group = "/apis/conformance.roadstead.dev";
    let mut steps = vec![
        Step::get(group),
        Step::get(format!("{group}/v1")),
        Step::get(format!("{group}/v2")),
        Step::get(format!("{group}/v3")),
        Step::get("/apis/kueue.x-k8s.io"),
        Step::get("/apis/kueue.x-k8s.io/v1beta2"),
        Step::get("/apis/coordination.k8s.io/v1"),
        Step::get("/apis/nothing.example.com"),
        Step::get("/readyz"),
    ];
    while steps.len() > 4 {
        let at = dice.below(steps.len());
        steps.remove(at);
    }
    steps
}
