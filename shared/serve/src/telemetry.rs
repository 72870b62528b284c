//! Log lines: to standard error, as text or JSON, filtered by level.
//!
//! Nothing here prints secrets; types that hold one hide it in their `Debug`.
//!
//! Invariant: a line that cannot be written, for example to a full disk, is lost and stops no task. So the library must not
//! report that on standard error: the task that logs would panic (`spec/safety.md` F33).

use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt};

use crate::args::{Args, LogFormat};
use crate::exit::ExitKind;

/// Directives that keep libraries quiet when our own crates log more.
const QUIET_LIBRARIES: &str = "hyper=info,hyper_util=info,rustls=info,tower=info,kube_client=info";

/// Why logging could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not a valid level.
    #[error(
        "--log-level `{level}` is not understood; write error, warn, info, debug, trace, or target=level"
    )]
    Level {
        /// The given text.
        level: String,
        /// The parser's error.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// A word that is no level. Why refused: the library would take it for a module name and log everything about it.
    #[error(
        "--log-level `{level}` is not understood; write error, warn, info, debug, trace, or target=level"
    )]
    UnknownLevel {
        /// The given text.
        level: String,
    },
    /// Logging was already set up in this process.
    #[error("logging was already started in this process")]
    AlreadyStarted {
        /// The library's error.
        #[source]
        source: tracing_subscriber::util::TryInitError,
    },
}

impl Error {
    /// A bad level is the user's mistake.
    pub const fn exit_kind(&self) -> ExitKind {
        match self {
            Self::Level { .. } | Self::UnknownLevel { .. } => ExitKind::Usage,
            Self::AlreadyStarted { .. } => ExitKind::Failure,
        }
    }
}

/// Starts logging for the whole process. Call once, first.
///
/// # Errors
/// A level that is not understood, or a second call.
pub fn init(args: &Args) -> Result<(), Error> {
    let filter = filter(args.log_level.as_deref(), args.verbose)?;
    match args.log_format {
        LogFormat::Text => text(filter, std::io::stderr).try_init(),
        LogFormat::Json => json(filter, std::io::stderr).try_init(),
    }
    .map_err(|source| Error::AlreadyStarted { source })
}

fn filter(level: Option<&str>, verbose: u8) -> Result<EnvFilter, Error> {
    let directives = match (level.map(str::trim).filter(|level| !level.is_empty()), verbose) {
        (Some(level), _) => level.to_owned(),
        (None, 0) => "info".to_owned(),
        (None, 1) => format!("debug,{QUIET_LIBRARIES}"),
        (None, _) => format!("trace,{QUIET_LIBRARIES}"),
    };
    let bare = |word: &&str| !word.is_empty() && !word.contains(['=', '[', ':']);
    let mut bare = directives.split(',').map(str::trim).filter(bare);
    if bare.any(|word| word.parse::<LevelFilter>().is_err()) {
        return Err(Error::UnknownLevel { level: directives });
    }
    let parsed = EnvFilter::builder().parse(&directives);
    parsed.map_err(|source| Error::Level {
        level: directives,
        source,
    })
}

fn text<W>(filter: EnvFilter, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(writer)
        .log_internal_errors(false)
        .finish()
}

fn json<W>(filter: EnvFilter, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    fmt()
        .json()
        .flatten_event(true)
        .with_env_filter(filter)
        .with_writer(writer)
        .log_internal_errors(false)
        .finish()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0
                .lock()
                .map_err(|_poisoned| std::io::ErrorKind::Other)?
                .extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Sink {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
        fn maker(&self) -> impl Fn() -> Self + Send + Sync + 'static {
            let sink = self.clone();
            move || sink.clone()
        }
    }

    fn emit() {
        tracing::info!(workload = "ns/a", "reserved quota");
        tracing::debug!("details");
        tracing::debug!(target: "hyper", "noise");
    }

    #[test]
    fn json_lines_are_one_object_each_with_flat_fields() {
        let sink = Sink::default();
        tracing::subscriber::with_default(json(filter(None, 0).unwrap(), sink.maker()), emit);
        let text = sink.text();
        assert_eq!(text.lines().count(), 1);
        let line: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
        assert_eq!(
            (&line["level"], &line["message"]),
            (&"INFO".into(), &"reserved quota".into())
        );
        assert_eq!(line["workload"], "ns/a");
    }

    #[test]
    fn verbose_shows_our_details_and_not_the_libraries() {
        let sink = Sink::default();
        tracing::subscriber::with_default(text(filter(None, 1).unwrap(), sink.maker()), emit);
        assert!(sink.text().contains("details") && !sink.text().contains("noise"));
    }

    #[test]
    fn level_wins_over_verbose() {
        let sink = Sink::default();
        tracing::subscriber::with_default(text(filter(Some("warn"), 2).unwrap(), sink.maker()), emit);
        assert_eq!(sink.text(), "");
    }

    #[test]
    fn a_bad_level_is_a_usage_error_that_quotes_it() {
        let error = filter(Some("info,x=loud"), 0).unwrap_err();
        assert_eq!(error.exit_kind(), ExitKind::Usage);
        assert!(error.to_string().contains("x=loud"));
        for word in ["loud", "info,verbose"] {
            let error = filter(Some(word), 0).unwrap_err();
            assert_eq!(error.exit_kind(), ExitKind::Usage);
            assert!(error.to_string().contains(word), "{error}");
        }
        for good in [
            "warn",
            "OFF",
            "info,kube=debug",
            "info,roadstead_engine::brain=trace",
        ] {
            assert!(filter(Some(good), 0).is_ok(), "{good}");
        }
    }
}
