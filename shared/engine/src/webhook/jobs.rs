//! Webhooks of job kinds: the rules live in [`roadstead_jobs::webhook`], the facts come from caches.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt as _;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionResponse, Operation};
use roadstead_api::config::{Config, FeatureGate, LabelSelector};
use roadstead_api::constants::{controllers, names};
use roadstead_api::kueue::v1beta2::ClusterQueue;
use roadstead_core::ancestry::Stop;
use roadstead_core::name::Key;
use roadstead_jobs::JobKind;
use roadstead_jobs::appwrapper::ROW;
use roadstead_jobs::kind::{DefaultFacts, Namespace, Owner, Presence};
use roadstead_jobs::webhook as rules;
use roadstead_kinds::rows;
use roadstead_kubeio::failure::Failure;
use roadstead_serve::webhook::{AdmissionHandler, allowed, changed, failed};

use super::answers::{Request, is_leaving, unless, warned, with_warnings};
use super::{Filled, own};
use crate::ancestors::{self, Missing};
use crate::caches::{Caches, member, member_mut};
use crate::parents;

/// The mutating and the validating handler of a kind whose integration is on.
pub(super) fn handlers(
    kind: &'static dyn JobKind,
    caches: Caches,
    config: Arc<Config>,
    filled: &Arc<Filled>,
) -> (AdmissionHandler, AdmissionHandler) {
    let (known, settings) = (caches.clone(), config.clone());
    (
        once_filled(filled, move |request| default(kind, &known, &settings, request)),
        once_filled(filled, move |request| validate(kind, &caches, &config, request)),
    )
}

/// Refuses until the caches are filled: an answer from empty caches would start jobs that must be held.
fn once_filled(
    filled: &Arc<Filled>,
    answer: impl Fn(&Request) -> AdmissionResponse + Send + Sync + 'static,
) -> AdmissionHandler {
    let filled = filled.clone();
    Arc::new(move |request| {
        if filled.is_true() {
            answer(&request)
        } else {
            failed(&request, &not_yet(&filled.unlisted()))
        }
    })
}

/// The text of the refusal. Why without the API server's words: a user who creates a job need not know the rights of this
/// process.
fn not_yet(unlisted: &[String]) -> String {
    format!(
        "this webhook's process is still reading the cluster after its start, and {} cannot be listed yet; try again in a moment; \
         if this persists, the administrator finds the reason in the log and the readiness of the process",
        unlisted.join(", ")
    )
}

fn default(kind: &dyn JobKind, caches: &Caches, config: &Config, request: &Request) -> AdmissionResponse {
    let Some(object) = &request.object else {
        return allowed(request);
    };
    let namespace = request.namespace.clone().unwrap_or_default();
    let gates = &config.feature_gates;
    let multi_kueue = &config.roadstead.multi_kueue;
    let uses_multikueue = |queue: &str| {
        gates.enabled(FeatureGate::MultiKueue)
            && match way(caches, &Key::new(namespace.as_str(), queue)) {
                Way::Workers => true,
                Way::Here => false,
                Way::Unknown => multi_kueue.manages_every_queued_job || all_lead_to_workers(caches),
            }
    };
    let default_class = gates.enabled(FeatureGate::WorkloadPriorityClassDefaulting)
        && caches
            .workload_classes
            .named(names::DEFAULT_PRIORITY_CLASS)
            .is_some();
    let owner = match owner(caches, object) {
        Ok(owner) => owner,
        // Why: its owner may be gone for good, and the controller that removes the last finalizer must be able to.
        Err(_) if is_leaving(request) => return allowed(request),
        Err(failure) => return failed(request, failure.text()),
    };
    let mark = match parents::mark(caches, object) {
        Ok(mark) => mark,
        Err(failure) => return failed(request, failure.text()),
    };
    let facts = DefaultFacts {
        mark: mark.as_ref(),
        default_queue: default_queue(caches, &namespace),
        default_priority_class: present(default_class),
        owner,
        namespace: if is_looked_at(kind, caches, config, object) {
            standing(caches, config, &namespace)
        } else {
            Namespace::Outside
        },
        uses_multikueue: &uses_multikueue,
    };
    let mut after = object.clone();
    if kind.kind() == ROW {
        own::default_queue(config, &mut after.metadata);
        own::submitter(config, request, &mut after.metadata);
    }
    rules::default_job(kind, &mut member_mut(&mut after), &facts);
    changed(request, object, &after)
}

fn validate(kind: &dyn JobKind, caches: &Caches, config: &Config, request: &Request) -> AdmissionResponse {
    let gates = &config.feature_gates;
    let namespace = request.namespace.clone().unwrap_or_default();
    let Some(new) = request.object.as_ref().filter(|_| !is_leaving(request)) else {
        return allowed(request);
    };
    if !is_ours(kind, config, new) {
        return allowed(request);
    }
    let new = member(new);
    let mut problems = match (&request.operation, &request.old_object) {
        (Operation::Update, Some(old)) => {
            let default_queue = default_queue(caches, &namespace);
            rules::validate_update(kind, member(old), new, default_queue, gates)
        }
        (Operation::Create | Operation::Update | Operation::Delete | Operation::Connect, _) => {
            rules::validate_create(kind, new, gates)
        }
    };
    if kind.kind() == ROW {
        problems.extend(own::wrapper_problems(config, request));
    }
    let mut answer = unless(request, &problems);
    if kind.kind() == ROW {
        answer = own::hinted(answer, request);
    }
    if request.operation == Operation::Create {
        answer = with_warnings(answer, rules::warnings(new));
    }
    match standing(caches, config, &namespace) {
        Namespace::Outside => {
            let why = format!(
                "managedJobsNamespaceSelector leaves namespace {namespace} out; the job is left alone"
            );
            warned(answer, request, &why)
        }
        Namespace::Inside | Namespace::InsideAll => answer,
    }
}

fn present(is: bool) -> Presence {
    if is { Presence::Present } else { Presence::Absent }
}

fn default_queue(caches: &Caches, namespace: &str) -> Presence {
    present(
        caches
            .local_queues
            .get(&Key::new(namespace, names::DEFAULT_LOCAL_QUEUE))
            .is_some(),
    )
}

/// Where the jobs of a queue run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// On this cluster itself.
    Here,
    /// On the workers of a MultiKueue check.
    Workers,
    /// The LocalQueue, its ClusterQueue or one of its checks does not exist yet.
    Unknown,
}

/// *Source*: `spec/multikueue.md 1.8`.
fn way(caches: &Caches, local: &Key) -> Way {
    let local = caches.local_queues.get(local);
    let cluster = local.and_then(|local| caches.cluster_queues.named(&local.spec.cluster_queue));
    cluster.map_or(Way::Unknown, |cluster| way_of(caches, &cluster))
}

fn way_of(caches: &Caches, queue: &ClusterQueue) -> Way {
    let mut way = Way::Here;
    for rule in roadstead_convert::cluster_queue(queue).checks {
        match caches.checks.named(rule.name.as_str()) {
            Some(check) if check.spec.controller_name == controllers::MULTIKUEUE => return Way::Workers,
            Some(_) => {}
            None => way = Way::Unknown,
        }
    }
    way
}

/// Whether there are ClusterQueues and each leads to workers, so that a queue created later most likely does too.
///
/// Why: tools that apply a whole folder create a job before its queue, and `spec.managedBy` cannot be set later.
fn all_lead_to_workers(caches: &Caches) -> bool {
    let all = caches.cluster_queues.all();
    !all.is_empty() && all.iter().all(|queue| way_of(caches, queue) == Way::Workers)
}

/// Searches for an ancestor that is queued, in the caches of enabled kinds. *Source*: `spec/jobs.md 4.3`.
///
/// *Errors*: it cannot be determined; a sentence for its user.
fn owner(caches: &Caches, object: &DynamicObject) -> Result<Owner, Failure> {
    match ancestors::top(caches, object) {
        Ok(Some(_)) => Ok(Owner::ManagedAncestor),
        Ok(None) if ancestors::has_owner_of_managed_kind(caches, object) => Ok(Owner::ManagedKind),
        Ok(None) => Ok(Owner::Unmanaged),
        Err(Stop::Unread(Missing::Unlisted(plural))) => Err(Failure::passing(not_yet(&[plural]))),
        Err(Stop::Unread(Missing::Unread(owner))) => Err(Failure::passing(format!(
            "its owner {} {} is not known yet; try again in a moment",
            owner.kind, owner.name
        ))),
        Err(Stop::Unread(Missing::Unreadable(failure))) => Err(failure),
        Err(Stop::TooDeep) => Err(Failure::lasting(ancestors::TOO_DEEP)),
        Err(Stop::Cyclic) => Err(Failure::lasting(ancestors::CYCLIC)),
    }
}

/// Whether the integration of a kind is on for all its objects, not only for those made by another kind. *Source*: `spec/jobs.md
/// 4.1`.
fn is_ours(kind: &dyn JobKind, config: &Config, object: &DynamicObject) -> bool {
    parents::is_listed(config, kind.kind()) || parents::said(object).is_some()
}

/// Whether the selectors of `integrations.podOptions` select a pod; other kinds have none.
fn is_looked_at(kind: &dyn JobKind, caches: &Caches, config: &Config, object: &DynamicObject) -> bool {
    if !is_ours(kind, config, object) {
        return false;
    }
    let options = config.integrations.pod_options.as_ref();
    let Some(options) = options.filter(|_| kind.kind() == &rows::POD) else {
        return true;
    };
    let namespace = object.namespace().unwrap_or_default();
    let of_namespace = crate::feed::namespace_labels(caches, &namespace).unwrap_or_default();
    let takes = |selector: &Option<LabelSelector>, labels: &BTreeMap<String, String>| {
        selector.as_ref().is_none_or(|selector| selector.matches(labels))
    };
    takes(&options.namespace_selector, &of_namespace) && takes(&options.pod_selector, object.labels())
}

fn standing(caches: &Caches, config: &Config, namespace: &str) -> Namespace {
    let labels = crate::feed::namespace_labels(caches, namespace).unwrap_or_default();
    if !config.managed_jobs_namespace_selector.matches(&labels) {
        return Namespace::Outside;
    }
    if config.manage_jobs_without_queue_name {
        Namespace::InsideAll
    } else {
        Namespace::Inside
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A queue that is not known yet may lead to another cluster, and a namespace may have a default queue.
    #[test]
    fn nothing_is_answered_about_jobs_before_the_caches_are_filled() {
        let kinds = roadstead_jobs::registry();
        let text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
        let config = Arc::new(roadstead_serve::config::parse("test", text, &[], "kueue-system").unwrap());
        let caches = Caches::new(&kinds);
        let filled = Arc::new(Filled::new(&caches));
        let (mutate, validate) = handlers(kinds[0], caches, config, &filled);
        let request = json!({
            "uid": "u", "operation": "CREATE", "name": "j", "namespace": "team",
            "kind": {"group": "batch", "version": "v1", "kind": "Job"},
            "resource": {"group": "batch", "version": "v1", "resource": "jobs"}, "userInfo": {},
            "object": {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {}},
        });
        for handler in [mutate, validate] {
            let answer = handler(serde_json::from_value(request.clone()).unwrap());
            assert!(!answer.allowed);
            assert_eq!(answer.result.code, 500);
            assert!(
                answer
                    .result
                    .message
                    .contains("clusterqueues, cohorts, localqueues")
                    && answer.result.message.contains("try again in a moment"),
                "{}",
                answer.result.message
            );
        }
    }

    /// Nothing else would ever make the owner known to a replica that does not lead.
    #[test]
    fn an_object_that_is_being_deleted_may_be_changed_after_its_owner_is_gone() {
        let kinds = roadstead_jobs::registry();
        let caches = Caches::new(&kinds);
        let config = Config::without_file("kueue-system");
        let job = kinds.iter().find(|kind| kind.kind().kind == "Job").unwrap();
        let request = |deleted: serde_json::Value| {
            let owner = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "s", "controller": true});
            let object = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {}, "metadata": {
                "name": "j", "namespace": "team", "ownerReferences": [owner], "deletionTimestamp": deleted,
            }});
            let review = json!({
                "uid": "u", "operation": "UPDATE", "name": "j", "namespace": "team",
                "kind": {"group": "batch", "version": "v1", "kind": "Job"},
                "resource": {"group": "batch", "version": "v1", "resource": "jobs"}, "userInfo": {},
                "object": object, "oldObject": object,
            });
            serde_json::from_value::<Request>(review).unwrap()
        };
        assert!(!default(*job, &caches, &config, &request(json!(null))).allowed);
        let leaving = default(*job, &caches, &config, &request(json!("2026-01-01T00:00:00Z")));
        assert!(leaving.allowed && leaving.patch.is_none());
    }

    /// Queues of this cluster as administrators wrote them: by name, with the checks of each.
    fn with_queues(queues: &[(&str, &[&str])]) -> Caches {
        let caches = Caches::new(&roadstead_jobs::registry());
        let check = |name: &str, controller: &str| json!({"metadata": {"name": name}, "spec": {"controllerName": controller}});
        for check in [
            check("workers", controllers::MULTIKUEUE),
            check("budget", "example.com/budget"),
        ] {
            caches.checks.observe(serde_json::from_value(check).unwrap());
        }
        for (name, checks) in queues {
            let rules: Vec<_> = checks.iter().map(|name| json!({"name": name})).collect();
            let cluster = json!({"metadata": {"name": name}, "spec": {"admissionChecksStrategy": {"admissionChecks": rules}}});
            caches
                .cluster_queues
                .observe(serde_json::from_value(cluster).unwrap());
            let local =
                json!({"metadata": {"name": name, "namespace": "team"}, "spec": {"clusterQueue": name}});
            caches
                .local_queues
                .observe(serde_json::from_value(local).unwrap());
        }
        caches
    }

    /// Spec: multikueue 1.8
    #[test]
    fn a_queue_leads_to_workers_here_or_is_not_known_yet() {
        let caches = with_queues(&[
            ("far", &["budget", "workers"]),
            ("near", &["budget"]),
            ("plain", &[]),
            ("half", &["budget", "later"]),
            ("far-and-later", &["later", "workers"]),
        ]);
        let way = |queue: &str| way(&caches, &Key::new("team", queue));
        let ways = ["far", "near", "plain", "half", "far-and-later", "none"].map(way);
        let expected = [
            Way::Workers,
            Way::Here,
            Way::Here,
            Way::Unknown,
            Way::Workers,
            Way::Unknown,
        ];
        assert_eq!(ways, expected);
    }

    /// Spec: multikueue 1.8 (deviation)
    #[test]
    fn a_queue_that_comes_later_is_taken_for_one_of_workers_where_all_others_are() {
        assert!(
            !all_lead_to_workers(&with_queues(&[])),
            "a cluster without queues dispatches nothing"
        );
        assert!(all_lead_to_workers(&with_queues(&[
            ("a", &["workers"]),
            ("b", &["budget", "workers"])
        ])));
        assert!(!all_lead_to_workers(&with_queues(&[
            ("a", &["workers"]),
            ("b", &[])
        ])));
        assert!(!all_lead_to_workers(&with_queues(&[
            ("a", &["workers"]),
            ("b", &["later"])
        ])));
    }

    /// The owner decides whether the job is held, so the request is refused and tried again in a moment.
    ///
    /// Spec: safety F26
    #[test]
    fn a_job_whose_owner_may_exist_unseen_is_answered_later() {
        let caches = Caches::new(&roadstead_jobs::registry());
        let kind = caches.jobs[0].kind.kind();
        let child = |api_version: &str| -> DynamicObject {
            let owner = json!({
                "apiVersion": api_version, "kind": kind.kind, "name": "p", "uid": "1", "controller": true,
            });
            let metadata = json!({"name": "j", "namespace": "team", "ownerReferences": [owner]});
            serde_json::from_value(json!({"apiVersion": "v1", "kind": "Any", "metadata": metadata})).unwrap()
        };
        let refused = owner(&caches, &child(&kind.api_version()));
        assert!(
            refused
                .as_ref()
                .is_err_and(|why| why.text().contains(kind.plural)),
            "{refused:?}"
        );
        assert_eq!(owner(&caches, &child("example.com/v1")), Ok(Owner::Unmanaged));
    }

    /// What is changed in a new pod of a `StatefulSet` where these integrations are listed, or why it is refused.
    #[expect(clippy::unwrap_in_result, reason = "the error is what is tested")]
    fn filled_in(
        frameworks: &str,
        parent: Option<i64>,
        pod: &serde_json::Value,
    ) -> Result<serde_json::Value, Failure> {
        let kinds = roadstead_jobs::registry();
        let text = format!(
            "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations: {{frameworks: [{frameworks}]}}\n"
        );
        let config = roadstead_serve::config::parse("test", &text, &[], "kueue-system").unwrap();
        let caches = Caches::new(&kinds);
        let find = |kind: &str| {
            caches
                .jobs
                .iter()
                .find(|jobs| jobs.kind.kind().kind == kind)
                .unwrap()
        };
        if let Some(replicas) = parent {
            let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
                "metadata": {"name": "web", "namespace": "team", "uid": "1"}, "spec": {"replicas": replicas}});
            find("StatefulSet")
                .objects
                .observe(serde_json::from_value(set).unwrap());
        }
        let team = json!({"metadata": {"name": "team", "labels": {"kubernetes.io/metadata.name": "team"}}});
        caches.namespaces.observe(serde_json::from_value(team).unwrap());
        let request = json!({
            "uid": "u", "operation": "CREATE", "name": "web-0", "namespace": "team",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"}, "userInfo": {}, "object": pod,
        });
        let request: Request = serde_json::from_value(request).unwrap();
        let answer = default(find("Pod").kind, &caches, &config, &request);
        if !answer.allowed {
            return Err(Failure::lasting(answer.result.message));
        }
        let patch = answer.patch.map(|patch| serde_json::from_slice(&patch).unwrap());
        Ok(patch.unwrap_or_default())
    }

    fn pod_of_a_set(annotation: Option<&str>) -> serde_json::Value {
        let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "1", "controller": true});
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {
            "name": "web-0", "namespace": "team", "ownerReferences": [owner],
            "labels": {"kueue.x-k8s.io/queue-name": "q"},
        }, "spec": {"containers": []}});
        if let Some(annotation) = annotation {
            pod["metadata"]["annotations"] = json!({"kueue.x-k8s.io/pod-suspending-parent": annotation});
        }
        pod
    }

    /// Spec: jobs 4.1, 9.12, 15.83
    #[test]
    fn a_new_pod_of_a_statefulset_becomes_a_member_of_its_group() {
        let pod = pod_of_a_set(Some("statefulset"));
        let patch = filled_in("statefulset", Some(3), &pod).unwrap().to_string();
        for wanted in [
            "pod-group-total-count",
            "statefulset-web-",
            "role-hash",
            "schedulingGates",
            "managed",
        ] {
            assert!(patch.contains(wanted), "{wanted}: {patch}");
        }
        for (parent, why) in [(None, "statefulsets"), (Some(0), "has no place for this pod")] {
            let said = filled_in("statefulset", parent, &pod).unwrap_err().to_string();
            assert!(said.contains(why) && said.contains("try again"), "{said}");
        }
    }

    /// Spec: jobs 4.1
    #[test]
    fn pods_are_left_alone_where_only_what_works_through_them_is_listed() {
        let plain = pod_of_a_set(None);
        let left = filled_in("statefulset", Some(3), &plain).unwrap();
        assert!(left.is_null() || left == json!([]), "{left}");
        let held = filled_in("pod", Some(3), &plain).unwrap().to_string();
        assert!(held.contains("schedulingGates"), "{held}");
    }
}
