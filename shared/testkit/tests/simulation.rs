//! The simulation, as often as a change is worth.

use std::process::Command;

/// Seeds of the ordinary run; a night plays 50,000 with the program itself.
const SEEDS: u64 = 2_000;
/// One seed in so many is played twice; the program does it with all unless told otherwise.
const TWICE_EVERY: u64 = 10;

/// Spec: safety 7. What is played twice must leave the same trace.
#[test]
fn two_thousand_seeds_break_no_invariant_and_repeat() {
    let output = Command::new(env!("CARGO_BIN_EXE_simulate"))
        .args(["--json", "--seeds", &SEEDS.to_string()])
        .args(["--twice-every", &TWICE_EVERY.to_string()])
        .output()
        .unwrap();
    let result: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(result["seeds"], SEEDS);
    assert_eq!(result["trace_mismatches"], 0, "{result}");
    assert_eq!(result["violations"], 0, "{:#}", result["failures"]);
}

/// Spec: safety 7. A simulation that does not find known bugs finds no unknown ones.
#[test]
fn every_bug_of_the_bank_is_found() {
    let output = Command::new(env!("CARGO_BIN_EXE_simulate"))
        .args(["--bug-bank", "--json"])
        .output()
        .unwrap();
    let result: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    assert!(result["bugs_planted"].as_u64() >= Some(14), "{result}");
    let missed: Vec<_> = result["bugs"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|bug| bug["seed"].is_null())
        .map(|bug| &bug["bug"])
        .collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}
