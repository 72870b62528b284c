//! The text that the user reads when something fails: what, why, next command.

use std::fmt;

use roadstead_kubeio::kube;
use roadstead_kubeio::write::{self, Written};

const NO_KINDS: &str = "install the custom resources of kueue.x-k8s.io on that cluster: roadstead install worker --kubeconfig FILE (on the \
                        management cluster: roadstead install manager --kubeconfig FILE)";

/// How rustls says that it does not trust the certificate of the API server.
const BAD_CERTIFICATE: &str = "invalid peer certificate";

/// Exit code. Source: `spec/experience.md 3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// A request was refused or failed.
    Failed,
    /// The command line is wrong.
    Usage,
    /// The named object does not exist.
    NotFound,
    /// The time limit is over.
    TimedOut,
}

impl Code {
    /// The exit code for the shell.
    pub const fn number(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::TimedOut => 4,
        }
    }
}

/// A failure as three lines of text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Failure {
    /// The exit code.
    pub code: Code,
    /// What failed.
    pub what: String,
    /// Why it failed.
    pub why: String,
    /// The next command, or what to change.
    pub next: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "error: {}\n  why:  {}\n  next: {}",
            self.what, self.why, self.next
        )
    }
}

impl Failure {
    /// A failure with exit code 1.
    pub fn new(what: impl Into<String>, why: impl Into<String>, next: impl Into<String>) -> Self {
        Self {
            code: Code::Failed,
            what: what.into(),
            why: why.into(),
            next: next.into(),
        }
    }

    /// The same failure with another exit code.
    #[must_use]
    pub const fn code(mut self, code: Code) -> Self {
        self.code = code;
        self
    }

    /// The failure of a request to an API server.
    pub fn request(what: impl Into<String>, error: &kube::Error) -> Self {
        let code = if let kube::Error::Api(status) = error {
            // Why asked: a webhook that refuses wrong fields answers 403 too, and more rights would not help.
            let is_webhook = write::is_webhook_refusal(status);
            Some(if is_webhook { 422 } else { status.code })
        } else {
            None
        };
        let next = match code {
            Some(401) => "log in again, or use a kubeconfig whose credentials are still valid",
            Some(403) => "use a kubeconfig with the rights named above",
            Some(404) => NO_KINDS,
            Some(429 | 500..) => "wait until the API server is well, then run the same command again",
            Some(_) => "correct what the API server names, then run the same command again",
            None if write::describe(error).contains(BAD_CERTIFICATE) => {
                "check that server and certificate-authority-data of the kubeconfig belong to the same cluster"
            }
            None => "check the address and the network, then run the same command again",
        };
        Self::new(what, write::describe(error), next)
    }
}

/// The written object, or the failure of the write.
pub fn done<K>(what: &str, written: Written<K>) -> Result<Box<K>, Failure> {
    let again = "run the same command again";
    let (why, next) = match written {
        Written::Done(object) => return Ok(object),
        Written::Gone => ("it is gone, or its kind is not installed".to_owned(), NO_KINDS),
        Written::Conflict => ("another client changed it at the same moment".to_owned(), again),
        Written::AlreadyExists => ("it exists already".to_owned(), again),
        Written::Refused(why) => (
            why,
            "correct what the API server names, then run the same command again",
        ),
        Written::Unclear(why) => (why, again),
    };
    Err(Failure::new(what, why, next))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use roadstead_kubeio::kube;

    use super::{Code, Failure};

    /// Spec: experience 3
    #[test]
    fn failure_has_three_lines_and_a_code() {
        let failure = Failure::new("a", "b", "c").code(Code::TimedOut);
        assert_eq!(failure.to_string(), "error: a\n  why:  b\n  next: c");
        assert_eq!(failure.code.number(), 4);
    }

    /// Spec: experience 3
    #[test]
    fn the_next_step_depends_on_what_the_api_server_answers() {
        let next = |code| {
            let status = Status::failure("it says so", "Some").with_code(code);
            Failure::request("a", &kube::Error::Api(status.boxed())).next
        };
        for (code, wanted) in [
            (401, "log in again"),
            (403, "rights named above"),
            (404, "custom resources of kueue.x-k8s.io"),
            (422, "correct what the API server names"),
            (429, "wait until"),
            (503, "wait until"),
        ] {
            assert!(next(code).contains(wanted), "{code}: {}", next(code));
        }
        let words = "admission webhook \"vcohort.kb.io\" denied the request: spec.parentName: Invalid value";
        let status = Status::failure(words, "Forbidden").with_code(403);
        let failure = Failure::request("a", &kube::Error::Api(status.boxed()));
        assert!(
            failure.next.contains("correct what the API server names"),
            "{failure}"
        );
    }
}
