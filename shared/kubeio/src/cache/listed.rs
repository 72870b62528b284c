//! What an answer to a list says about objects that were cached before.

use kube::Resource;

use super::version_of;

#[derive(Clone, Copy, Debug)]
pub(super) struct Listed {
    /// The storage's version; `None` when it is not a number.
    pub(super) version: Option<u64>,
    /// The highest version seen before the list was requested.
    pub(super) newest: u64,
    /// Whether the storage is known to have gone back, even if its versions have caught up since.
    pub(super) distrusted: bool,
}

impl Listed {
    pub(super) fn went_back(self) -> bool {
        self.distrusted || self.version.is_some_and(|version| version < self.newest)
    }

    /// Whether the list was made after this object was stored, so that the list shows the object if it still exists.
    pub(super) fn covers<K: Resource>(self, object: &K) -> bool {
        match (self.version, version_of(object)) {
            (Some(listed), Some(stored)) => stored <= listed || self.went_back(),
            (None, _) | (_, None) => true,
        }
    }
}
