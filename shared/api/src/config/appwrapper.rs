//! `appwrapper` of the `RoadsteadConfiguration`: the controller of `AppWrappers` in a worker.
//!
//! Keys are those of the reference operator's file where it has them. *Source*: `spec/appwrapper.md 2.2, 4.2, Appendix A`.

use std::collections::BTreeMap;
use std::fmt;

use jiff::SignedDuration;
use serde::Deserialize;
use serde::de::{self, Deserializer};

use super::scalar::NanosOrText;

/// The section. Every key is optional; an unknown one is an error. The section is refused unless `integrations.frameworks` lists
/// `AppWrappers`: the webhooks of that integration check what users wrap.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AppWrapperConfig {
    /// Kinds that may be wrapped, such as `Job.v1.batch` or `Pod.v1`; absent means any kind that the worker's account may create.
    pub allowed_kinds: Option<Vec<WrappedKind>>,
    /// Whether users may only wrap what they may create themselves; default true. The webhooks of manager and worker read it.
    #[serde(rename = "userRBACAdmissionCheck")]
    pub user_rbac_admission_check: Option<bool>,
    /// Whether only users that may write the status of Workloads may start a queued `AppWrapper` or change its `podSetInfos`; default
    /// false. The webhooks of manager and worker read it.
    pub protect_admission: Option<bool>,
    /// Queue of new `AppWrappers` without a queue label; absent is none. The webhooks of manager and worker read it.
    pub default_queue_name: Option<String>,
    /// Pod sets that one `AppWrapper` may have, 1 to 18; default 8. The webhooks of manager and worker read it.
    pub max_pod_sets: Option<PodSetsMax>,
    /// Scheduler of pods that name none; absent leaves that to the cluster.
    pub scheduler_name: Option<String>,
    /// The `ClusterQueue` that lends its cohort less while nodes are out of service; absent is none. Needs `autopilot`.
    pub slack_queue_name: Option<String>,
    /// Further such queues, for other flavors.
    #[serde(default)]
    pub slack_queue_names: Vec<String>,
    /// Time limits and retries of the controller.
    #[serde(default)]
    pub fault_tolerance: FaultTolerance,
    /// How pods avoid broken nodes; absent is off.
    pub autopilot: Option<AutopilotConfig>,
}

/// Time limits and retries of the controller: durations such as `90s`, or whole nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct FaultTolerance {
    /// Time for all children to be created and all pods to exist; default 1m.
    #[serde(deserialize_with = "duration")]
    pub admission_grace_period: Option<SignedDuration>,
    /// Time for all pods to run, from the same moment; default 5m.
    #[serde(deserialize_with = "duration")]
    pub warmup_grace_period: Option<SignedDuration>,
    /// Time for a lost pod to come back; default as `warmupGracePeriod`.
    #[serde(deserialize_with = "duration")]
    pub recovery_grace_period: Option<SignedDuration>,
    /// Time for a failed pod to be replaced; default 1m.
    #[serde(deserialize_with = "duration")]
    pub failure_grace_period: Option<SignedDuration>,
    /// Pause between two attempts; default 90s.
    #[serde(deserialize_with = "duration")]
    pub reset_pause: Option<SignedDuration>,
    /// Number of retries; default 3.
    pub retry_limit: Option<i32>,
    /// Time before deletion becomes forceful; default 10m.
    #[serde(deserialize_with = "duration")]
    pub deletion_grace_period: Option<SignedDuration>,
    /// Longest time that children stay after success; default 168h.
    #[serde(rename = "successTTLCeiling", deserialize_with = "duration")]
    pub success_ttl_ceiling: Option<SignedDuration>,
    /// Upper limit of all other periods; default 24h.
    #[serde(deserialize_with = "duration")]
    pub grace_period_ceiling: Option<SignedDuration>,
}

/// How pods avoid broken nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AutopilotConfig {
    /// Whether new pods avoid marked nodes; default true.
    pub inject_anti_affinities: Option<bool>,
    /// Whether running pods leave marked nodes; default true.
    pub monitor_nodes: Option<bool>,
    /// Weight of the pods' preferences; default 50.
    pub prefer_no_schedule_weight: Option<i32>,
    /// Node labels that mark a resource as broken, by resource; a listed resource replaces its default.
    pub resource_taints: BTreeMap<String, Vec<NodeMark>>,
}

/// A node label that marks a resource as broken.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeMark {
    /// Key of the label.
    pub key: String,
    /// Its value.
    pub value: String,
    /// What the mark means.
    pub effect: NodeMarkEffect,
}

/// What a mark means for pods that use the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum NodeMarkEffect {
    /// No such pod starts there, and running ones leave.
    NoExecute,
    /// No such pod starts there.
    NoSchedule,
    /// Such pods prefer other nodes.
    PreferNoSchedule,
}

/// How many pod sets one `AppWrapper` may have: 1 to 18, the limit of a Workload. *Source*: `spec/appwrapper.md N-16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodSetsMax(usize);

impl PodSetsMax {
    /// The number.
    pub const fn get(self) -> usize {
        self.0
    }
}

impl Default for PodSetsMax {
    /// As in the reference. *Source*: `spec/appwrapper.md 3.3 V10`.
    fn default() -> Self {
        Self(8)
    }
}

impl<'de> Deserialize<'de> for PodSetsMax {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let most = usize::deserialize(deserializer)?;
        if (1..=18).contains(&most) {
            return Ok(Self(most));
        }
        Err(de::Error::custom(format!(
            "is {most}, must be from 1 to 18, which is what a Workload takes"
        )))
    }
}

/// A kind written `Kind.version.group`, or `Kind.version` for the core group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WrappedKind {
    /// `Job`.
    pub kind: String,
    version: String,
    group: String,
}

impl WrappedKind {
    /// Parses it; `None` when kind or version is missing.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once('.')?;
        let (version, group) = rest.split_once('.').unwrap_or((rest, ""));
        (!kind.is_empty() && !version.is_empty()).then(|| Self {
            kind: kind.to_owned(),
            version: version.to_owned(),
            group: group.to_owned(),
        })
    }

    /// `batch/v1`, or `v1` for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

impl fmt::Display for WrappedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dot = if self.group.is_empty() { "" } else { "." };
        write!(f, "{}.{}{dot}{}", self.kind, self.version, self.group)
    }
}

impl<'de> Deserialize<'de> for WrappedKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || {
            de::Error::custom(format!(
                "`{text}` must have the form Kind.version.group, such as Job.v1.batch or Pod.v1"
            ))
        };
        Self::parse(&text).ok_or_else(wrong)
    }
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SignedDuration>, D::Error> {
    let duration = Option::<NanosOrText>::deserialize(deserializer)?;
    Ok(duration.map(|NanosOrText(duration)| duration))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: appwrapper 4.2, 8.1, N-16.
    #[test]
    fn durations_are_texts_or_nanoseconds_and_unknown_keys_are_errors() {
        let read = |text: &str| serde_json::from_str::<AppWrapperConfig>(text);
        let read_one = read(
            r#"{
                "allowedKinds": ["Job.v1.batch", "Pod.v1"], "schedulerName": "gang", "slackQueueName": "spare", "maxPodSets": 12, "protectAdmission": true,
                "faultTolerance": {"resetPause": 90000000000, "warmupGracePeriod": "2m", "successTTLCeiling": "1h", "retryLimit": 1},
                "autopilot": {"resourceTaints": {"example.com/npu": [{"key": "k", "value": "bad", "effect": "NoExecute"}]}}
            }"#,
        )
        .unwrap();
        let patience = &read_one.fault_tolerance;
        assert_eq!(patience.reset_pause, Some(SignedDuration::from_secs(90)));
        assert_eq!(patience.warmup_grace_period, Some(SignedDuration::from_mins(2)));
        assert_eq!(patience.admission_grace_period, None);
        let kinds: Vec<String> = read_one
            .allowed_kinds
            .iter()
            .flatten()
            .map(WrappedKind::api_version)
            .collect();
        assert_eq!(kinds, ["batch/v1", "v1"]);
        assert_eq!(read_one.slack_queue_name.as_deref(), Some("spare"));
        assert_eq!(read_one.protect_admission, Some(true));
        assert_eq!(read_one.max_pod_sets.map(PodSetsMax::get), Some(12));
        for wrong in [
            r#"{"faultTolerance": {"warmup": "1m"}}"#,
            r#"{"allowedKinds": ["Job"]}"#,
            r#"{"slackQueue": "q"}"#,
            r#"{"maxPodSets": 19}"#,
            r#"{"maxPodSets": 0}"#,
            r#"{"autopilot": {"resourceTaints": {"r": [{"key": "k", "value": "v", "effect": "Evict"}]}}}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
