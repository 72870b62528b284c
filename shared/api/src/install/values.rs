//! The choices of an installation: the values of the charts and of `roadstead install --values`.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::rights::Process;
use crate::visibility::PROCESS_PORT;

/// Limit: useful replicas; one leads, the others serve webhooks and wait.
const REPLICAS_MAX: u16 = 5;
/// The least port that a process without privileges may listen on.
const PORT_MIN: u16 = 1024;

/// Keys of the `Configuration` that must be as the installation writes them, because its other objects depend on them; and where to choose
/// them. The charts check the same.
pub const FIXED: [(&[&str], &str); 4] = [
    (&["health", "healthProbeBindAddress"], "ports.health"),
    (&["webhook", "port"], "ports.webhook"),
    (&["visibilityServer", "bindPort"], "ports.visibility"),
    (&["namespace"], "the namespace of the installation"),
];

/// The version of the `Configuration` without key [`NEWER`].
pub const OLDER: &str = "config.kueue.x-k8s.io/v1beta1";
/// The key that the installation does not write into a `Configuration` of version [`OLDER`], whose reader refuses it.
pub const NEWER: &str = "visibilityServer";

/// The values of an installation. Every key is optional; an unknown one is an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Values {
    /// Where the image comes from.
    pub image: Image,
    /// How many replicas run, 1 to 5. One leads; the others serve webhooks and take over.
    #[schemars(range(min = 1, max = 5))]
    pub replicas: u16,
    /// Name of the service account of the process.
    pub service_account: String,
    /// The ports on which the process listens.
    pub ports: Ports,
    /// Parts to run, as for `--controllers`: `*` is all, `NAME` adds one, `-NAME` takes one out.
    pub controllers: Vec<String>,
    /// Format of the log lines.
    pub log_format: LogFormat,
    /// Merged over the `Configuration` that the chart writes, key by key; the keys are those of Kueue's configuration file.
    pub configuration: Map<String, Value>,
    /// Merged over the `RoadsteadConfiguration` that the chart writes, key by key.
    pub roadstead_configuration: Map<String, Value>,
    /// Requests and limits of the container.
    pub resources: Map<String, Value>,
    /// Nodes on which the pods may run, by labels.
    pub node_selector: Map<String, Value>,
    /// Taints that the pods tolerate.
    pub tolerations: Vec<Value>,
    /// Priority class of the pods. The default exists in every cluster.
    pub priority_class: String,
    /// A `PodDisruptionBudget`, so that a drained node never takes the last replica.
    pub pod_disruption_budget: Switch,
    /// A `NetworkPolicy` that allows only traffic to the ports of the process, and from it only DNS and HTTPS.
    pub network_policy: NetworkPolicy,
    /// A `ServiceMonitor` for the Prometheus operator, where the cluster serves that kind.
    pub service_monitor: Switch,
    /// Roles for users: `kueue-batch-admin-role` and `kueue-batch-user-role`, which an administrator binds; also an editor and a
    /// viewer role for each kind. The cluster's own `view`, `edit` and `admin` include the viewers.
    pub roles_for_people: Switch,
}

impl Default for Values {
    fn default() -> Self {
        let resources = serde_json::json!({
            "requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"},
        });
        Self {
            image: Image::default(),
            replicas: 2,
            service_account: crate::rights::ACCOUNT.to_owned(),
            ports: Ports::default(),
            controllers: vec!["*".to_owned()],
            log_format: LogFormat::Json,
            configuration: Map::new(),
            roadstead_configuration: Map::new(),
            resources: resources.as_object().cloned().unwrap_or_default(),
            node_selector: Map::new(),
            tolerations: Vec::new(),
            priority_class: "system-cluster-critical".to_owned(),
            pod_disruption_budget: Switch::default(),
            network_policy: NetworkPolicy::default(),
            service_monitor: Switch::default(),
            roles_for_people: Switch::default(),
        }
    }
}

/// Where the image comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Image {
    /// Registry and folder, such as `registry.example/roadstead`; the name of the program follows.
    pub repository: String,
    /// Tag, or `sha256:` and a digest.
    pub tag: String,
    /// When the node pulls the image.
    pub pull_policy: PullPolicy,
}

impl Default for Image {
    fn default() -> Self {
        Self {
            repository: "roadstead".to_owned(),
            tag: concat!("v", env!("CARGO_PKG_VERSION")).to_owned(),
            pull_policy: PullPolicy::IfNotPresent,
        }
    }
}

impl Image {
    /// The reference of the image of a process.
    pub fn reference(&self, process: Process) -> String {
        let separator = if self.tag.starts_with("sha256:") { '@' } else { ':' };
        let Self { repository, tag, .. } = self;
        format!("{repository}/{}{separator}{tag}", process.name())
    }
}

/// When the node pulls the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    /// At every start of a pod.
    Always,
    /// When the node does not have it.
    IfNotPresent,
    /// The node must have it.
    Never,
}

/// Format of the log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// Text for readers.
    Text,
}

impl LogFormat {
    /// The value for `--log-format`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Text => "text",
        }
    }
}

/// The ports on which the process listens, 1024 or higher, all different.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Ports {
    /// `/healthz` and `/readyz`.
    pub health: u16,
    /// `/metrics`.
    pub metrics: u16,
    /// Port of the webhooks.
    pub webhook: u16,
    /// The visibility API.
    pub visibility: u16,
}

impl Default for Ports {
    fn default() -> Self {
        Self {
            health: 8081,
            metrics: 8443,
            webhook: 9443,
            visibility: PROCESS_PORT,
        }
    }
}

/// Whether something is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Switch {
    /// Whether it is installed.
    pub enabled: bool,
}

impl Default for Switch {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// The `NetworkPolicy`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NetworkPolicy {
    /// Whether it is installed.
    pub enabled: bool,
    /// Ports on which API servers answer: the cluster's own, and on a manager those of its workers.
    pub api_servers: Vec<NetworkPort>,
}

/// A port in a `NetworkPolicy`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkPort {
    /// Its number.
    pub port: u16,
    /// `TCP` or `UDP`.
    pub protocol: String,
}

impl Default for NetworkPolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            api_servers: [443, 6443]
                .map(|port| NetworkPort {
                    port,
                    protocol: "TCP".to_owned(),
                })
                .into(),
        }
    }
}

/// Why values are refused: every reason at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub Vec<String>);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl std::error::Error for Refusal {}

impl Values {
    /// The defaults with the chosen values merged over them, key by key, as Helm does.
    ///
    /// *Errors*: an unknown key, or a value of another type.
    pub fn over_defaults(chosen: &Map<String, Value>) -> Result<Self, serde_json::Error> {
        let mut values = serde_json::to_value(Self::default())?;
        merge(&mut values, chosen);
        serde_json::from_value(values)
    }

    /// Whether `configuration` is of version [`OLDER`].
    pub(super) fn is_older(&self) -> bool {
        let version = self.configuration.get("apiVersion");
        version.and_then(Value::as_str) == Some(OLDER)
    }

    /// Checks the values for contradictions, also with the `Configuration` that the installation writes for them; each error names the key
    /// and the allowed values.
    ///
    /// *Errors*: all of them at once.
    pub(super) fn check(&self, written: &Value) -> Result<(), Refusal> {
        let mut wrong = Vec::new();
        if !(1..=REPLICAS_MAX).contains(&self.replicas) {
            wrong.push(format!(
                "replicas is {}; allowed are 1 to {REPLICAS_MAX}",
                self.replicas
            ));
        }
        let ports = self.ports.named();
        for (at, (name, port)) in ports.iter().enumerate() {
            if *port < PORT_MIN {
                wrong.push(format!(
                    "ports.{name} is {port}; the process has no right to ports below {PORT_MIN}"
                ));
            }
            if let Some((other, _)) = ports[..at].iter().find(|(_, taken)| taken == port) {
                wrong.push(format!("ports.{name} and ports.{other} are both {port}"));
            }
        }
        let elects = self
            .configuration
            .get("leaderElection")
            .map(|section| &section["leaderElect"]);
        if self.replicas > 1 && elects == Some(&Value::Bool(false)) {
            wrong.push(format!(
                "configuration.leaderElection.leaderElect is false with {} replicas: all would decide at once; set replicas to 1",
                self.replicas
            ));
        }
        for (path, instead) in FIXED {
            let Some((found, set)) = differing(path, &self.configuration, written) else {
                continue;
            };
            wrong.push(format!(
                "configuration.{} is {found}, but the installation sets {set}; leave it out and use {instead}",
                path.join(".")
            ));
        }
        if self.is_older() && self.ports.visibility != PROCESS_PORT {
            wrong.push(format!(
                "ports.visibility is {}, but a configuration of version {OLDER} cannot choose it; allowed is {PROCESS_PORT}, or write \
                 configuration in version v1beta2",
                self.ports.visibility
            ));
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(Refusal(wrong))
        }
    }
}

/// The chosen value below the path and the one that the installation writes, if they differ.
fn differing(path: &[&str], chosen: &Map<String, Value>, written: &Value) -> Option<(String, String)> {
    let (first, rest) = path.split_first()?;
    let (mut found, mut set) = (chosen.get(*first)?, written.get(*first)?);
    for key in rest {
        // Why not for anything but an object: the merge would put it in place of the whole section.
        let (true, Some(below)) = (found.is_object(), set.get(*key)) else {
            break;
        };
        (found, set) = (found.get(*key)?, below);
    }
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    (text(found) != text(set)).then(|| (text(found), text(set)))
}

/// Merges objects key by key; anything else replaces.
pub(super) fn merge(into: &mut Value, over: &Map<String, Value>) {
    for (key, value) in over {
        match (&mut into[key], value) {
            (held @ Value::Object(_), Value::Object(over)) => merge(held, over),
            (held, value) => held.clone_from(value),
        }
    }
}

impl Ports {
    /// The ports, each with its key.
    pub const fn named(&self) -> [(&'static str, u16); 4] {
        [
            ("health", self.health),
            ("metrics", self.metrics),
            ("webhook", self.webhook),
            ("visibility", self.visibility),
        ]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;
    use crate::install::Place;

    fn refused(values: Value) -> Vec<String> {
        let values: Values = from_value(values).unwrap();
        let place = Place::of(Process::Worker, "kueue-system", &values);
        place.err().map(|refusal| refusal.0).unwrap_or_default()
    }

    #[test]
    fn the_defaults_fit_together() {
        assert_eq!(refused(json!({})), Vec::<String>::new());
    }

    #[test]
    fn values_that_contradict_each_other_are_refused_all_at_once() {
        let wrong = refused(json!({
            "replicas": 9, "ports": {"health": 80, "metrics": 9443},
            "configuration": {"leaderElection": {"leaderElect": false}, "webhook": {"port": 1}},
        }));
        assert_eq!(
            wrong,
            [
                "replicas is 9; allowed are 1 to 5",
                "ports.health is 80; the process has no right to ports below 1024",
                "ports.webhook and ports.metrics are both 9443",
                "configuration.leaderElection.leaderElect is false with 9 replicas: all would decide at once; set replicas to 1",
                "configuration.webhook.port is 1, but the installation sets 9443; leave it out and use ports.webhook",
            ]
        );
    }

    #[test]
    fn the_configuration_file_of_kueue_is_accepted_if_it_says_what_the_installation_sets() {
        let mut kueue = json!({
            "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "namespace": "kueue-system",
            "health": {"healthProbeBindAddress": ":8081"}, "metrics": {"bindAddress": ":8443"},
            "webhook": {"port": 9443, "certDir": "/certificates"}, "visibilityServer": {"bindPort": 8082},
            "leaderElection": {"leaderElect": true, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
        });
        assert_eq!(refused(json!({"configuration": kueue})), Vec::<String>::new());
        kueue["namespace"] = "kueue".into();
        kueue["health"]["healthProbeBindAddress"] = ":18081".into();
        kueue["visibilityServer"] = Value::Null;
        assert_eq!(
            refused(json!({"configuration": kueue})),
            [
                "configuration.health.healthProbeBindAddress is :18081, but the installation sets :8081; leave it out and use ports.health",
                "configuration.visibilityServer.bindPort is null, but the installation sets {\"bindPort\":8082}; leave it out and use \
                 ports.visibility",
                "configuration.namespace is kueue, but the installation sets kueue-system; leave it out and use the namespace of the \
                 installation",
            ]
        );
    }

    #[test]
    fn a_configuration_of_the_older_version_gets_no_key_that_only_the_newer_one_has() {
        let installed = |configuration: Value| {
            let values: Values = from_value(json!({"configuration": configuration})).unwrap();
            let config = Place::of(Process::Worker, "kueue-system", &values)
                .unwrap()
                .config;
            let (theirs, _ours) = config.split_once("\n---\n").unwrap();
            serde_json::from_str::<Value>(theirs).unwrap()
        };
        let older = json!({"apiVersion": OLDER, "kind": "Configuration"});
        assert_eq!(installed(older.clone()).get(NEWER), None);
        assert!(installed(json!({})).get(NEWER).is_some());
        assert_eq!(
            refused(json!({"configuration": older, "ports": {"visibility": 18_082}})),
            [
                "ports.visibility is 18082, but a configuration of version config.kueue.x-k8s.io/v1beta1 cannot choose it; allowed is \
                 8082, or write configuration in version v1beta2"
            ]
        );
    }

    #[test]
    fn what_is_chosen_is_merged_over_the_defaults_key_by_key() {
        let chosen = json!({"resources": {"requests": {"cpu": "1"}}, "ports": {"health": 1081}});
        let values = Values::over_defaults(chosen.as_object().unwrap()).unwrap();
        let kept = &Values::default().resources["limits"];
        assert_eq!(&values.resources["limits"], kept);
        assert_eq!(
            values.resources["requests"],
            json!({"cpu": "1", "memory": "128Mi"})
        );
        assert_eq!((values.ports.health, values.ports.webhook), (1081, 9443));
        let wrong = json!({"replica": 2});
        let error = Values::over_defaults(wrong.as_object().unwrap()).unwrap_err();
        assert!(error.to_string().contains("unknown field `replica`"), "{error}");
    }

    #[test]
    fn an_unknown_key_is_refused_by_name() {
        let error = from_value::<Values>(json!({"replica": 2})).unwrap_err();
        assert!(error.to_string().contains("unknown field `replica`"), "{error}");
    }

    #[test]
    fn an_image_is_named_by_tag_or_by_digest() {
        let mut image = Image::default();
        assert!(
            image
                .reference(Process::Worker)
                .starts_with("roadstead/roadstead-worker:v")
        );
        image.tag = "sha256:0123".to_owned();
        assert_eq!(
            image.reference(Process::Manager),
            "roadstead/roadstead-manager@sha256:0123"
        );
    }
}
