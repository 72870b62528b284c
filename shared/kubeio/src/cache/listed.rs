//! What an answer to a list says of what was cached before.

use kube::Resource;

use super::version_of;

/// One answer to a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listed {
    /// Of what is stored; `None` when it is no number.
    pub(super) version: Option<u64>,
    /// The highest that was seen before it was asked for.
    pub(super) newest: u64,
    /// Whether the storage is known to have gone back, though its versions may have caught up since.
    pub(super) distrusted: bool,
}

impl Listed {
    pub(super) fn went_back(self) -> bool {
        self.distrusted || self.version.is_some_and(|version| version < self.newest)
    }

    /// Whether it was made after this object was stored, so that it shows it if it is still there.
    pub(super) fn covers<K: Resource>(self, object: &K) -> bool {
        match (self.version, version_of(object)) {
            (Some(listed), Some(stored)) => stored <= listed || self.went_back(),
            (None, _) | (_, None) => true,
        }
    }
}
