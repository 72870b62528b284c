//! The timers and limits of one `AppWrapper`: the administrator's settings, adjusted by its annotations.
//!
//! *Source*: `spec/appwrapper.md 2.2`.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use roadstead_api::config::parse_go_duration;
use roadstead_api::constants::labels::QUEUE_NAME;
use roadstead_core::appwrapper::settings::{Knobs, Settings};
use roadstead_jobs::{json, labels};
use serde_json::Value;

/// Prefix of the annotations that adjust one `AppWrapper`.
const PREFIX: &str = "workload.codeflare.dev.appwrapper/";
const ADMISSION: &str = "admissionGracePeriodDuration";
const WARMUP: &str = "warmupGracePeriodDuration";
const RECOVERY: &str = "recoveryGracePeriodDuration";
const FAILURE: &str = "failureGracePeriodDuration";
const PAUSE: &str = "retryPausePeriodDuration";
const LIMIT: &str = "retryLimit";
const FORCE: &str = "forcefulDeletionGracePeriodDuration";
const ON_FAILURE: &str = "deletionOnFailureGracePeriodDuration";
const SUCCESS_TTL: &str = "successTTLDuration";
const TERMINAL: &str = "terminalExitCodes";
const RETRYABLE: &str = "retryableExitCodes";
const DURATIONS: [&str; 8] = [
    ADMISSION,
    WARMUP,
    RECOVERY,
    FAILURE,
    PAUSE,
    FORCE,
    ON_FAILURE,
    SUCCESS_TTL,
];

/// The knobs of an `AppWrapper` with these annotations. A malformed annotation counts as absent.
pub fn knobs(settings: &Settings, annotations: &BTreeMap<String, String>) -> Knobs {
    let said = |key: &str| annotations.get(&format!("{PREFIX}{key}")).map(String::as_str);
    let duration = |key: &str| said(key).and_then(|text| parse_go_duration(text).ok());
    let period = |key: &str, default| settings.clamped(duration(key).unwrap_or(default));
    let default = Knobs::of(settings);
    let warmup_grace = period(WARMUP, settings.warmup_grace);
    let recovery = settings.recovery_grace.unwrap_or(warmup_grace);
    let is_shorter = |ttl: &SignedDuration| *ttl > SignedDuration::ZERO && *ttl < settings.success_ttl;
    Knobs {
        admission_grace: period(ADMISSION, settings.admission_grace),
        warmup_grace,
        recovery_grace: period(RECOVERY, recovery),
        failure_grace: period(FAILURE, settings.failure_grace),
        retry_pause: period(PAUSE, settings.retry_pause),
        retry_limit: { said(LIMIT) }
            .and_then(|text| text.parse().ok())
            .unwrap_or(default.retry_limit),
        force_after: period(FORCE, settings.deletion_grace),
        deletion_on_failure: period(ON_FAILURE, SignedDuration::ZERO),
        success_ttl: duration(SUCCESS_TTL)
            .filter(is_shorter)
            .unwrap_or(default.success_ttl),
        terminal_codes: codes(said(TERMINAL).unwrap_or_default()),
        retryable_codes: codes(said(RETRYABLE).unwrap_or_default()),
    }
}

/// The exit codes in a comma-separated text. Unlike the anchor: blanks around a code do not drop it (`spec/appwrapper.md` N-7).
fn codes(text: &str) -> BTreeSet<i32> {
    text.split(',')
        .filter_map(|code| code.trim().parse().ok())
        .collect()
}

/// Probable mistakes in an `AppWrapper`, as warnings in the answer to its creation. None of them is refused.
///
/// *Source*: `spec/appwrapper.md N-8`.
pub fn warnings(meta: &ObjectMeta, data: &Value) -> Vec<String> {
    let mut warnings = tuning_warnings(meta.annotations.as_ref().unwrap_or(&BTreeMap::new()));
    warnings.extend(queue_warnings(meta, data));
    warnings
}

/// The warning about a child with a queue in an `AppWrapper` without a queue. Such a child waits for its own queue, and the `AppWrapper`
/// counts the wait as a fault.
fn queue_warnings(meta: &ObjectMeta, data: &Value) -> Option<String> {
    let components = json::list(data, &["spec", "components"]).iter().enumerate();
    let mut named = components.filter_map(|(index, component)| {
        let queue = json::text(component, &["template", "metadata", "labels", QUEUE_NAME])?;
        (!queue.is_empty()).then(|| format!("spec.components[{index}].template ({queue})"))
    });
    let first = named.next().filter(|_| labels::queue(meta).is_none())?;
    Some(format!(
        "{first} has label {QUEUE_NAME} and the AppWrapper has none: the child waits for its queue while the AppWrapper counts that \
         as a fault; put the label on the AppWrapper"
    ))
}

fn tuning_warnings(annotations: &BTreeMap<String, String>) -> Vec<String> {
    let tuning = annotations
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, value)));
    let mut warnings = Vec::new();
    for (key, value) in tuning {
        let told = |why: &str| format!("annotation {PREFIX}{key}: {why}");
        if DURATIONS.contains(&key) {
            match parse_go_duration(value) {
                Err(_) => warnings.push(told(
                    "the value is not a duration such as 90s or 1h30m and is ignored",
                )),
                Ok(period) if period.is_negative() => warnings.push(told("a negative duration counts as 0s")),
                Ok(_) => {}
            }
        } else if key == LIMIT {
            if value.parse::<i32>().is_err() {
                warnings.push(told("the value is not a whole number and is ignored"));
            }
        } else if [TERMINAL, RETRYABLE].contains(&key) {
            if value.split(',').any(|code| code.trim().parse::<i32>().is_err()) {
                warnings.push(told(
                    "entries between commas that are not whole numbers are ignored",
                ));
            }
        } else {
            let known = DURATIONS.iter().chain([&LIMIT, &TERMINAL, &RETRYABLE]);
            let known: Vec<&str> = known.copied().collect();
            let why = format!("no such setting; it is ignored. Known are {}", known.join(", "));
            warnings.push(told(&why));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| (format!("{PREFIX}{key}"), (*value).to_owned()))
            .collect()
    }

    fn said(pairs: &[(&str, &str)]) -> Knobs {
        knobs(&Settings::default(), &annotations(pairs))
    }

    /// Spec: appwrapper B82.
    #[test]
    fn each_period_follows_its_annotation_within_its_bounds() {
        type Read = fn(&Knobs) -> SignedDuration;
        let periods: [(&str, Read, SignedDuration); 7] = [
            (ADMISSION, |k| k.admission_grace, SignedDuration::from_mins(1)),
            (WARMUP, |k| k.warmup_grace, SignedDuration::from_mins(5)),
            (RECOVERY, |k| k.recovery_grace, SignedDuration::from_mins(5)),
            (FAILURE, |k| k.failure_grace, SignedDuration::from_mins(1)),
            (PAUSE, |k| k.retry_pause, SignedDuration::from_secs(90)),
            (FORCE, |k| k.force_after, SignedDuration::from_mins(10)),
            (ON_FAILURE, |k| k.deletion_on_failure, SignedDuration::ZERO),
        ];
        for (key, read, default) in periods {
            let period = |value| read(&said(&[(key, value)]));
            assert_eq!(period("10s"), SignedDuration::from_secs(10), "{key}");
            assert_eq!(period("222badTime"), default, "{key}");
            assert_eq!(period("-10m"), SignedDuration::ZERO, "{key}");
            assert_eq!(period("48h"), SignedDuration::from_hours(24), "{key}");
        }
    }

    /// Spec: appwrapper B83.
    #[test]
    fn the_time_to_live_can_only_be_shortened() {
        let ttl = |value| said(&[(SUCCESS_TTL, value)]).success_ttl;
        for value in ["200h", "0", "-1s", "x"] {
            assert_eq!(ttl(value), SignedDuration::from_hours(168));
        }
        assert_eq!(ttl("10s"), SignedDuration::from_secs(10));
    }

    /// Spec: appwrapper B64, N-7.
    #[test]
    fn limits_and_exit_codes_are_read_leniently() {
        assert_eq!(said(&[(LIMIT, "-1")]).retry_limit, -1);
        assert_eq!(said(&[(LIMIT, "abc")]).retry_limit, 3);
        let codes = said(&[(TERMINAL, "3, 10,abc,42")]).terminal_codes;
        assert_eq!(codes, BTreeSet::from([3, 10, 42]));
    }

    /// Spec: appwrapper N-8.
    #[test]
    fn what_is_ignored_is_warned_of() {
        let told = tuning_warnings(&annotations(&[
            ("warmupGracePeriodDuraton", "1m"),
            (FAILURE, "5 minutes"),
            (LIMIT, "many"),
            (TERMINAL, "3, 10"),
            (PAUSE, "1m"),
        ]));
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].contains("is not a duration"), "{told:?}");
        assert!(told[2].contains("no such setting"), "{told:?}");
        assert!(tuning_warnings(&BTreeMap::from([("other/key".to_owned(), "x".to_owned())])).is_empty());
    }

    /// Spec: appwrapper 5.5, N-8.
    #[test]
    fn a_child_with_a_queue_in_an_appwrapper_without_is_warned_of() {
        let data = serde_json::json!({"spec": {"components": [
            {"template": {}}, {"template": {"metadata": {"labels": {QUEUE_NAME: "q"}}}},
        ]}});
        let mut meta = ObjectMeta::default();
        let told = warnings(&meta, &data);
        assert!(
            told.len() == 1 && told[0].starts_with("spec.components[1].template (q) has label"),
            "{told:?}"
        );
        meta.labels = Some([(QUEUE_NAME.to_owned(), "q".to_owned())].into());
        assert!(warnings(&meta, &data).is_empty());
    }
}
