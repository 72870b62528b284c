//! How watches end, which decides what the cache does next.

use std::time::Duration;

use super::WATCH_SECS;

#[derive(Debug)]
pub(super) enum Ended {
    /// The next watch may resume from this version.
    At(String),
    /// The watch stayed open after this version, but was silent for longer than a working API server ever is.
    Silent(String),
    /// Everything must be listed again.
    Lost,
}

/// What came before a new watch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Last {
    Listed,
    /// A watch that ended when its time was over.
    Full,
    /// As [`Last::Full`], but the last comparison with the storage is more than [`CHECK_PERIOD`](super::CHECK_PERIOD) ago.
    Unchecked,
    /// A watch that said nothing for too long.
    Silent,
    /// A watch that ended early, an error, or an earlier run of the cache.
    Cut,
}

impl Last {
    pub(super) fn of_watch(lived: Duration) -> Self {
        if lived < Duration::from_secs(WATCH_SECS.into()) {
            Self::Cut
        } else {
            Self::Full
        }
    }
}
