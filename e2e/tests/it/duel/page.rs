//! The page of metrics of one side, read at most once per look of all sequences together.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::{Client, Config};
use tokio::sync::Mutex;

use super::side::View;

/// How old a page may be that is looked at.
const FRESH: Duration = Duration::from_millis(400);
/// Families that tell how an engine went about it, or how long that took, and not what came of it.
const WAYS: [&str; 5] = [
    "kueue_admission_attempts_total",
    "kueue_admission_attempt_duration_seconds",
    "kueue_admission_cycle_preemption_skips",
    "kueue_preemption_target_recomputations_total",
    "kueue_pending_scheduling_hashes",
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
        let of_it = [format!("\"{name}-"), format!("\"{name}\"")];
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else {
                continue;
            };
            let (family, labels) = series.split_once('{').unwrap_or((series, ""));
            let is_way =
                WAYS.contains(&family) || ["_bucket", "_sum"].iter().any(|end| family.ends_with(end));
            if !family.contains("kueue_") || is_way || !of_it.iter().any(|own| labels.contains(own)) {
                continue;
            }
            let mut labels: Vec<&str> = labels.trim_end_matches('}').split("\",").collect();
            labels.retain(|label| !label.is_empty());
            labels.sort_unstable();
            let labels = nameless(&labels.join("\","));
            let value: f64 = value.parse().unwrap();
            view.insert(format!("metric {family} {labels}"), value.to_string());
        }
    }

    /// Families with their types, as `# TYPE` lines say them.
    pub(super) async fn families(&self) -> View {
        let page = self.read().await;
        let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let types = types.filter_map(|line| line.split_once(' '));
        types
            .filter(|(family, _)| family.contains("kueue_"))
            .map(|(family, kind)| (format!("family {family}"), kind.to_owned()))
            .collect()
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
