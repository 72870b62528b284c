//! The page of metrics of one side, read at most once per look of all sequences together.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::{Client, Config};
use tokio::sync::Mutex;

use super::side::View;

/// How old a page may be that is looked at.
const FRESH: Duration = Duration::from_millis(400);
/// Families that are not compared: they tell how an engine went about it, or how often the end of a deleted job was seen before the
/// garbage collector came, or the release that is pinned does not have them yet.
const LEFT_OUT: [&str; 9] = [
    "kueue_admission_attempts_total",
    "kueue_admission_attempt_duration_seconds",
    "kueue_admission_cycle_preemption_skips",
    "kueue_preemption_target_recomputations_total",
    "kueue_pending_scheduling_hashes",
    "kueue_finished_workloads_total",
    "kueue_local_queue_finished_workloads_total",
    "kueue_execution_time_seconds_count",
    "kueue_local_queue_execution_time_seconds_count",
];

/// Where a side shows its metrics, and what was read last.
pub(super) struct Page {
    client: Client,
    last: Mutex<(Instant, Arc<str>)>,
}

impl Page {
    /// Over HTTPS if there is a token.
    pub(super) fn new(address: SocketAddr, token: Option<&str>) -> Self {
        let scheme = token.map_or("http", |_| "https");
        let mut config = Config::new(format!("{scheme}://{address}").parse().unwrap());
        // Why: the reference signs its certificate itself.
        config.accept_invalid_certs = true;
        config.auth_info.token = token.map(Into::into);
        let long_ago = Instant::now().checked_sub(FRESH).unwrap();
        Self {
            client: Client::try_from(config).unwrap(),
            last: Mutex::new((long_ago, Arc::from(""))),
        }
    }

    /// The series of a sequence, in `view`. `nameless` takes what is its own out of a name.
    pub(super) async fn show(&self, view: &mut View, name: &str, nameless: impl Fn(&str) -> String) {
        let page = self.read().await;
        let types: BTreeMap<&str, &str> = { page.lines() }
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
            .collect();
        let of_it = [format!("\"{name}-"), format!("\"{name}\"")];
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else {
                continue;
            };
            let (family, labels) = series.split_once('{').unwrap_or((series, ""));
            let is_left_out =
                LEFT_OUT.contains(&family) || ["_bucket", "_sum"].iter().any(|end| family.ends_with(end));
            let value: f64 = value.parse().unwrap();
            // Why not zero: what is zero may be left out.
            if !family.contains("kueue_")
                || is_left_out
                || value == 0.0
                || !of_it.iter().any(|own| labels.contains(own))
            {
                continue;
            }
            let mut labels: Vec<&str> = labels.trim_end_matches("\"}").split("\",").collect();
            // Why: only ours elects a leader here.
            labels.retain(|label| !label.starts_with("replica_role="));
            labels.sort_unstable();
            let labels = nameless(&labels.join("\" ")).replace('"', "");
            let kind = types.get(family.trim_end_matches("_count")).copied();
            let kind = kind.or_else(|| types.get(family).copied()).unwrap_or_default();
            view.insert(format!("metric {family} {labels}"), format!("{kind} {value}"));
        }
    }

    async fn read(&self) -> Arc<str> {
        let mut last = self.last.lock().await;
        if last.0.elapsed() >= FRESH {
            let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
            let page = self.client.request_text(request).await.unwrap();
            *last = (Instant::now(), page.into());
        }
        Arc::clone(&last.1)
    }
}
