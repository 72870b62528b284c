//! The simulation, as often as a change is worth.

use std::process::Command;

/// Seeds of the ordinary run: what a build without optimisation plays in about two minutes. More are played by the program
/// itself: `cargo run --release --bin simulate -- --seeds 2000`.
const SEEDS: u64 = 16;
/// One seed in so many is played twice; the program does it with all unless told otherwise.
const TWICE_EVERY: u64 = 8;

/// Spec: safety 7. What is played twice must leave the same trace.
#[test]
fn seeds_break_no_invariant_and_repeat() {
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
