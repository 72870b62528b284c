//! Jobs of other kinds in a federation of Roadstead and Kueue, whose controller is built from its published module.

#![cfg(feature = "nightly")]

use tokio::process::Command;

use crate::shared::output_of;

/// Kinds whose own controllers are built here, and which the reference dispatches too.
const KINDS: [&str; 3] = ["jobset", "pytorchjob", "mpijob"];

/// Spec: multikueue 5, 11.57
#[tokio::test]
async fn jobs_of_several_kinds_run_beside_the_reference_in_both_directions() {
    for kind in KINDS {
        let mut interop = Command::new(env!("CARGO_BIN_EXE_interop"));
        let said = output_of(interop.args(["--kind", kind])).await;
        assert!(said.ends_with("8 passed, 0 failed\n"), "{kind}: {said}");
    }
}
