//! The plan of `join`: computed from what was read, shown before the first write.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use roadstead_api::constants::controllers;
use roadstead_api::kueue::v1beta2::{AdmissionCheck, MultiKueueConfig};
use roadstead_kubeconfigs::account::rights::{Account, Objects, describe};
use roadstead_kubeconfigs::secret;
use roadstead_kubeio::connect::Endpoint;
use serde::Serialize;
use url::Url;

use super::{Seen, cluster_object, config_object};
use crate::args::{Format, Join};
use crate::cluster::account::{State, Step};
use crate::cluster::{secret_name, secret_of};
use crate::failure::{Code, Failure};
use crate::output;

/// Name of the `MultiKueueConfig` when there is none, the user names none, and not exactly one is named by AdmissionChecks.
const CONFIG_DEFAULT: &str = "multikueue";
/// Ports that the `NetworkPolicy` of an installation allows by default (`networkPolicy.apiServers` of the charts).
const API_SERVER_PORTS: [u16; 2] = [443, 6443];
/// Most clusters in a `MultiKueueConfig`. Source: `spec/multikueue.md 1.3`.
const CONFIG_CLUSTERS_MAX: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CredentialStep {
    /// The Secret's credential has more than half of its lifetime left.
    Keep,
    /// Create a token and write the Secret.
    Make,
}

/// What to do about the `MultiKueueConfig`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ConfigStep {
    /// It lists the cluster already.
    Keep {
        name: String,
    },
    Add {
        name: String,
    },
    Create {
        name: String,
    },
}

/// Everything that will be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) account: Vec<Step>,
    pub(super) credential: CredentialStep,
    /// Whether the `MultiKueueCluster` has to be created.
    pub(super) cluster: bool,
    pub(super) config: ConfigStep,
    /// The MultiKueueConfigs that AdmissionChecks name, sorted.
    pub(super) checked: Vec<String>,
}

/// Decides, or gives the reason why it cannot.
pub(super) fn plan(args: &Join, seen: &Seen, credential_is_good: bool) -> Result<Plan, Failure> {
    let name = secret_name(&args.name);
    if let Some(found) = &seen.secret
        && secret::cluster(found) != Some(&args.name)
    {
        return Err(foreign_secret(args, found));
    }
    if let Some(cluster) = &seen.cluster
        && secret_of(cluster) != Some(&name)
    {
        return Err(Failure::new(
            format!(
                "cluster {} is registered already, with other credentials",
                args.name
            ),
            format!("its MultiKueueCluster does not use secret {name}, so it was not made by this command"),
            format!(
                "choose another name, or delete it first: kubectl delete multikueuecluster {}",
                args.name
            ),
        ));
    }
    Ok(Plan {
        account: seen.steps.clone(),
        credential: if credential_is_good {
            CredentialStep::Keep
        } else {
            CredentialStep::Make
        },
        cluster: seen.cluster.is_none(),
        config: config(args, &seen.configs, &checked(&seen.checks))?,
        checked: checked(&seen.checks),
    })
}

fn foreign_secret(args: &Join, found: &Secret) -> Failure {
    let name = found.name_any();
    Failure::new(
        format!(
            "secret {}/{name} exists already and is not ours",
            args.manager.namespace
        ),
        format!("it has no label {}={}", secret::CREDENTIAL_LABEL, args.name),
        format!(
            "choose another name for the cluster, or delete the secret if it is not needed: kubectl -n {} delete secret {name}",
            args.manager.namespace
        ),
    )
}

/// The MultiKueueConfigs that AdmissionChecks of MultiKueue name, whether or not they exist.
fn checked(checks: &[AdmissionCheck]) -> Vec<String> {
    let names: BTreeSet<&String> = { checks.iter() }
        .filter(|check| check.spec.controller_name == controllers::MULTIKUEUE)
        .filter_map(|check| Some(&check.spec.parameters.as_ref()?.name))
        .collect();
    names.into_iter().cloned().collect()
}

fn config(args: &Join, configs: &[MultiKueueConfig], checked: &[String]) -> Result<ConfigStep, Failure> {
    let named = |name: &str| configs.iter().find(|config| config.name_any() == name);
    let found = match (&args.config_name, configs, checked) {
        (Some(name), _, _) => named(name),
        (None, [only], _) => Some(only),
        (None, [], _) => None,
        (None, [_, _, ..], [only]) if named(only).is_some() => named(only),
        (None, several @ [_, _, ..], _) => {
            let names: Vec<String> = several.iter().map(kube::ResourceExt::name_any).collect();
            return Err(Failure::new(
                "there are several MultiKueueConfigs",
                format!("the cluster could belong to any of: {}", names.join(", ")),
                "name one with --config-name",
            )
            .code(Code::Usage));
        }
    };
    let Some(found) = found else {
        // Why the name of a check: `leave` deletes a MultiKueueConfig with its last cluster, and the check stays inactive until one of that
        // name exists again.
        let by_check = if let [only] = checked {
            only
        } else {
            CONFIG_DEFAULT
        };
        let name = { args.config_name.as_deref() }.unwrap_or(by_check).to_owned();
        return Ok(ConfigStep::Create { name });
    };
    let name = found.name_any();
    if found.spec.clusters.contains(&args.name) {
        return Ok(ConfigStep::Keep { name });
    }
    if found.spec.clusters.len() >= CONFIG_CLUSTERS_MAX {
        return Err(Failure::new(
            format!("MultiKueueConfig {name} is full"),
            format!("it has {CONFIG_CLUSTERS_MAX} clusters, which is the most that the API allows"),
            "name another one with --config-name",
        ));
    }
    Ok(ConfigStep::Add { name })
}

impl Plan {
    pub(super) fn is_nothing(&self) -> bool {
        self.account.iter().all(|step| step.state == State::Same)
            && self.credential == CredentialStep::Keep
            && !self.cluster
            && matches!(self.config, ConfigStep::Keep { .. })
    }

    /// What will be written, one entry per object.
    pub(super) fn changes(&self, args: &Join) -> Vec<String> {
        let mut changes: Vec<String> = self
            .account
            .iter()
            .filter(|step| step.state != State::Same)
            .map(|step| format!("worker {}", step.object))
            .collect();
        if self.credential == CredentialStep::Make {
            changes.push(format!("manager secret/{}", secret_name(&args.name)));
        }
        if self.cluster {
            changes.push(format!("manager multikueuecluster/{}", args.name));
        }
        match &self.config {
            ConfigStep::Keep { .. } => {}
            ConfigStep::Add { name } | ConfigStep::Create { name } => {
                changes.push(format!("manager multikueueconfig/{name}"));
            }
        }
        changes
    }

    /// A warning if no AdmissionCheck names the MultiKueueConfig: then no queue sends jobs to its clusters.
    fn unchecked(&self) -> Option<String> {
        let (ConfigStep::Keep { name } | ConfigStep::Add { name } | ConfigStep::Create { name }) =
            &self.config;
        if self.checked.contains(name) {
            return None;
        }
        let next = if self.checked.is_empty() {
            format!("create an AdmissionCheck that names {name}, and name it in a ClusterQueue")
        } else {
            format!(
                "AdmissionChecks name {}: to join one of these, use --config-name",
                self.checked.join(", ")
            )
        };
        Some(format!(
            "warning: no AdmissionCheck with controller {} names multikueueconfig/{name}, so no queue sends jobs to its clusters; {next}",
            controllers::MULTIKUEUE
        ))
    }

    /// The plan as text, for the user's consent.
    pub(super) fn describe(&self, args: &Join, account: &Account, server: &str) -> String {
        let mark = |state: State| match state {
            State::Missing => "create",
            State::Different => "change",
            State::Same => "keep  ",
        };
        let mut lines = vec![
            format!("plan for cluster {} at {server}", args.name),
            "  on the worker".to_owned(),
        ];
        lines.extend(
            self.account
                .iter()
                .map(|step| format!("    {} {}", mark(step.state), step.object)),
        );
        if self.account.iter().any(|step| step.state != State::Same) {
            lines.push(format!("  rights of {}", account.username()));
            let Objects {
                cluster_role, role, ..
            } = account.objects(&args.integrations);
            let everywhere = describe(cluster_role.rules.as_deref().unwrap_or_default());
            lines.extend(everywhere.iter().map(|rule| format!("    {rule}")));
            let at_home = describe(role.rules.as_deref().unwrap_or_default());
            lines.extend(
                at_home
                    .iter()
                    .map(|rule| format!("    {rule} (in {})", account.namespace())),
            );
        }
        let lost: Vec<String> = { self.account.iter() }
            .flat_map(|step| step.lost.iter().map(|rule| format!("    {rule}")))
            .collect();
        if !lost.is_empty() {
            lines.push("  rights that it loses".to_owned());
            lines.extend(lost);
            lines.push(
                "    (to keep those for jobs, name all integrations of the manager with --integrations)"
                    .to_owned(),
            );
        }
        lines.push("  on the manager".to_owned());
        let secret = format!("secret/{} in {}", secret_name(&args.name), args.manager.namespace);
        lines.push(match self.credential {
            CredentialStep::Keep => format!("    keep   {secret}"),
            CredentialStep::Make => {
                format!(
                    "    write  {secret}, with a token for {} s",
                    args.token_lifetime.as_secs()
                )
            }
        });
        let verb = if self.cluster { "create" } else { "keep  " };
        lines.push(format!("    {verb} multikueuecluster/{}", args.name));
        lines.push(match &self.config {
            ConfigStep::Keep { name } => format!("    keep   multikueueconfig/{name}"),
            ConfigStep::Add { name } => format!("    change multikueueconfig/{name}: add {}", args.name),
            ConfigStep::Create { name } => format!("    create multikueueconfig/{name}"),
        });
        lines.extend(self.unchecked());
        if self.is_nothing() {
            lines.push("nothing to change".to_owned());
        }
        lines.join("\n")
    }
}

/// Prints the objects that `join` would apply, except the Secret, whose token does not exist yet.
pub(super) fn print_objects(args: &Join, account: &Account, endpoint: &Endpoint) -> Result<(), Failure> {
    let config = args.config_name.as_deref().unwrap_or(CONFIG_DEFAULT);
    let name = &args.name;
    let on_worker = account.objects(&args.integrations).in_order();
    let mut documents = Vec::new();
    for object in &on_worker {
        documents.push(("on the worker", yaml(object)?));
    }
    documents.push(("on the manager", yaml(&cluster_object(name))?));
    documents.push((
        "on the manager (add the cluster if it exists)",
        yaml(&config_object(config, name))?,
    ));
    let mut text = format!(
        "# namespace {} must exist on the worker. The manager also needs secret {}/{} with a kubeconfig\n\
         # (key kubeconfig) for {} that holds a token of service account {}.\n",
        account.namespace(),
        args.manager.namespace,
        secret_name(name),
        endpoint.server,
        account.name()
    );
    for (place, document) in documents {
        text.push_str("---\n# ");
        text.push_str(place);
        text.push('\n');
        text.push_str(&document);
    }
    output::result(Format::Name, &(), &text, String::new)
}

fn yaml(object: &impl Serialize) -> Result<String, Failure> {
    // Why through JSON: it leaves out empty fields the same way for all types.
    serde_json::to_value(object)
        .map_err(|error| error.to_string())
        .and_then(|value| serde_saphyr::to_string(&value).map_err(|error| error.to_string()))
        .map_err(|why| Failure::new("an object cannot be printed", why, "use --dry-run instead"))
}

/// What else may keep the manager from a worker whose API server listens on a port that the installed `NetworkPolicy` does not allow.
fn by_network_policy(server: &str) -> String {
    let port = Url::parse(server)
        .ok()
        .and_then(|url| url.port_or_known_default());
    let Some(port) = port.filter(|port| !API_SERVER_PORTS.contains(port)) else {
        return String::new();
    };
    format!(
        "; the manager's NetworkPolicy allows the ports 443 and 6443 unless its values say more: for port {port} set \
         networkPolicy.apiServers in the values, then: roadstead install manager --values FILE"
    )
}

/// What the manager says of a worker that lacks the definition of a kind.
const NOT_SERVED: &str = "Workload is not served there";

/// The failure when the manager did not set condition `Active` to True in time.
pub(super) fn not_active(args: &Join, server: &str, told: Option<(&str, &str)>) -> Failure {
    let (why, next) = match told {
        None => (
            "the manager has not tried the cluster yet".to_owned(),
            format!(
                "check that the manager runs: kubectl -n {} get pods",
                args.manager.namespace
            ),
        ),
        Some((reason, message)) => {
            let next = match reason {
                "ClientConnectionFailed" if message.contains(NOT_SERVED) => format!(
                    "roadstead install worker --kubeconfig {}; then run the same command again",
                    args.kubeconfig.display()
                ),
                "ClientConnectionFailed" => format!(
                    "correct what the message names; if the address is wrong, run the same command with --server and the one at which \
                     the manager reaches the worker{}",
                    by_network_policy(server)
                ),
                "InsecureKubeConfig" => {
                    "correct what the message names, then run the same command again".to_owned()
                }
                "BadKubeConfig" => format!(
                    "check that the manager looks for Secrets in namespace {}, or name its namespace with --namespace",
                    args.manager.namespace
                ),
                _ => format!("kubectl describe multikueuecluster {}", args.name),
            };
            (format!("{reason}: {message}"), next)
        }
    };
    Failure::new(
        format!(
            "cluster {} is registered, but not connected after {} s",
            args.name,
            args.timeout.as_secs()
        ),
        why,
        next,
    )
    .code(Code::TimedOut)
}

#[cfg(test)]
mod tests;
