//! The one place where the engine learns the time.

use std::sync::Arc;

use jiff::Timestamp;
use roadstead_core::lease::Moment;
use tokio::time::Instant;

/// Tells the time; handed in, so that a simulation can hand in its own.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How long this process has been up, by a clock that never jumps. Whatever is about leases is measured with it and never with
/// the time of day (`spec/safety.md F18`).
#[derive(Clone, Copy, Debug)]
pub struct Uptime(Instant);

impl Uptime {
    /// It starts now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Now.
    pub fn now(&self) -> Moment {
        Moment::after_start(self.0.elapsed())
    }
}

/// The clock of the machine.
pub fn system() -> Clock {
    Arc::new(Timestamp::now)
}
