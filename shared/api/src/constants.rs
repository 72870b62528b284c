//! Names that go over the wire: keys of labels and annotations, finalizers, gates, conditions, reasons, controllers.
//!
//! Wire: every value is byte-exact with `spec/api.md` API-12 and API-9.6, `spec/multikueue.md` 1.1, `spec/provisioning.md`;
//! only keys under `roadstead.dev` are our own.

pub mod annotations;
pub mod conditions;
pub mod controllers;
pub mod finalizers;
pub mod gates;
pub mod groups;
pub mod labels;
pub mod names;
