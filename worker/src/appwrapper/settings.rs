//! The administrator's settings of the controller: `appwrapper` of the `RoadsteadConfiguration`.

use std::collections::BTreeMap;

use roadstead_api::config::{AppWrapperConfig, NodeMarkEffect, WaitForPodsReady};
use roadstead_convert::appwrapper::Building;
use roadstead_core::appwrapper::autopilot::{Autopilot, Mark};
use roadstead_core::appwrapper::settings::Settings as Patience;
use roadstead_core::appwrapper::status::Identity;
use roadstead_core::name::ResourceName;
use roadstead_core::taint::Effect;
use roadstead_kubeio::failure::Failure;
use roadstead_serve::config::app_wrapper_limits;

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Time limits and retries.
    pub(super) patience: Patience,
    /// Labels and other settings for new children.
    pub(super) building: Building,
    autopilot: Autopilot,
    /// The queues whose lending limits follow the nodes.
    pub(super) slack_queues: Vec<String>,
    /// Kinds that may be created, as `apiVersion` and kind; `None` allows every kind that the account may create.
    allowed: Option<Vec<(String, String)>>,
    #[cfg(feature = "bugbank")]
    pub(crate) bug: Option<roadstead_core::dispatch::Bug>,
}

impl Settings {
    /// The settings of a configuration that may have no section for them.
    pub(crate) fn of(config: Option<&AppWrapperConfig>) -> Self {
        let none = AppWrapperConfig::default();
        let config = config.unwrap_or(&none);
        let autopilot = config.autopilot.as_ref().map(|given| {
            let mut autopilot = Autopilot::default();
            autopilot.injects = given.inject_anti_affinities.unwrap_or(autopilot.injects);
            autopilot.monitors = given.monitor_nodes.unwrap_or(autopilot.monitors);
            autopilot.weight = given.prefer_no_schedule_weight.unwrap_or(autopilot.weight);
            for (resource, marks) in &given.resource_taints {
                let marks = marks.iter().map(|mark| Mark {
                    key: mark.key.clone(),
                    value: mark.value.clone(),
                    effect: match mark.effect {
                        NodeMarkEffect::NoExecute => Effect::NoExecute,
                        NodeMarkEffect::NoSchedule => Effect::NoSchedule,
                        NodeMarkEffect::PreferNoSchedule => Effect::PreferNoSchedule,
                    },
                });
                autopilot
                    .marks
                    .insert(ResourceName::from(resource.as_str()), marks.collect());
            }
            autopilot
        });
        Self {
            patience: app_wrapper_limits(config),
            building: Building {
                scheduler: config.scheduler_name.clone(),
                autopilot: autopilot.clone(),
            },
            autopilot: autopilot.unwrap_or(Autopilot {
                injects: false,
                monitors: false,
                weight: 0,
                marks: BTreeMap::new(),
            }),
            slack_queues: { config.slack_queue_name.iter() }
                .chain(&config.slack_queue_names)
                .filter(|name| !name.is_empty())
                .cloned()
                .collect(),
            allowed: config.allowed_kinds.as_ref().map(|kinds| {
                let kinds = kinds.iter();
                kinds
                    .map(|kind| (kind.api_version(), kind.kind.clone()))
                    .collect()
            }),
            #[cfg(feature = "bugbank")]
            bug: None,
        }
    }

    /// A contradiction with the engine's own time limit for pods that are not ready. *Source*: `spec/appwrapper.md 5.5`, N-22.
    pub(crate) fn warning(&self, wait: Option<&WaitForPodsReady>) -> Option<String> {
        let timeout = wait?.timeout;
        let (warmup, deletion) = (self.patience.warmup_grace, self.patience.deletion_grace);
        (timeout <= warmup.saturating_add(deletion)).then(|| {
            format!(
                "waitForPodsReady.timeout is {timeout:#}, not more than appwrapper.faultTolerance.warmupGracePeriod {warmup:#} and \
                 deletionGracePeriod {deletion:#} together: the engine evicts AppWrappers before they have tried again"
            )
        })
    }

    pub(super) const fn autopilot(&self) -> &Autopilot {
        &self.autopilot
    }

    /// *Errors*: a child of this kind may not be created here.
    pub(super) fn allows(&self, identity: &Identity) -> Result<(), Failure> {
        let Some(allowed) = &self.allowed else {
            return Ok(());
        };
        let Identity {
            api_version, kind, ..
        } = identity;
        if allowed
            .iter()
            .any(|(version, of)| version == api_version && of == kind)
        {
            return Ok(());
        }
        let allowed: Vec<String> = allowed
            .iter()
            .map(|(version, kind)| format!("{kind} of {version}"))
            .collect();
        let allowed = allowed.join(", ");
        Err(Failure::lasting(format!(
            "{kind} of {api_version} is not among appwrapper.allowedKinds of this cluster ({allowed}): ask its administrator to add it"
        )))
    }
}

#[cfg(test)]
mod tests {
    use roadstead_api::config::WrappedKind;

    use super::*;

    /// Spec: appwrapper 5.5, N-22.
    #[test]
    fn an_engine_that_is_less_patient_is_warned_of() {
        let settings = Settings::of(None);
        let waiting = |timeout: &str| {
            let text = format!(
                "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nwaitForPodsReady: {{timeout: {timeout}}}\n"
            );
            let config = roadstead_serve::config::parse("test", &text, &[], "kueue-system").unwrap();
            settings.warning(config.wait_for_pods_ready.as_ref())
        };
        let told = waiting("4m").unwrap();
        assert!(told.contains("waitForPodsReady.timeout is 4m"), "{told}");
        assert!(waiting("15m").is_some(), "deletion takes time too");
        assert_eq!(waiting("16m"), None);
        assert_eq!(settings.warning(None), None);
    }

    /// Spec: appwrapper 4.2, N-17.
    #[test]
    fn only_kinds_of_the_list_may_be_created_when_there_is_one() {
        let pod = Identity {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: "p".to_owned(),
        };
        assert_eq!(Settings::of(None).allows(&pod), Ok(()));
        let kinds = ["Job.v1.batch", "Pod.v1"].map(|kind| WrappedKind::parse(kind).unwrap());
        let config = |kinds: &[WrappedKind]| AppWrapperConfig {
            allowed_kinds: Some(kinds.to_vec()),
            ..AppWrapperConfig::default()
        };
        assert_eq!(Settings::of(Some(&config(&kinds))).allows(&pod), Ok(()));
        let why = Settings::of(Some(&config(&kinds[..1]))).allows(&pod).unwrap_err();
        assert!(
            why.text()
                .starts_with("Pod of v1 is not among appwrapper.allowedKinds"),
            "{why}"
        );
    }

    /// Spec: appwrapper B114, B120.
    #[test]
    fn without_a_section_nothing_is_watched_for_autopilot() {
        let settings = Settings::of(None);
        assert!(settings.building.autopilot.is_none() && !settings.autopilot().monitors);
    }
}
