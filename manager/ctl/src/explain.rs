//! `roadstead explain`: why a job or a Workload does not run, or where it does.
//!
//! It reads only Workloads (and, when there is none, the Job) of the management cluster, with the caller's own rights.

pub mod view;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use roadstead_api::constants::labels::QUEUE_NAME;
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_kubeio::connect::{self, Chosen};

use self::view::{View, render, view};
use crate::access::USER_AGENT;
use crate::args::Explain;
use crate::failure::{Code, Failure};
use crate::output;

/// Workloads fetched at a time.
const PAGE: u32 = 500;

/// Prints the answer for every Workload that is meant.
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
        return Err(missing(&client, &namespace, &args.name).await);
    }
    let views: Vec<View> = found.iter().map(|workload| view(workload, now)).collect();
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
            workload.owner_references().iter().any(|owner| {
                owner.name == name
                    && (kind.is_empty() || owner.kind.eq_ignore_ascii_case(kind.trim_end_matches('s')))
            })
        });
        found.extend(of_job);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(found),
        }
    }
}

async fn missing(client: &Client, namespace: &str, name: &str) -> Failure {
    let name = name.rsplit('/').next().unwrap_or(name);
    let jobs = Api::<Job>::namespaced(client.clone(), namespace);
    let job = jobs.get_opt(name).await.ok().flatten();
    let (why, next) = match job {
        Some(job) if !job.labels().contains_key(QUEUE_NAME) => (
            format!("job {name} is there, but names no queue, so it is not managed"),
            format!("label it when it is created: {QUEUE_NAME}: NAME-OF-A-LOCALQUEUE"),
        ),
        Some(_) => (
            format!("job {name} is there, but has no Workload yet"),
            "look in a few seconds again; if that does not help, see that the manager runs".to_owned(),
        ),
        None => (
            format!(
                "there is no Workload of that name in namespace {namespace}, and none of a job of that name"
            ),
            "name the namespace with -n, or look with: kubectl get workloads -A".to_owned(),
        ),
    };
    Failure::new(format!("nothing is known of {name}"), why, next).code(Code::NotFound)
}
