//! Taints of nodes, and the tolerations with which pods and flavors accept them.

/// Effect of a taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Pods are not placed on the node.
    NoSchedule,
    /// Pods are placed on the node only when no other node is left.
    PreferNoSchedule,
    /// Pods are not placed on the node, and running ones are removed.
    NoExecute,
}

/// A taint of the nodes a flavor stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// The key.
    pub key: String,
    /// The value, may be empty.
    pub value: String,
    /// The effect.
    pub effect: Effect,
    /// `timeAdded` as printed by the API, if given (shown in messages only).
    pub time_added: Option<String>,
}

/// A toleration, of a pod or of a flavor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toleration {
    /// The key; `None` or empty with `Exists` tolerates every key.
    pub key: Option<String>,
    /// `Exists` or `Equal` (default).
    pub operator: Option<String>,
    /// The value to equal.
    pub value: Option<String>,
    /// The effect; `None` tolerates every effect.
    pub effect: Option<String>,
    /// How long a `NoExecute` taint is tolerated, in seconds.
    pub seconds: Option<i64>,
}
