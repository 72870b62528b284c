use super::{Charge, Ledger, Stage, scale};
use crate::amount::Amount;
use crate::name::{FlavorName, ResourceName};
use crate::queue::{FlavorQuota, Quota};

fn charge(amount: i128) -> Charge {
    let resources = [(ResourceName::from("cpu"), amount)].into();
    Charge([(FlavorName::from("default"), resources)].into())
}

fn quota(nominal: Amount) -> FlavorQuota {
    FlavorQuota {
        name: "default".into(),
        quotas: [("cpu".into(), Quota::of(nominal))].into(),
    }
}

/// Spec: admission-engine 2.4.
#[test]
fn overcommitted_quota_leaves_nothing_and_comes_back_exactly() {
    let mut ledger = Ledger::default();
    ledger.add(&charge(10), Stage::Admitted);
    assert_eq!(
        ledger.available(&quota(Amount::new(4)), &"cpu".into()),
        Amount::ZERO
    );
    ledger.remove(&charge(10), Stage::Admitted);
    assert_eq!(ledger, Ledger::default());
}

/// Spec: api API-16.
#[test]
fn sums_beyond_64_bits_saturate_when_read_and_stay_exact_inside() {
    let (mut ledger, huge) = (Ledger::default(), charge(i128::from(i64::MAX - 1)));
    ledger.add(&huge, Stage::Reserved);
    ledger.add(&huge, Stage::Reserved);
    assert_eq!(
        ledger.reserved().total(&"default".into(), &"cpu".into()),
        Amount::UNLIMITED
    );
    ledger.remove(&huge, Stage::Reserved);
    assert_eq!(
        ledger.reserved().total(&"default".into(), &"cpu".into()),
        Amount::new(i64::MAX - 1)
    );
    assert_eq!(
        ledger.available(&quota(Amount::UNLIMITED), &"cpu".into()),
        Amount::UNLIMITED
    );
}

/// Spec: admission-engine 4.6.
#[test]
fn reclaimable_pods_scale_the_usage_and_round_up() {
    assert_eq!(scale(10, 2, 5), 4);
    assert_eq!(scale(10, 1, 3), 4);
    assert_eq!(scale(10, 0, 3), 0);
    assert_eq!(scale(10, 7, 3), 10);
    assert!(charge(4).frees(&charge(10)));
    assert!(!charge(10).frees(&charge(10)));
}
