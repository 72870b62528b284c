//! The one place where the engine learns the time.

use std::sync::Arc;

use jiff::Timestamp;

/// Tells the time; handed in, so that a simulation can hand in its own.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The clock of the machine.
pub fn system() -> Clock {
    Arc::new(Timestamp::now)
}
