//! `roadstead cluster leave`: send no new jobs, wait until the worker is empty, remove the created objects, prove that they are
//! gone.
//!
//! Invariant: only objects with our labels are deleted, each by its UID; any other object under the same name stays.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, ObjectMeta};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use kube::{Api, Client, ResourceExt as _};
use roadstead_api::constants::{finalizers, labels};
use roadstead_api::kueue::v1beta2::{MultiKueueCluster, MultiKueueConfig, Workload};
use roadstead_kinds::{Ability, Kinds, TABLE};
use roadstead_kubeconfigs::account::rights::Account;
use roadstead_kubeconfigs::check::{Rules, check};
use roadstead_kubeconfigs::secret;
use roadstead_kubeio::connect;
use roadstead_kubeio::served::{Served, served};
use roadstead_kubeio::write::{self, Written};
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::{account, check_name, identity, secret_name, secret_of, settings};
use crate::access::{self, USER_AGENT};
use crate::args::Leave;
use crate::failure::{Code, Failure, done};
use crate::output::{self, say};

/// How often the worker is checked while waiting.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Objects read and deleted per page.
const PAGE: u32 = 500;
/// Names shown in a message.
const SHOWN_MAX: usize = 10;
/// How often removing the cluster from a `MultiKueueConfig` is tried when another client writes it at the same time.
const CONFIG_TRIES: u32 = 3;

/// The result of `leave`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Left {
    /// The cluster.
    pub cluster: String,
    /// The removed objects.
    pub removed: Vec<String>,
    /// What was checked afterwards and is gone.
    pub verified: Vec<String>,
    /// What is still there on purpose.
    pub kept: Vec<String>,
    /// Seconds since the start of the command.
    pub elapsed_seconds: f64,
}

/// The cluster's objects on the manager.
struct Seen {
    configs: Vec<MultiKueueConfig>,
    cluster: Option<MultiKueueCluster>,
    secret: Option<Secret>,
}

/// The worker, as far as it can be reached.
struct Reach {
    client: Option<Client>,
    /// Whether the client has an administrator's rights.
    as_administrator: bool,
}

/// Removes a cluster.
pub async fn run(args: &Leave) -> Result<(), Failure> {
    let started = Instant::now();
    check_name(&args.name)?;
    let manager = access::manager(&args.manager).await?;
    let account = settings::account(&args.owner, &args.manager.namespace, &manager).await?;
    let seen = observe(args, &manager).await?;
    let reach = reach(args, &seen).await?;
    if seen.cluster.is_none() && seen.secret.is_none() && seen.configs.is_empty() && !reach.as_administrator {
        return Err(Failure::new(
            format!("cluster {} is not registered", args.name),
            "there is no MultiKueueCluster, Secret or MultiKueueConfig entry of that name",
            "roadstead cluster list",
        )
        .code(Code::NotFound));
    }
    if let (Some(cluster), Some(client), true, false) =
        (&seen.cluster, &reach.client, reach.as_administrator, args.force)
    {
        let next = "name the kubeconfig of that cluster, or leave --kubeconfig out; if its cluster is gone and this one replaces it: \
                    --force";
        identity::is_of(cluster, client, next).await?;
    }
    say(&describe(args, &account, &seen, &reach));
    if args.dry_run {
        return Ok(());
    }
    output::consent(args.yes, "do this?")?;

    let mut left = Left {
        cluster: args.name.clone(),
        removed: Vec::new(),
        verified: Vec::new(),
        kept: Vec::new(),
        elapsed_seconds: 0.0,
    };
    for config in &seen.configs {
        left.removed.push(leave_config(args, &manager, config).await?);
    }
    empty_worker(args, account.origin(), &reach, &mut left).await?;
    remove_from_manager(args, &manager, &seen, &mut left).await?;
    remove_account(args, &account, &reach, &mut left).await?;
    verify(args, &manager, &mut left).await?;
    left.elapsed_seconds = started.elapsed().as_secs_f64();
    output::result(args.output, &left, &left.removed.join("\n"), || {
        let mut lines = vec![format!(
            "cluster {} has left ({:.1} s)",
            args.name, left.elapsed_seconds
        )];
        lines.extend(left.removed.iter().map(|item| format!("  removed  {item}")));
        lines.extend(left.verified.iter().map(|item| format!("  verified {item}")));
        lines.extend(left.kept.iter().map(|item| format!("  kept     {item}")));
        lines.join("\n")
    })
}

async fn observe(args: &Leave, manager: &Client) -> Result<Seen, Failure> {
    let cluster = Api::<MultiKueueCluster>::all(manager.clone())
        .get_opt(&args.name)
        .await
        .map_err(|error| Failure::request("reading the MultiKueueCluster failed", &error))?;
    let name = cluster
        .as_ref()
        .and_then(secret_of)
        .map_or_else(|| secret_name(&args.name), str::to_owned);
    let secret = Api::<Secret>::namespaced(manager.clone(), &args.manager.namespace)
        .get_opt(&name)
        .await
        .map_err(|error| Failure::request("reading the Secret on the manager failed", &error))?;
    Ok(Seen {
        configs: configs_with(&args.name, manager).await?,
        cluster,
        secret,
    })
}

async fn configs_with(cluster: &str, manager: &Client) -> Result<Vec<MultiKueueConfig>, Failure> {
    let mut configs = Api::<MultiKueueConfig>::all(manager.clone())
        .list(&ListParams::default())
        .await
        .map_err(|error| Failure::request("listing MultiKueueConfigs failed", &error))?
        .items;
    configs.retain(|config| config.spec.clusters.iter().any(|name| name == cluster));
    Ok(configs)
}

/// The administrator's kubeconfig if given, else the credential that the manager uses.
async fn reach(args: &Leave, seen: &Seen) -> Result<Reach, Failure> {
    if let Some(kubeconfig) = &args.kubeconfig {
        return Ok(Reach {
            client: Some(access::worker(kubeconfig, args.context.as_deref()).await?.client),
            as_administrator: true,
        });
    }
    let client = seen
        .secret
        .as_ref()
        .and_then(|found| secret::read("", Some(found)).ok())
        .and_then(|bytes| check(bytes, &Rules { allow_loopback: true }).ok())
        .and_then(|endpoint| connect::worker(&endpoint, USER_AGENT).ok());
    Ok(Reach {
        client,
        as_administrator: false,
    })
}

fn describe(args: &Leave, account: &Account, seen: &Seen, reach: &Reach) -> String {
    let mut lines = vec![format!("plan for cluster {}", args.name)];
    for config in &seen.configs {
        let name = config.name_any();
        lines.push(if config.spec.clusters.len() == 1 {
            format!(
                "  delete multikueueconfig/{name}: it has no other cluster, and the API forbids an empty one"
            )
        } else {
            format!("  change multikueueconfig/{name}: take {} out", args.name)
        });
    }
    let origin = account.origin();
    lines.push(if args.force {
        format!("  delete all workloads and jobs of origin {origin} on the worker")
    } else {
        format!("  wait until no workload or job of origin {origin} is left on the worker")
    });
    if seen.cluster.is_some() {
        lines.push(format!("  delete multikueuecluster/{}", args.name));
    }
    if let Some(found) = &seen.secret {
        let verb = if is_ours(args, found) {
            "delete"
        } else {
            "keep (not ours)"
        };
        lines.push(format!("  {verb} secret/{}", found.name_any()));
    }
    lines.push(if reach.as_administrator {
        format!("  delete account {} and its roles on the worker", account.name())
    } else {
        format!(
            "  keep account {} on the worker (give --kubeconfig to delete it)",
            account.name()
        )
    });
    lines.join("\n")
}

fn is_ours(args: &Leave, secret: &Secret) -> bool {
    secret::cluster(secret) == Some(args.name.as_str())
}

/// A `MultiKueueConfig` without the cluster; `None`: it must be deleted, because the API forbids an empty one.
fn without(clusters: &[String], cluster: &str) -> Option<Vec<String>> {
    let rest: Vec<String> = clusters.iter().filter(|name| *name != cluster).cloned().collect();
    (!rest.is_empty()).then_some(rest)
}

async fn leave_config(args: &Leave, manager: &Client, config: &MultiKueueConfig) -> Result<String, Failure> {
    let configs = Api::<MultiKueueConfig>::all(manager.clone());
    let name = config.name_any();
    let what = format!("taking the cluster out of MultiKueueConfig {name} failed");
    let mut current = config.clone();
    for _ in 0..CONFIG_TRIES {
        let Some(rest) = without(&current.spec.clusters, &args.name) else {
            let answer = write::delete(&configs, &name, current.uid().as_deref()).await;
            if !matches!(answer, Written::Gone) {
                done(&what, answer)?;
            }
            return Ok(format!("manager multikueueconfig/{name}"));
        };
        let patch = json!({
            "metadata": {"resourceVersion": current.metadata.resource_version},
            "spec": {"clusters": rest},
        });
        let answer = write::patch(&configs, &name, &patch).await;
        if !matches!(answer, Written::Conflict) {
            done(&what, answer)?;
            return Ok(format!("manager multikueueconfig/{name} entry {}", args.name));
        }
        current = configs
            .get(&name)
            .await
            .map_err(|error| Failure::request(&what, &error))?;
    }
    Err(Failure::new(
        what,
        "another client keeps changing it",
        "run the same command again",
    ))
}

/// Waits until no object of ours is left on the worker; with `--force`, deletes them.
async fn empty_worker(args: &Leave, origin: &str, reach: &Reach, left: &mut Left) -> Result<(), Failure> {
    let unreachable = |why: String| {
        Failure::new(
            format!("whether cluster {} is empty cannot be seen", args.name),
            why,
            "give an administrator's kubeconfig with --kubeconfig, or go on without looking with --force",
        )
    };
    let Some(client) = &reach.client else {
        if args.force {
            left.kept
                .push("worker: all jobs that run there (it could not be reached)".to_owned());
            return Ok(());
        }
        return Err(unreachable("there is no usable credential for it".to_owned()));
    };
    let deadline = Instant::now() + args.timeout;
    let mut told = false;
    loop {
        let ours = match ours_on(client, TABLE, origin).await {
            Ok(ours) => ours,
            // Why not if the API server refused an administrator: the administrator can remove the cause.
            Err(error) if args.force && !(reach.as_administrator && matches!(error, kube::Error::Api(_))) => {
                say(&format!(
                    "note: the worker cannot be read: {}",
                    write::describe(&error)
                ));
                left.kept
                    .push("worker: all jobs that run there (it could not be reached)".to_owned());
                return Ok(());
            }
            Err(error) => return Err(unreachable(write::describe(&error))),
        };
        if ours.is_empty() {
            left.verified
                .push(format!("worker: no workload and no job of origin {origin}"));
            return Ok(());
        }
        if !told {
            say(&format!("ours on the worker: {}", shown(&ours)));
            told = true;
        }
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(not_empty(args, &ours));
        }
        if args.force {
            delete(client, &ours).await?;
            // Why so late: a manager that runs removes its finalizer itself, when it has stored the outcome of the job.
            if remaining < args.timeout / 2 {
                release(client, &ours).await?;
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// An object on the worker with our origin.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ours {
    resource: ApiResource,
    namespace: String,
    name: String,
    uid: Option<String>,
    going: bool,
    finalizers: Vec<String>,
}

impl Ours {
    /// Its finalizers without the manager's; `None` if the manager holds nothing back.
    fn released(&self) -> Option<Vec<&String>> {
        let is_held = self.finalizers.iter().any(|each| each == finalizers::OUTCOME);
        let rest = self.finalizers.iter().filter(|each| *each != finalizers::OUTCOME);
        is_held.then(|| rest.collect())
    }
}

/// All objects with our origin there: Workloads, and jobs of every kind that can be sent to workers, whether or not the manager
/// has its integration enabled.
async fn ours_on(worker: &Client, kinds: Kinds, origin: &str) -> Result<Vec<Ours>, kube::Error> {
    let selector = format!("{}={origin}", labels::MULTIKUEUE_ORIGIN);
    let params = ListParams::default().labels(&selector).limit(PAGE);
    let sent = kinds.iter().filter(|kind| kind.can(Ability::Dispatched));
    let mut looked_for: Vec<ApiResource> = sent
        .map(|kind| {
            let gvk = GroupVersionKind::gvk(kind.group, kind.version, kind.kind);
            ApiResource::from_gvk_with_plural(&gvk, kind.plural)
        })
        .collect();
    looked_for.push(ApiResource::erase::<Workload>(&()));
    let mut found = Vec::new();
    for resource in looked_for {
        let Some(resource) = as_served(worker, resource).await? else {
            continue;
        };
        let objects = Api::<DynamicObject>::all_with(worker.clone(), &resource);
        for object in objects.list_metadata(&params).await?.items {
            let ObjectMeta {
                namespace,
                name,
                uid,
                deletion_timestamp,
                finalizers,
                ..
            } = object.metadata;
            found.push(Ours {
                resource: resource.clone(),
                namespace: namespace.unwrap_or_default(),
                name: name.unwrap_or_default(),
                uid,
                going: deletion_timestamp.is_some(),
                finalizers: finalizers.unwrap_or_default(),
            });
        }
    }
    Ok(found)
}

/// The resource in a version that the worker serves; `None` when no objects of it can exist.
async fn as_served(worker: &Client, mut resource: ApiResource) -> Result<Option<ApiResource>, kube::Error> {
    match served(worker, &resource).await? {
        Served::Yes => {}
        Served::No => return Ok(None),
        Served::Otherwise(versions) => {
            resource.version = versions.into_iter().next().unwrap_or_default();
            resource.api_version = format!("{}/{}", resource.group, resource.version);
        }
    }
    Ok(Some(resource))
}

async fn delete(worker: &Client, ours: &[Ours]) -> Result<(), Failure> {
    for item in ours.iter().filter(|item| !item.going) {
        let Ours {
            resource,
            namespace,
            name,
            uid,
            going: _,
            finalizers: _,
        } = item;
        let what = format!(
            "deleting {} on the worker failed",
            shown(std::slice::from_ref(item))
        );
        let api = Api::<DynamicObject>::namespaced_with(worker.clone(), namespace, resource);
        let gone = write::delete(&api, name, uid.as_deref()).await;
        if !matches!(gone, Written::Gone) {
            done(&what, gone)?;
        }
    }
    Ok(())
}

/// Removes the manager's finalizer from deleted objects. Why: only the manager does it otherwise, and it may be gone for good.
async fn release(worker: &Client, ours: &[Ours]) -> Result<(), Failure> {
    for item in ours.iter().filter(|item| item.going) {
        let Some(rest) = item.released() else { continue };
        let api = Api::<DynamicObject>::namespaced_with(worker.clone(), &item.namespace, &item.resource);
        let free = json!({"metadata": {"uid": item.uid, "finalizers": rest}});
        let answer = write::patch(&api, &item.name, &free).await;
        if !matches!(answer, Written::Gone | Written::Conflict) {
            let what = format!(
                "releasing {} on the worker failed",
                shown(std::slice::from_ref(item))
            );
            done(&what, answer)?;
        }
    }
    Ok(())
}

fn not_empty(args: &Leave, ours: &[Ours]) -> Failure {
    let name = &args.name;
    let next = if args.force {
        "see what keeps them, and end it there: kubectl get KIND NAME -n NAMESPACE -o yaml (metadata.finalizers); then run the same \
         command again"
            .to_owned()
    } else {
        format!(
            "wait longer with --timeout; or stop its jobs and queue them again: roadstead cluster drain {name} --evict; or delete them: \
             the same command with --force. The cluster gets no new jobs meanwhile; to bring it back: roadstead cluster join {name} \
             --kubeconfig FILE"
        )
    };
    let what = format!("cluster {name} is not empty after {} s", args.timeout.as_secs());
    Failure::new(what, format!("still there: {}", shown(ours)), next).code(Code::TimedOut)
}

fn shown(ours: &[Ours]) -> String {
    let mut text: Vec<String> = ours
        .iter()
        .take(SHOWN_MAX)
        .map(|item| {
            let kind = item.resource.kind.to_lowercase();
            format!("{kind} {}/{}", item.namespace, item.name)
        })
        .collect();
    if ours.len() > SHOWN_MAX {
        text.push(format!("and {} more", ours.len() - SHOWN_MAX));
    }
    text.join(", ")
}

async fn remove_from_manager(
    args: &Leave,
    manager: &Client,
    seen: &Seen,
    left: &mut Left,
) -> Result<(), Failure> {
    if let Some(cluster) = &seen.cluster {
        let clusters = Api::<MultiKueueCluster>::all(manager.clone());
        let answer = write::delete(&clusters, &args.name, cluster.uid().as_deref()).await;
        if !matches!(answer, Written::Gone) {
            done("deleting the MultiKueueCluster failed", answer)?;
            wait_until_gone(args, &clusters).await?;
        }
        left.removed
            .push(format!("manager multikueuecluster/{}", args.name));
    }
    let Some(found) = &seen.secret else { return Ok(()) };
    let name = found.name_any();
    if !is_ours(args, found) {
        left.kept
            .push(format!("manager secret/{name}: it was not made by this command"));
        return Ok(());
    }
    let secrets = Api::<Secret>::namespaced(manager.clone(), &args.manager.namespace);
    let answer = write::delete(&secrets, &name, found.uid().as_deref()).await;
    if !matches!(answer, Written::Gone) {
        done("deleting the Secret failed", answer)?;
    }
    left.removed.push(format!("manager secret/{name}"));
    Ok(())
}

/// Waits until the MultiKueueCluster is gone. The manager removes its finalizer when none of its objects are left on the worker,
/// and needs the Secret until then.
async fn wait_until_gone(args: &Leave, clusters: &Api<MultiKueueCluster>) -> Result<(), Failure> {
    let deadline = Instant::now() + args.timeout;
    loop {
        let there = clusters.get_opt(&args.name).await;
        let there =
            there.map_err(|error| Failure::request("looking at the MultiKueueCluster failed", &error))?;
        let Some(cluster) = there else { return Ok(()) };
        if args.force {
            // Why: `--force` does not wait for the manager, which may not even run.
            let patch = json!({"metadata": {"finalizers": null}});
            let answer = write::patch(clusters, &args.name, &patch).await;
            if !matches!(answer, Written::Gone) {
                done("taking the finalizers off the MultiKueueCluster failed", answer)?;
            }
        }
        if Instant::now() >= deadline {
            return Err(Failure::new(
                format!(
                    "MultiKueueCluster {} is not gone after {} s",
                    args.name,
                    args.timeout.as_secs()
                ),
                format!("it waits for: {}", cluster.finalizers().join(", ")),
                format!(
                    "see that the manager runs, or: roadstead cluster leave {} --force",
                    args.name
                ),
            )
            .code(Code::TimedOut));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn remove_account(
    args: &Leave,
    account: &Account,
    reach: &Reach,
    left: &mut Left,
) -> Result<(), Failure> {
    let (Some(client), true) = (&reach.client, reach.as_administrator) else {
        left.kept.push(format!(
            "worker account {}: run the same command with --kubeconfig FILE to delete it",
            account.username()
        ));
        return Ok(());
    };
    let removed = account::remove(client, account).await?;
    let remains = account::remains(client, account).await?;
    if !remains.is_empty() {
        return Err(Failure::new(
            format!("something of the account is left on cluster {}", args.name),
            remains.join(", "),
            "run the same command again",
        ));
    }
    if removed > 0 {
        left.removed
            .push(format!("worker account {} and its roles", account.username()));
    }
    left.verified
        .push(format!("worker: nothing has the labels {}", account.selector()));
    left.kept.push(format!(
        "worker namespace/{}: others may live there",
        account.namespace()
    ));
    Ok(())
}

/// Checks everything on the manager again.
async fn verify(args: &Leave, manager: &Client, left: &mut Left) -> Result<(), Failure> {
    let mut remains: Vec<String> = configs_with(&args.name, manager)
        .await?
        .iter()
        .map(|config| format!("multikueueconfig/{}", config.name_any()))
        .collect();
    let failed = |error: kube::Error| Failure::request("looking again at the manager failed", &error);
    let cluster = Api::<MultiKueueCluster>::all(manager.clone());
    if cluster.get_opt(&args.name).await.map_err(failed)?.is_some() {
        remains.push(format!("multikueuecluster/{}", args.name));
    }
    let ours = ListParams::default().labels(&format!("{}={}", secret::CREDENTIAL_LABEL, args.name));
    let secrets = Api::<Secret>::namespaced(manager.clone(), &args.manager.namespace);
    let secrets = secrets.list_metadata(&ours).await.map_err(failed)?;
    remains.extend(
        secrets
            .items
            .iter()
            .map(|secret| format!("secret/{}", secret.name_any())),
    );
    if remains.is_empty() {
        left.verified
            .push("manager: no MultiKueueCluster, no Secret, no MultiKueueConfig entry".to_owned());
        return Ok(());
    }
    Err(Failure::new(
        format!("something of cluster {} is left on the manager", args.name),
        remains.join(", "),
        "look at its finalizers, then run the same command again",
    ))
}

#[cfg(test)]
mod tests;
