//! A job as one line: what `explain` says of it, shortened.

use jiff::Timestamp;
use kube::ResourceExt as _;
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_convert::explanation::view::{State, View, view};

use super::Row;

pub(super) const COLUMNS: &[&str] = &["NAME", "QUEUE", "STATE", "CLUSTER"];
pub(super) const WIDE: &[&str] = &["PRIORITY", "WORKLOAD", "REASON"];

pub(super) fn row(workload: &Workload, now: Timestamp) -> Row {
    let view = view(workload, now);
    let spec = &workload.spec;
    Row {
        cells: vec![
            called(&view, &workload.name_any()),
            spec.queue_name.clone().unwrap_or_default(),
            state(&view),
            view.cluster.unwrap_or_default(),
        ],
        wide: vec![
            spec.priority
                .map_or_else(String::new, |priority| priority.to_string()),
            workload.name_any(),
            format!("{}: {}", view.reason, view.message),
        ],
    }
}

/// `job/train`: what can be given to `roadstead explain`.
pub(crate) fn called(view: &View, workload: &str) -> String {
    match view.job.as_deref().and_then(|job| job.split_once(' ')) {
        Some((kind, name)) => format!("{}/{name}", kind.to_lowercase()),
        None => format!("workload/{workload}"),
    }
}

/// The state as `explain` shows it; for an ended job, how it ended.
fn state(view: &View) -> String {
    match view.state {
        State::Finished => view.reason.clone(),
        State::Deactivated
        | State::Stopping
        | State::Running
        | State::WorkerLost
        | State::WaitingForPlacement
        | State::WaitingForChecks
        | State::WaitingForQuota => format!("{:?}", view.state),
    }
}
