//! Named things with a small number: the state of admission works with the number, the caller with the name.
//!
//! Invariant: a number is valid until its thing is removed; it may then stand for something else. So no decision may depend on the order of
//! numbers alone.

use std::collections::BTreeMap;
use std::marker::PhantomData;

/// A small number that stands for a thing in a [`Table`].
pub(crate) trait Id: Copy + Ord {
    fn new(index: u32) -> Self;
    fn index(self) -> usize;
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(u32);

        impl Id for $name {
            fn new(index: u32) -> Self {
                Self(index)
            }

            fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

ids! {
    /// Number of a Workload in a state.
    WorkloadId;
    /// Number of a LocalQueue in a state, with or without object.
    LocalId;
    /// Number of a ClusterQueue in a state, with or without object.
    ClusterId;
}

#[cfg(test)]
impl WorkloadId {
    pub(crate) fn nth(index: u32) -> Self {
        Self(index)
    }
}

/// A table of things by name and by number.
#[derive(Clone, Debug)]
pub(crate) struct Table<K, I, V> {
    ids: BTreeMap<K, I>,
    slots: Vec<Option<V>>,
    free: Vec<u32>,
    of: PhantomData<I>,
}

impl<K, I, V> Default for Table<K, I, V> {
    fn default() -> Self {
        Self {
            ids: BTreeMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            of: PhantomData,
        }
    }
}

impl<K: Ord + Clone, I: Id, V> Table<K, I, V> {
    pub(crate) fn id(&self, name: &K) -> Option<I> {
        self.ids.get(name).copied()
    }

    pub(crate) fn at(&self, id: I) -> Option<&V> {
        self.slots.get(id.index()).and_then(Option::as_ref)
    }

    pub(crate) fn at_mut(&mut self, id: I) -> Option<&mut V> {
        self.slots.get_mut(id.index()).and_then(Option::as_mut)
    }

    pub(crate) fn get(&self, name: &K) -> Option<&V> {
        self.id(name).and_then(|id| self.at(id))
    }

    /// The number of a name; the thing is created if it is missing.
    pub(crate) fn ensure(&mut self, name: &K, make: impl FnOnce() -> V) -> I {
        if let Some(id) = self.id(name) {
            return id;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            // Limit: four billion things do not fit in memory.
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let id = I::new(index);
        if let Some(slot) = self.slots.get_mut(id.index()) {
            *slot = Some(make());
        }
        self.ids.insert(name.clone(), id);
        id
    }

    pub(crate) fn remove(&mut self, name: &K) -> Option<V> {
        let id = self.ids.remove(name)?;
        let value = self.slots.get_mut(id.index()).and_then(Option::take);
        self.free.push(u32::try_from(id.index()).unwrap_or(u32::MAX));
        value
    }

    /// All things in the order of their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, I, &V)> {
        self.ids
            .iter()
            .filter_map(|(name, id)| Some((name, *id, self.at(*id)?)))
    }

    /// The things from `first` on, in the order of their names.
    pub(crate) fn from(&self, first: K) -> impl Iterator<Item = (&K, &V)> {
        self.ids
            .range(first..)
            .filter_map(|(name, id)| Some((name, self.at(*id)?)))
    }
}
