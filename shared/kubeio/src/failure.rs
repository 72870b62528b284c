//! Why something was not done: the one error of everything that talks to API servers.
//!
//! The rules for the whole product:
//!
//! - The usual answers to a write are values ([`Written`](crate::write::Written)): done, gone, conflict, already there. What an
//!   action cannot go on with is a [`Failure`]: a sentence for people, and one [`Verdict`].
//! - Code decides by the verdict, never by the sentence. A caller that must know more gets a closed enum from the module it calls.
//! - [`reconcile`](crate::reconcile) is the one policy that makes pauses of verdicts. A loop that has no keys takes its pauses from
//!   [`retry`](crate::retry).
//! - A failure is logged at the edge, once in the same words ([`trouble`](crate::trouble)); the object is a field of the log line,
//!   and neither names nor sentences are labels of metrics.
//! - An error at the start of a process is an enum with its causes instead, because `main` prints the whole chain.

use std::fmt;

use roadstead_core::retry::Verdict;

use crate::write::{describe, is_webhook_refusal};

/// Why something was not done, without secrets, and what must happen before it can be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    text: String,
    verdict: Verdict,
}

impl Failure {
    /// Time may cure it.
    pub fn passing(text: impl Into<String>) -> Self {
        Self::new(text, Verdict::Retry)
    }

    /// An object, a right or a setting must change first.
    pub fn lasting(text: impl Into<String>) -> Self {
        Self::new(text, Verdict::WaitForChange)
    }

    /// Of a request.
    pub fn of(error: &kube::Error) -> Self {
        Self::new(describe(error), verdict_of(error))
    }

    fn new(text: impl Into<String>, verdict: Verdict) -> Self {
        let text = text.into();
        Self { text, verdict }
    }

    /// The sentence.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What must happen first.
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

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        Self::of(&error)
    }
}

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

/// What must happen before a request that ended like this can succeed.
///
/// Why a webhook's denial lasts whatever its code: it understood the object and does not want it.
pub(crate) fn verdict_of(error: &kube::Error) -> Verdict {
    if let kube::Error::Api(status) = error {
        let passes = matches!(status.code, 408 | 409 | 429 | 500..=599);
        return if passes && !is_webhook_refusal(status) {
            Verdict::Retry
        } else {
            Verdict::WaitForChange
        };
    }
    if matches!(error, kube::Error::BuildRequest(_)) {
        Verdict::GiveUp
    } else {
        Verdict::Retry
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
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn only_a_passing_answer_is_worth_the_same_request_again() {
        let of = |code: u16, message: &str| {
            let status = json!({"code": code, "reason": "Any", "message": message});
            verdict_of(&kube::Error::Api(Box::new(from_value(status).unwrap())))
        };
        for code in [408, 409, 429, 500, 503, 504] {
            assert_eq!(of(code, "busy"), Verdict::Retry, "{code}");
        }
        for code in [400, 401, 403, 404, 422] {
            assert_eq!(of(code, "no"), Verdict::WaitForChange, "{code}");
        }
        let denied = "admission webhook \"x\" denied the request: no";
        assert_eq!(of(500, denied), Verdict::WaitForChange);
        let silent = kube::Error::Service("connection refused".into());
        assert_eq!(verdict_of(&silent), Verdict::Retry);
    }

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
