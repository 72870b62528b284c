//! `roadstead install` and `roadstead uninstall`: apply and remove the objects of the charts with one command.
//!
//! Invariant: an existing object without the label of an installation is never changed or deleted. A second run changes nothing.
//!
//! Reading order: [`run`], `plan` (obstacles, and what will be done), `cluster` (requests), `obsolete` (what an earlier run
//! left), [`remove`].

mod cluster;
mod obsolete;
mod plan;
pub mod remove;

use std::fs;
use std::path::Path;
use std::time::Duration;

use roadstead_api::install::{Values, manifests, objects::definitions, owned};
use roadstead_api::rights::Process;
use roadstead_kubeio::connect::Chosen;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::args::{Format, Install, Part};
use crate::cluster::account::State;
use crate::failure::{Code, Failure, done};
use crate::objects;
use crate::output::{self, say};
use cluster::Site;
use plan::Step;

const FIELD_MANAGER: &str = "roadstead-install";
/// How often the cluster is checked while waiting.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(500);

impl Part {
    /// The process of the part.
    pub const fn process(self) -> Process {
        match self {
            Self::Manager => Process::Manager,
            Self::Worker => Process::Worker,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Installed {
    process: &'static str,
    version: &'static str,
    namespace: String,
    /// The created or changed objects.
    applied: Vec<String>,
    /// The objects that needed no change or belong to another owner.
    kept: Vec<String>,
    /// The objects of an earlier run that the values do not ask for any more.
    removed: Vec<String>,
    elapsed_seconds: f64,
}

/// Installs the manager or the worker.
///
/// *Errors*: wrong values, an obstacle (Kueue, another installation, definitions of a newer version), a failed request, or pods
/// that do not become ready in time.
pub async fn run(args: &Install) -> Result<(), Failure> {
    let started = Instant::now();
    let process = args.part.process();
    let wanted = wanted(args)?;
    if args.print_yaml {
        return print(&wanted);
    }
    let chosen = Chosen {
        kubeconfig: args.kubeconfig.as_deref(),
        context: args.context.as_deref(),
    };
    let site = Site::open(chosen, &args.namespace).await?;
    site.nothing_is_in_the_way(process).await?;
    let obsolete = site.obsolete(process, &wanted).await?;
    let steps = site.compare(wanted).await?;
    say(&plan::describe(process, &args.namespace, &steps));
    for object in &obsolete {
        say(&format!(
            "  delete {} (the values do not ask for it any more)",
            cluster::title(object)
        ));
    }
    if args.dry_run {
        say("nothing was done (--dry-run)");
        return Ok(());
    }
    if steps.iter().any(Step::is_due) || !obsolete.is_empty() {
        output::consent(args.yes, "do this?")?;
    }
    let mut installed = Installed {
        process: process.name(),
        version: owned::VERSION,
        namespace: args.namespace.clone(),
        applied: Vec::new(),
        kept: Vec::new(),
        removed: Vec::new(),
        elapsed_seconds: 0.0,
    };
    for step in &steps {
        if step.is_due() {
            done(
                &format!("applying {} failed", step.title),
                objects::apply(&site.client, &step.object, FIELD_MANAGER).await,
            )?;
            installed.applied.push(step.title.clone());
        } else {
            installed.kept.push(step.title.clone());
        }
        // Why at once: the next objects may be of this kind, which must be served first.
        if step.is_definition() && step.state == State::Missing {
            site.wait_served(step, args.timeout).await?;
        }
    }
    // Why before the wait: an earlier NetworkPolicy may keep the pods from being ready.
    installed.removed = site.retire(&obsolete).await?;
    if args.wait {
        site.wait_ready(process, args.timeout).await?;
    }
    installed.elapsed_seconds = started.elapsed().as_secs_f64();
    let name = format!("deployment.apps/{}", process.name());
    output::result(args.output, &installed, &name, || {
        summary(&installed, args.kubeconfig.as_deref())
    })
}

fn summary(installed: &Installed, kubeconfig: Option<&Path>) -> String {
    let Installed {
        process,
        version,
        namespace,
        applied,
        kept,
        removed,
        elapsed_seconds,
    } = installed;
    format!(
        "{process} {version} is installed in namespace {namespace}: {} objects applied, {} as they were, {} deleted ({elapsed_seconds:.1} s)\n\
         next: roadstead doctor --namespace {namespace}{}",
        applied.len(),
        kept.len(),
        removed.len(),
        of_kubeconfig(kubeconfig),
    )
}

/// The flag that leads the next command to the same cluster.
fn of_kubeconfig(kubeconfig: Option<&Path>) -> String {
    kubeconfig.map_or_else(String::new, |path| format!(" --kubeconfig {}", path.display()))
}

/// All objects, in the order in which they are applied.
fn wanted(args: &Install) -> Result<Vec<Value>, Failure> {
    let values = values(args)?;
    let objects = manifests(args.part.process(), &args.namespace, &values).map_err(|refusal| {
        Failure::new(
            "the values contradict each other",
            refusal.to_string(),
            "correct the file that --values names",
        )
        .code(Code::Usage)
    })?;
    plan::refuse_configuration(&args.namespace, &objects)?;
    let (namespaces, others): (Vec<Value>, Vec<Value>) = objects
        .into_iter()
        .partition(|object| object["kind"] == "Namespace");
    let definitions = definitions(&args.namespace);
    Ok([namespaces, definitions, others].concat())
}

fn values(args: &Install) -> Result<Values, Failure> {
    let Some(path) = &args.values else {
        return Ok(Values::default());
    };
    let wrong = |why: String| {
        Failure::new(
            format!("the values in {} cannot be used", path.display()),
            why,
            "compare the file with deploy/charts/roadstead-manager/values.yaml",
        )
        .code(Code::Usage)
    };
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let chosen: Map<String, Value> =
        serde_saphyr::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    Values::over_defaults(&chosen).map_err(|error| wrong(error.to_string()))
}

fn print(objects: &[Value]) -> Result<(), Failure> {
    let unprintable = |error: serde_saphyr::ser_error::Error| {
        Failure::new("the objects cannot be printed", error.to_string(), "report this")
    };
    let documents: Result<Vec<String>, Failure> = { objects.iter() }
        .map(|object| serde_saphyr::to_string(object).map_err(unprintable))
        .collect();
    let text = documents?.join("---\n");
    output::result(Format::Name, &(), &text, String::new)
}
