//! Connections to the manager and the worker, each with the administrator's own kubeconfig.

use std::path::Path;

use base64::Engine as _;
use kube::{Api, Client};
use roadstead_kubeio::connect::{self, Chosen, Unusable};
use roadstead_kubeio::failure::with_causes;

use crate::args::Manager;
use crate::failure::{Code, Failure};

/// The user agent of the command's requests.
pub const USER_AGENT: &str = concat!("roadstead-ctl/", env!("CARGO_PKG_VERSION"));
/// The field manager of applied objects.
pub const FIELD_MANAGER: &str = "roadstead-ctl";
/// Characters in a line of PEM, RFC 7468.
const PEM_LINE: usize = 64;

/// A worker cluster, reached by its administrator.
pub struct Worker {
    /// A client with the administrator's rights.
    pub client: Client,
    /// Address of the API server, as the administrator reaches it.
    pub server: String,
    /// Certificate authority of the API server, PEM.
    pub authority: String,
}

/// Connects to the manager and makes sure that the namespace exists.
pub async fn manager(args: &Manager) -> Result<Client, Failure> {
    let chosen = Chosen {
        kubeconfig: args.kubeconfig.as_deref(),
        context: args.context.as_deref(),
    };
    let client = local(chosen, "--manager-kubeconfig").await?;
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(client.clone());
    match namespaces.get_opt(&args.namespace).await {
        Ok(Some(_)) => Ok(client),
        Ok(None) => Err(Failure::new(
            format!("the management cluster has no namespace {}", args.namespace),
            "Secrets with credentials belong in the namespace of the manager",
            "name it with --namespace, or install the manager first",
        )
        .code(Code::NotFound)),
        // Why: an administrator with the right to write Secrets there need not have the right to read namespaces.
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(client),
        Err(error) => Err(Failure::request("the management cluster does not answer", &error)),
    }
}

/// Connects to a worker as its administrator.
pub async fn worker(kubeconfig: &Path, context: Option<&str>) -> Result<Worker, Failure> {
    let chosen = Chosen {
        kubeconfig: Some(kubeconfig),
        context,
    };
    let client = local(chosen, "--kubeconfig").await?;
    let config = connect::command_config(chosen)
        .await
        .map_err(|error| unconnected(&error, "--kubeconfig"))?;
    let Some(roots) = config.root_cert.filter(|roots| !roots.is_empty()) else {
        return Err(Failure::new(
            format!(
                "the kubeconfig {} names no certificate authority",
                kubeconfig.display()
            ),
            "the manager must be able to tell the worker's API server from an impostor",
            "add certificate-authority-data to the cluster entry of the kubeconfig",
        ));
    };
    Ok(Worker {
        client,
        server: config.cluster_url.to_string().trim_end_matches('/').to_owned(),
        authority: roots.iter().map(|der| pem(der)).collect(),
    })
}

pub(crate) async fn local(chosen: Chosen<'_>, flag: &str) -> Result<Client, Failure> {
    connect::command(chosen, USER_AGENT)
        .await
        .map_err(|error| unconnected(&error, flag))
}

/// The failure when a kubeconfig leads nowhere. `flag` names it on the command line.
fn unconnected(error: &connect::Error, flag: &str) -> Failure {
    let another = format!("name a kubeconfig with {flag} FILE");
    let connect::Error::Kubeconfig { source, .. } = error else {
        return if let connect::Error::NoCluster { .. } = error {
            let why = "KUBECONFIG is not set, there is no ~/.kube/config, and this does not run inside of a cluster";
            Failure::new(format!("no cluster to talk to for {flag}"), why, another)
        } else {
            let next = format!("correct what the reason names in the kubeconfig, or {another}");
            Failure::new(
                format!("the kubeconfig of {flag} cannot be used"),
                with_causes(error),
                next,
            )
        };
    };
    let next = match source {
        Unusable::NoContext { .. } => {
            let flag = flag.replace("kubeconfig", "context");
            format!("name one of them with {flag} NAME")
        }
        Unusable::Unreadable(_) => format!("{another} that exists and that you may read"),
        Unusable::Malformed(_) | Unusable::Content(_) => {
            format!("correct the file (kubectl config view reads it too), or {another}")
        }
    };
    Failure::new(error.to_string(), source.to_string(), next)
}

fn pem(der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let mut lines = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(PEM_LINE));
        lines.push_str(line);
        lines.push('\n');
        rest = more;
    }
    lines.push_str("-----END CERTIFICATE-----\n");
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: experience 3
    #[test]
    fn a_kubeconfig_that_leads_nowhere_is_named_with_what_to_change() {
        let failure = |source: Unusable| {
            let path = "east.kubeconfig".to_owned();
            unconnected(
                &connect::Error::Kubeconfig { path, source },
                "--manager-kubeconfig",
            )
        };
        for (source, next) in [
            (
                Unusable::Unreadable("No such file".to_owned()),
                "name a kubeconfig with --manager-kubeconfig FILE that exists and that you may read",
            ),
            (
                Unusable::NoContext {
                    wanted: "it has no context north".to_owned(),
                    known: "east".to_owned(),
                },
                "name one of them with --manager-context NAME",
            ),
            (
                Unusable::Malformed("line 1".to_owned()),
                "correct the file (kubectl config view reads it too)",
            ),
        ] {
            let why = source.to_string();
            let failure = failure(source);
            assert_eq!(failure.what, "the kubeconfig east.kubeconfig cannot be used");
            assert_eq!(failure.why, why);
            assert!(failure.next.starts_with(next), "{failure}");
        }
    }

    #[test]
    fn certificates_are_written_in_lines_of_64() {
        let text = pem(&[0; 60]);
        let lines: Vec<usize> = text.lines().map(str::len).collect();
        assert_eq!(lines, [27, 64, 16, 25]);
    }
}
