//! Finds the managed object that a job belongs to, however many owners lie between.
//!
//! [`top`] walks from controlling owner to controlling owner and keeps the last managed object it meets. The caller reads the owners, so
//! the walk itself is pure.
//!
//! *Source*: `spec/jobs.md 4.3`, `spec/appwrapper.md 5.5`.

use crate::name::Uid;

/// *Limit*: the number of owners that a walk visits.
pub const OWNERS_MAX: usize = 10;

/// A reference to a controlling owner, which is in the namespace of the object it owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Group of its API; empty for the core group.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its UID: another object of the same name is not meant.
    pub uid: Uid,
}

/// What a reference leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen<T> {
    /// The owner's kind is not known here, or the owner is deleted: the walk ends below it.
    Nothing,
    /// An object of a known kind.
    Owner {
        /// The object, if it is managed: its integration is enabled and it is to be queued.
        managed: Option<T>,
        /// Its own controlling owner.
        above: Option<Reference>,
    },
}

/// Why a walk ended without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop<E> {
    /// An owner owns itself, directly or through other owners.
    Cyclic,
    /// There are more than [`OWNERS_MAX`] owners.
    TooDeep,
    /// An owner could not be read.
    Unread(E),
}

/// The top-most managed owner. `start` is the controlling owner of the object; `look` reads what a reference leads to.
///
/// *Errors*: see [`Stop`].
pub fn top<T, E>(
    start: Option<Reference>,
    mut look: impl FnMut(&Reference) -> Result<Seen<T>, E>,
) -> Result<Option<T>, Stop<E>> {
    let (mut best, mut met, mut next) = (None, Vec::new(), start);
    while let Some(reference) = next {
        if met.contains(&reference.uid) {
            return Err(Stop::Cyclic);
        }
        if met.len() >= OWNERS_MAX {
            return Err(Stop::TooDeep);
        }
        match look(&reference).map_err(Stop::Unread)? {
            Seen::Nothing => break,
            Seen::Owner { managed, above } => {
                best = managed.or(best);
                met.push(reference.uid);
                next = above;
            }
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(index: usize) -> Reference {
        Reference {
            group: "g".to_owned(),
            kind: "K".to_owned(),
            name: index.to_string(),
            uid: Uid::from(index.to_string()),
        }
    }

    /// Walks owners 0, 1, ... of which each is managed or not; the last one has `above`.
    fn walk(owners: &[bool], above: Option<usize>) -> Result<Option<usize>, Stop<&'static str>> {
        top((!owners.is_empty()).then(|| reference(0)), |at| {
            let index: usize = at.name.parse().map_err(|_text| "not a number")?;
            let Some(managed) = owners.get(index) else {
                return Ok(Seen::Nothing);
            };
            let is_last = index + 1 == owners.len();
            let next = if is_last { above } else { Some(index + 1) };
            Ok(Seen::Owner {
                managed: managed.then_some(index),
                above: next.map(reference),
            })
        })
    }

    /// Spec: jobs 4.3; appwrapper 5.5
    #[test]
    fn the_top_most_managed_owner_counts_whatever_stands_between() {
        assert_eq!(walk(&[], None), Ok(None));
        assert_eq!(walk(&[false, false], None), Ok(None));
        assert_eq!(walk(&[true, true], None), Ok(Some(1)), "AppWrapper above JobSet");
        assert_eq!(
            walk(&[true, false], None),
            Ok(Some(0)),
            "AppWrapper without a queue"
        );
        assert_eq!(
            walk(&[false, true], None),
            Ok(Some(1)),
            "the integration between is off"
        );
        assert_eq!(
            walk(&[true], Some(9)),
            Ok(Some(0)),
            "an owner of an unknown kind ends it"
        );
    }

    /// Spec: jobs 4.3
    #[test]
    fn ten_owners_are_walked_and_neither_more_nor_circles() {
        assert_eq!(walk(&[true; 10], None), Ok(Some(9)));
        assert_eq!(walk(&[true; 11], None), Err(Stop::TooDeep));
        assert_eq!(walk(&[false; 3], Some(1)), Err(Stop::Cyclic));
        let unread = top::<(), _>(Some(reference(0)), |_owner| Err("no answer"));
        assert_eq!(unread, Err(Stop::Unread("no answer")));
    }
}
