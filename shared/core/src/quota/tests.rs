use super::{Ledger, Stage, freed, scale};
use crate::amount::Amount;
use crate::ground::Ground;
use crate::hierarchy::Exact;

fn held(ground: &mut Ground, amount: Exact) -> super::Amounts {
    vec![(ground.pair(&"default".into(), &"cpu".into()), amount)]
}

/// Spec: admission-engine 2.4.
#[test]
fn what_was_booked_goes_without_a_trace() {
    let (mut ground, mut ledger) = (Ground::default(), Ledger::default());
    let ten = held(&mut ground, 10);
    ledger.add(&ten, Stage::Admitted);
    assert_eq!((ledger.reserving_count(), ledger.admitted_count()), (1, 1));
    ledger.remove(&ten, Stage::Admitted);
    assert_eq!(ledger, Ledger::default());
}

/// Spec: api API-16.
#[test]
fn sums_beyond_64_bits_saturate_when_read_and_stay_exact_inside() {
    let (mut ground, mut ledger) = (Ground::default(), Ledger::default());
    let huge = held(&mut ground, Exact::from(i64::MAX - 1));
    let total = |ledger: &Ledger| {
        ledger
            .reserved()
            .total(ground.quotas(), &"default".into(), &"cpu".into())
    };
    ledger.add(&huge, Stage::Reserved);
    ledger.add(&huge, Stage::Reserved);
    assert_eq!(total(&ledger), Amount::UNLIMITED);
    ledger.remove(&huge, Stage::Reserved);
    assert_eq!(total(&ledger), Amount::new(i64::MAX - 1));
}

/// Spec: admission-engine 4.6.
#[test]
fn reclaimable_pods_scale_the_usage_and_round_up() {
    assert_eq!(scale(10, 2, 5), 4);
    assert_eq!(scale(10, 1, 3), 4);
    assert_eq!(scale(10, 0, 3), 0);
    assert_eq!(scale(10, 7, 3), 10);
    let mut ground = Ground::default();
    let (four, ten) = (held(&mut ground, 4), held(&mut ground, 10));
    assert_eq!(freed(&ten, &four).map(|(_, gone)| gone).collect::<Vec<_>>(), [6]);
    assert_eq!(freed(&ten, &[]).map(|(_, gone)| gone).collect::<Vec<_>>(), [10]);
    assert_eq!(freed(&four, &ten).count(), 0);
}
