//! The true time, and the time that each host's clock shows.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use roadstead_engine::clock::Uptime;
use tokio::time::Instant;

use super::script::Skew;

/// When every run begins: 2026-01-01T00:00:00Z.
const START_SECS: i64 = 1_767_225_600;
const MILLION: i64 = 1_000_000;

/// The true time of a run, which is tokio's.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrueTime {
    origin: Instant,
}

impl TrueTime {
    /// A time that begins now. Call inside a runtime whose time is paused.
    pub(super) fn begin() -> Self {
        Self {
            origin: Instant::now(),
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }

    pub(super) fn now(&self) -> Timestamp {
        let start = Timestamp::constant(START_SECS, 0);
        start.saturating_add(self.elapsed()).unwrap_or(start)
    }

    /// Sleeps until `at` after the start of the run.
    pub(super) async fn sleep_until(&self, at: Duration) {
        tokio::time::sleep_until(self.origin + at).await;
    }
}

/// The clock of one host, which may be off, drift and jump.
#[derive(Debug)]
pub(super) struct HostClock {
    time: TrueTime,
    ppm: i64,
    off_millis: AtomicI64,
}

impl HostClock {
    pub(super) fn new(time: TrueTime, skew: Skew) -> Arc<Self> {
        Arc::new(Self {
            time,
            ppm: skew.ppm,
            off_millis: AtomicI64::new(skew.millis),
        })
    }

    /// A clock without jumps that starts now on this host; it runs as fast or as slowly as the host's wall clock.
    pub(super) fn uptime(&self) -> Uptime {
        Uptime::drifting(i32::try_from(self.ppm).unwrap_or_default())
    }

    /// Moves the wall clock for good.
    pub(super) fn jump(&self, secs: i64) {
        self.off_millis
            .fetch_add(secs.saturating_mul(1_000), Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> Timestamp {
        let micros = i64::try_from(self.time.elapsed().as_micros()).unwrap_or(i64::MAX);
        let drift = SignedDuration::from_micros(micros.saturating_mul(self.ppm) / MILLION);
        let off = SignedDuration::from_millis(self.off_millis.load(Ordering::Relaxed));
        let now = self.time.now();
        now.saturating_add(off.saturating_add(drift)).unwrap_or(now)
    }
}
