//! The parts of traces: short stories, each about one verb or rule, with random details.

mod apply;
mod basic;
mod custom;
mod hooks;
mod limits;
mod reading;

use serde_json::json;

use super::trace::{Dice, Step};

/// Scenes of one trace.
const SCENES: usize = 4;

/// A story.
type Scene = fn(&mut Dice) -> Vec<Step>;

/// All scenes.
const ALL: &[Scene] = &[
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

/// The trace of a number: its namespace and its steps.
pub fn generate(seed: u64) -> (String, Vec<Step>) {
    let namespace = format!("trace-{seed}");
    let mut dice = Dice::of(seed);
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    let mut steps = vec![Step::post("/api/v1/namespaces", body)];
    for _ in 0..SCENES {
        let scene = dice.pick(ALL);
        steps.extend(scene(&mut dice));
    }
    (namespace, steps)
}
