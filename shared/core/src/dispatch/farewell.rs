//! How the copy of a job goes.
//!
//! Invariant: a job that may have pods stays until they are gone; else its worker would look settled too early, and the next
//! dispatch would run beside them (`spec/safety.md` I1). And it is let go only when its end is known: pods that are asked to go
//! may yet end by themselves, and what ended is not run again (I11).

/// What is known of a copy that is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Going {
    /// Whether it has ended.
    pub ended: bool,
    /// How far its deletion is.
    pub deletion: Deletion,
    /// Whether it is held back and has no pods: then it can have no end.
    pub at_rest: bool,
    /// Whether we have asked it to go after its pods.
    pub asked: bool,
    /// What it is.
    pub body: Body,
}

/// What a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// A job whose controller makes pods.
    MakesPods,
    /// A pod.
    IsPod,
}

/// How far a deletion is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// It has not begun.
    NotBegun,
    /// It has, and waits until the pods are gone (finalizer `foregroundDeletion`).
    AfterPods,
    /// It has, and waits for no pods, or no longer.
    Begun,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// Delete it.
    Delete,
    /// Delete it after its pods.
    DeleteAfterPods,
    /// Wait until it changes.
    Wait,
    /// Take our finalizer off.
    LetGo,
}

/// Decides it.
pub const fn farewell(going: Going) -> Farewell {
    match going.deletion {
        // Why not after its dependents: it has none, and says itself when nothing of it runs any more.
        Deletion::NotBegun if matches!(going.body, Body::IsPod) => Farewell::Delete,
        Deletion::AfterPods | Deletion::Begun if matches!(going.body, Body::IsPod) => {
            if going.ended || going.at_rest {
                Farewell::LetGo
            } else {
                Farewell::Wait
            }
        }
        Deletion::NotBegun if going.ended => Farewell::Delete,
        Deletion::AfterPods | Deletion::Begun if going.ended => Farewell::LetGo,
        Deletion::AfterPods if going.at_rest => Farewell::LetGo,
        Deletion::AfterPods => Farewell::Wait,
        // Why: they are gone now. Asking again would begin anew, for ever, with kinds that count pods no more when they go.
        Deletion::Begun if going.asked => Farewell::LetGo,
        // Why also when somebody else deletes it: that way its pods would go on until it is let go.
        Deletion::NotBegun | Deletion::Begun => Farewell::DeleteAfterPods,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNNING: Going = Going {
        ended: false,
        deletion: Deletion::NotBegun,
        at_rest: false,
        asked: false,
        body: Body::MakesPods,
    };

    /// Spec: safety 1 I1, I11; found by seed 11727: it ran although it did not seem to, and ended while it was being deleted.
    #[test]
    fn a_job_with_pods_is_let_go_when_they_are_gone_and_its_end_is_known() {
        assert_eq!(farewell(RUNNING), Farewell::DeleteAfterPods);
        let going = Going {
            deletion: Deletion::AfterPods,
            asked: true,
            ..RUNNING
        };
        assert_eq!(farewell(going), Farewell::Wait);
        let ended = Going { ended: true, ..going };
        assert_eq!(
            farewell(ended),
            Farewell::LetGo,
            "decided again before, with that end"
        );
        let without_pods = Going {
            deletion: Deletion::Begun,
            ..going
        };
        assert_eq!(farewell(without_pods), Farewell::LetGo);
    }

    /// Spec: safety 1 I1
    #[test]
    fn what_can_have_no_end_is_let_go_at_once() {
        let held = Going {
            at_rest: true,
            ..RUNNING
        };
        assert_eq!(farewell(held), Farewell::DeleteAfterPods);
        let going = Going {
            deletion: Deletion::AfterPods,
            ..held
        };
        assert_eq!(farewell(going), Farewell::LetGo);
    }

    /// Spec: safety 1 I1
    #[test]
    fn what_somebody_else_deletes_goes_after_its_pods_too() {
        let deleted = Going {
            deletion: Deletion::Begun,
            ..RUNNING
        };
        assert_eq!(farewell(deleted), Farewell::DeleteAfterPods);
    }

    /// Spec: safety 1 I1
    #[test]
    fn a_pod_is_let_go_when_nothing_of_it_runs_and_not_when_its_dependents_are_gone() {
        let pod = Going {
            body: Body::IsPod,
            ..RUNNING
        };
        assert_eq!(farewell(pod), Farewell::Delete);
        let going = Going {
            deletion: Deletion::Begun,
            asked: true,
            ..pod
        };
        assert_eq!(
            farewell(going),
            Farewell::Wait,
            "its node has not said that it ended"
        );
        let ended = Going { ended: true, ..going };
        assert_eq!(farewell(ended), Farewell::LetGo);
        let held = Going {
            at_rest: true,
            ..going
        };
        assert_eq!(farewell(held), Farewell::LetGo);
    }

    #[test]
    fn what_has_ended_is_deleted_and_let_go() {
        let ended = Going {
            ended: true,
            ..RUNNING
        };
        assert_eq!(farewell(ended), Farewell::Delete);
    }
}
