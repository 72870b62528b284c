//! One installation with all choices made, and its configuration file.

use serde_json::{Value, json};

use super::values::{NEWER, Refusal, Values, merge};
use crate::rights::Process;

/// Group of the configuration file.
const CONFIG_API: &str = "config.kueue.x-k8s.io/v1beta2";
/// Group of the second document of the configuration file.
const ROADSTEAD_CONFIG_API: &str = "config.roadstead.dev/v1alpha1";

/// An installation with all choices made. Texts and numbers may be placeholders of a chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Namespace of the process.
    pub namespace: String,
    /// Name of the service account.
    pub account: String,
    /// Reference of the image.
    pub image: String,
    /// When the node pulls the image.
    pub pull_policy: Value,
    /// How many replicas run.
    pub replicas: Value,
    /// Ports of the process.
    pub ports: Ports,
    /// The value of `--controllers`.
    pub controllers: String,
    /// The value of `--log-format`.
    pub log_format: String,
    /// The whole configuration file.
    pub config: String,
    /// Changes with the configuration file, so that the pods are replaced.
    pub config_digest: String,
    /// Requests and limits.
    pub resources: Value,
    /// Node labels.
    pub node_selector: Value,
    /// Tolerated taints.
    pub tolerations: Value,
    /// Priority class of the pods.
    pub priority_class: String,
    /// Ports of API servers, as in a `NetworkPolicy`.
    pub api_servers: Value,
}

/// The ports of a place: numbers, or placeholders of a chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// `/healthz` and `/readyz`.
    pub health: Value,
    /// `/metrics`.
    pub metrics: Value,
    /// The admission webhooks.
    pub webhook: Value,
    /// The visibility API.
    pub visibility: Value,
}

impl Ports {
    fn of(values: &Values) -> Self {
        Self {
            health: values.ports.health.into(),
            metrics: values.ports.metrics.into(),
            webhook: values.ports.webhook.into(),
            visibility: values.ports.visibility.into(),
        }
    }
}

impl Place {
    /// The installation for these values in a namespace.
    ///
    /// *Errors*: values that contradict each other.
    pub fn of(process: Process, namespace: &str, values: &Values) -> Result<Self, Refusal> {
        let ports = Ports::of(values);
        let [mut theirs, mut ours] = configuration(namespace, &ports);
        if values.is_older()
            && let Some(keys) = theirs.as_object_mut()
        {
            keys.remove(NEWER);
        }
        values.check(&theirs)?;
        merge(&mut theirs, &values.configuration);
        merge(&mut ours, &values.roadstead_configuration);
        // Why JSON: it is YAML, and needs no writer.
        let config = format!("{theirs:#}\n---\n{ours:#}\n");
        Ok(Self {
            namespace: namespace.to_owned(),
            account: values.service_account.clone(),
            image: values.image.reference(process),
            pull_policy: json!(values.image.pull_policy),
            replicas: values.replicas.into(),
            ports,
            controllers: values.controllers.join(","),
            log_format: values.log_format.name().to_owned(),
            config_digest: digest(&config),
            config,
            resources: values.resources.clone().into(),
            node_selector: values.node_selector.clone().into(),
            tolerations: values.tolerations.clone().into(),
            priority_class: values.priority_class.clone(),
            api_servers: json!(values.network_policy.api_servers),
        })
    }
}

/// A short text that differs when `text` does: FNV-1a, 64 bits.
fn digest(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// The two documents of the configuration file as an installation writes them, before the values are merged over them.
pub fn configuration(namespace: &str, ports: &Ports) -> [Value; 2] {
    let address = |port: &Value| {
        format!(
            ":{}",
            port.as_str().map_or_else(|| port.to_string(), str::to_owned)
        )
    };
    let theirs = json!({
        "apiVersion": CONFIG_API,
        "kind": "Configuration",
        "namespace": namespace,
        "health": {"healthProbeBindAddress": address(&ports.health)},
        "metrics": {"bindAddress": address(&ports.metrics)},
        "webhook": {"port": ports.webhook},
        "visibilityServer": {"bindPort": ports.visibility},
        "leaderElection": {"leaderElect": true},
    });
    let ours = json!({"apiVersion": ROADSTEAD_CONFIG_API, "kind": "RoadsteadConfiguration"});
    [theirs, ours]
}
