//! `roadstead cluster join`: read, plan, ask for consent, write the differences, wait until the manager is connected.
//!
//! Invariant: the order of the writes makes every interruption harmless. The account is useless without a token, the token
//! without the Secret, the Secret without the `MultiKueueCluster`. Running the command again continues from there.

mod plan;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, Client};
use roadstead_api::kueue::v1beta2::{
    ClusterSource, KubeConfig, LocationType, MultiKueueCluster, MultiKueueClusterSpec, MultiKueueConfig,
    MultiKueueConfigSpec,
};
use roadstead_kinds::rows;
use roadstead_kubeconfigs::account::rights::Account;
use roadstead_kubeconfigs::account::token;
use roadstead_kubeconfigs::check::{Rules, check};
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

/// Registers a cluster.
pub async fn run(args: &Join, now: Timestamp) -> Result<(), Failure> {
    let started = Instant::now();
    check_name(&args.name)?;
    let worker = access::worker(&args.kubeconfig, args.context.as_deref()).await?;
    let mut args = args.clone();
    if args.print_yaml {
        return print(&mut args, &worker);
    }
    let manager = access::manager(&args.manager).await?;
    let account = settings::account(&args.owner, &args.manager.namespace, &manager).await?;
    settings::compare_worker(&worker.client, &account).await;
    if args.integrations.is_empty() {
        args.integrations = account::granted(&worker.client, &account).await?;
    }
    by_default(&mut args);
    let args = &args;
    let endpoint = address(args, &worker)?;
    let seen = observe(args, &account, &worker.client, &manager).await?;
    match &seen.cluster {
        None => identity::is_new(&manager, &worker.client).await?,
        Some(cluster) => {
            let next = format!(
                "name the kubeconfig of cluster {name}, or choose another name; to have the name lead to the other cluster: roadstead \
                 cluster move {name} --kubeconfig {}",
                args.kubeconfig.display(),
                name = args.name
            );
            identity::is_of(cluster, &worker.client, &next).await?;
        }
    }
    let fresh = is_credential_good(&seen, &endpoint, &account, now).await;
    let plan = plan::plan(args, &seen, fresh)?;
    say(&plan.describe(args, &account, &endpoint.server));
    if args.dry_run {
        return Ok(());
    }
    if !plan.is_nothing() {
        output::consent(args.yes, "do this?")?;
        let site = Site {
            args,
            account: &account,
            worker: &worker,
            manager: &manager,
            endpoint: &endpoint,
            now,
        };
        write_all(&site, &plan).await?;
    }
    let expires = written_expiry(args, &manager).await;
    let reason = wait_until_active(args, &manager).await?;
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

/// Prints the objects. It contacts no cluster, so only the flags say whose account it is, and which kinds of jobs it may send.
fn print(args: &mut Join, worker: &Worker) -> Result<(), Failure> {
    let account = settings::by_flags(&args.owner, &args.manager.namespace)?;
    by_default(args);
    plan::print_objects(args, &account, &address(args, worker)?)
}

fn by_default(args: &mut Join) {
    if args.integrations.is_empty() {
        args.integrations.push(&rows::JOB);
    }
}

/// The endpoint without its credential, after the check that the manager makes too.
fn address(args: &Join, worker: &Worker) -> Result<Endpoint, Failure> {
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
            format!(
                "roadstead cluster join {} --kubeconfig {} --server https://HOST:PORT (or --allow-loopback if the manager runs on this machine and its RoadsteadConfiguration sets multiKueue.allowLoopbackWorkers)",
                args.name,
                args.kubeconfig.display()
            ),
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

/// Waits until condition `Active` is True; returns its reason.
async fn wait_until_active(args: &Join, manager: &Client) -> Result<String, Failure> {
    say("waiting for the manager to connect");
    let clusters = Api::<MultiKueueCluster>::all(manager.clone());
    let deadline = Instant::now() + args.timeout;
    loop {
        let cluster = clusters
            .get(&args.name)
            .await
            .map_err(|error| Failure::request("reading the MultiKueueCluster failed", &error))?;
        let condition = active(&cluster);
        if let Some(condition) = condition
            && condition.status == "True"
        {
            return Ok(condition.reason.clone());
        }
        if Instant::now() >= deadline {
            let told = condition.map(|c| (c.reason.as_str(), c.message.as_str()));
            return Err(plan::not_active(args, told));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
