//! Whether a worker is in doubt: it left two requests in a row unanswered, or failed them.
//!
//! Why an answer may not be enough to end it: an API server whose storage is full, or whose etcd has lost its quorum, answers every
//! read and fails every write. Each time it was believed again, a job would be sent there in vain.
//!
//! *Source*: `spec/multikueue.md 4.3`.

/// How a worker failed to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Miss {
    /// At once: the connection broke, or the answer to a write was an error of the server.
    Failed,
    /// It did not answer within the time allowed.
    Silent,
}

/// What speaks for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// It carried out a write.
    Wrote,
    /// It answered a request.
    Answered,
}

/// Misses in a row after which a worker gets no new requests until a proof. *Why* not one: a single answer may be lost on the way,
/// and the next request finds what was done.
const MISSES_MAX: u32 = 2;

/// The misses of one worker.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    misses: u32,
    fails_writes: bool,
    /// The text of the last miss.
    words: String,
}

impl Doubt {
    /// Whether the worker is to get no new requests.
    pub(super) const fn is_in_doubt(&self) -> bool {
        self.misses >= MISSES_MAX
    }

    /// Whether it missed, and no proof came since.
    pub(super) const fn has_missed(&self) -> bool {
        self.misses > 0
    }

    /// The text of the last miss, when the worker is in doubt.
    pub(super) fn words(&self) -> Option<&str> {
        self.is_in_doubt().then_some(self.words.as_str())
    }

    /// Counts a miss with its text; returns whether the worker is in doubt now.
    pub(super) fn miss(&mut self, miss: Miss, words: &str) -> bool {
        let more = match miss {
            Miss::Failed => 1,
            Miss::Silent => MISSES_MAX,
        };
        self.fails_writes |= miss == Miss::Failed;
        self.misses = self.misses.saturating_add(more);
        words.clone_into(&mut self.words);
        self.is_in_doubt()
    }

    /// Takes a proof; returns whether it ends a doubt. `writes_anyway`: the manager writes there regularly, so a worker that failed
    /// writes can show that it carries them out again.
    pub(super) fn prove(&mut self, proof: Proof, writes_anyway: bool) -> bool {
        if proof == Proof::Answered && self.fails_writes && writes_anyway {
            return false;
        }
        let was_in_doubt = self.is_in_doubt();
        *self = Self::default();
        was_in_doubt
    }
}

#[cfg(test)]
mod tests {
    use super::{Doubt, Miss, Proof};

    /// Spec: multikueue 4.3; safety I12
    #[test]
    fn one_lost_answer_is_no_reason_for_doubt_two_or_a_long_silence_are_and_a_write_ends_it() {
        let mut doubt = Doubt::default();
        assert!(!doubt.has_missed());
        assert!(!doubt.miss(Miss::Failed, "no space") && !doubt.is_in_doubt());
        assert!(doubt.has_missed(), "others are preferred from the first one on");
        assert!(!doubt.prove(Proof::Wrote, true), "there was no doubt");
        assert!(!doubt.miss(Miss::Failed, "no space"), "they were not in a row");
        assert_eq!(doubt.words(), None);
        assert!(doubt.miss(Miss::Failed, "no space") && doubt.words() == Some("no space"));
        assert!(doubt.prove(Proof::Wrote, true) && !doubt.is_in_doubt());
        assert!(doubt.miss(Miss::Silent, "no space") && doubt.is_in_doubt());
    }

    /// Spec: multikueue 4.3; safety F21
    #[test]
    fn who_fails_writes_and_answers_reads_stays_in_doubt_as_long_as_writes_would_tell() {
        let mut doubt = Doubt::default();
        doubt.miss(Miss::Failed, "no space");
        doubt.miss(Miss::Failed, "no space");
        assert!(!doubt.prove(Proof::Answered, true) && doubt.is_in_doubt());
        assert!(doubt.prove(Proof::Answered, false) && !doubt.is_in_doubt());
        doubt.miss(Miss::Silent, "no space");
        assert!(
            doubt.prove(Proof::Answered, true),
            "a server that was only silent is believed again when it speaks"
        );
    }
}
