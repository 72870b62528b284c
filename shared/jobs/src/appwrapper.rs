//! `AppWrapper`: where the pods of what is wrapped come from, and how it fares.
//!
//! *Source*: `spec/appwrapper.md 1.4, 1.5, 8.2`.

use roadstead_kinds::{Kind, rows};

pub mod infer;
pub mod path;
pub mod probe;

/// The row of the table.
pub const ROW: &Kind = &rows::APP_WRAPPER;
