//! Which cluster a MultiKueueCluster leads to: known by the UID of the manager's lease there.
//!
//! Why: who points the Secret of a worker at another cluster while jobs run there would have them run twice, because nothing
//! of them is found where it leads now; and of two of them for one cluster each would take away what the other
//! has sent there.
//!
//! *Source*: `spec/safety.md` 3.8, I1, I5.

use std::fmt;

/// The identity of a cluster as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// UID of the manager's lease there.
    pub lease: String,
    /// Where that was: any text that is another one for another API server.
    pub place: String,
}

impl Identity {
    /// Reads what [`fmt::Display`] wrote; `None` when it is no identity.
    pub fn read(text: &str) -> Option<Self> {
        let (lease, place) = text.split_once(' ')?;
        let is_word = |word: &str| !word.is_empty() && !word.contains(' ');
        (is_word(lease) && is_word(place)).then(|| Self {
            lease: lease.to_owned(),
            place: place.to_owned(),
        })
    }

    /// Whether what is found at `place` is another cluster. `lease`: UID of the lease that is there, if one is.
    ///
    /// Why both: a lease that somebody deleted, or that a restored storage has forgotten, is made anew in the same place; and the
    /// same cluster may get another address or another certificate authority.
    pub fn is_another(&self, lease: Option<&str>, place: &str) -> bool {
        lease != Some(self.lease.as_str()) && place != self.place
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.lease, self.place)
    }
}

/// The other MultiKueueCluster by which this manager has the cluster already, if there is one. `lease` is the UID of the lease that
/// is there, `written` the name on it. `remembered` tells what is remembered of a MultiKueueCluster, `None` when there is none
/// of that name.
pub fn other_name<'a>(
    ours: &str,
    lease: &str,
    written: Option<&'a str>,
    remembered: impl FnOnce(&str) -> Option<Option<Identity>>,
) -> Option<&'a str> {
    let other = written.filter(|name| *name != ours)?;
    // Why compared: that one may lead elsewhere by now.
    let has_it = remembered(other)?.is_none_or(|identity| identity.lease == lease);
    has_it.then_some(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(lease: &str, place: &str) -> Identity {
        Identity {
            lease: lease.to_owned(),
            place: place.to_owned(),
        }
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let known = identity("uid", "print");
        assert_eq!(Identity::read(&known.to_string()), Some(known));
        for odd in ["", "uid", "uid ", " print", "uid print more"] {
            assert_eq!(Identity::read(odd), None, "{odd:?}");
        }
    }

    /// Spec: safety 3.8, I1
    #[test]
    fn it_is_another_cluster_only_where_neither_the_lease_nor_the_place_is_known() {
        let known = identity("uid", "here");
        assert!(!known.is_another(Some("uid"), "here"));
        assert!(!known.is_another(Some("uid"), "moved"));
        assert!(!known.is_another(Some("anew"), "here"), "the lease was deleted");
        assert!(!known.is_another(None, "here"));
        assert!(known.is_another(Some("other"), "there"));
        assert!(known.is_another(None, "there"));
    }

    /// Spec: safety 3.8, I5
    #[test]
    fn a_cluster_has_one_name_as_long_as_the_first_leads_there() {
        let (none, led) = (
            |_: &str| None,
            |identity: Option<Identity>| move |_: &str| Some(identity),
        );
        let known = || Some(identity("uid", "here"));
        assert_eq!(
            other_name("east", "uid", None, none),
            None,
            "nobody has written one"
        );
        assert_eq!(other_name("east", "uid", Some("east"), led(known())), None);
        assert_eq!(other_name("alias", "uid", Some("east"), none), None, "it is gone");
        assert_eq!(
            other_name("alias", "uid", Some("east"), led(known())),
            Some("east")
        );
        assert_eq!(other_name("alias", "uid", Some("east"), led(None)), Some("east"));
        let elsewhere = Some(identity("other", "there"));
        assert_eq!(other_name("alias", "uid", Some("east"), led(elsewhere)), None);
    }
}
