//! Writes for which the webhooks are not called: those of our own processes, and a manager's copies on a worker.

use std::collections::BTreeMap;

use super::fixture::{EAST, EVEN, MANAGER, Room, WEST, alone};

/// How often a webhook was called for each operation.
type Calls = BTreeMap<(String, String), u64>;

const COUNTER: &str = "apiserver_admission_webhook_request_total{";

/// The calls that a cluster's API server counted for the webhooks of jobs and Workloads.
async fn calls(room: Room, cluster: &str) -> Calls {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let text = room.shared.client(cluster).request_text(request).await.unwrap();
    let mut calls = Calls::new();
    for line in text.lines().filter(|line| line.starts_with(COUNTER)) {
        let label = |name: &str| -> String {
            let (_, value) = line.split_once(&format!("{name}=\"")).unwrap();
            value.split('"').next().unwrap().to_owned()
        };
        let hook = label("name");
        if hook.ends_with("job.kb.io") || hook.ends_with("workload.kb.io") {
            let (_, count) = line.rsplit_once(' ').unwrap();
            *calls.entry((hook, label("operation"))).or_default() += count.parse::<u64>().unwrap();
        }
    }
    calls
}

/// The calls since then.
async fn since(room: Room, cluster: &str, before: &Calls) -> Vec<(String, String, u64)> {
    let all = calls(room, cluster).await.into_iter();
    all.map(|((hook, operation), count)| {
        let known = before.get(&(hook.clone(), operation.clone()));
        (hook, operation, count - known.copied().unwrap_or_default())
    })
    .filter(|(_, _, count)| *count > 0)
    .collect()
}

/// Spec: jobs 7.1
#[test]
fn only_what_the_user_writes_is_reviewed() {
    alone("reviews", EVEN, |room| async move {
        let before = [
            (MANAGER, calls(room, MANAGER).await),
            (EAST, calls(room, EAST).await),
            (WEST, calls(room, WEST).await),
        ];
        room.submit(room.job("train", "1", 1)).await;
        room.job_is(MANAGER, "train", "Complete").await;
        room.is_swept().await;
        for (cluster, before) in before {
            let asked = since(room, cluster, &before).await;
            let wanted: &[(&str, &str)] = match cluster {
                MANAGER => &[("mjob.kb.io", "CREATE"), ("vjob.kb.io", "CREATE")],
                _ => &[],
            };
            let once = |(hook, operation): &(&str, &str)| ((*hook).to_owned(), (*operation).to_owned(), 1);
            assert_eq!(asked, wanted.iter().map(once).collect::<Vec<_>>(), "{cluster}");
        }
    });
}
