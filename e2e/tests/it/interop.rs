//! Jobs of other kinds in a federation of Roadstead and Kueue, whose controller is built from its published module.

#![cfg(feature = "nightly")]

use tokio::process::Command;

use crate::shared::output_of;

/// Spec: multikueue 5, 11.57
#[tokio::test]
async fn jobsets_of_our_manager_run_on_a_worker_of_the_reference() {
    let mut interop = Command::new(env!("CARGO_BIN_EXE_interop"));
    let said = output_of(interop.args(["--kind", "jobset", "--direction", "kueue-workers"])).await;
    assert!(said.ends_with("4 passed, 0 failed\n"), "{said}");
}
