//! How the copy of a job is removed.
//!
//! Invariant: a job that may have pods stays until they are gone. Otherwise its worker would look settled too early, and the next dispatch
//! would run beside those pods (`spec/safety.md` I1). Our finalizer stays until the end of the job is known: pods that are asked to stop
//! may still end by themselves, and a job that ended is not run again (I11).

/// The state of a copy that is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Going {
    /// Whether it has ended.
    pub ended: bool,
    /// How far its deletion is.
    pub deletion: Deletion,
    /// Whether it is held back and has no pods: then it cannot end.
    pub at_rest: bool,
    /// Whether this manager has already asked for its deletion after its pods.
    pub asked: bool,
    /// Whether it is a job or a pod.
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
    /// It has begun, and waits until the pods are gone (finalizer `foregroundDeletion`).
    AfterPods,
    /// It has begun and waits for no pods: another client asked so, or the pods are gone.
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

/// Decides the next step.
pub const fn farewell(going: Going) -> Farewell {
    match going.deletion {
        // Why not after its dependents: a pod has none, and its own status shows when nothing of it runs any more.
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
        // Why: the deletion that we asked for has ended the pods. For kinds whose status does not count pods that are being deleted, a
        // further request would start the same wait again, without end.
        Deletion::Begun if going.asked => Farewell::LetGo,
        // Why also when another client deletes the job: otherwise its pods would run until our finalizer is removed.
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

    /// Spec: safety 1 I1, I11
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
