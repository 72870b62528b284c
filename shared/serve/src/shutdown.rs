//! The orderly end of a process: signals, named tasks, and a time limit.

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::exit::ExitKind;

/// Limit: how long all tasks together may take to end after the stop. The process ends within this time.
pub const STOP_MAX: Duration = Duration::from_secs(5);

/// The name of a task in logs and errors.
pub type Name = Cow<'static, str>;

/// The error of a task.
pub type TaskError = Box<dyn std::error::Error + Send + Sync>;

/// Why a process ended without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Signals cannot be received.
    #[error("signals cannot be received")]
    Signals {
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// A task reported an error.
    #[error("{task} failed")]
    Failed {
        /// Name of the task.
        task: Name,
        /// Its error.
        #[source]
        source: TaskError,
    },
    /// A task panicked.
    #[error("{task} panicked; this is a fault of the program: start it again, and please report it")]
    Panicked {
        /// Name of the task.
        task: Name,
        /// The runtime's report.
        #[source]
        source: JoinError,
    },
    /// A task ended without being asked to.
    #[error(
        "{task} ended without being asked to stop; this is a fault of the program: start it again, and please report it"
    )]
    EndedEarly {
        /// Name of the task.
        task: Name,
    },
    /// Tasks did not end in time.
    #[error("still busy after {} s: {}", patience.as_secs(), tasks.join(", "))]
    Stuck {
        /// Names of the tasks.
        tasks: Vec<Name>,
        /// How long the process waited.
        patience: Duration,
    },
}

impl Error {
    /// Never the user's mistake.
    pub const fn exit_kind(&self) -> ExitKind {
        ExitKind::Failure
    }
}

/// Cancels the returned token at the first SIGTERM or SIGINT; a second one ends the process at once with code 130.
/// Must be called inside a runtime.
///
/// # Errors
/// When the system does not allow signals to be received.
pub fn on_signals() -> Result<CancellationToken, Error> {
    #[expect(
        clippy::exit,
        reason = "the second signal means now, without waiting for anything"
    )]
    on_signals_then(|| std::process::exit(130))
}

fn on_signals_then(second: impl FnOnce() + Send + 'static) -> Result<CancellationToken, Error> {
    use tokio::signal::unix::{SignalKind, signal};
    let failed = |source| Error::Signals { source };
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let token = CancellationToken::new();
    let stop = token.clone();
    tokio::spawn(async move {
        tokio::select! { biased; _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        tracing::info!("stopping; a second signal ends the process at once");
        stop.cancel();
        tokio::select! { biased; _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        second();
    });
    Ok(token)
}

/// The tasks of a process, by name. When one ends, all end.
#[derive(Debug, Default)]
pub struct Tasks {
    set: JoinSet<Result<(), TaskError>>,
    names: HashMap<Id, Name>,
}

impl Tasks {
    /// Starts a task. It must watch the token given to [`Tasks::run`], and end only after that is cancelled.
    pub fn spawn(&mut self, name: impl Into<Name>, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_fallible(name, async move {
            task.await;
            Ok::<_, std::convert::Infallible>(())
        });
    }

    /// As [`Tasks::spawn`], for a task that may fail.
    pub fn spawn_fallible<F, E>(&mut self, name: impl Into<Name>, task: F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<TaskError>,
    {
        let handle = self.set.spawn(async move { task.await.map_err(Into::into) });
        self.names.insert(handle.id(), name.into());
    }

    /// Waits until `stop` is cancelled or a task ends, cancels `stop`, and waits for the rest, at most [`STOP_MAX`]. Without
    /// tasks it waits for `stop`.
    ///
    /// # Errors
    /// The first task that failed, panicked or ended too early, which is also logged at once; else the tasks that did not end in
    /// time.
    pub async fn run(&mut self, stop: CancellationToken) -> Result<(), Error> {
        self.run_within(stop, STOP_MAX).await
    }

    /// As [`Tasks::run`], with another time limit.
    ///
    /// # Errors
    /// As [`Tasks::run`].
    pub async fn run_within(&mut self, stop: CancellationToken, patience: Duration) -> Result<(), Error> {
        let mut outcome = Ok(());
        let mut deadline = None;
        loop {
            let ended = match deadline {
                None => tokio::select! {
                    biased;
                    () = stop.cancelled() => {
                        deadline = Some(Instant::now() + patience);
                        continue;
                    }
                    Some(ended) = self.set.join_next_with_id() => Some(ended),
                },
                Some(deadline) => match timeout_at(deadline, self.set.join_next_with_id()).await {
                    Ok(ended) => ended,
                    Err(_elapsed) => break,
                },
            };
            let Some(ended) = ended else { break };
            let error = self.judge(ended, &stop);
            outcome = outcome.and(error);
            stop.cancel();
        }
        stop.cancel();
        let mut stuck: Vec<Name> = self.names.values().cloned().collect();
        stuck.sort_unstable();
        self.set.abort_all();
        if stuck.is_empty() {
            outcome
        } else {
            outcome.and(Err(Error::Stuck {
                tasks: stuck,
                patience,
            }))
        }
    }

    /// Stops all tasks at once, and waits until they are gone.
    pub async fn shutdown(mut self) {
        self.set.shutdown().await;
    }

    fn judge(
        &mut self,
        ended: Result<(Id, Result<(), TaskError>), JoinError>,
        stop: &CancellationToken,
    ) -> Result<(), Error> {
        let id = match &ended {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let task = self.names.remove(&id).unwrap_or(Name::Borrowed("unnamed task"));
        match ended {
            Ok((_, Ok(()))) if stop.is_cancelled() => {
                tracing::debug!(%task, "ended");
                Ok(())
            }
            Ok((_, Ok(()))) => {
                let error = Error::EndedEarly { task };
                tracing::error!("{error}; the process stops");
                Err(error)
            }
            // Why not logged here: the process prints the error of a failed task as its last message.
            Ok((_, Err(source))) => Err(Error::Failed { task, source }),
            Err(source) => {
                let error = Error::Panicked { task, source };
                if let Error::Panicked { source, .. } = &error {
                    tracing::error!("{error}: {source}; the process stops");
                }
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::process::Command;

    use tokio::sync::oneshot;

    use super::*;

    fn waits(stop: &CancellationToken) -> impl Future<Output = ()> + Send + use<> {
        stop.clone().cancelled_owned()
    }

    #[tokio::test]
    async fn a_stop_ends_all_tasks_without_error() {
        let stop = CancellationToken::new();
        let mut tasks = Tasks::default();
        tasks.spawn("a", waits(&stop));
        tasks.spawn("b", waits(&stop));
        stop.cancel();
        tasks.run(stop).await.unwrap();
    }

    #[tokio::test]
    async fn a_failing_task_stops_the_others_and_is_named() {
        let stop = CancellationToken::new();
        let mut tasks = Tasks::default();
        tasks.spawn("steady", waits(&stop));
        tasks.spawn_fallible("brain", async { Err(io::Error::other("no quota")) });
        let error = tasks.run(stop.clone()).await.unwrap_err();
        assert_eq!(error.to_string(), "brain failed");
        assert!(stop.is_cancelled());
    }

    #[tokio::test]
    async fn a_task_that_ends_unasked_or_panics_is_an_error() {
        let mut tasks = Tasks::default();
        tasks.spawn("brain", async {});
        let error = tasks.run(CancellationToken::new()).await.unwrap_err();
        assert!(matches!(&error, Error::EndedEarly { task } if task == "brain"));
        let text = error.to_string();
        assert!(
            text.starts_with("brain ended without being asked to stop;"),
            "{text}"
        );
        assert!(text.contains("start it again"), "{text}");
        let mut tasks = Tasks::default();
        tasks.spawn("brain", async { panic!("broken invariant") });
        let error = tasks.run(CancellationToken::new()).await.unwrap_err();
        assert!(matches!(&error, Error::Panicked { task, .. } if task == "brain"));
    }

    /// Why: otherwise a process whose controllers are all switched off would end at once.
    #[tokio::test(start_paused = true)]
    async fn without_tasks_it_waits_for_the_stop() {
        let (stop, mut tasks) = (CancellationToken::new(), Tasks::default());
        let running = tasks.run(stop.clone());
        tokio::pin!(running);
        assert!(timeout_at(Instant::now() + STOP_MAX, &mut running).await.is_err());
        stop.cancel();
        running.await.unwrap();
    }

    /// Spec: design 4, SIGTERM ends the process within 5 s.
    #[tokio::test(start_paused = true)]
    async fn a_stuck_task_is_given_up_after_five_seconds() {
        let stop = CancellationToken::new();
        let mut tasks = Tasks::default();
        tasks.spawn("polite", waits(&stop));
        tasks.spawn("stuck", std::future::pending());
        stop.cancel();
        let before = Instant::now();
        let error = tasks.run(stop).await.unwrap_err();
        assert_eq!(before.elapsed(), STOP_MAX);
        assert_eq!(error.to_string(), "still busy after 5 s: stuck");
    }

    #[tokio::test]
    async fn first_signal_cancels_and_second_ends_at_once() {
        let (sender, second) = oneshot::channel();
        let token = on_signals_then(move || sender.send(()).unwrap()).unwrap();
        let send = |signal: &str| {
            let pid = std::process::id().to_string();
            assert!(
                Command::new("kill")
                    .args([signal, &pid])
                    .status()
                    .unwrap()
                    .success()
            );
        };
        assert!(!token.is_cancelled());
        send("-TERM");
        token.cancelled().await;
        send("-INT");
        second.await.unwrap();
    }
}
