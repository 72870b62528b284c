//! Limits of the figures: `perf federation --check`, `perf sick --check` and `perf wrappers --check` fail if a figure misses its limit.
//!
//! *Limits*: the machine must do nothing else meanwhile. Ratios are to the bare client, or to calm phases, in the same run. Figures in
//! milliseconds and megabytes are for a machine of about two cores; the CPU time of a job may miss its limit in a slow hour of a shared one.
//!
//! *Source*: `e2e/docs/performance.md`; `spec/safety.md` I12 for the cost of a sick worker.

use std::cmp::Ordering;
use std::fmt;

use super::{Report, sick, wrappers};

/// The number of jobs for which the manager's memory has a limit.
const PROMISED_JOBS: u16 = 1000;
/// Largest growth of a figure from the fewest workers of a run to the most, as a ratio.
const FLAT: f64 = 1.5;
/// Limit of the mean beside a sick worker, as a ratio to that of the calm phases.
const SICK_MEAN: Limit = Limit::AtMost(1.2);

/// Limit of the memory of the controller of `AppWrappers`, megabytes, for as many as can be measured.
const WRAPPERS_MEMORY: Limit = Limit::Under(150.0);
/// Limit of the writes to an `AppWrapper` for each change of its phase.
const WRITES_PER_CHANGE: Limit = Limit::AtMost(2.0);

/// The figures of a federation.
const FEDERATION: [Figure; 9] = [
    Figure::new("admitted_ratio_p50", Unit::ToBare, Limit::Under(1.0), |r| {
        r.admitted_ratio_p50
    }),
    Figure::new("mirror_ratio_p50", Unit::ToBare, Limit::AtMost(1.5), |r| {
        r.mirror_ratio_p50
    }),
    Figure::new("latency_ratio_p50", Unit::ToBare, Limit::AtMost(1.5), |r| {
        r.latency_ratio_p50
    }),
    Figure::new("throughput_ratio", Unit::ToBare, Limit::AtLeast(0.7), |r| {
        r.throughput_ratio
    }),
    Figure::new("requests_per_job", Unit::Count, Limit::AtMost(25.0), |r| {
        r.requests_per_job
    }),
    Figure::new("failed_requests_per_job", Unit::Count, Limit::Under(0.2), |r| {
        r.failed_requests_per_job
    }),
    Figure::new("placed_to_job_ms_p99", Unit::Millis, Limit::Under(2000.0), |r| {
        r.placed_to_job_ms_p99
    }),
    Figure::new("manager_cpu_ms_per_job", Unit::Millis, Limit::AtMost(10.0), |r| {
        r.manager_cpu_ms_per_job
    }),
    Figure::new(MEMORY, Unit::Megabytes, Limit::Under(80.0), |r| {
        r.manager_rss_mb_1000
    }),
];

/// The figure that has a limit for [`PROMISED_JOBS`] only.
const MEMORY: &str = "manager_rss_mb_1000";

/// Reads a figure.
type Of = fn(&Report) -> f64;

/// The figures of a federation that must be as good with many workers as with few.
///
/// Why the time as a ratio to the bare client's: 20 workers are 21 API servers on the same cores, which slows every client down.
const FLAT_FIGURES: [(&str, Of); 2] = [
    ("requests_per_job", |r| r.requests_per_job),
    ("latency_ratio_p50", |r| r.latency_ratio_p50),
];

/// A figure of a federation with its limit.
struct Figure {
    /// Its name in the report.
    name: &'static str,
    unit: Unit,
    limit: Limit,
    of: Of,
}

impl Figure {
    const fn new(name: &'static str, unit: Unit, limit: Limit, of: Of) -> Self {
        Self {
            name,
            unit,
            limit,
            of,
        }
    }
}

/// The unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Millis,
    Megabytes,
    Count,
    /// A ratio to the bare client in the same run.
    ToBare,
    /// A ratio to the calm phases of the same run.
    ToCalm,
    /// A ratio to the run with the fewest workers.
    ToFewest,
    /// A ratio to the run with the fewest `AppWrappers`.
    ToSmallest,
}

impl Unit {
    const fn words(self) -> &'static str {
        match self {
            Self::Millis => " ms",
            Self::Megabytes => " MB",
            Self::Count => "",
            Self::ToBare => " of the bare client",
            Self::ToCalm => " of the calm phases",
            Self::ToFewest => " of the run with the fewest workers",
            Self::ToSmallest => " of the run with the fewest AppWrappers",
        }
    }
}

/// The limit of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Limit {
    Under(f64),
    AtMost(f64),
    AtLeast(f64),
}

impl Limit {
    /// Why a positive comparison: a figure that is NaN then meets no limit.
    fn is_met(self, measured: f64) -> bool {
        match self {
            Self::Under(limit) => measured < limit,
            Self::AtMost(limit) => measured <= limit,
            Self::AtLeast(limit) => measured >= limit,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Under(limit) => write!(f, "under {limit}"),
            Self::AtMost(limit) => write!(f, "at most {limit}"),
            Self::AtLeast(limit) => write!(f, "at least {limit}"),
        }
    }
}

/// A figure that missed its limit.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Missed {
    figure: String,
    measured: f64,
    limit: Limit,
    unit: Unit,
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            figure,
            measured,
            limit,
            unit,
        } = self;
        write!(f, "{figure}: measured {measured}, limit {limit}{}", unit.words())
    }
}

fn check(figure: String, measured: f64, limit: Limit, unit: Unit) -> Option<Missed> {
    (!limit.is_met(measured)).then_some(Missed {
        figure,
        measured,
        limit,
        unit,
    })
}

/// The limits that the runs of a federation missed, one run for each number of workers.
pub(super) fn of_federation(reports: &[Report]) -> Vec<Missed> {
    let each = reports.iter().flat_map(|report| {
        let promised = |figure: &&Figure| figure.name != MEMORY || report.jobs_held <= PROMISED_JOBS;
        { FEDERATION.iter() }.filter(promised).filter_map(|figure| {
            let name = format!("{} with {} workers", figure.name, report.workers);
            check(name, (figure.of)(report), figure.limit, figure.unit)
        })
    });
    each.chain(grown(reports)).collect()
}

/// Figures that grow with the number of workers.
fn grown(reports: &[Report]) -> Vec<Missed> {
    let by_workers = |a: &&Report, b: &&Report| -> Ordering { a.workers.cmp(&b.workers) };
    let (Some(few), Some(many)) = (
        reports.iter().min_by(by_workers),
        reports.iter().max_by(by_workers),
    ) else {
        return Vec::new();
    };
    let figures = FLAT_FIGURES.iter().filter_map(|(name, of)| {
        let name = format!("{name} with {} workers to {}", many.workers, few.workers);
        let ratio = super::rounded(of(many) / of(few));
        check(name, ratio, Limit::AtMost(FLAT), Unit::ToFewest)
    });
    figures.collect()
}

/// The limits that jobs beside a sick worker missed.
pub(super) fn of_sick(report: &sick::Report) -> Vec<Missed> {
    let sick::Report {
        workers: _,
        jobs: _,
        reads_fail,
        writes_fail,
        full,
        stopped,
        seconds: _,
    } = report;
    let all = [
        ("reads_fail", reads_fail),
        ("writes_fail", writes_fail),
        ("full", full),
        ("stopped", stopped),
    ];
    let missed = all.into_iter().filter_map(|(name, beside)| {
        let name = format!("{name}.ratio_mean");
        check(name, beside.ratio_mean, SICK_MEAN, Unit::ToCalm)
    });
    missed.collect()
}

/// The limits that our controller of `AppWrappers` missed, one run for each number of them.
pub(super) fn of_wrappers(reports: &[wrappers::Report]) -> Vec<Missed> {
    let ours = || {
        reports
            .iter()
            .filter(|report| report.controller == wrappers::Runner::Ours.agent())
    };
    let each = ours().flat_map(|report| {
        let figures = [
            (
                "writes_per_change",
                report.writes_per_change,
                WRITES_PER_CHANGE,
                Unit::Count,
            ),
            (
                "creations_per_child",
                report.creations_per_child,
                Limit::AtMost(1.0),
                Unit::Count,
            ),
            (
                "rss_mb_peak",
                report.rss_mb_peak,
                WRAPPERS_MEMORY,
                Unit::Megabytes,
            ),
        ];
        figures.into_iter().filter_map(|(name, measured, limit, unit)| {
            check(
                format!("{name} with {} AppWrappers", report.wrappers),
                measured,
                limit,
                unit,
            )
        })
    });
    let ends = ours()
        .min_by_key(|report| report.wrappers)
        .zip(ours().max_by_key(|report| report.wrappers));
    let grown = ends.into_iter().flat_map(|(few, many)| {
        let figures = [
            (
                "requests_per_wrapper",
                few.requests_per_wrapper,
                many.requests_per_wrapper,
            ),
            ("cpu_ms_per_change", few.cpu_ms_per_change, many.cpu_ms_per_change),
        ];
        figures.into_iter().filter_map(|(name, of_few, of_many)| {
            let name = format!("{name} with {} AppWrappers to {}", many.wrappers, few.wrappers);
            check(
                name,
                super::rounded(of_many / of_few),
                Limit::AtMost(FLAT),
                Unit::ToSmallest,
            )
        })
    });
    each.chain(grown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in `e2e/docs/performance.md`.
    fn good(workers: u16) -> Report {
        Report {
            workers,
            admitted_ratio_p50: 0.6,
            latency_ratio_p50: 1.2,
            mirror_ratio_p50: 1.0,
            throughput_ratio: 0.9,
            placed_to_job_ms_p99: 90.0,
            manager_cpu_ms_per_job: 6.3,
            requests_per_job: 15.0,
            failed_requests_per_job: 0.01,
            manager_rss_mb_1000: 61.0,
            jobs_held: 1000,
            ..Report::default()
        }
    }

    fn lines(missed: &[Missed]) -> Vec<String> {
        missed.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_federation_as_promised_misses_nothing() {
        assert_eq!(of_federation(&[good(2), good(20)]), []);
        assert_eq!(of_federation(&[]), []);
    }

    #[test]
    fn each_figure_that_is_missed_is_named_with_what_was_measured_and_its_limit() {
        let bad = Report {
            admitted_ratio_p50: 1.0,
            latency_ratio_p50: 1.83,
            mirror_ratio_p50: 1.6,
            throughput_ratio: 0.69,
            placed_to_job_ms_p99: 2000.0,
            manager_cpu_ms_per_job: 10.1,
            requests_per_job: 25.5,
            failed_requests_per_job: 0.2,
            manager_rss_mb_1000: 80.0,
            ..good(20)
        };
        assert_eq!(
            lines(&of_federation(&[good(2), bad])),
            [
                "admitted_ratio_p50 with 20 workers: measured 1, limit under 1 of the bare client",
                "mirror_ratio_p50 with 20 workers: measured 1.6, limit at most 1.5 of the bare client",
                "latency_ratio_p50 with 20 workers: measured 1.83, limit at most 1.5 of the bare client",
                "throughput_ratio with 20 workers: measured 0.69, limit at least 0.7 of the bare client",
                "requests_per_job with 20 workers: measured 25.5, limit at most 25",
                "failed_requests_per_job with 20 workers: measured 0.2, limit under 0.2",
                "placed_to_job_ms_p99 with 20 workers: measured 2000, limit under 2000 ms",
                "manager_cpu_ms_per_job with 20 workers: measured 10.1, limit at most 10 ms",
                "manager_rss_mb_1000 with 20 workers: measured 80, limit under 80 MB",
                "requests_per_job with 20 workers to 2: measured 1.7, limit at most 1.5 of the run with the fewest workers",
                "latency_ratio_p50 with 20 workers to 2: measured 1.53, limit at most 1.5 of the run with the fewest workers",
            ]
        );
    }

    #[test]
    fn memory_is_promised_for_a_thousand_jobs() {
        let held = |jobs_held| Report {
            manager_rss_mb_1000: 181.0,
            jobs_held,
            ..good(2)
        };
        assert_eq!(of_federation(&[held(5000)]), []);
        assert_eq!(of_federation(&[held(1000)]).len(), 1);
    }

    #[test]
    fn the_cost_of_wrappers_grows_with_what_changes_and_not_with_their_number() {
        let good = |wrappers| wrappers::Report {
            controller: "roadstead-worker",
            wrappers,
            writes_per_change: 1.8,
            creations_per_child: 1.0,
            rss_mb_peak: 90.0,
            requests_per_wrapper: 13.8,
            cpu_ms_per_change: 2.0,
            ..wrappers::Report::default()
        };
        let theirs = wrappers::Report {
            controller: "appwrapper-operator",
            writes_per_change: 3.1,
            ..wrappers::Report::default()
        };
        assert_eq!(of_wrappers(&[good(500), good(5000), theirs]), []);
        assert_eq!(of_wrappers(&[]), []);
        let bad = wrappers::Report {
            writes_per_change: 2.1,
            creations_per_child: 1.01,
            rss_mb_peak: 150.0,
            requests_per_wrapper: 27.6,
            cpu_ms_per_change: 3.02,
            ..good(5000)
        };
        assert_eq!(
            lines(&of_wrappers(&[good(500), bad])),
            [
                "writes_per_change with 5000 AppWrappers: measured 2.1, limit at most 2",
                "creations_per_child with 5000 AppWrappers: measured 1.01, limit at most 1",
                "rss_mb_peak with 5000 AppWrappers: measured 150, limit under 150 MB",
                "requests_per_wrapper with 5000 AppWrappers to 500: measured 2, limit at most 1.5 of the run with the fewest AppWrappers",
                "cpu_ms_per_change with 5000 AppWrappers to 500: measured 1.51, limit at most 1.5 of the run with the fewest AppWrappers",
            ]
        );
    }

    #[test]
    fn a_figure_that_is_no_number_is_missed() {
        let report = Report {
            throughput_ratio: f64::NAN,
            ..good(2)
        };
        assert_eq!(of_federation(&[report]).len(), 1);
    }

    /// Spec: safety I12
    #[test]
    fn jobs_beside_a_sick_worker_take_at_most_a_fifth_longer_on_average() {
        let beside = |ratio_mean| sick::Beside {
            ratio_mean,
            ..sick::Beside::default()
        };
        let report = |full| sick::Report {
            reads_fail: beside(1.2),
            writes_fail: beside(0.7),
            full: beside(full),
            stopped: beside(1.06),
            ..sick::Report::default()
        };
        assert_eq!(of_sick(&report(1.0)), []);
        assert_eq!(
            lines(&of_sick(&report(1.21))),
            ["full.ratio_mean: measured 1.21, limit at most 1.2 of the calm phases"]
        );
    }
}
