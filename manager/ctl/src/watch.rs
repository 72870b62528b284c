//! `--watch`: prints every change of a list, until the output is closed.
//!
//! It also ends when the API server refuses the request, or when [`FAILURES_MAX`] tries in a row have failed.

use std::fmt::Debug;
use std::io::Write;

use futures::{Stream, StreamExt as _, pin_mut};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Config, Event, watcher};
use kube::{Api, Resource};
use roadstead_kubeio::write;
use serde::de::DeserializeOwned;

use crate::failure::Failure;
use crate::output;

/// Tries in a row that may fail, with growing pauses of up to half a minute between them.
const FAILURES_MAX: u32 = 8;

/// The list and then every change of these objects, asked for again when the connection breaks.
pub(crate) fn changes<K>(api: Api<K>, config: Config) -> impl Stream<Item = Result<Event<K>, watcher::Error>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watcher(api, config).default_backoff()
}

/// Prints the lines that each change makes.
pub(crate) async fn follow<K>(
    changes: impl Stream<Item = Result<Event<K>, watcher::Error>>,
    kinds: &str,
    mut lines: impl FnMut(Event<K>) -> Result<String, Failure>,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let mut failures = 0;
    pin_mut!(changes);
    while let Some(change) = changes.next().await {
        match change {
            Ok(event) => {
                failures = 0;
                let text = lines(event)?;
                if !text.is_empty() && (writeln!(out, "{text}").is_err() || out.flush().is_err()) {
                    return Ok(());
                }
            }
            Err(error) => {
                failures += 1;
                let what = format!("watching {kinds} failed");
                if let watcher::Error::InitialListFailed(error) = &error
                    && is_refused(error)
                {
                    return Err(Failure::request(what, error));
                }
                let why = why(&error);
                if failures >= FAILURES_MAX {
                    return Err(Failure::new(what, why, "run the same command again"));
                }
                output::say(&format!("note: {what}, trying again: {why}"));
            }
        }
    }
    Ok(())
}

/// Whether the API server has refused the request, so that the same request is refused again.
fn is_refused(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 400..=404 | 422))
}

fn why(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => write::describe(error),
        watcher::Error::WatchError(status) => status.message.clone(),
        watcher::Error::NoResourceVersion => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use futures::stream;
    use kube::core::{DynamicObject, Status};
    use kube::runtime::watcher::{self, Event};

    use super::{FAILURES_MAX, follow};
    use crate::failure::Failure;

    fn ends(codes: impl Iterator<Item = u16>) -> Result<(), Failure> {
        let refused = codes.map(|code| {
            let status = Status::failure("it says so", "Some").with_code(code);
            let error = kube::Error::Api(status.boxed());
            Err::<Event<DynamicObject>, _>(watcher::Error::InitialListFailed(error))
        });
        let changes = stream::iter(refused.collect::<Vec<_>>());
        block_on(follow(changes, "x", |_| Ok(String::new()), &mut Vec::new()))
    }

    /// Spec: experience 3
    #[test]
    fn a_watch_that_is_refused_ends_at_once_and_one_that_fails_again_and_again_ends_too() {
        assert!(ends([403].into_iter()).unwrap_err().next.contains("rights"));
        assert_eq!(ends((1..FAILURES_MAX).map(|_| 503)), Ok(()));
        assert_eq!(
            ends((0..FAILURES_MAX).map(|_| 503)).unwrap_err().why,
            "it says so"
        );
    }
}
