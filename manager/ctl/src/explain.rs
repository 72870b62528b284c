//! `roadstead explain`: why a job or a Workload does not run, or where it runs.
//!
//! It reads only Workloads of the management cluster, the job when there is no Workload, and the queues when a Workload has not
//! been tried. It uses the user's own rights.

mod line;
pub mod view;

use jiff::Timestamp;
use kube::api::ListParams;
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use kube::{Api, Client, ResourceExt as _};
use roadstead_api::constants::labels::QUEUE_NAME;
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_kinds::{Kind, Kinds, TABLE};
use roadstead_kubeio::connect::{self, Chosen};

use self::view::{PENDING_EVALUATION, render, view};
use crate::access::USER_AGENT;
use crate::args::Explain;
use crate::failure::{Code, Failure};
use crate::output;

/// Workloads read per page.
const PAGE: u32 = 500;

/// Prints the answer for every Workload that matches.
pub async fn run(args: &Explain, now: Timestamp) -> Result<(), Failure> {
    let chosen = Chosen {
        kubeconfig: args.kubeconfig.as_deref(),
        context: args.context.as_deref(),
    };
    let client = connect::command(chosen, USER_AGENT).await.map_err(|error| {
        Failure::new(
            "there is no management cluster to talk to",
            error.to_string(),
            "name a kubeconfig with --kubeconfig FILE",
        )
    })?;
    let namespace = args.namespace.clone();
    let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let found = find(&client, &namespace, &args.name).await?;
    if found.is_empty() {
        return Err(missing(&client, TABLE, &namespace, &args.name).await);
    }
    let mut views = Vec::new();
    for workload in &found {
        let mut view = view(workload, now);
        // Why only then: any other reason is more precise.
        if view.reason == PENDING_EVALUATION
            && let Some(line) = line::read(&client, workload).await
        {
            view.stands_in(&line);
        }
        views.push(view);
    }
    let names: Vec<String> = found
        .iter()
        .map(|workload| format!("workload.kueue.x-k8s.io/{}", workload.name_any()))
        .collect();
    output::result(args.output, &views, &names.join("\n"), || {
        let texts: Vec<String> = views.iter().map(|view| render(view, now)).collect();
        texts.join("\n\n")
    })
}

/// The Workload of that name, else those of the job of that name.
async fn find(client: &Client, namespace: &str, name: &str) -> Result<Vec<Workload>, Failure> {
    let api = Api::<Workload>::namespaced(client.clone(), namespace);
    let (kind, name) = name.split_once('/').unwrap_or(("", name));
    let is_workload = matches!(kind, "workload" | "workloads" | "wl");
    let failed = |error: &kube::Error| Failure::request("reading the Workloads failed", error);
    if is_workload || kind.is_empty() {
        let named = api.get_opt(name).await.map_err(|error| failed(&error))?;
        if named.is_some() || is_workload {
            return Ok(named.into_iter().collect());
        }
    }
    let mut found = Vec::new();
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = api.list(&page).await.map_err(|error| failed(&error))?;
        let of_job = list.items.into_iter().filter(|workload| {
            workload
                .owner_references()
                .iter()
                .any(|owner| owner.name == name && (kind.is_empty() || is_called(TABLE, &owner.kind, kind)))
        });
        found.extend(of_job);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// Whether a word names this kind: its name, or the plural that kubectl knows.
fn is_called(kinds: Kinds, kind: &str, word: &str) -> bool {
    let plural = |row: &Kind| row.kind == kind && row.plural.eq_ignore_ascii_case(word);
    kind.eq_ignore_ascii_case(word) || kinds.iter().any(plural)
}

/// The job of that name among the matching kinds, and its kind.
async fn job(client: &Client, kinds: Kinds, namespace: &str, name: &str) -> Option<(String, DynamicObject)> {
    let (word, name) = name.split_once('/').unwrap_or(("", name));
    for row in kinds
        .built()
        .filter(|row| word.is_empty() || is_called(kinds, row.kind, word))
    {
        let gvk = GroupVersionKind::gvk(row.group, row.version, row.kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, row.plural);
        let jobs = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
        // Why no error: the kind may not be served, or the user may not read it. Neither answers the question.
        if let Some(job) = jobs.get_opt(name).await.ok().flatten() {
            return Some((row.kind.to_lowercase(), job));
        }
    }
    None
}

async fn missing(client: &Client, kinds: Kinds, namespace: &str, name: &str) -> Failure {
    let job = job(client, kinds, namespace, name).await;
    let name = name.rsplit('/').next().unwrap_or(name);
    let (why, next) = match job {
        Some((kind, job)) if !job.labels().contains_key(QUEUE_NAME) => (
            format!("{kind} {name} exists, but names no queue, so it is not managed"),
            format!("label it when it is created: {QUEUE_NAME}: NAME-OF-A-LOCALQUEUE"),
        ),
        Some((kind, _)) => (
            format!("{kind} {name} exists, but has no Workload yet"),
            "look again in a few seconds; if that does not help, check that the manager runs".to_owned(),
        ),
        None => (
            format!(
                "there is no Workload of that name in namespace {namespace}, and none for a job of that name"
            ),
            "name the namespace with -n, or look with: kubectl get workloads -A".to_owned(),
        ),
    };
    Failure::new(format!("nothing is known of {name}"), why, next).code(Code::NotFound)
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use roadstead_kinds::rows;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_job_of_every_kind_of_the_table_is_found_by_its_name_or_by_kind_and_name() {
        static INVENTED: Kind = Kind {
            framework: "example.com/train",
            group: "example.com",
            kind: "Train",
            plural: "trains",
            ..rows::JOB
        };
        static ROWS: [&Kind; 2] = [&rows::JOB, &INVENTED];
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
        for name in ["thomas", "train/thomas", "trains/thomas", "Train/thomas"] {
            assert_eq!(
                why(name).await,
                "train thomas exists, but names no queue, so it is not managed"
            );
        }
        for name in ["job/thomas", "trainses/thomas", "percy"] {
            assert!(
                why(name).await.starts_with("there is no Workload of that name"),
                "{name}"
            );
        }
    }
}
