//! The account on the worker: compare its objects, apply differences, remove them, prove that they are gone.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client, ResourceExt as _};
use roadstead_kinds::{Ability, Kind, TABLE};
use roadstead_kubeconfigs::account::rights::{Account, describe};
use roadstead_kubeio::write;
use serde_json::{Value, json};

use crate::access::FIELD_MANAGER;
use crate::failure::{Failure, done};
use crate::objects::{self, api_of};

/// The state of an object on the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It does not exist.
    Missing,
    /// It differs from the wanted object.
    Different,
    /// It is as wanted.
    Same,
}

/// One object, and whether it must be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Kind and name, as kubectl writes them.
    pub object: String,
    /// Its state.
    pub state: State,
    /// Rights that the present object gives and the wanted one does not.
    pub lost: Vec<String>,
}

/// The kinds of jobs that the account may create already, in the order of their rights.
pub async fn granted(worker: &Client, account: &Account) -> Result<Vec<&'static Kind>, Failure> {
    let roles = Api::<ClusterRole>::all(worker.clone());
    let role = { roles.get_opt(&account.name()).await }.map_err(|error| {
        Failure::request("reading the rights of the account on the worker failed", &error)
    })?;
    Ok(created_by(&role.and_then(|role| role.rules).unwrap_or_default()))
}

fn created_by(rules: &[PolicyRule]) -> Vec<&'static Kind> {
    let names = |list: &Option<Vec<String>>, name: &str| list.iter().flatten().any(|one| one == name);
    let place = |kind: &Kind| {
        rules.iter().position(|rule| {
            names(&rule.api_groups, kind.group)
                && names(&rule.resources, kind.plural)
                && rule.verbs.iter().any(|verb| verb == "create")
        })
    };
    let mut kinds: Vec<(usize, &'static Kind)> = { TABLE.iter() }
        .filter(|kind| kind.can(Ability::Dispatched))
        .filter_map(|kind| Some((place(kind)?, kind)))
        .collect();
    // Why in the present order: the wanted role is then equal to the present one, and is not written.
    kinds.sort_by_key(|(place, _)| *place);
    kinds.into_iter().map(|(_, kind)| kind).collect()
}

/// The objects of the account, and the namespace that they need, in the order in which they are applied.
fn wanted(account: &Account, kinds: &[&Kind]) -> Vec<Value> {
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": account.namespace()}});
    let mut wanted = vec![namespace];
    wanted.extend(account.objects(kinds).in_order());
    wanted
}

/// Compares every object of the account with the one on the worker.
pub async fn observe(worker: &Client, account: &Account, kinds: &[&Kind]) -> Result<Vec<Step>, Failure> {
    let mut steps = Vec::new();
    for wanted in wanted(account, kinds) {
        let object = title(&wanted);
        let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
        let live = { api_of(worker, &wanted).get_opt(name).await }
            .map_err(|error| Failure::request(format!("reading {object} on the worker failed"), &error))?;
        let (state, lost) = match live.map(|live| serde_json::to_value(live).unwrap_or_default()) {
            None => (State::Missing, Vec::new()),
            Some(live) if holds(&live, &wanted) => (State::Same, Vec::new()),
            Some(live) => (State::Different, lost(&live, &wanted)),
        };
        steps.push(Step { object, state, lost });
    }
    Ok(steps)
}

/// Applies every object that is missing or different.
pub async fn apply(
    worker: &Client,
    account: &Account,
    kinds: &[&Kind],
    steps: &[Step],
) -> Result<(), Failure> {
    for wanted in wanted(account, kinds) {
        let object = title(&wanted);
        let is_same = |step: &Step| step.object == object && step.state == State::Same;
        if !steps.iter().any(is_same) {
            done(
                &format!("applying {object} on the worker failed"),
                objects::apply(worker, &wanted, FIELD_MANAGER).await,
            )?;
        }
    }
    Ok(())
}

/// Requests for the kinds of objects that have the account's labels, in the order in which they are deleted.
fn places(worker: &Client, account: &Account) -> [(Api<DynamicObject>, ApiResource); 6] {
    let all = |kind| (Api::all_with(worker.clone(), &kind), kind);
    let own = |kind| {
        (
            Api::namespaced_with(worker.clone(), account.namespace(), &kind),
            kind,
        )
    };
    [
        all(ApiResource::erase::<ClusterRoleBinding>(&())),
        all(ApiResource::erase::<ClusterRole>(&())),
        own(ApiResource::erase::<RoleBinding>(&())),
        own(ApiResource::erase::<Role>(&())),
        own(ApiResource::erase::<ServiceAccount>(&())),
        // The manager wrote the Lease, and without its roles it cannot delete it any more.
        own(ApiResource::erase::<Lease>(&())),
    ]
}

/// Deletes every object with the account's labels; returns how many there were. The namespace stays: other objects may live there.
pub async fn remove(worker: &Client, account: &Account) -> Result<usize, Failure> {
    let mut count = 0;
    for (api, kind) in places(worker, account) {
        for item in labelled(&api, &kind, account).await? {
            let (name, uid) = (item.name_any(), item.uid());
            let answer = write::delete(&api, &name, uid.as_deref()).await;
            if !matches!(answer, write::Written::Gone) {
                let kind = kind.kind.to_lowercase();
                done(&format!("deleting {kind}/{name} on the worker failed"), answer)?;
            }
            count += 1;
        }
    }
    Ok(count)
}

/// The objects on the worker that still have the account's labels.
pub async fn remains(worker: &Client, account: &Account) -> Result<Vec<String>, Failure> {
    let mut found = Vec::new();
    for (api, kind) in places(worker, account) {
        let items = labelled(&api, &kind, account).await?;
        let kind = kind.kind.to_lowercase();
        found.extend(items.iter().map(|item| format!("{kind}/{}", item.name_any())));
    }
    Ok(found)
}

async fn labelled(
    api: &Api<DynamicObject>,
    kind: &ApiResource,
    account: &Account,
) -> Result<Vec<DynamicObject>, Failure> {
    let ours = ListParams::default().labels(&account.selector());
    let list = api.list(&ours).await.map_err(|error| {
        let kind = &kind.plural;
        Failure::request(format!("listing {kind} on the worker failed"), &error)
    })?;
    Ok(list.items)
}

/// The rules of a live role that the wanted one lacks.
fn lost(live: &Value, wanted: &Value) -> Vec<String> {
    let rules = |role: &Value| {
        let rules: Vec<PolicyRule> = serde_json::from_value(role["rules"].clone()).unwrap_or_default();
        describe(&rules)
    };
    let kept = rules(wanted);
    let mut lost = rules(live);
    lost.retain(|rule| !kept.contains(rule));
    lost
}

fn title(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!(
        "{}/{}",
        text(&object["kind"]).to_lowercase(),
        text(&object["metadata"]["name"])
    )
}

/// Whether `live` contains everything of `wanted`: maps may have more, lists may not. Empty values may be missing: API servers
/// leave them out.
pub(crate) fn holds(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| match live.get(key) {
                Some(live) => holds(live, wanted),
                None => is_empty(wanted),
            })
        }
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| holds(live, wanted))
        }
        // Why: an API server writes `1.0` as `1`.
        (Value::Number(live), Value::Number(wanted)) => live == wanted || live.as_f64() == wanted.as_f64(),
        (live, wanted) => live == wanted,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use roadstead_kinds::rows;
    use roadstead_kubeconfigs::account::rights::Account;

    use super::{created_by, holds, lost};

    #[test]
    fn the_integrations_of_an_account_are_read_from_its_role() {
        let account = Account::new("multikueue", "kueue-system").unwrap();
        for kinds in [
            &[&rows::JOB][..],
            &[&rows::JOB_SET, &rows::JOB],
            &[&rows::JOB, &rows::POD],
        ] {
            let rules = account.objects(kinds).cluster_role.rules.unwrap();
            assert_eq!(created_by(&rules), kinds);
        }
        assert!(created_by(&[]).is_empty(), "a new account");
    }

    #[test]
    fn rights_that_a_role_loses_are_named() {
        let role = |resources: &[&str]| {
            let rule =
                |resource: &&str| json!({"apiGroups": ["batch"], "resources": [resource], "verbs": ["get"]});
            json!({"rules": resources.iter().map(rule).collect::<Vec<_>>()})
        };
        assert_eq!(
            lost(&role(&["jobs", "cronjobs"]), &role(&["jobs"])),
            ["batch: cronjobs: get"]
        );
        assert_eq!(lost(&role(&["jobs"]), &role(&["jobs", "cronjobs"])), [""; 0]);
        assert_eq!(
            lost(&json!({"subjects": []}), &json!({})),
            [""; 0],
            "it is no role"
        );
    }

    #[test]
    fn live_object_may_have_more_fields_but_not_more_rights() {
        let wanted = json!({"metadata": {"labels": {"a": "b"}}, "rules": [{"verbs": ["get"]}]});
        let mut live = json!({
            "metadata": {"labels": {"a": "b", "c": "d"}, "uid": "x"},
            "rules": [{"verbs": ["get"]}],
        });
        assert!(holds(&live, &wanted));
        live["rules"][0]["verbs"] = json!(["get", "delete"]);
        assert!(!holds(&live, &wanted));
        live["rules"][0]["verbs"] = json!([]);
        assert!(!holds(&live, &wanted));
        assert!(!holds(&json!({"rules": wanted["rules"]}), &wanted));
        assert!(holds(&json!({"maximum": 1}), &json!({"maximum": 1.0})));
        assert!(!holds(&json!({"maximum": 2}), &json!({"maximum": 1.0})));
        let wanted = json!({"tolerations": [], "nodeSelector": {}});
        assert!(holds(&json!({}), &wanted));
        assert!(!holds(&json!({"tolerations": [{"key": "a"}]}), &wanted));
    }
}
