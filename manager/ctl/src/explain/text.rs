//! The answer as text.

use std::fmt::Write as _;

use jiff::Timestamp;
use roadstead_convert::explanation::view::View;

use crate::table::{age, table};

pub(crate) fn render(view: &View, now: Timestamp) -> String {
    let mut text = view.workload.clone();
    if let Some(job) = &view.job {
        let _infallible = write!(text, " ({job})");
    }
    let since = view
        .since
        .map_or_else(String::new, |since| format!(" (since {})", age(since, now)));
    let _infallible = write!(text, "\nState:  {}", view.state.sentence());
    let _infallible = write!(text, "\nWhy:    {}: {}{since}", view.reason, view.message);
    if !view.next.is_empty() {
        let _infallible = write!(text, "\nNext:   {}", view.next);
    }
    if !view.clusters.is_empty() {
        let rows = view.clusters.iter().map(|row| {
            let age = row.since.map_or_else(String::new, |since| age(since, now));
            vec![row.cluster.clone(), row.answer.clone(), age, row.detail.clone()]
        });
        let table = table(&["CLUSTER", "ANSWER", "AGE", "DETAIL"], rows.collect());
        let _infallible = write!(text, "\n{table}");
    }
    text
}

#[cfg(test)]
mod tests {
    use roadstead_convert::explanation::view::{Row, State};

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn row(cluster: &str, answer: &str, detail: &str, since: Option<Timestamp>) -> Row {
        Row {
            cluster: cluster.to_owned(),
            answer: answer.to_owned(),
            detail: detail.to_owned(),
            since,
            age_seconds: None,
        }
    }

    /// Spec: experience 5
    #[test]
    fn the_text_has_a_line_for_the_state_the_reason_the_next_step_and_each_cluster() {
        let mut view = View {
            workload: "team-a/job-train".to_owned(),
            job: Some("Job train".to_owned()),
            state: State::WaitingForPlacement,
            cluster: None,
            reason: "WaitingForWorkers".to_owned(),
            message: "waiting for quota on \"east\"".to_owned(),
            next: "look there".to_owned(),
            since: Some(at("2026-11-21T10:00:00Z")),
            clusters: vec![
                row(
                    "east",
                    "NoRoom",
                    "2 cpu more needed",
                    Some(at("2026-11-21T10:01:00Z")),
                ),
                row("west", "NotConnected", "", Some(at("2026-11-21T08:00:00Z"))),
                row("north", "Asked", "", None),
            ],
        };
        let now = at("2026-11-21T10:02:30Z");
        assert_eq!(
            render(&view, now),
            "team-a/job-train (Job train)\n\
             State:  waiting for a worker\n\
             Why:    WaitingForWorkers: waiting for quota on \"east\" (since 2m)\n\
             Next:   look there\n\
             CLUSTER   ANSWER         AGE   DETAIL\n\
             east      NoRoom         90s   2 cpu more needed\n\
             west      NotConnected   2h    -\n\
             north     Asked          -     -"
        );
        (view.job, view.next, view.since) = (None, String::new(), None);
        view.clusters.clear();
        assert_eq!(
            render(&view, now),
            "team-a/job-train\n\
             State:  waiting for a worker\n\
             Why:    WaitingForWorkers: waiting for quota on \"east\""
        );
    }
}
