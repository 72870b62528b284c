//! The parts of traces: short stories, each about one verb or rule, with random details.

mod apply;
mod basic;
mod custom;
mod hooks;
mod limits;
mod reading;

use super::trace::{Dice, Step};

/// A story.
pub(crate) type Scene = fn(&mut Dice) -> Vec<Step>;

/// All scenes.
pub(crate) const ALL: &[Scene] = &[
    basic::life,
    basic::life,
    basic::versions,
    basic::patches,
    basic::finalizers,
    basic::propagation,
    basic::names,
    basic::junk,
    basic::job_change,
    basic::job_status,
    basic::pod_change,
    basic::immutable,
    basic::errors,
    apply::alone,
    apply::together,
    apply::after_update,
    apply::status,
    apply::wrong,
    custom::validation,
    custom::change,
    custom::subresources,
    custom::product,
    custom::definitions,
    custom::unknown_fields,
    reading::lists,
    reading::pages,
    reading::watches,
    reading::selectors,
    reading::tables,
    reading::access,
    reading::tokens,
    limits::consistency,
    limits::forgotten,
    limits::bookmarks,
    limits::reviews,
    limits::owners,
    limits::grace,
    limits::discovery,
    hooks::admission,
    hooks::admission,
    hooks::conditions,
    hooks::conversion,
    hooks::conversion,
];
