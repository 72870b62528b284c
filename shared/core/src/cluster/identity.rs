//! Which cluster a MultiKueueCluster leads to: known by the UID of its namespace `kube-system`, or, where the manager's account may not
//! read that, by the address and the certificate authority of its API server.
//!
//! Why: if an administrator points a worker's Secret at another cluster while jobs run, those jobs would start twice, because the
//! new cluster has no copy of them. And two names for one cluster would each remove what the other has sent there.
//!
//! *Source*: `spec/safety.md` 3.8, I1, I5.

use std::fmt;

/// The text for an unknown UID or place; no real one equals it.
const NOTHING: &str = "-";
/// The word between the two. Why: earlier versions wrote two words, and each version must take the other's text for no identity.
const AT: &str = "at";

/// The identity of a cluster, as it is found at a connection and remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// UID of its namespace `kube-system`; `None` where the account may not read it: the cluster is not identified.
    pub uid: Option<String>,
    /// A text that differs for each API server or authority; `None` where only the UID counts.
    pub place: Option<String>,
}

/// Whether a known cluster was found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is this cluster.
    Same,
    /// It is another cluster, or nothing shows that it is this one.
    Another,
}

impl Identity {
    /// Reads what [`fmt::Display`] wrote; `None` when it is no identity.
    pub fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (uid, at, place) = (words.next()?, words.next()?, words.next()?);
        if at != AT || words.next().is_some() || uid.is_empty() || place.is_empty() {
            return None;
        }
        let known = |word: &str| (word != NOTHING).then(|| word.to_owned());
        Some(Self {
            uid: known(uid),
            place: known(place),
        })
    }

    /// Whether `found` is this cluster. Where both UIDs are known only they count: a cluster may get another address, and another
    /// cluster may get this address.
    pub fn judge(&self, found: &Self) -> Verdict {
        let is_same = match (&self.uid, &found.uid) {
            (Some(known), Some(found)) => known == found,
            (None, _) | (_, None) => self.place.is_some() && self.place == found.place,
        };
        if is_same { Verdict::Same } else { Verdict::Another }
    }

    /// What to remember after `found` was judged to be the same cluster. A known UID is kept even if it cannot be read this time.
    #[must_use]
    pub fn updated(&self, found: &Self) -> Self {
        Self {
            uid: found.uid.clone().or_else(|| self.uid.clone()),
            place: found.place.clone(),
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |known: &Option<String>| known.clone().unwrap_or_else(|| NOTHING.to_owned());
        write!(f, "{} {AT} {}", word(&self.uid), word(&self.place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(uid: &str, place: &str) -> Identity {
        Identity::read(&format!("{uid} at {place}")).unwrap()
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        for text in ["uid at print", "- at print", "uid at -"] {
            assert_eq!(identity_text(text).as_deref(), Some(text));
        }
        assert_eq!(identity("-", "print").uid, None);
        let earlier = "uid print";
        for odd in [
            "",
            "uid",
            earlier,
            "uid at",
            "uid at ",
            " at print",
            "uid on print",
            "uid at print more",
        ] {
            assert_eq!(Identity::read(odd), None, "{odd:?}");
        }
    }

    fn identity_text(text: &str) -> Option<String> {
        Identity::read(text).map(|identity| identity.to_string())
    }

    /// Spec: safety 3.8, I1
    #[test]
    fn a_cluster_is_known_by_its_uid_and_without_one_by_its_place() {
        use Verdict::{Another, Same};
        for (known, found, expected) in [
            (("uid", "here"), ("uid", "here"), Same),
            (("uid", "here"), ("uid", "moved"), Same),
            (("uid", "-"), ("uid", "moved"), Same),
            (("uid", "here"), ("other", "here"), Another),
            (("uid", "here"), ("other", "there"), Another),
            (("uid", "here"), ("-", "here"), Same),
            (("uid", "here"), ("-", "there"), Another),
            (("uid", "-"), ("-", "there"), Another),
            (("-", "here"), ("uid", "here"), Same),
            (("-", "here"), ("uid", "there"), Another),
            (("-", "here"), ("-", "here"), Same),
            (("-", "here"), ("-", "there"), Another),
            (("-", "-"), ("-", "-"), Another),
        ] {
            let (known, found) = (identity(known.0, known.1), identity(found.0, found.1));
            assert_eq!(known.judge(&found), expected, "{known}, {found}");
        }
    }

    /// Spec: safety 3.8
    #[test]
    fn a_uid_that_may_not_be_read_any_more_is_still_known() {
        let known = identity("uid", "here");
        assert_eq!(known.updated(&identity("-", "here")), known);
        assert_eq!(known.updated(&identity("uid", "moved")), identity("uid", "moved"));
        assert_eq!(identity("-", "here").updated(&known), known);
    }
}
