//! Field ownership: which manager set which field, and how server-side apply uses that.

mod apply;
mod compare;
mod entries;
mod set;

pub(crate) use apply::{Force, apply};
pub(crate) use entries::{Change, update};
pub(crate) use set::Set;
