//! The rights of the user who writes an `AppWrapper`. *Source*: `spec/appwrapper.md 3.4, N-18`.
//!
//! A user may only wrap what the user may create. The manager checks this, because the user is known there. A manager's copy on a worker is
//! not checked: the worker's controller goes by its own list of allowed kinds.
//!
//! With `appwrapper.protectAdmission` a user may start a queued `AppWrapper`, or change what the engine injects, only with the right to write
//! the status of Workloads. Why this right: with it the user could admit the Workload anyway, and every engine has it, Kueue's too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::core::GroupVersionKind;
use kube::core::admission::Operation;
use kube::{Api, Client};
use roadstead_api::config::Config;
use roadstead_api::constants::groups::KUEUE;
use roadstead_api::constants::labels::QUEUE_NAME;
use roadstead_jobs::json;
use roadstead_kubeio::failure::Failure;
use roadstead_serve::webhook::{Preparation, Refusal};
use serde_json::Value;

use super::answers::{Request, is_leaving};

/// Limit: kinds whose plural is remembered.
const KINDS_MAX: usize = 1_000;
/// The resource that is checked when the API server does not give the plural of a kind: only a user with all rights passes.
const ANY: &str = "*";

/// `apiVersion` and kind.
type Name = (String, String);
type Plurals = Arc<Mutex<BTreeMap<Name, String>>>;

/// The rights that the configuration asks users for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// To create what they wrap: `appwrapper.userRBACAdmissionCheck`.
    creation: bool,
    /// To admit Workloads, where they start an `AppWrapper`: `appwrapper.protectAdmission`.
    start: bool,
    /// Also for an `AppWrapper` without a queue: `manageJobsWithoutQueueName`.
    all_are_queued: bool,
}

impl Rules {
    pub(super) fn of(config: &Config) -> Self {
        let section = config.roadstead.app_wrapper.as_ref();
        let creation = section.and_then(|section| section.user_rbac_admission_check);
        let start = section.and_then(|section| section.protect_admission);
        Self {
            creation: creation.unwrap_or(true),
            start: start.unwrap_or(false),
            all_are_queued: config.manage_jobs_without_queue_name,
        }
    }
}

/// Refuses an `AppWrapper` whose user lacks a right that the rules ask for. Users whose names begin with `managers` are not
/// checked.
pub(super) fn review(client: Client, managers: String, rules: Rules) -> Preparation {
    let plurals = Plurals::default();
    Arc::new(move |request| {
        let asked = asked(request, &managers, rules);
        let fields = started(request, &managers, rules);
        let (user, namespace) = (user(request), request.namespace.clone());
        let (client, plurals) = (client.clone(), plurals.clone());
        Box::pin(async move {
            if !fields.is_empty() {
                may_start(&client, &user, namespace, &fields).await?;
            }
            let Some(asked) = asked else {
                return Ok(());
            };
            for kind in &asked.kinds {
                let plural = plural(&client, &plurals, kind).await;
                asked.may_create(&client, kind, plural).await?;
            }
            Ok(())
        })
    })
}

/// The rights to check for a request.
struct Asked {
    user: SubjectAccessReviewSpec,
    namespace: String,
    kinds: Vec<GroupVersionKind>,
}

/// The user of a request, as an access review names users.
fn user(request: &Request) -> SubjectAccessReviewSpec {
    let user = &request.user_info;
    SubjectAccessReviewSpec {
        user: Some(user.username.clone().unwrap_or_default()),
        uid: user.uid.clone(),
        groups: user.groups.clone(),
        extra: user.extra.clone(),
        ..SubjectAccessReviewSpec::default()
    }
}

fn is_manager(request: &Request, managers: &str) -> bool {
    let name = request.user_info.username.as_deref();
    name.is_some_and(|name| name.starts_with(managers))
}

/// The fields of a queued `AppWrapper` that a request changes although the engine writes them. Empty for a manager.
fn started(request: &Request, managers: &str, rules: Rules) -> Vec<String> {
    let (Operation::Update, Some(new), Some(old)) =
        (&request.operation, &request.object, &request.old_object)
    else {
        return Vec::new();
    };
    let is_queued = [old, new].into_iter().any(|object| {
        let labels = object.metadata.labels.as_ref();
        let queue = labels.and_then(|labels| labels.get(QUEUE_NAME));
        queue.is_some_and(|queue| !queue.is_empty())
    });
    let is_asked = rules.start && (is_queued || rules.all_are_queued);
    if !is_asked || is_manager(request, managers) || is_leaving(request) {
        return Vec::new();
    }
    let is_held = |data| json::is_true(data, &["spec", "suspend"]);
    let start = is_held(&old.data) && !is_held(&new.data);
    let start = start.then(|| "spec.suspend".to_owned());
    let components = |data| json::list(data, &["spec", "components"]).iter();
    let infos = |component| json::list(component, &["podSetInfos"]);
    let both = components(&old.data).zip(components(&new.data)).enumerate();
    let injected = both
        .filter(|(_, (old, new))| infos(old) != infos(new))
        .map(|(index, _)| format!("spec.components[{index}].podSetInfos"));
    start.into_iter().chain(injected).collect()
}

/// *Errors*: the user may not admit Workloads, or the API server gave no answer.
async fn may_start(
    client: &Client,
    user: &SubjectAccessReviewSpec,
    namespace: Option<String>,
    fields: &[String],
) -> Result<(), Refusal> {
    let right = ResourceAttributes {
        namespace,
        verb: Some("patch".to_owned()),
        group: Some(KUEUE.to_owned()),
        resource: Some("workloads".to_owned()),
        subresource: Some("status".to_owned()),
        ..ResourceAttributes::default()
    };
    if is_allowed(client, user, right).await.map_err(|failure| {
        failure.reworded(|why| {
            format!("it cannot be checked whether the user may admit workloads: {why}; try again in a moment")
        })
    })? {
        return Ok(());
    }
    let (name, fields) = (user.user.as_deref().unwrap_or_default(), fields.join(", "));
    Err(Refusal::Forbidden(format!(
        "User {name} may not change {fields} of an AppWrapper that is queued: the queue starts it; to run it without a queue, create it \
         without the label {QUEUE_NAME}"
    )))
}

/// Whether a user has a right.
async fn is_allowed(
    client: &Client,
    user: &SubjectAccessReviewSpec,
    right: ResourceAttributes,
) -> Result<bool, Failure> {
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            resource_attributes: Some(right),
            ..user.clone()
        },
        ..SubjectAccessReview::default()
    };
    let api: Api<SubjectAccessReview> = Api::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// The rights to check; `None` when nothing is created, or when a manager creates a copy.
fn asked(request: &Request, managers: &str, rules: Rules) -> Option<Asked> {
    let is_asked = rules.creation && matches!(request.operation, Operation::Create);
    if !is_asked || is_manager(request, managers) {
        return None;
    }
    let object = request.object.as_ref()?;
    let components = json::list(&object.data, &["spec", "components"]).iter();
    let kinds: BTreeSet<Name> = components.filter_map(kind).collect();
    Some(Asked {
        user: user(request),
        namespace: request.namespace.clone().unwrap_or_default(),
        kinds: kinds.into_iter().map(gvk).collect(),
    })
}

/// The kind that a component wraps; `None` for components that the rules refuse anyway.
fn kind(component: &Value) -> Option<Name> {
    let api_version = json::text(component, &["template", "apiVersion"])?;
    let kind = json::text(component, &["template", "kind"])?;
    Some((api_version.to_owned(), kind.to_owned()))
}

fn gvk((api_version, kind): Name) -> GroupVersionKind {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
    GroupVersionKind::gvk(group, version, &kind)
}

async fn plural(client: &Client, plurals: &Plurals, kind: &GroupVersionKind) -> String {
    let name = (kind.api_version(), kind.kind.clone());
    let known = plurals
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get(&name)
        .cloned();
    if let Some(known) = known {
        return known;
    }
    let Ok((resource, _)) = kube::discovery::pinned_kind(client, kind).await else {
        return ANY.to_owned();
    };
    let mut all = plurals.lock().unwrap_or_else(PoisonError::into_inner);
    if all.len() < KINDS_MAX {
        all.insert(name, resource.plural.clone());
    }
    resource.plural
}

impl Asked {
    /// *Errors*: the user may not create it, or the API server gave no answer.
    async fn may_create(
        &self,
        client: &Client,
        kind: &GroupVersionKind,
        plural: String,
    ) -> Result<(), Refusal> {
        let right = ResourceAttributes {
            namespace: Some(self.namespace.clone()),
            verb: Some("create".to_owned()),
            group: Some(kind.group.clone()),
            version: Some(kind.version.clone()),
            resource: Some(plural.clone()),
            ..ResourceAttributes::default()
        };
        let allowed = is_allowed(client, &self.user, right).await.map_err(|failure| {
            failure.reworded(|why| {
                format!(
                    "it cannot be checked whether the user may create {plural}: {why}; try again in a moment"
                )
            })
        })?;
        if allowed {
            return Ok(());
        }
        let name = self.user.user.as_deref().unwrap_or_default();
        let namespace = &self.namespace;
        Err(Refusal::Forbidden(format!(
            "User {name} is not authorized to create {plural} in {namespace}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(operation: &str, user: &str) -> Request {
        let template = |version: &str, kind: &str| json!({"template": {"apiVersion": version, "kind": kind}});
        let components = [
            template("batch/v1", "Job"),
            template("v1", "Pod"),
            template("batch/v1", "Job"),
            json!({}),
        ];
        serde_json::from_value(json!({
            "uid": "u", "operation": operation, "name": "aw", "namespace": "team",
            "kind": {"group": "workload.codeflare.dev", "version": "v1beta2", "kind": "AppWrapper"},
            "resource": {"group": "workload.codeflare.dev", "version": "v1beta2", "resource": "appwrappers"},
            "userInfo": {"username": user, "groups": ["g"], "extra": {"k": ["v"]}},
            "object": {"metadata": {"name": "aw"}, "spec": {"components": components}},
        }))
        .unwrap()
    }

    /// Spec: appwrapper 3.4, B105, N-24.
    #[test]
    fn each_kind_is_asked_about_once_with_all_that_is_known_of_the_user() {
        let managers = "system:serviceaccount:roadstead-system:roadstead-";
        let rules = Rules {
            creation: true,
            start: false,
            all_are_queued: false,
        };
        let asked = asked(&request("CREATE", "alice"), managers, rules).unwrap();
        let kinds: Vec<_> = asked
            .kinds
            .iter()
            .map(|kind| (kind.group.as_str(), kind.kind.as_str()))
            .collect();
        assert_eq!(kinds, [("batch", "Job"), ("", "Pod")]);
        assert_eq!(asked.user.groups, Some(vec!["g".to_owned()]));
        assert_eq!(asked.user.extra.unwrap()["k"], ["v"]);
        assert!(super::asked(&request("UPDATE", "alice"), managers, rules).is_none());
        let copy = request("CREATE", "system:serviceaccount:roadstead-system:roadstead-west");
        assert!(super::asked(&copy, managers, rules).is_none());
        let off = Rules {
            creation: false,
            ..rules
        };
        assert!(super::asked(&request("CREATE", "alice"), managers, off).is_none());
    }

    /// Spec: appwrapper N-18
    #[test]
    fn fields_of_the_engine_are_asked_about_while_an_appwrapper_is_queued() {
        let managers = "system:serviceaccount:roadstead-system:roadstead-";
        let rules = Rules {
            creation: true,
            start: true,
            all_are_queued: false,
        };
        let wrapper = |queue: &str, suspend: bool, node: &str| {
            json!({
                "metadata": {"name": "aw", "labels": {QUEUE_NAME: queue}},
                "spec": {"suspend": suspend, "components": [
                    {"template": {}}, {"template": {}, "podSetInfos": [{"nodeSelector": {"pool": node}}]},
                ]},
            })
        };
        let changed = |user: &str, rules: Rules, old: &Value, new: &Value| {
            let mut update = json!(request("UPDATE", user));
            (update["oldObject"], update["object"]) = (old.clone(), new.clone());
            started(&serde_json::from_value(update).unwrap(), managers, rules)
        };
        let held = wrapper("q", true, "spot");
        let started = wrapper("q", false, "reserved");
        let both = ["spec.suspend", "spec.components[1].podSetInfos"];
        assert_eq!(changed("alice", rules, &held, &started), both);
        let renamed = wrapper("other", true, "spot");
        assert!(changed("alice", rules, &held, &renamed).is_empty());
        let stopped = changed("alice", rules, &wrapper("q", false, "spot"), &held);
        assert!(stopped.is_empty(), "to stop it needs no right");
        let taken_out = changed("alice", rules, &held, &wrapper("", false, "spot"));
        assert_eq!(taken_out, ["spec.suspend"], "it was queued");

        let engine = "system:serviceaccount:roadstead-system:roadstead-worker";
        assert!(changed(engine, rules, &held, &started).is_empty());
        let off = Rules {
            start: false,
            ..rules
        };
        assert!(changed("alice", off, &held, &started).is_empty());
        let (held, started) = (wrapper("", true, "spot"), wrapper("", false, "spot"));
        assert!(
            changed("alice", rules, &held, &started).is_empty(),
            "it is in no queue"
        );
        let all = Rules {
            all_are_queued: true,
            ..rules
        };
        assert_eq!(changed("alice", all, &held, &started), ["spec.suspend"]);
    }

    /// Spec: appwrapper 3.4, B104, N-18
    #[test]
    fn the_configuration_says_which_rights_are_asked_for() {
        let rules = |appwrapper: &str| {
            let text = format!(
                "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                 integrations: {{frameworks: [workload.codeflare.dev/appwrapper]}}\n---\n\
                 apiVersion: config.roadstead.dev/v1alpha1\nkind: RoadsteadConfiguration\nappwrapper: {appwrapper}\n"
            );
            let config = roadstead_serve::config::parse("test", &text, &[], "kueue-system").unwrap();
            let Rules {
                creation,
                start,
                all_are_queued: _,
            } = Rules::of(&config);
            (creation, start)
        };
        assert_eq!(rules("{}"), (true, false));
        assert_eq!(
            rules("{userRBACAdmissionCheck: false, protectAdmission: true}"),
            (false, true)
        );
    }
}
