//! Lists, watches, tables; and questions about access.

use serde_json::{Value, json};

use crate::conformance::trace::{Dice, MERGE, Step};
use crate::conformance::values::{CONFIG_MAP, JOB, POD, SAMPLES, Sample, WIDGET};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json";
const PARTIAL_LIST: &str =
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";

fn some(sample: Sample, count: usize, dice: &mut Dice) -> Vec<Step> {
    let stem = sample.name(dice);
    (0..count)
        .map(|at| Step::post(sample.list(), sample.object(&format!("{stem}-{at}"), dice)))
        .collect()
}

/// Lists of any kind in a namespace.
pub(super) fn lists(dice: &mut Dice) -> Vec<Step> {
    let sample = *dice.pick(&[CONFIG_MAP, POD, JOB, WIDGET]);
    let mut steps = some(sample, 3, dice);
    steps.push(Step::get(sample.list()));
    steps.push(Step::get(format!("{}?resourceVersion=0", sample.list())));
    steps.push(Step::get(format!("{}?resourceVersionMatch=Exact", sample.list())));
    steps.push(Step::get(format!(
        "{}?resourceVersion=0&resourceVersionMatch=Exact",
        sample.list()
    )));
    steps.push(Step::get(format!(
        "{}?resourceVersion=1&resourceVersionMatch=Nonsense",
        sample.list()
    )));
    steps.push(Step::get(sample.list()).accept(PARTIAL_LIST));
    steps.push(Step::get(sample.list()).accept("application/pdf"));
    steps
}

/// Pages, while objects change.
pub(super) fn pages(dice: &mut Dice) -> Vec<Step> {
    let sample = *dice.pick(&[CONFIG_MAP, WIDGET, JOB]);
    let mut steps = some(sample, 4, dice);
    let limit = *dice.pick(&[1, 2, 3]);
    steps.push(Step::get(format!("{}?limit={limit}", sample.list())));
    steps.extend(some(sample, 1, dice));
    steps.push(Step::get(format!(
        "{}?limit={limit}&continue=$continue",
        sample.list()
    )));
    steps.push(Step::get(format!(
        "{}?limit={limit}&continue=nonsense",
        sample.list()
    )));
    steps
}

/// A watch from a version on, one with initial events, and one through a selector.
pub(super) fn watches(dice: &mut Dice) -> Vec<Step> {
    let sample = *dice.pick(&[CONFIG_MAP, WIDGET, POD]);
    let name = sample.name(dice);
    let at = sample.at(&name);
    let mut object = sample.object(&name, dice);
    object["metadata"]["labels"] = json!({"phase": "one"});
    object["metadata"]["finalizers"] = Value::Null;
    let phase = |word: &str| json!({"metadata": {"labels": {"phase": word}}});
    let version = format!("$rv:{}/{name}", sample.kind);
    let mut from = sample.object(&format!("{name}-first"), dice);
    from["metadata"]["finalizers"] = Value::Null;
    let first = format!("$rv:{}/{name}-first", sample.kind);
    vec![
        Step::post(sample.list(), from),
        Step::post(sample.list(), object),
        Step::patch(at.clone(), MERGE, phase("two")),
        Step::patch(at.clone(), MERGE, phase("one")),
        Step::patch(at.clone(), MERGE, phase("three")),
        Step::watch(
            format!(
                "{}?watch=true&resourceVersion={first}&timeoutSeconds=5",
                sample.list()
            ),
            4,
        ),
        Step::watch(
            format!(
                "{}?watch=true&resourceVersion={first}&timeoutSeconds=5&labelSelector=phase%3Done",
                sample.list()
            ),
            4,
        ),
        Step::delete(format!("{at}?gracePeriodSeconds=0")),
        Step::watch(
            format!(
                "{}?watch=true&resourceVersion={version}&timeoutSeconds=5&fieldSelector=metadata.name%3D{name}",
                sample.list()
            ),
            1,
        ),
        Step::get(format!(
            "{}?watch=true&sendInitialEvents=true&resourceVersion=0",
            sample.list()
        )),
        Step::get(format!("{}?watch=true&resourceVersion=abc", sample.list())),
    ]
}

/// Selectors, valid and invalid.
pub(super) fn selectors(dice: &mut Dice) -> Vec<Step> {
    let sample = *dice.pick(SAMPLES);
    let mut steps = if sample.namespaced {
        some(sample, 3, dice)
    } else {
        Vec::new()
    };
    let scope = if sample.namespaced {
        ""
    } else {
        "&fieldSelector=metadata.name%3Dnobody"
    };
    for selector in [
        "team%3Da",
        "team%21%3Da",
        "team%20in%20(a,b)",
        "%21team",
        "team",
        "team%20notin%20(b)",
        "a%20b%20c",
        "=x",
        "A_!%3Dx",
    ] {
        if dice.chance(50) {
            steps.push(Step::get(format!(
                "{}?labelSelector={selector}{scope}",
                sample.list()
            )));
        }
    }
    let field = match sample.plural {
        "pods" => "status.phase%3DPending",
        "widgets" => "spec.color%3Dred",
        "secrets" => "type%3DOpaque",
        "jobs" => "status.successful%3D0",
        _ => "spec.nothing%3Dx",
    };
    if sample.plural != "jobs" {
        steps.push(Step::get(format!("{}?fieldSelector={field}", sample.list())));
    }
    steps.push(Step::get(format!(
        "{}?fieldSelector=metadata.name%3Dnobody",
        sample.list()
    )));
    steps
}

/// Objects as table rows.
pub(super) fn tables(dice: &mut Dice) -> Vec<Step> {
    let sample = *dice.pick(&[CONFIG_MAP, POD, JOB, WIDGET]);
    let mut steps = some(sample, 2, dice);
    let include = *dice.pick(&["", "?includeObject=None", "?includeObject=Object"]);
    steps.push(Step::get(format!("{}{include}", sample.list())).accept(TABLE));
    let name = format!("{}-one", sample.name(dice));
    steps.push(Step::post(sample.list(), sample.object(&name, dice)));
    steps.push(Step::get(sample.at(&name)).accept(TABLE));
    steps.push(Step::get(sample.at(&name)).accept(PARTIAL));
    steps
}

/// Roles, bindings and their effect.
pub(super) fn access(dice: &mut Dice) -> Vec<Step> {
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}";
    let user = format!("user-{}", dice.stem);
    let verbs = dice
        .pick(&[json!(["get"]), json!(["*"]), json!(["get", "create"])])
        .clone();
    let resources = dice
        .pick(&[json!(["pods"]), json!(["pods", "pods/log"]), json!(["*"])])
        .clone();
    let mut rule = json!({"apiGroups": [""], "resources": resources, "verbs": verbs});
    if dice.chance(30) {
        rule["resourceNames"] = json!(["one"]);
    }
    let probed = json!({"apiGroups": [""], "resources": ["probes"], "verbs": ["get"]});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "reader"}, "rules": [rule, probed]});
    let subject = if dice.chance(50) {
        json!({"kind": "User", "name": user})
    } else {
        json!({"kind": "Group", "name": format!("group-{user}")})
    };
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "readers"}, "roleRef": {"kind": "Role", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"}, "subjects": [subject]});
    let probe = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
        "user": user, "groups": [format!("group-{user}")],
        "resourceAttributes": {"verb": "get", "resource": "probes", "namespace": "{ns}"},
    }});
    let mut steps = vec![
        Step::post(format!("{rbac}/roles"), role),
        Step::post(format!("{rbac}/rolebindings"), binding),
        Step::post("/apis/authorization.k8s.io/v1/subjectaccessreviews", probe).until_allowed(),
    ];
    for _ in 0..4 {
        let mut attributes = json!({"verb": *dice.pick(&["get", "list", "create"]), "resource": *dice.pick(&["pods", "secrets"]), "namespace": *dice.pick(&["{ns}", "default"])});
        if dice.chance(30) {
            attributes["name"] = "one".into();
        }
        if dice.chance(20) {
            attributes["subresource"] = "log".into();
        }
        let spec =
            json!({"user": user, "groups": [format!("group-{user}")], "resourceAttributes": attributes});
        let review =
            json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
        steps.push(Step::post(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            review,
        ));
    }
    let own = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    steps.push(Step::post(
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        own,
    ));
    let empty = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {}});
    steps.push(Step::post(
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        empty,
    ));
    steps
}

/// Tokens of service accounts.
pub(super) fn tokens(dice: &mut Dice) -> Vec<Step> {
    let at = "/api/v1/namespaces/{ns}/serviceaccounts";
    let seconds = *dice.pick(&[10, 600, 3600]);
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": seconds, "audiences": ["a"]}});
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "nonsense"}});
    vec![
        Step::post(
            at,
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}}),
        ),
        Step::post(format!("{at}/bot/token"), request.clone()),
        Step::post(format!("{at}/nobody/token"), request),
        Step::post("/apis/authentication.k8s.io/v1/tokenreviews", review),
    ]
}
