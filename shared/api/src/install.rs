//! The objects of an installation, derived from the code that the processes use: flags, ports, rights, the configuration.
//!
//! It never talks to a cluster. `roadstead install` applies these objects; `deploy` renders the charts and the plain manifests
//! from them, with placeholders where a chart has values.
//!
//! Reading order: [`values`] (the choices), [`place`] (all of them made), [`objects`] (the objects), [`owned`] (the labels of our objects),
//! [`visibility`] (the objects of the visibility API), `webhooks` (the webhook configurations).

pub mod objects;
pub mod owned;
pub(crate) mod people;
pub mod place;
pub mod values;
pub mod visibility;
pub(crate) mod webhooks;

pub use objects::{Group, When, groups, manifests};
pub use place::Place;
pub use values::{Refusal, Values};
