//! Field ownership: who set which field, and what server-side apply makes of it.

mod apply;
mod compare;
mod entries;
mod set;

pub(crate) use apply::{Force, apply};
pub(crate) use entries::{Change, update};
pub(crate) use set::Set;
