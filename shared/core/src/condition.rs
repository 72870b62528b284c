//! Conditions: the list by which a Kubernetes status explains itself.
//!
//! Invariant: `since` changes only when the truth value changes.

use std::borrow::Cow;

use indexmap::IndexMap;
use jiff::Timestamp;

/// The truth value of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Truth {
    /// Value `True`.
    True,
    /// Value `False`.
    False,
    /// Value `Unknown`.
    Unknown,
}

/// One condition, as `metav1.Condition` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Whether it holds.
    pub truth: Truth,
    /// A CamelCase token.
    pub reason: Cow<'static, str>,
    /// A sentence for people; the writer cuts it to 32 KiB.
    pub message: String,
    /// When the truth value last changed.
    pub since: Timestamp,
    /// The generation of the object this was computed from.
    pub observed_generation: Option<i64>,
}

/// Conditions by type, in the order in which they were first set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions(IndexMap<Cow<'static, str>, Condition>);

impl Conditions {
    /// The condition of this type, if it is there.
    pub fn get(&self, kind: &str) -> Option<&Condition> {
        self.0.get(kind)
    }

    /// Whether the condition is there and `True`.
    pub fn is_true(&self, kind: &str) -> bool {
        self.get(kind).is_some_and(|c| c.truth == Truth::True)
    }

    /// Whether the condition is there and `False`.
    pub fn is_false(&self, kind: &str) -> bool {
        self.get(kind).is_some_and(|c| c.truth == Truth::False)
    }

    /// The condition, if it is `True`.
    pub fn when_true(&self, kind: &str) -> Option<&Condition> {
        self.get(kind).filter(|c| c.truth == Truth::True)
    }

    /// Sets a condition. `since` moves to `now` only when the truth value changes; nothing moves when nothing differs.
    pub fn set(
        &mut self,
        kind: impl Into<Cow<'static, str>>,
        truth: Truth,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
        now: Timestamp,
    ) {
        let (reason, message) = (reason.into(), message.into());
        match self.0.entry(kind.into()) {
            indexmap::map::Entry::Occupied(mut entry) => {
                let old = entry.get_mut();
                let since = if old.truth == truth { old.since } else { now };
                let observed_generation = old.observed_generation;
                *old = Condition {
                    truth,
                    reason,
                    message,
                    since,
                    observed_generation,
                };
            }
            indexmap::map::Entry::Vacant(entry) => {
                entry.insert(Condition {
                    truth,
                    reason,
                    message,
                    since: now,
                    observed_generation: None,
                });
            }
        }
    }

    /// Inserts a condition as read from an object, with its own time.
    pub fn insert(&mut self, kind: impl Into<Cow<'static, str>>, condition: Condition) {
        self.0.insert(kind.into(), condition);
    }

    /// Removes a condition.
    pub fn remove(&mut self, kind: &str) {
        self.0.shift_remove(kind);
    }

    /// All conditions in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Condition)> {
        self.0.iter().map(|(kind, condition)| (kind.as_ref(), condition))
    }
}

/// Condition `Active` that an object shall show; the writer sets its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Active {
    /// Whether it can be used.
    pub truth: Truth,
    /// A CamelCase token.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: Cow<'static, str>,
}

impl Active {
    /// An `Active` condition with a fixed sentence.
    pub const fn new(truth: Truth, reason: &'static str, message: &'static str) -> Self {
        Self {
            truth,
            reason,
            message: Cow::Borrowed(message),
        }
    }

    /// Whether it can be used.
    pub fn is_active(&self) -> bool {
        self.truth == Truth::True
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{Conditions, Truth};

    #[test]
    fn the_time_moves_only_with_the_truth_value() {
        let (early, late) = (
            Timestamp::from_second(1).unwrap(),
            Timestamp::from_second(2).unwrap(),
        );
        let mut conditions = Conditions::default();
        conditions.set("Admitted", Truth::False, "NoReservation", "a", early);
        conditions.set("Admitted", Truth::False, "NoReservation", "b", late);
        assert_eq!(conditions.get("Admitted").unwrap().since, early);
        assert_eq!(conditions.get("Admitted").unwrap().message, "b");
        conditions.set("Admitted", Truth::True, "Admitted", "c", late);
        assert_eq!(conditions.get("Admitted").unwrap().since, late);
    }
}
