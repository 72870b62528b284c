//! `roadstead get`, `top`, `describe` and `events` show the jobs of the whole federation from the management cluster alone.

use serde_json::Value;

use super::fixture::{EAST, LONG_SECS, MANAGER, Room, WEST, beside_others};
use crate::shared::{chain, eventually};

/// The manager has room for one job of 3 CPU.
const ONE: &[(&str, &str)] = &[(MANAGER, "4"), (EAST, "4"), (WEST, "4")];

async fn said(room: Room, args: &[&str]) -> String {
    let manager = room.shared.stage.kubeconfig(MANAGER).display().to_string();
    let args = [args, &["--kubeconfig", &manager]].concat();
    let said = room.shared.stage.command(&args).await;
    said.unwrap_or_else(|error| panic!("{}", chain(&error)))
}

async fn refused(room: Room, args: &[&str]) -> String {
    let manager = room.shared.stage.kubeconfig(MANAGER).display().to_string();
    let args = [args, &["--kubeconfig", &manager]].concat();
    chain(&room.shared.stage.command(&args).await.unwrap_err())
}

/// The cells of the line that begins with this word.
fn line(text: &str, first: &str) -> Option<Vec<String>> {
    let lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let found = lines.into_iter().find(|cells| cells.first() == Some(&first))?;
    Some(found.into_iter().map(str::to_owned).collect())
}

/// Waits until the line that begins with this word goes on, after `skipped` more cells, with these.
///
/// Why not at once: the manager writes a status behind what it tells of.
async fn reads(room: Room, args: &[&str], first: &str, skipped: usize, cells: &[&str]) -> String {
    eventually(|| async {
        let text = said(room, args).await;
        let line = line(&text, first)?;
        let rest = line.get(1 + skipped..)?;
        rest.iter()
            .zip(cells)
            .all(|(cell, wanted)| cell == wanted)
            .then_some(text)
    })
    .await
}

async fn describes(room: Room, worker: &str) {
    let namespace = room.name;
    let running = said(room, &["describe", "job/runs", "-n", namespace]).await;
    for words in [
        "State:  running",
        &format!("Cluster:  {worker}"),
        "cpu=3",
        "Admitted ",
    ] {
        assert!(running.contains(words), "{words}: {running}");
    }
    let waiting = said(room, &["describe", "waits", "-n", namespace]).await;
    for words in [
        "State:  waiting for quota",
        "Cluster:  -",
        "cpu=2",
        "QuotaReserved ",
    ] {
        assert!(waiting.contains(words), "{words}: {waiting}");
    }
}

/// What no object matches, and what contradicts itself.
async fn refuses(room: Room) {
    let namespace = room.name;
    let unknown = refused(room, &["get", "jobs", "nothing", "-n", namespace]).await;
    assert!(unknown.contains("roadstead get jobs -A"), "{unknown}");
    let unknown = refused(room, &["get", "queues", "nothing", "-n", namespace]).await;
    assert!(unknown.contains("roadstead get queues -A"), "{unknown}");
    let both = refused(room, &["get", "jobs", "-A", "-n", namespace]).await;
    assert!(both.contains("cannot be used with"), "{both}");
    let labels = refused(room, &["get", "jobs", "-n", namespace, "-l", "a in"]).await;
    assert!(labels.contains("reading the Workloads failed"), "{labels}");
}

/// Spec: experience 3, experience P5
#[test]
fn a_job_that_runs_and_a_job_that_waits_are_listed_measured_and_described() {
    beside_others("look", ONE, |room| async move {
        let namespace = room.name;
        room.submit(room.job("runs", "3", LONG_SECS)).await;
        let worker = room.started("runs").await;
        room.submit(room.job("waits", "2", LONG_SECS)).await;
        let jobs = ["get", "jobs", "-n", namespace];
        reads(room, &jobs, "job/runs", 0, &[namespace, "Running", &worker]).await;
        reads(room, &jobs, "job/waits", 0, &[namespace, "WaitingForQuota", "-"]).await;
        let wide = ["get", "jobs", "waits", "-n", namespace, "-o", "wide"];
        // After name, queue, state, cluster, age, priority and Workload: the reason.
        let wide = reads(room, &wide, "job/waits", 6, &["WaitingForQuota:"]).await;
        assert!(!wide.contains("job/runs"), "{wide}");
        let everywhere = said(room, &["get", "-A"]).await;
        assert!(everywhere.starts_with("NAMESPACE "), "{everywhere}");

        // For scripts the objects of the API, as kubectl prints them.
        let list: Value =
            serde_json::from_str(&said(room, &["get", "jobs", "-n", namespace, "-o", "json"]).await).unwrap();
        assert_eq!(list["kind"], "List", "{list}");
        let workloads = list["items"].as_array().unwrap();
        assert!(workloads.iter().all(|one| one["kind"] == "Workload"), "{list}");
        let one: Value = serde_json::from_str(
            &said(room, &["get", "jobs", "job/runs", "-n", namespace, "-o", "json"]).await,
        )
        .unwrap();
        assert_eq!(one["status"]["clusterName"], worker.as_str(), "{one}");

        let queues = ["get", "queues", "-n", namespace];
        reads(room, &queues, namespace, 0, &[namespace, "True", "1", "1"]).await;
        for cluster in [EAST, WEST] {
            reads(room, &["get", "clusters"], cluster, 0, &["True"]).await;
        }

        // After cohort and flavor: used, reserved, nominal and borrowed quota, jobs waiting and admitted.
        reads(
            room,
            &["top"],
            namespace,
            2,
            &["cpu", "3", "3", "4", "0", "1", "1"],
        )
        .await;
        let local = ["top", "queues", "-n", namespace];
        reads(room, &local, namespace, 1, &["cpu", "3", "3", "1", "1"]).await;
        let clusters = ["top", "clusters", "-n", namespace];
        reads(
            room,
            &clusters,
            &worker,
            0,
            &["True", "-", "1", "1", "0", "cpu=3"],
        )
        .await;

        describes(room, &worker).await;
        // Why not at once, and why any of them: the manager writes events behind what they tell of, and leaves out routine ones when
        // it has many to write.
        let events = eventually(|| async {
            let text = said(room, &["events", "runs", "-n", namespace]).await;
            (text.contains("job/runs") || text.contains("workload/job-runs")).then_some(text)
        })
        .await;
        assert!(
            events.starts_with("LAST SEEN") && !events.contains("waits"),
            "{events}"
        );

        refuses(room).await;
    });
}
