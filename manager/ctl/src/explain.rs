//! `roadstead explain`: why a job or a Workload does not run, or where it runs.
//!
//! It reads only Workloads of the management cluster, the job and its Events when there is no Workload, and the queues when a
//! Workload has not been tried. It uses the user's own rights.

mod line;
pub(crate) mod text;

use std::fmt::Debug;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use kube::{Api, Client, Resource, ResourceExt as _};
use roadstead_api::constants::labels::QUEUE_NAME;
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_convert::explanation::view::{PENDING_EVALUATION, View, view};
use roadstead_kinds::{Kind, Kinds, TABLE, rows};
use serde::de::DeserializeOwned;

use self::text::render;
use crate::args::Explain;
use crate::event::{self, About};
use crate::failure::{Code, Failure};
use crate::objects;
use crate::output;

/// Prints the answer for every Workload that matches.
pub async fn run(args: &Explain, now: Timestamp) -> Result<(), Failure> {
    let client = objects::connect(&args.home).await?;
    let namespace = args.namespace.clone();
    let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let answers = answers(&client, &namespace, &args.name, now).await?;
    let views: Vec<&View> = answers.iter().map(|answer| &answer.view).collect();
    let names: Vec<String> = answers
        .iter()
        .map(|answer| format!("workload.kueue.x-k8s.io/{}", answer.workload.name_any()))
        .collect();
    output::result(args.output, &views, &names.join("\n"), || {
        let texts: Vec<String> = views.iter().map(|view| render(view, now)).collect();
        texts.join("\n\n")
    })
}

/// A Workload, and what is said of it.
pub struct Answer {
    /// The object.
    pub workload: Workload,
    /// What is said of it.
    pub view: View,
}

/// The answers for every Workload that the name matches.
pub(crate) async fn answers(
    client: &Client,
    namespace: &str,
    name: &str,
    now: Timestamp,
) -> Result<Vec<Answer>, Failure> {
    let found: Vec<Workload> = find(&Api::namespaced(client.clone(), namespace), name).await?;
    if found.is_empty() {
        return Err(missing(client, TABLE, namespace, name).await);
    }
    let mut answers = Vec::new();
    for workload in found {
        let mut view = view(&workload, now);
        // Why only for this reason: every other reason says more.
        if view.reason == PENDING_EVALUATION
            && let Some(line) = line::read(client, &workload, now).await
        {
            view.stands_in(&line);
        }
        answers.push(Answer { workload, view });
    }
    Ok(answers)
}

/// The Workload of that name, else those of the job of that name.
pub(crate) async fn find<K>(api: &Api<K>, name: &str) -> Result<Vec<K>, Failure>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let failed = |error: kube::Error| Failure::request("reading the Workloads failed", &error);
    let (kind, of_kind) = split(name);
    if is_workload(kind) || kind.is_empty() {
        let named = api.get_opt(of_kind).await.map_err(failed)?;
        if named.is_some() || is_workload(kind) {
            return Ok(named.into_iter().collect());
        }
    }
    objects::all(api, None, |workload| means(workload, name))
        .await
        .map_err(failed)
}

/// Whether NAME or KIND/NAME means this Workload, by its own name or by that of its job.
pub(crate) fn means(workload: &impl Resource, name: &str) -> bool {
    let (kind, name) = split(name);
    let by_itself = (kind.is_empty() || is_workload(kind)) && workload.name_any() == name;
    let owned = |owner: &OwnerReference| {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        owner.name == name && (kind.is_empty() || is_called(TABLE, (group, &owner.kind), kind))
    };
    by_itself || workload.owner_references().iter().any(owned)
}

/// The word for the kind, empty when there is none, and the name.
fn split(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or(("", name))
}

fn is_workload(kind: &str) -> bool {
    let word = match kind.split_once('.') {
        Some((word, "kueue.x-k8s.io")) => word,
        Some(_) => return false,
        None => kind,
    };
    // The last three are the short names that its CRD has.
    matches!(
        word,
        "workload" | "workloads" | "wl" | "kwl" | "kueueworkload" | "kueueworkloads"
    )
}

/// Short names under which kubectl knows kinds of jobs, and the plural that each stands for.
const SHORT_NAMES: [(&str, &str); 7] = [
    ("aw", "appwrappers"),
    ("deploy", "deployments"),
    ("lws", "leaderworkersets"),
    ("po", "pods"),
    ("sparkapp", "sparkapplications"),
    ("sts", "statefulsets"),
    ("wf", "workflows"),
];

/// Whether a word names this kind of this group: its name, or the plural or short name that kubectl knows, and the group behind a dot
/// as kubectl prints it (`job.batch`).
fn is_called(kinds: Kinds, (group, kind): (&str, &str), word: &str) -> bool {
    let word = match word.split_once('.') {
        Some((word, of)) if of == group => word,
        Some(_) => return false,
        None => word,
    };
    let short = SHORT_NAMES.iter().find(|(short, _)| *short == word);
    let word = short.map_or(word, |(_, plural)| *plural);
    let plural = |row: &Kind| row.kind == kind && row.plural.eq_ignore_ascii_case(word);
    kind.eq_ignore_ascii_case(word) || kinds.iter().any(plural)
}

/// The job of that name among the matching kinds, and its kind.
async fn job(
    client: &Client,
    kinds: Kinds,
    namespace: &str,
    name: &str,
) -> Option<(&'static str, DynamicObject)> {
    let (word, name) = split(name);
    for row in kinds
        .iter()
        .filter(|row| word.is_empty() || is_called(kinds, (row.group, row.kind), word))
    {
        let gvk = GroupVersionKind::gvk(row.group, row.version, row.kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, row.plural);
        let jobs = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
        // Why no error: the kind may not be served, or the user may not read it. Neither answers the question.
        if let Some(job) = jobs.get_opt(name).await.ok().flatten() {
            return Some((row.kind, job));
        }
    }
    None
}

/// The job of that name, if it names a queue, and its kind.
pub(crate) async fn queued(
    client: &Client,
    kinds: Kinds,
    namespace: &str,
    name: &str,
) -> Option<(&'static str, DynamicObject)> {
    let found = job(client, kinds, namespace, name).await;
    found.filter(|(_, job)| is_queued(job))
}

fn is_queued(job: &DynamicObject) -> bool {
    job.labels()
        .get(QUEUE_NAME)
        .is_some_and(|queue| !queue.is_empty())
}

/// Why a queued job has no Workload, and the next step.
async fn without_workload(
    client: &Client,
    namespace: &str,
    kind: &str,
    job: &DynamicObject,
) -> (String, String) {
    let name = job.name_any();
    if kind == rows::DEPLOYMENT.kind {
        return (
            format!("deployment {name} has no Workload: each of its pods has one of its own"),
            format!("look at the pods: roadstead get jobs -n {namespace}"),
        );
    }
    let warning = warning(client, namespace, kind, job).await;
    let kind = kind.to_lowercase();
    let why = format!("{kind} {name} exists, but has no Workload yet");
    match warning {
        Some(warning) => (
            format!("{why}: {warning}"),
            format!("correct what this says; all events: roadstead events {kind}/{name} -n {namespace}"),
        ),
        None => (
            why,
            "look again in a few seconds; if that does not help, check that roadstead-manager runs (on a cluster without manager: roadstead-worker)"
                .to_owned(),
        ),
    }
}

/// Reasons of the Events that say why a job gets no Workload. Other warnings, such as those of the job's own controller, say nothing about it.
const NO_WORKLOAD: [&str; 6] = [
    "ErrWorkloadCompose",
    "InvalidJob",
    "JobNestingTooDeep",
    "PodExceedsPodSet",
    "WorkloadNameConflict",
    "WorkloadPriorityClassNotFound",
];

/// The latest Event that says why a job gets no Workload: nothing else says it.
async fn warning(client: &Client, namespace: &str, kind: &str, job: &DynamicObject) -> Option<String> {
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let about = About::Only(vec![event::target(kind, job)]);
    // Why no error: the user may not be allowed to read Events.
    let is_meant = |event: &Event| {
        let reason = event.reason.as_deref().unwrap_or_default();
        NO_WORKLOAD.contains(&reason) && about.means(event)
    };
    let warnings = objects::all(&api, None, is_meant).await.ok()?;
    warnings.into_iter().max_by_key(event::time)?.message
}

/// Why nothing is known of that name.
pub(crate) async fn missing(client: &Client, kinds: Kinds, namespace: &str, name: &str) -> Failure {
    let (word, of_kind) = split(name);
    let is_kind = |row: &Kind| is_called(kinds, (row.group, row.kind), word);
    if !word.is_empty() && !is_workload(word) && !kinds.iter().any(is_kind) {
        let mut known: Vec<String> = kinds.iter().map(|row| row.kind.to_lowercase()).collect();
        known.sort_unstable();
        return Failure::new(
            format!("nothing is known of {name}"),
            format!(
                "{word} is no kind of job; kinds are: workload, {}",
                known.join(", ")
            ),
            format!("name one of these, or the name alone: {of_kind}"),
        )
        .code(Code::NotFound);
    }
    let job = job(client, kinds, namespace, name).await;
    let name = of_kind;
    let (why, next) = match job {
        Some((kind, job)) if !is_queued(&job) => (
            format!(
                "{} {name} exists, but names no queue, so it is not managed",
                kind.to_lowercase()
            ),
            format!("label it when it is created: {QUEUE_NAME}: NAME-OF-A-LOCALQUEUE"),
        ),
        Some((kind, job)) => without_workload(client, namespace, kind, &job).await,
        None => (
            format!(
                "there is no Workload of that name in namespace {namespace}, and none for a job of that name"
            ),
            "name the namespace with -n, or look with: roadstead get jobs -A".to_owned(),
        ),
    };
    Failure::new(format!("nothing is known of {name}"), why, next).code(Code::NotFound)
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_job_without_a_workload_is_explained_by_its_latest_warning() {
        static ROWS: [&Kind; 2] = [&rows::JOB, &rows::DEPLOYMENT];
        let event = |uid: &str, reason: &str, message: &str, stamp: &str| {
            json!({"metadata": {"name": message}, "type": "Warning", "reason": reason, "message": message, "lastTimestamp": stamp,
                "involvedObject": {"kind": "Job", "name": "train", "uid": uid}})
        };
        let events = json!({"metadata": {}, "items": [
            event("j", "WorkloadPriorityClassNotFound", "class \"x\" not found", "2026-11-21T10:02:00Z"),
            event("j", "InvalidJob", "an earlier one", "2026-11-21T10:01:00Z"),
            event("j", "BackoffLimitExceeded", "of another controller", "2026-11-21T10:03:00Z"),
            event("earlier", "InvalidJob", "of an earlier job", "2026-11-21T10:04:00Z"),
        ]});
        let queued = |name: &str, uid: &str| json!({"metadata": {"name": name, "uid": uid, "labels": {QUEUE_NAME: "main"}}});
        let (job, deployment) = (queued("train", "j"), queued("web", "d"));
        let service = tower::service_fn(move |request: Request<Body>| {
            let missing = json!({"kind": "Status", "code": 404, "message": "none", "reason": "NotFound"});
            let (code, body) = match request.uri().path().rsplit('/').next() {
                Some("train") => (200, job.clone()),
                Some("web") if request.uri().path().contains("/deployments/") => (200, deployment.clone()),
                Some("events") => (200, events.clone()),
                Some(_) | None => (404, missing),
            };
            async move {
                let body = Body::from(serde_json::to_vec(&body).unwrap());
                Ok::<_, std::io::Error>(Response::builder().status(code).body(body).unwrap())
            }
        });
        let client = Client::new(service, "ns");
        let why = async |name: &str| missing(&client, Kinds::new(&ROWS), "team", name).await.why;
        assert_eq!(
            why("train").await,
            "job train exists, but has no Workload yet: class \"x\" not found"
        );
        assert_eq!(
            why("deploy/web").await,
            "deployment web has no Workload: each of its pods has one of its own"
        );
    }

    #[test]
    fn a_kind_is_called_by_the_short_names_of_kubectl_too() {
        for (short, plural) in SHORT_NAMES {
            let mut rows = TABLE.iter().filter(|row| row.plural == plural);
            let row = rows.next().unwrap();
            assert!(is_called(TABLE, (row.group, row.kind), short), "{short}");
            assert!(!is_called(TABLE, ("batch", "Job"), short), "{short}");
        }
        for word in ["workload", "kwl", "kueueworkloads", "kwl.kueue.x-k8s.io"] {
            assert!(is_workload(word), "{word}");
        }
        assert!(!is_workload("kwl.batch"));
    }

    #[tokio::test]
    async fn a_job_of_every_kind_of_the_table_is_found_by_its_name_or_by_kind_and_name() {
        static ROWS: [&Kind; 2] = [&rows::JOB, &rows::INVENTED];
        let service = tower::service_fn(|request: Request<Body>| {
            let is_it = request.uri().path() == "/apis/example.com/v1/namespaces/team/trains/thomas";
            let (code, body) = if is_it {
                (200, json!({"metadata": {"name": "thomas"}}))
            } else {
                (
                    404,
                    json!({"kind": "Status", "code": 404, "message": "none", "reason": "NotFound"}),
                )
            };
            async move {
                let body = Body::from(serde_json::to_vec(&body).unwrap());
                Ok::<_, std::io::Error>(Response::builder().status(code).body(body).unwrap())
            }
        });
        let client = Client::new(service, "ns");
        let why = async |name: &str| missing(&client, Kinds::new(&ROWS), "team", name).await.why;
        for name in [
            "thomas",
            "train/thomas",
            "trains/thomas",
            "Train/thomas",
            "train.example.com/thomas",
        ] {
            assert_eq!(
                why(name).await,
                "train thomas exists, but names no queue, so it is not managed"
            );
        }
        for name in [
            "percy",
            "train/percy",
            "job/thomas",
            "workload/thomas",
            "kwl/thomas",
        ] {
            assert!(
                why(name).await.starts_with("there is no Workload of that name"),
                "{name}"
            );
        }
        for name in ["trainses/thomas", "train.batch/thomas"] {
            let why = why(name).await;
            assert!(
                why.ends_with("is no kind of job; kinds are: workload, job, train"),
                "{why}"
            );
        }
    }
}
