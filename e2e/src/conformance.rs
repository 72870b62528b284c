//! Compares the embedded API server with a real one: generated request traces are sent to both, and the answers compared.
//!
//! A trace depends on a number only. It has a namespace of its own, so traces can run side by side. Values that must differ
//! (identities, versions, times) are renamed by [`normal`] before the comparison. Other known differences are listed in
//! `shared/apiserver/DIFFERENCES.md` and never generated.

pub mod normal;
pub mod play;
pub mod scenes;
pub mod trace;
mod values;

pub use values::widget_definition;
