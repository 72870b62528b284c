//! Rules of `appwrapper` of the `RoadsteadConfiguration`. Source: spec/appwrapper.md 2.2.

use roadstead_api::config::{AppWrapperConfig, Config};
use roadstead_core::appwrapper::settings::Settings;
use roadstead_kinds::rows::APP_WRAPPER;

use super::super::Findings;

pub(super) fn check(config: &Config, findings: &mut Findings) {
    let Some(written) = &config.roadstead.app_wrapper else {
        return;
    };
    // Why: only the webhooks of the integration check what a user wraps.
    let name = APP_WRAPPER.framework;
    if !config.integrations.frameworks.iter().any(|listed| listed == name) {
        findings.add(
            "appwrapper",
            format!(
                "integrations.frameworks does not list \"{name}\", so no webhook would check what users wrap; add \"{name}\" to \
                 integrations.frameworks, or remove this section"
            ),
        );
    }
    for (key, why) in app_wrapper_limits(written).problems() {
        findings.add(format!("appwrapper.faultTolerance.{key}"), why);
    }
}

/// The time limits and retries of `AppWrapper`s: those of the configuration, and the defaults for what it leaves out.
pub fn app_wrapper_limits(config: &AppWrapperConfig) -> Settings {
    let given = &config.fault_tolerance;
    let default = Settings::default();
    Settings {
        admission_grace: given.admission_grace_period.unwrap_or(default.admission_grace),
        warmup_grace: given.warmup_grace_period.unwrap_or(default.warmup_grace),
        recovery_grace: given.recovery_grace_period,
        failure_grace: given.failure_grace_period.unwrap_or(default.failure_grace),
        retry_pause: given.reset_pause.unwrap_or(default.retry_pause),
        retry_limit: given.retry_limit.unwrap_or(default.retry_limit),
        deletion_grace: given.deletion_grace_period.unwrap_or(default.deletion_grace),
        success_ttl: given.success_ttl_ceiling.unwrap_or(default.success_ttl),
        ceiling: given.grace_period_ceiling.unwrap_or(default.ceiling),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::parse;

    /// Parses the configuration of a worker with these frameworks and this section `appwrapper`.
    ///
    /// *Errors*: the text that an administrator reads.
    fn read(frameworks: &str, section: &str) -> Result<(), String> {
        let text = format!(
            "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations: {{frameworks: [{frameworks}]}}\n---\n\
             apiVersion: config.roadstead.dev/v1alpha1\nkind: RoadsteadConfiguration\nappwrapper: {section}\n"
        );
        parse("test", &text, &[], "kueue-system")
            .map(|_config| ())
            .map_err(|error| error.to_string())
    }

    /// Spec: appwrapper B84.
    #[test]
    fn limits_that_contradict_each_other_are_a_problem_of_the_file() {
        let limits = "{faultTolerance: {admissionGracePeriod: 10m, warmupGracePeriod: 1m}}";
        let found = read("workload.codeflare.dev/appwrapper", limits).unwrap_err();
        assert!(
            found.contains("appwrapper.faultTolerance.admissionGracePeriod")
                && found.contains("must not be longer than warmupGracePeriod"),
            "{found}"
        );
    }

    /// Spec: appwrapper 3.4
    #[test]
    fn no_appwrappers_are_run_that_no_webhook_has_checked() {
        let found = read("batch/job", "{}").unwrap_err();
        let next = "add \"workload.codeflare.dev/appwrapper\" to integrations.frameworks";
        assert!(found.contains("appwrapper") && found.contains(next), "{found}");
        assert_eq!(read("batch/job, workload.codeflare.dev/appwrapper", "{}"), Ok(()));
    }
}
