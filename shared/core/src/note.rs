//! Notes: what should be told to people as an Event, decided here, written elsewhere.

use std::borrow::Cow;

/// How much attention a note wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// What happens to every job that goes well; conditions say it too. Told when there is time.
    Routine,
    /// Something that was meant to happen.
    Normal,
    /// Something a person should look at.
    Warning,
}

/// One Event to emit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// How much attention it wants.
    pub severity: Severity,
    /// A CamelCase token.
    pub reason: Cow<'static, str>,
    /// A sentence; cut at 1024 bytes by the writer.
    pub message: String,
}

impl Note {
    /// A note about what happens to every job that goes well.
    pub fn routine(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Routine,
            reason: reason.into(),
            message: message.into(),
        }
    }

    /// A note about something that was meant to happen.
    pub fn normal(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Normal,
            reason: reason.into(),
            message: message.into(),
        }
    }

    /// A note that a person should look at.
    pub fn warning(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            reason: reason.into(),
            message: message.into(),
        }
    }
}
