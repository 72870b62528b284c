//! Rules of `multiKueue`. Source: spec/multikueue.md 7.

use roadstead_api::config::{DISPATCHER_INCREMENTAL, ExecProvider, MultiKueue};
use roadstead_api::constants::labels::is_label_value;
use roadstead_kinds::Kinds;

use super::super::Findings;
use super::{not_negative, repeated};

const INTERACTIVE_MODES: &[&str] = &["Never", "IfAvailable", "Always"];

pub(super) fn check(federation: &MultiKueue, kinds: Kinds, findings: &mut Findings) {
    not_negative("multiKueue.gcInterval", federation.gc_interval, findings);
    not_negative(
        "multiKueue.workerLostTimeout",
        federation.worker_lost_timeout,
        findings,
    );
    if !is_label_value(&federation.origin) {
        findings.add(
            "multiKueue.origin",
            format!(
                "`{}` is not a valid label value: at most 63 letters, digits, `-`, `_`, `.`, beginning and ending with a letter or digit",
                federation.origin
            ),
        );
    }
    for (index, kind) in federation.external_frameworks.iter().enumerate() {
        // Why in every version, and kinds that are not dispatched too: the rest of the engine knows a kind by its group and name.
        if kinds.of(&kind.group, &kind.kind).is_some() {
            let path = format!("multiKueue.externalFrameworks[{index}].name");
            findings.add(path, "conflicts with a built-in MultiKueue adapter");
        }
    }
    let named = federation.external_frameworks.iter();
    let named: Vec<_> = named.map(|kind| (&kind.group, &kind.kind)).collect();
    for index in repeated(&named) {
        findings.add(
            format!("multiKueue.externalFrameworks[{index}].name"),
            "is listed twice",
        );
    }
    providers(federation, findings);
    let Some(incremental) = federation.incremental else {
        return;
    };
    let path = "multiKueue.incrementalDispatcherConfig";
    if federation.dispatcher_name != DISPATCHER_INCREMENTAL {
        let message = "incrementalDispatcherConfig is only valid when dispatcherName is set to the incremental dispatcher";
        findings.add(path, format!("{message} ({DISPATCHER_INCREMENTAL})"));
    }
    if incremental.step_size < 1 {
        findings.add(format!("{path}.stepSize"), "must be greater than or equal to 1");
    }
}

fn providers(federation: &MultiKueue, findings: &mut Findings) {
    let older = "multiKueue.clusterProfile.credentialsProviders";
    if !federation.access_providers.is_empty() && !federation.credentials_providers.is_empty() {
        findings.add(older, "must not be specified when accessProviders is specified");
    }
    each_provider(
        "multiKueue.clusterProfile.accessProviders",
        &federation.access_providers,
        findings,
    );
    each_provider(older, &federation.credentials_providers, findings);
}

fn each_provider(path: &str, providers: &[ExecProvider], findings: &mut Findings) {
    for index in repeated(providers.iter().map(|provider| &provider.name)) {
        findings.add(format!("{path}[{index}].name"), "is listed twice");
    }
    for (index, provider) in providers.iter().enumerate() {
        let mode = provider.exec_config.interactive_mode.as_deref();
        if !mode.is_some_and(|mode| INTERACTIVE_MODES.contains(&mode)) {
            let message = format!("must be one of {}", INTERACTIVE_MODES.join(", "));
            findings.add(format!("{path}[{index}].execConfig.interactiveMode"), message);
        }
    }
}
