//! The objects of an installation, derived from the code that the processes use: flags, ports, rights, the configuration.
//!
//! It never talks to a cluster. `roadstead install` applies these objects; `deploy` renders the charts and the plain manifests
//! from them, with placeholders where a chart has values.
//!
//! Reading order: [`values`] (the choices), [`objects`] (the objects for them), [`owned`] (the labels of our objects).

pub mod objects;
pub mod owned;
pub(crate) mod people;
pub mod values;

pub use objects::{Group, Place, When, groups, manifests};
pub use values::{Refusal, Values};
