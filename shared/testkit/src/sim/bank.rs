//! Tests the simulation itself: plants a known bug and counts how many seeds it takes until a run breaks an invariant.

use roadstead_core::dispatch::Bug;

use super::play::Player;
use super::script::Script;
use super::trace::Keep;

/// Seeds within which every planted bug must be found. *Source*: `spec/safety.md 7`.
pub const SEEDS_MAX: u64 = 500;

/// How the search for one bug went.
#[derive(Clone, Debug)]
pub struct Catch {
    /// The planted bug.
    pub bug: Bug,
    /// How many seeds were played, the last one included.
    pub tried: u64,
    /// The seed that showed it, with the first invariant that it broke; `None` if no seed did.
    pub found: Option<(u64, String)>,
}

/// Plays seeds with a bug planted until an invariant breaks that holds without the bug.
///
/// *Errors*: a run could not be set up.
pub fn hunt(player: &Player, bug: Bug, from: u64, seeds: u64) -> Result<Catch, String> {
    for seed in from..from.saturating_add(seeds) {
        let plain = Script::from_seed(seed);
        let planted = Script {
            bug: Some(bug),
            ..plain.clone()
        };
        let tried = seed - from + 1;
        let Some(broken) = player.play(&planted, Keep::Hash)?.violations.into_iter().next() else {
            continue;
        };
        // Why: an invariant that breaks without the bug says nothing about it.
        if player.play(&plain, Keep::Hash)?.violations.is_empty() {
            let found = Some((seed, broken));
            return Ok(Catch { bug, tried, found });
        }
    }
    Ok(Catch {
        bug,
        tried: seeds,
        found: None,
    })
}

/// The bug of a name, which is that of its `Debug` form.
pub fn bug_of(name: &str) -> Option<Bug> {
    Bug::ALL.into_iter().find(|bug| format!("{bug:?}") == name)
}
