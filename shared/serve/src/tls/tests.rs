use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use roadstead_api::config::{Tls, TlsVersion};

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn names() -> Vec<String> {
    let mut names = service_names("kueue-webhook-service", "kueue-system");
    names.push("127.0.0.1".into());
    names
}

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const SHORT: Lifetimes = Lifetimes {
    authority: SignedDuration::from_hours(30),
    serving: SignedDuration::from_hours(3),
};

#[test]
fn service_names_cover_the_forms_clients_use() {
    let names = service_names("s", "n");
    assert_eq!(names, ["s.n.svc", "s.n.svc.cluster.local", "s.n", "s"]);
}

#[test]
fn fresh_certificates_are_kept() {
    let now = at("2026-03-01T00:00:00Z");
    let bundle = issue(now, &names(), &Lifetimes::default()).unwrap();
    assert_eq!(plan_rotation(now, &bundle, &names()), Rotation::Keep);
    assert_eq!(
        plan_rotation(now + HOUR * 24 * 200, &bundle, &names()),
        Rotation::Keep
    );
}

#[test]
fn serving_certificate_is_renewed_in_its_last_third_by_the_same_authority() {
    let now = at("2026-03-01T00:00:00Z");
    let bundle = issue(now, &names(), &SHORT).unwrap();
    assert_eq!(plan_rotation(now + HOUR, &bundle, &names()), Rotation::Keep);
    let later = now + HOUR * 2;
    assert_eq!(plan_rotation(later, &bundle, &names()), Rotation::RenewServing);
    let renewed = renew(Rotation::RenewServing, later, &bundle, &names(), &SHORT).unwrap();
    assert_eq!(renewed.ca_bundle(), bundle.ca_bundle());
    assert_ne!(renewed.to_secret()[CERT_KEY], bundle.to_secret()[CERT_KEY]);
    assert_eq!(plan_rotation(later, &renewed, &names()), Rotation::Keep);
}

#[test]
fn a_new_name_needs_a_new_serving_certificate() {
    let now = at("2026-03-01T00:00:00Z");
    let bundle = issue(now, &names(), &SHORT).unwrap();
    let more = [names(), vec!["10.0.0.7".into()]].concat();
    assert_eq!(plan_rotation(now, &bundle, &more), Rotation::RenewServing);
    assert!(issue(now, &["not a name \u{7f}é".into()], &SHORT).is_err());
}

#[test]
fn authority_is_renewed_in_its_last_third_and_the_old_one_stays_trusted_until_its_end() {
    let now = at("2026-03-01T00:00:00Z");
    let bundle = issue(now, &names(), &SHORT).unwrap();
    let later = now + HOUR * 21;
    assert_eq!(plan_rotation(later, &bundle, &names()), Rotation::RenewAll);
    let both = renew(Rotation::RenewAll, later, &bundle, &names(), &SHORT).unwrap();
    assert!(both.ca_bundle().ends_with(&bundle.ca_bundle()));
    assert_eq!(both.ca_bundle().matches("BEGIN CERTIFICATE").count(), 2);
    assert_eq!(plan_rotation(later, &both, &names()), Rotation::Keep);
    let after_old_end = now + HOUR * 31;
    let alone = renew(Rotation::RenewServing, after_old_end, &both, &names(), &SHORT).unwrap();
    assert_eq!(alone.ca_bundle().matches("BEGIN CERTIFICATE").count(), 1);
}

#[test]
fn trusted_authorities_are_limited_in_number() {
    let mut now = at("2026-03-01T00:00:00Z");
    let mut bundle = issue(now, &names(), &SHORT).unwrap();
    for _ in 0..CAS_MAX + 2 {
        now += HOUR;
        bundle = renew(Rotation::RenewAll, now, &bundle, &names(), &SHORT).unwrap();
    }
    assert_eq!(bundle.ca_bundle().matches("BEGIN CERTIFICATE").count(), CAS_MAX);
}

#[test]
fn a_serving_certificate_never_outlives_its_authority() {
    let now = at("2026-03-01T00:00:00Z");
    let long = Lifetimes {
        authority: HOUR,
        serving: HOUR * 100,
    };
    let bundle = issue(now, &names(), &long).unwrap();
    let ends: Vec<Timestamp> = [&bundle.chain, &bundle.authorities]
        .map(|list| plan::validity(&list[0]).unwrap().1)
        .into();
    assert_eq!(ends, [now + HOUR, now + HOUR]);
}

#[test]
fn a_clock_that_jumped_back_before_the_beginning_renews() {
    let now = at("2026-03-01T00:00:00Z");
    let bundle = issue(now, &names(), &SHORT).unwrap();
    assert_eq!(plan_rotation(now - HOUR, &bundle, &names()), Rotation::RenewAll);
}

#[test]
fn a_bundle_survives_the_secret() {
    let now = at("2026-03-01T00:00:00Z");
    let first = issue(now, &names(), &SHORT).unwrap();
    let bundle = renew(Rotation::RenewAll, now + HOUR, &first, &names(), &SHORT).unwrap();
    let data = bundle.to_secret();
    assert_eq!(
        data.keys().collect::<Vec<_>>(),
        ["ca.crt", "ca.key", "tls.crt", "tls.key"]
    );
    assert_eq!(Bundle::from_secret(&data).unwrap(), bundle);
}

#[test]
fn damaged_secrets_are_named_by_entry_and_never_quoted() {
    let good = issue(at("2026-03-01T00:00:00Z"), &names(), &SHORT).unwrap();
    let mut data = good.to_secret();
    data.remove(KEY_KEY);
    assert_eq!(
        Bundle::from_secret(&data).unwrap_err().to_string(),
        "entry tls.key is missing"
    );
    for (key, wanted) in [
        (CA_KEY_KEY, "a private key"),
        (CERT_KEY, "certificates"),
        (CA_CERT_KEY, "certificates"),
    ] {
        let data: BTreeMap<String, Vec<u8>> = good
            .to_secret()
            .into_iter()
            .chain([(key.to_owned(), b"hush".to_vec())])
            .collect();
        let error = format!("{:?}", Bundle::from_secret(&data).unwrap_err());
        assert!(
            error.contains(key) && error.contains(wanted) && !error.contains("hush"),
            "{error}"
        );
    }
    let secret = String::from_utf8(good.to_secret()[KEY_KEY].clone()).unwrap();
    assert!(!format!("{good:?}").contains(secret.lines().nth(1).unwrap()));
}

#[test]
fn keys_that_do_not_fit_their_certificates_are_renewed() {
    let now = at("2026-03-01T00:00:00Z");
    let bundle = issue(now, &names(), &SHORT).unwrap();
    let other = issue(now, &names(), &SHORT).unwrap();
    let swapped = |key: &str| {
        let mut data = bundle.to_secret();
        data.insert(key.into(), other.to_secret()[key].clone());
        Bundle::from_secret(&data).unwrap()
    };
    assert_eq!(
        plan_rotation(now, &swapped(KEY_KEY), &names()),
        Rotation::RenewServing
    );
    assert!(matches!(
        swapped(KEY_KEY).certified_key(),
        Err(Error::Unusable { .. })
    ));
    assert_eq!(
        plan_rotation(now, &swapped(CA_KEY_KEY), &names()),
        Rotation::RenewAll
    );
    assert_eq!(
        plan_rotation(now, &swapped(CA_CERT_KEY), &names()),
        Rotation::RenewAll
    );
    let mut foreign = bundle.clone();
    foreign.chain.clone_from(&other.chain);
    foreign.key.clone_from(&other.key);
    assert_eq!(plan_rotation(now, &foreign, &names()), Rotation::RenewServing);
}

#[test]
fn settings_that_leave_nothing_are_refused() {
    let slot = CertSlot::empty();
    assert!(server_config(&Tls::default(), Arc::clone(&slot)).is_ok());
    let chosen = Tls {
        min_version: Some(TlsVersion::Tls12),
        cipher_suites: vec!["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305".into()],
        curve_preferences: vec!["CurveP521".into(), "23".into()],
    };
    assert!(server_config(&chosen, Arc::clone(&slot)).is_ok());
    let none = Tls {
        curve_preferences: vec!["CurveP521".into()],
        ..Tls::default()
    };
    let error = server_config(&none, slot).unwrap_err().to_string();
    assert!(error.contains("tls.curvePreferences"), "{error}");
}

#[tokio::test]
async fn files_are_loaded_again_when_they_change_and_a_bad_pair_is_not_taken() {
    let now = at("2026-03-01T00:00:00Z");
    let folder = tempfile::tempdir().unwrap();
    let write = |bundle: &Bundle, keys: &[&str]| {
        for key in keys {
            std::fs::write(folder.path().join(key), &bundle.to_secret()[*key]).unwrap();
        }
    };
    let slot = CertSlot::empty();
    let mut follower = Follower::new(folder.path(), Arc::clone(&slot));
    assert!(matches!(follower.look().await, Err(Error::Read { .. })));
    assert!(!slot.is_filled());
    let (first, second) = (
        issue(now, &names(), &SHORT).unwrap(),
        issue(now, &names(), &SHORT).unwrap(),
    );
    write(&first, &[CERT_KEY, KEY_KEY]);
    assert!(follower.look().await.unwrap());
    assert!(slot.is_filled());
    assert!(
        !follower.look().await.unwrap(),
        "unchanged files were loaded again"
    );
    write(&second, &[CERT_KEY]);
    assert!(matches!(follower.look().await, Err(Error::Unusable { .. })));
    write(&second, &[KEY_KEY]);
    assert!(follower.look().await.unwrap());
    assert_eq!(follower.authorities().await.unwrap(), None);
    write(&second, &[CA_CERT_KEY]);
    assert_eq!(follower.authorities().await.unwrap(), Some(second.ca_bundle()));
    std::fs::write(folder.path().join(CA_CERT_KEY), "hush").unwrap();
    let error = follower.authorities().await.unwrap_err().to_string();
    assert_eq!(error, "entry ca.crt does not hold certificates in PEM");
}
