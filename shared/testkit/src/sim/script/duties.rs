//! The random actions of administrators and providers on workers.

use std::time::Duration;

use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;

use super::super::fault::{Entry, Fault, Link, Way};
use super::{Act, Duty, OPENING, WorkerPlan};

/// How often an administrator looks whether a worker is shown as lost, and how many times.
const WORD_LOOKS: (Duration, u32) = (Duration::from_secs(15), 8);
/// A worker is taken out or deleted at most this long before it is cut off.
const LEAVES_BEFORE: Duration = Duration::from_secs(10);
/// In a run with a long cut, one job in this many runs for longer than [`Script::lost_after`](super::Script::lost_after).
const OUTLASTS: u32 = 2;
/// When an administrator tries to register a deleted lost worker again, after the cut. Why several times: the deletion may take longer.
const BACK: [Duration; 4] = [
    Duration::from_secs(10),
    Duration::from_secs(70),
    Duration::from_secs(200),
    Duration::from_secs(400),
];
/// When an administrator tries to register a worker again, after deleting it. Why several times: the deletion may take longer.
const AGAIN: [Duration; 3] = [
    Duration::from_mins(1),
    Duration::from_secs(130),
    Duration::from_secs(320),
];
/// Of the workers whose queues ask for capacity, the provider takes the capacity of one in this many back.
const REVOKES: u32 = 2;

/// An administrator cordons or drains a worker for a while, takes it out of the config, or deletes and registers it again.
pub(super) fn steward(dice: &mut ChaCha8Rng, workers: usize, acts: &mut Vec<(Duration, Act)>) {
    let worker = dice.random_range(1..=workers);
    let from = OPENING + Duration::from_millis(dice.random_range(0..60_000));
    let until = from + Duration::from_millis(dice.random_range(5_000..90_000));
    let duties = match dice.random_range(0..4) {
        0 => vec![
            (from, Duty::Cordon(worker, Some("true"))),
            (until, Duty::Cordon(worker, None)),
        ],
        1 => vec![
            (from, Duty::Cordon(worker, Some("drain"))),
            (until, Duty::Cordon(worker, None)),
        ],
        2 => vec![(from, Duty::TakeOut(worker)), (until, Duty::PutBack(worker))],
        _ => {
            let again = AGAIN.map(|later| (from + later, Duty::Register(worker)));
            let first = (from, Duty::Unregister(worker));
            std::iter::once(first).chain(again).collect()
        }
    };
    add_duties(acts, duties);
}

fn add_duties(acts: &mut Vec<(Duration, Act)>, duties: Vec<(Duration, Duty)>) {
    acts.extend(duties.into_iter().map(|(at, duty)| (at, Act::Steward(duty))));
    acts.sort_by_key(|(at, _)| *at);
}

/// A worker is cut off, mostly for longer than `lost_after`. Mostly an administrator gives up its runs once it is shown as lost.
/// An administrator may also take the worker out of the config or delete it, and add it again later; that does not give up its
/// runs. Returns the fault.
pub(super) fn give_up(
    dice: &mut ChaCha8Rng,
    workers: usize,
    lost_after: Duration,
    acts: &mut Vec<(Duration, Act)>,
) -> Entry {
    let worker = dice.random_range(1..=workers);
    outlast(dice, lost_after, acts);
    let mut secs = |from: u64, to: u64| Duration::from_secs(dice.random_range(from..to));
    let at = OPENING + secs(20, 80);
    let (longer, shorter) = (lost_after + secs(120, 300), secs(60, 150));
    let (looks_at, wanted_at) = (at + secs(5, 60), at + secs(90, 500));
    let leaves_at = (at + secs(0, 120)).saturating_sub(LEAVES_BEFORE);
    let lasts = if dice.random_ratio(3, 4) { longer } else { shorter };
    let way = [Way::Both, Way::Requests, Way::Answers][dice.random_range(0..3)];
    let mut duties = Vec::new();
    if dice.random_ratio(3, 4) {
        let (pause, times) = WORD_LOOKS;
        duties.extend((0..times).map(|time| (looks_at + pause * time, Duty::GiveUp(worker))));
    }
    match dice.random_range(0..3) {
        0 => {
            duties.push((leaves_at, Duty::TakeOut(worker)));
            duties.push((wanted_at.max(leaves_at), Duty::PutBack(worker)));
        }
        1 => {
            duties.push((leaves_at, Duty::Unregister(worker)));
            duties.extend(BACK.map(|later| (at + lasts + later, Duty::Register(worker))));
        }
        _ => {}
    }
    add_duties(acts, duties);
    Entry {
        at,
        lasts,
        fault: Fault::Cut {
            link: Link { from: 0, to: worker },
            way,
        },
    }
}

/// Makes some jobs run for longer than `lost_after`.
fn outlast(dice: &mut ChaCha8Rng, lost_after: Duration, acts: &mut [(Duration, Act)]) {
    for (_, act) in acts {
        if let Act::Submit(job) = act
            && dice.random_ratio(1, OUTLASTS)
        {
            let secs = lost_after.as_secs() + dice.random_range(60..300);
            job.secs = i64::try_from(secs).unwrap_or(i64::MAX);
        }
    }
}

/// An administrator points the Secret of one worker at another, and back later. Returns false if it adds nothing.
pub(super) fn mislead(
    dice: &mut ChaCha8Rng,
    workers: usize,
    lost_after: Duration,
    acts: &mut Vec<(Duration, Act)>,
) -> bool {
    let worker = dice.random_range(1..=workers);
    let other = (worker + dice.random_range(1..workers) - 1) % workers + 1;
    let is_one = |cluster: usize| [worker, other].contains(&cluster);
    // Why: if an administrator deletes the MultiKueueCluster of one of the two, the other Secret may rightly lead to its cluster.
    let goes = |(_, act): &(Duration, Act)| matches!(act, Act::Steward(Duty::Unregister(of)) if is_one(*of));
    if acts.iter().any(goes) {
        return false;
    }
    outlast(dice, lost_after, acts);
    let from = OPENING + Duration::from_millis(dice.random_range(5_000..80_000));
    let longer = lost_after + Duration::from_secs(dice.random_range(60..200));
    let shorter = Duration::from_secs(dice.random_range(20..120));
    let until = from + if dice.random_ratio(1, 2) { longer } else { shorter };
    let duties = vec![
        (from, Duty::Mislead(worker, other)),
        (until, Duty::LeadBack(worker)),
    ];
    add_duties(acts, duties);
    true
}

/// The provider of capacity takes capacity back from workers.
pub(super) fn revoke(dice: &mut ChaCha8Rng, workers: &[WorkerPlan], acts: &mut Vec<(Duration, Act)>) {
    for (worker, _) in (1..).zip(workers).filter(|(_, plan)| plan.asks_capacity) {
        if dice.random_ratio(1, REVOKES) {
            let at = OPENING + Duration::from_millis(dice.random_range(0..90_000));
            acts.push((at, Act::Revoke(worker)));
        }
    }
    acts.sort_by_key(|(at, _)| *at);
}
