//! Classes of workloads with exactly equal requests, as small numbers.
//!
//! Invariant: two workloads have the same number if and only if everything that can matter for their admission is equal: pod sets,
//! reclaimable pods, priority, and whether they may preempt. The content of a class is kept once, however many members it has, and
//! forgotten with its last member. *Source*: `spec/admission-engine.md 1.4`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::workload::{PodSet, Workload};

/// The number of a class in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassId(u32);

#[cfg(test)]
impl ClassId {
    pub(crate) fn nth(index: u32) -> Self {
        Self(index)
    }
}

/// The classes of all workloads of a state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classes {
    ids: BTreeMap<Arc<str>, ClassId>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    scratch: String,
}

#[derive(Clone, Debug)]
struct Slot {
    content: Arc<str>,
    members: u32,
}

impl Classes {
    /// Adds a workload to its class, which it returns.
    pub(crate) fn join(&mut self, workload: &Workload) -> ClassId {
        let mut content = std::mem::take(&mut self.scratch);
        content.clear();
        describe(workload, &mut content);
        let id = match self.ids.get(content.as_str()) {
            Some(id) => *id,
            None => self.add(content.as_str().into()),
        };
        self.scratch = content;
        if let Some(slot) = self.slots.get_mut(id.0 as usize) {
            slot.members += 1;
        }
        id
    }

    fn add(&mut self, content: Arc<str>) -> ClassId {
        let slot = Slot {
            content: Arc::clone(&content),
            members: 0,
        };
        let index = match self.free.pop() {
            Some(index) => {
                if let Some(old) = self.slots.get_mut(index as usize) {
                    *old = slot;
                }
                index
            }
            None => {
                self.slots.push(slot);
                // Limit: four billion classes do not fit in memory.
                u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.ids.insert(content, ClassId(index));
        ClassId(index)
    }

    pub(crate) fn leave(&mut self, id: ClassId) {
        let Some(slot) = self.slots.get_mut(id.0 as usize) else {
            return;
        };
        slot.members = slot.members.saturating_sub(1);
        if slot.members == 0 {
            self.ids.remove(&slot.content);
            slot.content = "".into();
            self.free.push(id.0);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }
}

/// Writes everything that matters for admission, so that different contents never give the same text.
fn describe(workload: &Workload, text: &mut String) {
    // Writing to a string cannot fail.
    let _ = write!(text, "{}", workload.effective_priority());
    if workload.status.has_closed_gate() {
        text.push('\u{6}');
    }
    for pod_set in &workload.pod_sets {
        let PodSet {
            name,
            count,
            min_count,
            requests,
            node_selector,
            affinity,
            tolerations,
            group,
            asks_topology,
        } = pod_set;
        let _ = write!(text, "\n{name}\u{1}{count}\u{1}{min_count:?}");
        for (resource, amount) in requests {
            let _ = write!(text, "\u{2}{resource}\u{1}{}", amount.get());
        }
        if !node_selector.is_empty() || !affinity.is_empty() || !tolerations.is_empty() {
            let _ = write!(text, "\u{3}{node_selector:?}{affinity:?}{tolerations:?}");
        }
        if let Some(group) = group {
            let _ = write!(text, "\u{5}{group}");
        }
        if *asks_topology {
            text.push('\u{7}');
        }
        if let Some(gone) = workload.status.reclaimable.get(name) {
            let _ = write!(text, "\u{4}{gone}");
        }
    }
}
