//! Notes: Events for people, decided here and written by the caller.

use std::borrow::Cow;

/// The severity of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It happens to every job that goes well; conditions show it too. It is written when there is time.
    Routine,
    /// It was meant to happen.
    Normal,
    /// A person should look at it.
    Warning,
}

/// One Event to emit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Its severity.
    pub severity: Severity,
    /// A CamelCase token.
    pub reason: Cow<'static, str>,
    /// A sentence; cut at 1024 bytes by the writer.
    pub message: String,
}

impl Note {
    const fn of(severity: Severity, reason: Cow<'static, str>, message: String) -> Self {
        Self {
            severity,
            reason,
            message,
        }
    }

    /// A note about an event in the life of every job that goes well.
    pub fn routine(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::of(Severity::Routine, reason.into(), message.into())
    }

    /// A note about something that was meant to happen.
    pub fn normal(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::of(Severity::Normal, reason.into(), message.into())
    }

    /// A note that a person should look at.
    pub fn warning(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::of(Severity::Warning, reason.into(), message.into())
    }
}
