//! Finds the faults that a failure really needs.

use super::play::{Outcome, Player};
use super::script::Script;
use super::trace::Keep;

/// How many runs shrinking may cost.
const RUNS_MAX: usize = 60;

/// Removes faults, half of them at a time, then one by one, as long as the same invariant breaks without them.
///
/// *Errors*: a run could not be set up.
pub fn shrink(player: &Player, script: &Script, outcome: &Outcome) -> Result<(Vec<usize>, Outcome), String> {
    let wanted = kind(outcome);
    let mut kept = script.fault_numbers();
    let mut best = outcome.clone();
    let mut size = kept.len().div_ceil(2);
    let mut runs = 0;
    while size > 0 && runs < RUNS_MAX {
        let mut start = 0;
        let mut progress = false;
        while start < kept.len() && runs < RUNS_MAX {
            let end = kept.len().min(start + size);
            let fewer: Vec<usize> = kept[..start].iter().chain(&kept[end..]).copied().collect();
            let tried = player.play(&script.with_faults(&fewer), Keep::Hash)?;
            runs += 1;
            if kind(&tried) == wanted {
                kept = fewer;
                best = tried;
                progress = true;
            } else {
                start = end;
            }
        }
        if !progress || size > 1 {
            size /= 2;
        }
    }
    Ok((kept, best))
}

/// The invariant that broke first.
fn kind(outcome: &Outcome) -> Option<&str> {
    outcome.violations.first()?.split(' ').next()
}
