//! Which cluster a MultiKueueCluster leads to: known by where it is, by the UID of the manager's lease there, and by what the manager
//! has sent there.
//!
//! Why: who points the Secret of a worker at another cluster while jobs run there would have them run twice, because nothing
//! of them is found where it leads now; and of two of them for one cluster each would take away what the other
//! has sent there.
//!
//! *Source*: `spec/safety.md` 3.8, I1, I5.

use std::fmt;

/// What is written for the lease where none is known. No UID looks so.
const NO_LEASE: &str = "-";

/// The identity of a cluster as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// UID of the manager's lease there; `None` where none was ever seen.
    pub lease: Option<String>,
    /// Where that was: any text that is another one for another API server.
    pub place: String,
}

/// The manager's lease where the Secret leads now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lease {
    /// It has this UID.
    Is(String),
    /// There is none.
    Missing,
    /// Our account there may not read it.
    Hidden,
}

/// What our copies of Workloads show, where the Secret leads now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// One of them, at least, can only be on the cluster that is remembered ([`Copy::is_known`]).
    Known,
    /// None of them is known, or there are none.
    Strange,
}

/// What follows, or what is to be asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the cluster that is remembered.
    Same,
    /// Nothing shows that it is.
    Another,
    /// The lease there is to be looked at.
    AskLease,
    /// Our copies there are to be looked at.
    AskCopies,
}

impl Identity {
    /// Reads what [`fmt::Display`] wrote; `None` when it is no identity.
    pub fn read(text: &str) -> Option<Self> {
        let (lease, place) = text.split_once(' ')?;
        let is_word = |word: &str| !word.is_empty() && !word.contains(' ');
        (is_word(lease) && is_word(place)).then(|| Self {
            lease: (lease != NO_LEASE).then(|| lease.to_owned()),
            place: place.to_owned(),
        })
    }

    /// Whether what is found at `place` is this cluster. `lease` and `copies`: what is found there, as far as it was asked.
    ///
    /// Why not the place alone: the same cluster may get another address or another certificate authority. Why not the lease alone:
    /// one that somebody deleted, or that a restored storage has forgotten, is made anew in the same place, and some accounts may
    /// keep none. Why copies last: to list them costs the most.
    pub fn judge(&self, place: &str, lease: Option<&Lease>, copies: Option<Copies>) -> Verdict {
        if place == self.place {
            return Verdict::Same;
        }
        match (&self.lease, lease) {
            (Some(_), None) => Verdict::AskLease,
            (Some(ours), Some(Lease::Is(uid))) if uid == ours => Verdict::Same,
            (Some(_), Some(Lease::Is(_) | Lease::Missing)) => Verdict::Another,
            (None, _) | (Some(_), Some(Lease::Hidden)) => match copies {
                None => Verdict::AskCopies,
                Some(Copies::Known) => Verdict::Same,
                Some(Copies::Strange) => Verdict::Another,
            },
        }
    }

    /// What to remember of the cluster at `place`, after `before`. `lease`: UID of the lease that was seen there.
    pub fn next(before: Option<&Self>, lease: Option<&str>, place: String) -> Self {
        // Why not that of another place: it may be another cluster's, and pointing back there would look like a cluster that has moved.
        let same = before.filter(|before| before.place == place);
        Self {
            lease: lease
                .map(str::to_owned)
                .or_else(|| same.and_then(|before| before.lease.clone())),
            place,
        }
    }
}

/// What a process knows of a cluster under its name, whatever is written about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Past {
    /// Nothing was asked there yet.
    Untried,
    /// It was asked in this place, and some of what it has may have been read; it was never connected.
    Tried(String),
    /// It was connected, and everything that is known is of this cluster.
    Connected(Identity),
}

impl Past {
    /// By which identity a cluster is to be known; `None` when by none. `written`: what is written about it.
    ///
    /// Why the own memory first: what is written may be older, where it could not be written. Why not without anything written: who
    /// takes that away says that the cluster is the right one.
    pub fn known(&self, written: Option<Identity>) -> Option<Identity> {
        let written = written?;
        Some(match self {
            Self::Connected(identity) => identity.clone(),
            Self::Untried | Self::Tried(_) => written,
        })
    }

    /// Whether what the process knows may stay when it goes to `place`. `same`: the identity by which that cluster was known, if it
    /// is the same cluster.
    pub fn stays(&self, place: &str, same: Option<&Identity>) -> bool {
        match self {
            Self::Untried => true,
            // Why not by `same` alone: where it was tried may have been another cluster than the one of which something is written.
            Self::Tried(tried) => tried == place || same.is_some_and(|known| known.place == *tried),
            Self::Connected(identity) => identity.place == place || same.is_some(),
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.lease.as_deref().unwrap_or(NO_LEASE), self.place)
    }
}

/// A copy of a Workload that is found where the Secret leads now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy<'a> {
    /// Its UID.
    pub uid: Option<&'a str>,
    /// The dispatch for which it was sent, as it says: UID of the Workload and number.
    pub dispatch: Option<(&'a str, u64)>,
    /// A job has taken it.
    pub has_job: bool,
}

/// What the manager knows of the Workload of which there is a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known<'a> {
    /// UID of the copy that was last seen on the cluster that is remembered.
    pub copy: Option<&'a str>,
    /// The present dispatch, if it may run on that cluster: UID of the Workload and number.
    pub dispatch: Option<(&'a str, u64)>,
}

impl Copy<'_> {
    /// Whether this copy can only be on the cluster that is remembered.
    ///
    /// Why not every copy of a Workload that may run there: clusters to which it was offered too have one of the same dispatch for a
    /// while, or for long where the Secret led before. But a dispatch names one cluster, and only there a job is made.
    pub fn is_known(&self, known: Known<'_>) -> bool {
        let is_it = self.uid.is_some() && self.uid == known.copy;
        let runs = self.has_job && self.dispatch.is_some() && self.dispatch == known.dispatch;
        is_it || runs
    }
}

/// The other MultiKueueCluster by which this manager has the cluster already, if there is one. `lease` is the UID of the lease that
/// is there, `written` the name on it, `place` where that is. `remembered` tells what is remembered of a MultiKueueCluster, `None` when
/// there is none of that name.
pub fn other_name<'a>(
    ours: &str,
    (lease, place): (&str, &str),
    written: Option<&'a str>,
    remembered: impl FnOnce(&str) -> Option<Option<Identity>>,
) -> Option<&'a str> {
    let other = written.filter(|name| *name != ours)?;
    // Why compared: that one may lead elsewhere by now. Where nothing is known of it, it may have this one.
    let has_it = remembered(other)?.is_none_or(|known| match &known.lease {
        Some(known) => known == lease,
        None => known.place == place,
    });
    has_it.then_some(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(lease: &str, place: &str) -> Identity {
        Identity {
            lease: Some(lease.to_owned()),
            place: place.to_owned(),
        }
    }

    fn without_lease(place: &str) -> Identity {
        Identity {
            lease: None,
            place: place.to_owned(),
        }
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        for known in [identity("uid", "print"), without_lease("print")] {
            assert_eq!(Identity::read(&known.to_string()), Some(known));
        }
        for odd in ["", "uid", "uid ", " print", "uid print more", "- ", "-"] {
            assert_eq!(Identity::read(odd), None, "{odd:?}");
        }
    }

    /// Spec: safety 3.8, I1
    #[test]
    fn it_is_another_cluster_only_where_nothing_is_known_of_it() {
        use Copies::{Known, Strange};
        use Lease::{Hidden, Missing};
        use Verdict::{Another, AskCopies, AskLease, Same};
        let kept = identity("uid", "here");
        let none = without_lease("here");
        let is = |uid: &str| Lease::Is(uid.to_owned());
        for (known, place, lease, copies, expected) in [
            (&kept, "here", None, None, Same),
            (&kept, "here", Some(is("anew")), Some(Strange), Same),
            (&none, "here", None, None, Same),
            (&kept, "there", None, None, AskLease),
            (&kept, "moved", Some(is("uid")), None, Same),
            (&kept, "there", Some(is("other")), None, Another),
            (&kept, "there", Some(is("other")), Some(Known), Another),
            (&kept, "there", Some(Missing), None, Another),
            (&kept, "there", Some(Hidden), None, AskCopies),
            (&kept, "moved", Some(Hidden), Some(Known), Same),
            (&kept, "there", Some(Hidden), Some(Strange), Another),
            (&none, "there", None, None, AskCopies),
            (&none, "there", Some(is("uid")), None, AskCopies),
            (&none, "moved", None, Some(Known), Same),
            (&none, "there", None, Some(Strange), Another),
        ] {
            let said = known.judge(place, lease.as_ref(), copies);
            assert_eq!(said, expected, "{known} {place} {lease:?} {copies:?}");
        }
    }

    /// Spec: safety 3.8, I1
    #[test]
    fn a_copy_is_known_by_its_uid_or_by_the_job_of_its_dispatch() {
        let copy = |dispatch, has_job| Copy {
            uid: Some("copy"),
            dispatch,
            has_job,
        };
        let known = |copy, dispatch| Known { copy, dispatch };
        let present = Some(("workload", 2));
        for (copy, known, expected) in [
            (copy(present, true), known(None, present), true),
            (copy(present, false), known(None, present), false),
            (copy(Some(("workload", 1)), true), known(None, present), false),
            (copy(Some(("other", 2)), true), known(None, present), false),
            (copy(None, true), known(None, present), false),
            (copy(None, true), known(None, None), false),
            (copy(None, false), known(Some("copy"), None), true),
            (copy(present, false), known(Some("other"), present), false),
        ] {
            assert_eq!(copy.is_known(known), expected, "{copy:?} {known:?}");
        }
        let nameless = Copy {
            uid: None,
            ..copy(None, false)
        };
        assert!(!nameless.is_known(Known::default()));
    }

    /// Spec: safety 3.8, I1
    #[test]
    fn the_lease_of_one_place_is_not_remembered_with_another() {
        let next =
            |before: &Identity, lease, place: &str| Identity::next(Some(before), lease, place.to_owned());
        let kept = identity("uid", "here");
        assert_eq!(
            Identity::next(None, None, "here".to_owned()),
            without_lease("here")
        );
        assert_eq!(next(&kept, None, "here"), kept, "the right to it was taken away");
        assert_eq!(next(&kept, Some("anew"), "here"), identity("anew", "here"));
        assert_eq!(next(&kept, None, "there"), without_lease("there"));
        assert_eq!(next(&kept, Some("uid"), "moved"), identity("uid", "moved"));
        assert_eq!(next(&without_lease("here"), Some("uid"), "here"), kept);
    }

    /// Spec: safety 3.8, I1
    #[test]
    fn what_was_connected_is_known_by_its_own_memory_while_something_is_written() {
        let (written, own) = (identity("uid", "here"), identity("uid", "there"));
        let tried = Past::Tried("there".to_owned());
        for past in [Past::Untried, tried] {
            assert_eq!(past.known(Some(written.clone())), Some(written.clone()));
            assert_eq!(past.known(None), None);
        }
        let connected = Past::Connected(own.clone());
        assert_eq!(connected.known(Some(written)), Some(own));
        assert_eq!(connected.known(None), None, "somebody has said so");
    }

    /// Spec: safety 3.8, I1
    #[test]
    fn what_is_known_of_one_cluster_is_not_taken_to_another() {
        let tried = || Past::Tried("tried".to_owned());
        let connected = || Past::Connected(identity("uid", "here"));
        let (here, of_tried) = (identity("uid", "here"), identity("uid", "tried"));
        for (past, place, same, expected) in [
            (Past::Untried, "there", None, true),
            (Past::Untried, "there", Some(&here), true),
            (tried(), "tried", None, true),
            (tried(), "there", None, false),
            (tried(), "there", Some(&here), false),
            (tried(), "there", Some(&of_tried), true),
            (connected(), "here", None, true),
            (connected(), "there", None, false),
            (connected(), "there", Some(&here), true),
        ] {
            assert_eq!(past.stays(place, same), expected, "{past:?} {place} {same:?}");
        }
    }

    /// Spec: safety 3.8, I5
    #[test]
    fn a_cluster_has_one_name_as_long_as_the_first_leads_there() {
        let (none, led) = (
            |_: &str| None,
            |identity: Option<Identity>| move |_: &str| Some(identity),
        );
        let (known, here) = (|| Some(identity("uid", "there")), ("uid", "here"));
        assert_eq!(
            other_name("east", here, None, none),
            None,
            "nobody has written one"
        );
        assert_eq!(other_name("east", here, Some("east"), led(known())), None);
        assert_eq!(other_name("alias", here, Some("east"), none), None, "it is gone");
        for has_it in [known(), None, Some(without_lease("here"))] {
            assert_eq!(other_name("alias", here, Some("east"), led(has_it)), Some("east"));
        }
        for elsewhere in [identity("other", "here"), without_lease("there")] {
            let led = led(Some(elsewhere));
            assert_eq!(other_name("alias", here, Some("east"), led), None);
        }
    }
}
