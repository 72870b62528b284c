//! `AppWrappers`: what the API holds as the controller sees it, its answer as a patch, and the children that templates become.
//!
//! Reading order: `status` (in and out), `spec` (components), `child` (what is created),
//! `knobs` (what annotations say).
//!
//! *Source*: `spec/appwrapper.md 1, 4.3, 8.2`.

mod child;
mod knobs;
mod spec;
mod status;

pub use child::{Building, child};
pub use knobs::{knobs, warnings};
pub use spec::{ROLE, ROLE_SERVICE, components, pod_sets};
pub use status::{status, status_patch};
