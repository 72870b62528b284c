//! The metrics pages of both processes, as strict readers see them.

use std::collections::BTreeSet;

use openmetrics_parser::{openmetrics, prometheus};

use super::fixture::{EAST, EVEN, MANAGER, WEST, beside_others};

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn names_once(page: &str) {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let all: Vec<&str> = types.filter_map(|rest| rest.split(' ').next()).collect();
    let once: BTreeSet<&&str> = all.iter().collect();
    assert_eq!(once.len(), all.len(), "{all:?}");
}

/// Spec: admission-engine 8; multikueue 8
#[test]
fn strict_readers_of_both_formats_take_the_pages_of_the_manager_and_a_worker() {
    beside_others("pages", EVEN, |room| async move {
        room.submit(room.job("counted", "1", 1)).await;
        room.job_is(MANAGER, "counted", "Complete").await;
        for process in [MANAGER, EAST, WEST] {
            for accept in ["*/*", "text/plain;version=0.0.4", "application/json"] {
                let (head, page) = room.shared.metrics_as(process, accept).await;
                assert!(head.contains(TEXT), "{process} {accept}: {head}");
                prometheus::parse_prometheus(&page)
                    .unwrap_or_else(|error| panic!("{process}: {error}\n{page}"));
                names_once(&page);
                assert!(page.contains("# TYPE kueue_pending_workloads gauge\n"), "{page}");
            }
            let accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
            let (head, page) = room.shared.metrics_as(process, accept).await;
            assert!(head.contains(OPEN), "{process}: {head}");
            openmetrics::parse_openmetrics(&page)
                .unwrap_or_else(|error| panic!("{process}: {error}\n{page}"));
            names_once(&page);
        }
        let (_, page) = room.shared.metrics_as(MANAGER, "*/*").await;
        for (metric, by) in [
            ("multikueue_workloads_dispatched_total", "copies"),
            ("multikueue_workloads_admitted_total", "choices"),
            ("kueue_finished_workloads_total", "ends"),
        ] {
            assert!(
                page.contains(&format!("# TYPE {metric} counter\n")),
                "{by}: {page}"
            );
            assert!(
                page.lines().any(|line| line.starts_with(&format!("{metric}{{"))),
                "{by}: {page}"
            );
        }
        assert!(!page.contains("kueue_multikueue_"), "{page}");
    });
}
