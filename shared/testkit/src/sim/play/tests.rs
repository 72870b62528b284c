//! Runs that are told step by step, because the dice seldom do.

use super::super::fault::Link;
use super::super::script::Lost;
use super::*;

/// A run in which nothing happens but this.
fn told(acts: Vec<(u64, Act)>, faults: Vec<(u64, u64, Fault)>) -> Script {
    let secs = Duration::from_secs;
    let entry = |(number, (at, lasts, fault)): (usize, (u64, u64, Fault))| {
        let (at, lasts) = (secs(at), secs(lasts));
        (number, Entry { at, lasts, fault })
    };
    Script {
        acts: acts.into_iter().map(|(at, act)| (secs(at), act)).collect(),
        faults: faults.into_iter().enumerate().map(entry).collect(),
        lost: Lost::Wait,
        compares: false,
        ..Script::from_seed(1)
    }
}

/// Why no assertion: a run takes over what happens at a panic, and its words would be lost.
fn is_fine(script: &Script) -> Result<(), String> {
    let outcome = Player::new()?.play(script, Keep::Hash)?;
    if outcome.violations.is_empty() {
        Ok(())
    } else {
        Err(outcome.violations.join("\n"))
    }
}

/// Nothing would bring it up again, and its AdmissionCheck and all queues with that check would stay inactive.
///
/// Spec: safety 1 I3, F21.
#[test]
fn a_worker_that_is_used_again_is_said_to_be_although_the_first_write_failed() -> Result<(), String> {
    let refuse = Fault::Refuse {
        link: Link { from: 0, to: 0 },
        permille: 1_000,
        code: 500,
    };
    let acts = vec![(20, Act::Spoil(1)), (60, Act::Mend(1))];
    is_fine(&told(acts, vec![(59, 10, refuse)]))
}
