//! Why something was not done: the one error of everything that talks to API servers.
//!
//! The rules for the whole product:
//!
//! - The usual answers to a write are values ([`Written`](crate::write::Written)): done, gone, conflict, already there. An
//!   answer after which an action cannot go on is a [`Failure`]: a sentence for people, and one [`Verdict`].
//! - Code decides by the verdict, never by the sentence. A caller that must know more gets a closed enum from the module it calls.
//! - [`reconcile`](crate::reconcile) alone decides which pause follows a verdict. A loop that has no keys takes its pauses from
//!   [`retry`](crate::retry).
//! - A failure is logged at the edge, once in the same words ([`trouble`](crate::trouble)); the object is a field of the log line,
//!   and neither names nor sentences are labels of metrics.
//! - An error at the start of a process is an enum with its causes instead, because `main` prints the whole chain.

use std::fmt;

use roadstead_core::retry::Verdict;

/// Why something was not done, without secrets, and what must happen before it can be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    text: String,
    verdict: Verdict,
}

impl Failure {
    /// A failure that time may cure ([`Verdict::Retry`]).
    pub fn passing(text: impl Into<String>) -> Self {
        Self::new(text, Verdict::Retry)
    }

    /// A failure that lasts until an object, a right or a setting changes ([`Verdict::WaitForChange`]).
    pub fn lasting(text: impl Into<String>) -> Self {
        Self::new(text, Verdict::WaitForChange)
    }

    pub(crate) fn new(text: impl Into<String>, verdict: Verdict) -> Self {
        let text = text.into();
        Self { text, verdict }
    }

    /// The sentence for people.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What must happen before the same attempt can succeed.
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// The same failure, with what was attempted in front.
    #[must_use]
    pub fn in_doing(self, what: impl fmt::Display) -> Self {
        self.reworded(|why| format!("{what}: {why}"))
    }

    /// The same failure in other words.
    #[must_use]
    pub fn reworded(self, words: impl FnOnce(&str) -> String) -> Self {
        Self {
            text: words(&self.text),
            ..self
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

/// An object that cannot be written as JSON or read from it stays like that until it changes.
impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::new(error.to_string(), Verdict::GiveUp)
    }
}

impl From<Failure> for String {
    fn from(failure: Failure) -> Self {
        failure.text
    }
}

/// An error and its causes in one line; a cause that the text names already is left out.
pub fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_words_keep_the_verdict() {
        let failure = Failure::lasting("forbidden").in_doing("writing the status failed");
        assert_eq!(failure.to_string(), "writing the status failed: forbidden");
        assert_eq!(failure.verdict(), Verdict::WaitForChange);
        let failure = failure.reworded(|why| format!("{why}; apply deploy/rights"));
        assert_eq!(
            String::from(failure),
            "writing the status failed: forbidden; apply deploy/rights"
        );
    }
}
