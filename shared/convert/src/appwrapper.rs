//! `AppWrappers`: from the API to the controller, its status as a patch, and the children made from templates.
//!
//! Reading order: `status` (in and out), `spec` (components), `child` (the created objects), `knobs` (settings from annotations).
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
