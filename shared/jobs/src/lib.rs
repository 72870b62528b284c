//! Job kinds: what Roadstead must know about each kind of job to hold it back, start it, stop it, copy it and read its end.
//!
//! A job is a set of [`kind::Members`]: one object for most kinds, many for a group of pods. All but their metadata are
//! `serde_json::Value`s, never typed structs, so that fields this version does not know survive a copy to another cluster. This crate **never** talks to a server, reads a clock or decides whether something happens: it says how.
//!
//! Reading order: [`kind`] (the contract), [`batch`] (the first kind), [`podset`] (what is injected at start), [`naming`],
//! [`equivalence`], [`webhook`].
//!
//! ```
//! use roadstead_jobs::kind::{Member, Members};
//! use serde_json::json;
//! let kinds = roadstead_jobs::registry();
//! let (meta, data) = (&Default::default(), &json!({"spec": {"parallelism": 3, "template": {}}}));
//! let job = Member { meta, data };
//! assert_eq!(kinds[0].pod_sets(Members::one(&job)).unwrap()[0].count, 3);
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

#[cfg(test)]
mod fixture;

pub use kind::{Gvk, JobKind, JobPodSet};

/// All kinds that are known, in a fixed order.
pub fn registry() -> Vec<&'static dyn JobKind> {
    vec![&batch::BatchJob]
}

/// The kind with this API group and kind name, whatever its version.
pub fn kind_of(group: &str, kind: &str) -> Option<&'static dyn JobKind> {
    registry().into_iter().find(|known| {
        let gvk = known.gvk();
        gvk.group == group && gvk.kind == kind
    })
}
