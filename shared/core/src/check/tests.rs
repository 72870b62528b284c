use super::Usable::{Inactive, Missing, Yes};
use super::{
    MULTIKUEUE_PARAMETERS, PROVISIONING_PARAMETERS, Parameters, Usable, multikueue, parameters, provisioning,
};
use crate::cluster::Active;
use crate::condition::Truth;

fn check(clusters: &[(&str, Usable)], truth: Truth, reason: &str, message: &str) {
    let clusters: Vec<_> = clusters
        .iter()
        .map(|(name, usable)| ((*name).into(), *usable))
        .collect();
    let got = multikueue(Ok(&clusters));
    assert_eq!(
        (got.truth, got.reason, got.message.as_ref()),
        (truth, reason, message)
    );
}

fn reference(group: &str, kind: &str, name: &str) -> Parameters {
    Parameters {
        group: group.into(),
        kind: kind.into(),
        name: name.into(),
    }
}

/// Spec: multikueue 1.4, 10.F10, 11.2, 11.3, 11.4
#[test]
fn a_multikueue_check_is_as_active_as_its_clusters() {
    let all = "The admission check is active";
    check(&[("a", Yes), ("b", Yes)], Truth::True, "Active", all);
    check(
        &[("b", Missing), ("a", Missing)],
        Truth::False,
        "NoUsableClusters",
        "Missing clusters: [b a]",
    );
    check(
        &[("a", Yes), ("b", Inactive)],
        Truth::True,
        "SomeActiveClusters",
        "Inactive clusters: [b]",
    );
    check(
        &[("d", Inactive), ("b", Missing), ("c", Inactive), ("a", Yes)],
        Truth::True,
        "SomeActiveClusters",
        "Missing clusters: [b], Inactive clusters: [d c]",
    );
    check(
        &[("c", Inactive)],
        Truth::False,
        "NoUsableClusters",
        "Inactive clusters: [c]",
    );
}

/// Spec: multikueue 1.4, 11.1, 11.5
#[test]
fn a_multikueue_check_without_config_says_why() {
    let problem = parameters(None, MULTIKUEUE_PARAMETERS).unwrap_err();
    assert_eq!(
        multikueue(Err(&problem)),
        Active {
            truth: Truth::False,
            reason: "BadConfig",
            message: "Cannot load the AdmissionChecks parameters: missing parameters reference".into(),
        }
    );
}

/// Spec: multikueue 1.4, 11.5; provisioning 3, 15.3, 15.4
#[test]
fn a_bad_reference_is_named() {
    let problem = |reference: &Parameters, kind| parameters(Some(reference), kind).unwrap_err();
    assert_eq!(
        problem(
            &reference("kueue.x-k8s.io", "MultiKueueConfig", ""),
            MULTIKUEUE_PARAMETERS
        ),
        "empty name: bad parameters reference"
    );
    assert_eq!(
        problem(&reference("x", "MultiKueueConfig", "c"), MULTIKUEUE_PARAMETERS),
        "wrong group \"x\", expecting \"kueue.x-k8s.io\": bad parameters reference"
    );
    assert_eq!(
        problem(
            &reference("kueue.x-k8s.io", "MultiKueueConfig", "c"),
            PROVISIONING_PARAMETERS
        ),
        "wrong kind \"MultiKueueConfig\", expecting \"ProvisioningRequestConfig\": bad parameters reference"
    );
    let good = reference("kueue.x-k8s.io", "ProvisioningRequestConfig", "c");
    assert_eq!(parameters(Some(&good), PROVISIONING_PARAMETERS), Ok("c"));
}

/// Spec: provisioning 3, 15.2, 15.3
#[test]
fn a_provisioning_check_is_active_when_its_config_resolves() {
    let good = provisioning(Ok(()));
    assert_eq!((good.truth, good.reason), (Truth::True, "Active"));
    assert_eq!(good.message, "The admission check is active");
    let bad = provisioning(Err("missing parameters reference"));
    assert_eq!((bad.truth, bad.reason), (Truth::False, "BadParametersRef"));
    assert_eq!(bad.message, "missing parameters reference");
}
