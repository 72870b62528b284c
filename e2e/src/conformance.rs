//! The embedded API server held against a real one: generated request traces, played to both, answers compared.
//!
//! A trace is made from a number and nothing else. It lives in a namespace of its own, so that traces can be played side by
//! side. What necessarily differs (identities, versions, times) is renamed by [`normal`] before the comparison; what is
//! known to differ besides is listed in `shared/apiserver/DIFFERENCES.md` and never generated.

pub mod normal;
pub mod play;
mod scenes;
pub mod trace;
mod values;

pub use values::widget_definition;
