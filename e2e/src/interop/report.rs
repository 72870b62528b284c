//! A line for each scene, and the count at the end.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::ensure;
use tokio::time::timeout;

use super::room::{Quota, Room};
use super::scene::Scene;
use crate::progress::seconds;

/// Time limit of one scene.
const DEADLINE: Duration = Duration::from_mins(5);

/// The results of the scenes.
#[derive(Debug)]
pub(super) struct Report {
    /// Only scenes whose name contains one of these are played; all if there are none.
    only: Vec<String>,
    passed: usize,
    failed: usize,
}

impl Report {
    pub(super) const fn new(only: Vec<String>) -> Self {
        Self {
            only,
            passed: 0,
            failed: 0,
        }
    }

    /// Plays a scene in a room of its own and prints its result.
    pub(super) async fn play(
        &mut self,
        scene: &Scene,
        name: &'static str,
        quota: Quota,
        act: impl AsyncFn(&Room<'_>) -> anyhow::Result<String>,
    ) {
        let full_name = format!("{}/{name}", scene.title);
        let named = |only: &String| full_name.contains(only);
        if !self.only.is_empty() && !self.only.iter().any(named) {
            return;
        }
        scene.progress.step(&format!("playing {full_name}"));
        let started = Instant::now();
        let whole = async {
            let room = Room::open(scene, name, quota).await?;
            let seen = act(&room).await.and_then(|seen| {
                let broken = room.broken();
                ensure!(broken.is_empty(), "{}; but {seen}", broken.join(", "));
                Ok(seen)
            });
            if seen.is_err() {
                room.tell().await;
            }
            seen
        };
        let seen = timeout(DEADLINE, whole).await;
        let seen =
            seen.unwrap_or_else(|elapsed| Err(anyhow::Error::new(elapsed).context("the scene does not end")));
        let took = seconds(started.elapsed());
        match seen.and_then(|seen| scene.check().map(|()| seen)) {
            Ok(seen) => {
                self.passed += 1;
                say(&format!("ok     {full_name} ({took}): {seen}"));
            }
            Err(error) => {
                self.failed += 1;
                say(&format!("FAILED {full_name} ({took}): {error:#}"));
            }
        }
    }

    /// Prints the count.
    pub(super) fn close(self) -> ExitCode {
        let Self {
            only: _,
            passed,
            failed,
        } = self;
        say(&format!("{passed} passed, {failed} failed"));
        if failed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

fn say(line: &str) {
    // Why: a closed standard output must not hide the exit code.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
