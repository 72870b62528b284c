//! `roadstead cluster join`: read, plan, ask for consent, write the differences, wait until the manager is connected.
//!
//! Invariant: the order of the writes makes every interruption harmless. The account is useless without a token, the token
//! without the Secret, the Secret without the `MultiKueueCluster`. Running the command again continues from there.

mod plan;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::ListParams;
use kube::{Api, Client};
use roadstead_api::kueue::v1beta2::{
    AdmissionCheck, ClusterSource, KubeConfig, LocationType, MultiKueueCluster, MultiKueueClusterSpec,
    MultiKueueConfig, MultiKueueConfigSpec,
};
use roadstead_core::cluster::identity::Identity;
use roadstead_kinds::rows;
use roadstead_kubeconfigs::account::rights::Account;
use roadstead_kubeconfigs::account::token;
use roadstead_kubeconfigs::check::{Rules, check};
use roadstead_kubeconfigs::place::Place;
use roadstead_kubeconfigs::secret;
use roadstead_kubeio::connect::{Credential, Endpoint};
use roadstead_kubeio::write::{self, Written};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use self::plan::{ConfigStep, CredentialStep, Plan};
use super::{account, active, check_name, identity, secret_name, settings};
use crate::access::{self, FIELD_MANAGER, Worker};
use crate::args::Join;
use crate::failure::{Failure, done};
use crate::output::{self, say};

/// How often the condition is read while waiting.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often adding to the `MultiKueueConfig` is tried when another client writes it at the same time.
const CONFIG_TRIES: u32 = 3;
const NO_TOKEN_YET: &str = "none";

/// The result of `join`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Joined {
    /// The cluster.
    pub cluster: String,
    /// The written objects; empty when nothing differed.
    pub changed: Vec<String>,
    /// Address that the manager uses.
    pub server: String,
    /// When the credential ends, RFC 3339.
    pub token_expires_at: Option<String>,
    /// Reason of condition `Active`.
    pub reason: String,
    /// Seconds from the start of the command until the manager was connected to the worker.
    pub elapsed_seconds: f64,
}

/// Everything that is read before the first write.
struct Seen {
    steps: Vec<account::Step>,
    secret: Option<Secret>,
    cluster: Option<MultiKueueCluster>,
    configs: Vec<MultiKueueConfig>,
    checks: Vec<AdmissionCheck>,
}

/// The two clusters, and the settings that connect them.
struct Site<'a> {
    args: &'a Join,
    account: &'a Account,
    worker: &'a Worker,
    manager: &'a Client,
    /// The worker's address for the manager; without its credential.
    endpoint: &'a Endpoint,
    now: Timestamp,
}

/// Both clusters of a registration, and the account that connects them.
pub(super) struct Sides {
    pub(super) worker: Worker,
    pub(super) manager: Client,
    account: Account,
}

impl Sides {
    pub(super) async fn open(args: &Join) -> Result<Self, Failure> {
        let worker = access::worker(&args.kubeconfig, args.context.as_deref()).await?;
        let manager = access::manager(&args.manager).await?;
        let account = settings::account(&args.owner, &args.manager.namespace, &manager).await?;
        settings::compare_worker(&worker.client, &account).await;
        settings::look_for_engine(&worker.client, &args.kubeconfig).await;
        Ok(Self {
            worker,
            manager,
            account,
        })
    }
}

/// Why a cluster is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It is new, or is registered again under its name.
    Join,
    /// Its name leads to the place with this print from now on.
    Move {
        print: String,
        /// Whether the manager was connected to that place of this cluster before.
        is_known: bool,
    },
}

/// Registers a cluster.
pub async fn run(args: &Join, now: Timestamp) -> Result<(), Failure> {
    check_name(&args.name)?;
    if args.print_yaml {
        return print(args).await;
    }
    register(args, &Sides::open(args).await?, &Purpose::Join, now).await
}

/// Registers a cluster whose sides are open. `move` has compared identities already, and a name may lead to another cluster then.
pub(super) async fn register(
    args: &Join,
    sides: &Sides,
    purpose: &Purpose,
    now: Timestamp,
) -> Result<(), Failure> {
    let started = Instant::now();
    let Sides {
        worker,
        manager,
        account,
    } = sides;
    let mut args = args.clone();
    if args.integrations.is_empty() {
        args.integrations = account::granted(&worker.client, account).await?;
    }
    by_default(&mut args);
    let args = &args;
    let endpoint = address(args, worker)?;
    let seen = observe(args, account, &worker.client, manager).await?;
    if *purpose == Purpose::Join {
        is_that_cluster(args, &seen, sides, &endpoint).await?;
    }
    let fresh = match purpose {
        // Why a new credential: the manager connects again, and so looks at the place, only when its Secret changes.
        Purpose::Move { is_known: false, .. } => false,
        Purpose::Move { is_known: true, .. } | Purpose::Join => {
            is_credential_good(&seen, &endpoint, account, now).await
        }
    };
    let plan = plan::plan(args, &seen, fresh)?;
    say(&plan.describe(args, account, &endpoint.server));
    if args.dry_run {
        return Ok(());
    }
    if !plan.is_nothing() {
        output::consent(args.yes, "do this?")?;
        let site = Site {
            args,
            account,
            worker,
            manager,
            endpoint: &endpoint,
            now,
        };
        write_all(&site, &plan).await?;
    }
    let expires = written_expiry(args, manager).await;
    let reason = wait_until_active(args, &endpoint.server, purpose, manager).await?;
    let joined = Joined {
        cluster: args.name.clone(),
        changed: plan.changes(args),
        server: endpoint.server,
        token_expires_at: expires,
        reason,
        elapsed_seconds: started.elapsed().as_secs_f64(),
    };
    let name = format!("multikueuecluster.kueue.x-k8s.io/{}", args.name);
    output::result(args.output, &joined, &name, || {
        let how = if joined.changed.is_empty() {
            "is registered already; nothing was changed"
        } else {
            "is registered and connected"
        };
        format!("cluster {} {how} ({:.1} s)", args.name, joined.elapsed_seconds)
    })
}

/// Refuses a kubeconfig that leads to another cluster than the registered one, or to one that has another name.
async fn is_that_cluster(
    args: &Join,
    seen: &Seen,
    sides: &Sides,
    endpoint: &Endpoint,
) -> Result<(), Failure> {
    let worker = &sides.worker.client;
    let Some(cluster) = &seen.cluster else {
        // Why only then: the manager checks again before it connects, and an administrator need not have the right to read it.
        let Ok(uid) = identity::uid_of(worker).await else {
            return Ok(());
        };
        let found = Identity {
            uid: Some(uid),
            place: Some(Place::of(endpoint).print()),
        };
        return identity::has_no_other_name(&args.name, &sides.manager, &found).await;
    };
    let next = format!(
        "name the kubeconfig of cluster {name}, or choose another name; to have the name lead to the other cluster: roadstead \
         cluster move {name} --kubeconfig {}",
        args.kubeconfig.display(),
        name = args.name
    );
    identity::is_of(cluster, worker, &next).await
}

/// Prints the objects. It sends no request, so only the flags say whose account it is, and which kinds of jobs it may send.
async fn print(args: &Join) -> Result<(), Failure> {
    let worker = access::worker(&args.kubeconfig, args.context.as_deref()).await?;
    let account = settings::by_flags(&args.owner, &args.manager.namespace)?;
    let mut args = args.clone();
    by_default(&mut args);
    plan::print_objects(&args, &account, &address(&args, &worker)?)
}

fn by_default(args: &mut Join) {
    if args.integrations.is_empty() {
        args.integrations.push(&rows::JOB);
    }
}

/// The endpoint without its credential, after the check that the manager makes too.
pub(super) fn address(args: &Join, worker: &Worker) -> Result<Endpoint, Failure> {
    let draft = Endpoint {
        server: args.server.clone().unwrap_or_else(|| worker.server.clone()),
        authority: worker.authority.clone(),
        credential: Credential::Token(SecretString::from(NO_TOKEN_YET)),
    };
    let rules = Rules {
        allow_loopback: args.allow_loopback || args.server.is_some(),
    };
    // Why the rendered Secret is checked: the manager will read the endpoint from it.
    let text = secret::render(&args.name, &draft);
    check(text.expose_secret().as_bytes(), &rules).map_err(|refusal| {
        Failure::new(
            format!("the manager cannot use the address of cluster {}", args.name),
            refusal.message,
            "run the same command with --server https://HOST:PORT (or with --allow-loopback if the manager runs on this machine and its \
             RoadsteadConfiguration sets multiKueue.allowLoopbackWorkers)",
        )
    })
}

async fn observe(args: &Join, account: &Account, worker: &Client, manager: &Client) -> Result<Seen, Failure> {
    let secrets = Api::<Secret>::namespaced(manager.clone(), &args.manager.namespace);
    let clusters = Api::<MultiKueueCluster>::all(manager.clone());
    let configs = Api::<MultiKueueConfig>::all(manager.clone());
    Ok(Seen {
        steps: account::observe(worker, account, &args.integrations).await?,
        secret: secrets
            .get_opt(&secret_name(&args.name))
            .await
            .map_err(|error| Failure::request("reading the Secret on the manager failed", &error))?,
        cluster: clusters
            .get_opt(&args.name)
            .await
            .map_err(|error| Failure::request("reading the MultiKueueCluster failed", &error))?,
        configs: configs
            .list(&ListParams::default())
            .await
            .map_err(|error| Failure::request("listing MultiKueueConfigs failed", &error))?
            .items,
        checks: Api::<AdmissionCheck>::all(manager.clone())
            .list(&ListParams::default())
            .await
            .map_err(|error| Failure::request("listing AdmissionChecks failed", &error))?
            .items,
    })
}

/// Whether the Secret holds a working credential for this address and account with more than half of its lifetime left.
async fn is_credential_good(seen: &Seen, endpoint: &Endpoint, account: &Account, now: Timestamp) -> bool {
    let Some(found) = &seen.secret else { return false };
    if !secret::lifetime(found).is_some_and(|life| token::is_fresh(now, life)) {
        return false;
    }
    let rules = Rules { allow_loopback: true };
    let Ok(current) = secret::read("", Some(found)).and_then(|bytes| check(bytes, &rules)) else {
        return false;
    };
    current.server == endpoint.server
        && current.authority == endpoint.authority
        && token::prove(&current, &account.username()).await.is_ok()
}

async fn write_all(site: &Site<'_>, plan: &Plan) -> Result<(), Failure> {
    let Site {
        args,
        account,
        worker,
        manager,
        endpoint: _,
        now: _,
    } = *site;
    account::apply(&worker.client, account, &args.integrations, &plan.account).await?;
    say(&format!("account {} is ready on the worker", account.username()));
    if plan.credential == CredentialStep::Make {
        write_credential(site).await?;
        say(&format!(
            "credential is in secret {}/{}",
            args.manager.namespace,
            secret_name(&args.name)
        ));
    }
    if plan.cluster {
        let clusters = Api::<MultiKueueCluster>::all(manager.clone());
        let answer = write::create(&clusters, &cluster_object(&args.name)).await;
        if !matches!(answer, Written::AlreadyExists) {
            done("creating the MultiKueueCluster failed", answer)?;
        }
    }
    write_config(args, manager, &plan.config).await
}

/// Creates a token, tests it, and stores it.
async fn write_credential(site: &Site<'_>) -> Result<(), Failure> {
    let Site {
        args,
        account,
        worker,
        manager,
        endpoint,
        now,
    } = *site;
    let failed = |what: &str, error: &token::Error| {
        let why = std::error::Error::source(error).map_or_else(String::new, |cause| format!(": {cause}"));
        Failure::new(
            what,
            format!("{error}{why}"),
            "correct what is named above, then run the same command again",
        )
    };
    let minted = token::mint(
        &worker.client,
        account.namespace(),
        &account.name(),
        args.token_lifetime,
        now,
    )
    .await
    .map_err(|error| failed("no token for the worker account", &error))?;
    let future = Endpoint {
        credential: Credential::Token(minted.token),
        ..endpoint.clone()
    };
    // Why tested at the administrator's address: the manager's address may not be reachable from here.
    let here = Endpoint {
        server: worker.server.clone(),
        ..future.clone()
    };
    token::prove(&here, &account.username())
        .await
        .map_err(|error| failed("the new token does not work", &error))?;
    if future.server != here.server
        && let Err(error) = token::prove(&future, &account.username()).await
    {
        say(&format!("note: {error}; the manager may still reach it"));
    }
    let kubeconfig = secret::render(&args.name, &future);
    let object = secret::build(
        &secret_name(&args.name),
        &args.manager.namespace,
        &args.name,
        &kubeconfig,
        minted.lifetime,
    );
    let secrets = Api::<Secret>::namespaced(manager.clone(), &args.manager.namespace);
    done(
        "writing the Secret failed",
        write::apply(&secrets, &object, FIELD_MANAGER).await,
    )?;
    Ok(())
}

/// The object that registers the cluster with the manager.
fn cluster_object(name: &str) -> MultiKueueCluster {
    MultiKueueCluster::new(
        name,
        MultiKueueClusterSpec {
            cluster_source: ClusterSource {
                kube_config: Some(KubeConfig {
                    location: secret_name(name),
                    location_type: LocationType::Secret,
                }),
                cluster_profile_ref: None,
            },
        },
    )
}

fn config_object(config: &str, cluster: &str) -> MultiKueueConfig {
    MultiKueueConfig::new(
        config,
        MultiKueueConfigSpec {
            clusters: vec![cluster.to_owned()],
            ..MultiKueueConfigSpec::default()
        },
    )
}

async fn write_config(args: &Join, manager: &Client, step: &ConfigStep) -> Result<(), Failure> {
    let configs = Api::<MultiKueueConfig>::all(manager.clone());
    let (name, create) = match step {
        ConfigStep::Keep { .. } => return Ok(()),
        ConfigStep::Create { name } => (name, true),
        ConfigStep::Add { name } => (name, false),
    };
    if create {
        let answer = write::create(&configs, &config_object(name, &args.name)).await;
        if !matches!(answer, Written::AlreadyExists) {
            done("creating the MultiKueueConfig failed", answer)?;
            return Ok(());
        }
    }
    let what = format!("adding the cluster to MultiKueueConfig {name} failed");
    let mut tries = 0;
    loop {
        let config = configs
            .get(name)
            .await
            .map_err(|error| Failure::request(&what, &error))?;
        let mut clusters = config.spec.clusters;
        if clusters.contains(&args.name) {
            return Ok(());
        }
        clusters.push(args.name.clone());
        let patch = json!({
            "metadata": {"resourceVersion": config.metadata.resource_version},
            "spec": {"clusters": clusters},
        });
        tries += 1;
        let answer = write::patch(&configs, name, &patch).await;
        if !matches!(answer, Written::Conflict) || tries >= CONFIG_TRIES {
            done(&what, answer)?;
            return Ok(());
        }
    }
}

async fn written_expiry(args: &Join, manager: &Client) -> Option<String> {
    let secrets = Api::<Secret>::namespaced(manager.clone(), &args.manager.namespace);
    let secret = secrets.get_opt(&secret_name(&args.name)).await.ok().flatten()?;
    Some(secret::lifetime(&secret)?.expires.to_string())
}

/// Waits until condition `Active` is True, after a move at the new place; returns its reason.
async fn wait_until_active(
    args: &Join,
    server: &str,
    purpose: &Purpose,
    manager: &Client,
) -> Result<String, Failure> {
    say("waiting for the manager to connect");
    let clusters = Api::<MultiKueueCluster>::all(manager.clone());
    let deadline = Instant::now() + args.timeout;
    loop {
        let cluster = clusters
            .get(&args.name)
            .await
            .map_err(|error| Failure::request("reading the MultiKueueCluster failed", &error))?;
        let told = told(&cluster, purpose);
        if let Some(condition) = told
            && condition.status == "True"
        {
            return Ok(condition.reason.clone());
        }
        if Instant::now() >= deadline {
            let told = told.map(|c| (c.reason.as_str(), c.message.as_str()));
            return Err(plan::not_active(args, server, told));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What the manager says about the registration: condition `Active`. After a move it says nothing yet while the condition is True for
/// the place before.
fn told<'a>(cluster: &'a MultiKueueCluster, purpose: &Purpose) -> Option<&'a Condition> {
    let is_there = match purpose {
        Purpose::Join => true,
        Purpose::Move { print, .. } => {
            identity::stored(cluster).is_some_and(|known| known.place.as_ref() == Some(print))
        }
    };
    active(cluster).filter(|condition| is_there || condition.status != "True")
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    /// Spec: safety 3.8
    #[test]
    fn after_a_move_only_a_connection_to_the_new_place_counts() {
        let cluster = |identity: &str, status: &str| -> MultiKueueCluster {
            from_value(json!({
                "metadata": {"name": "east", "annotations": {"roadstead.dev/cluster-identity": identity}},
                "spec": {"clusterSource": {"kubeConfig": {"location": "s", "locationType": "Secret"}}},
                "status": {"conditions": [{
                    "type": "Active", "status": status, "reason": "R", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }]},
            }))
            .unwrap()
        };
        let to = |print: &str| Purpose::Move {
            print: print.to_owned(),
            is_known: false,
        };
        for (identity, status, purpose, expected) in [
            ("uid at old", "True", Purpose::Join, Some("True")),
            ("uid at old", "True", to("new"), None),
            ("uid at -", "True", to("new"), None),
            ("uid at new", "True", to("new"), Some("True")),
            ("uid at old", "False", to("new"), Some("False")),
        ] {
            let cluster = cluster(identity, status);
            let said = told(&cluster, &purpose).map(|condition| condition.status.as_str());
            assert_eq!(said, expected, "{identity} {status} {purpose:?}");
        }
    }
}
