//! Job kinds: what Roadstead must know about each kind of job to hold it back, start it, stop it, copy it and read its end.
//!
//! Jobs are `serde_json::Value`s, never typed structs, so that fields this version does not know survive a copy to another
//! cluster. This crate **never** talks to a server, reads a clock or decides whether something happens: it says how.
//!
//! Reading order: [`kind`] (the contract), [`batch`] (the first kind), [`podset`] (what is injected at start), [`naming`],
//! [`equivalence`], [`webhook`].
//!
//! ```
//! use serde_json::json;
//! let kinds = roadstead_jobs::registry();
//! let job = json!({"spec": {"parallelism": 3, "template": {}}});
//! assert_eq!(kinds[0].pod_sets(&job).unwrap()[0].count, 3);
//! ```

pub mod kind;

pub mod batch;

pub mod equivalence;
pub mod json;
pub mod labels;
pub mod naming;
pub mod podset;
pub mod problem;
pub mod remote;
pub mod webhook;

pub use kind::{JobKind, JobPodSet};

/// All kinds that are built, in the order of the table.
pub fn registry() -> Vec<&'static dyn JobKind> {
    vec![&batch::BatchJob]
}

/// The kind with this API group and kind name, whatever its version.
pub fn kind_of(group: &str, kind: &str) -> Option<&'static dyn JobKind> {
    registry().into_iter().find(|known| known.kind().is(group, kind))
}

#[cfg(test)]
mod tests {
    use roadstead_kinds::{Kind, TABLE};

    /// Spec: jobs 4.1
    #[test]
    fn what_the_table_calls_built_has_a_file_here_in_the_order_of_the_table() {
        let here: Vec<&Kind> = super::registry().into_iter().map(super::JobKind::kind).collect();
        assert_eq!(here, TABLE.built().collect::<Vec<_>>());
    }
}
