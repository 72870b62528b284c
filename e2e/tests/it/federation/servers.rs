//! API servers and etcds that are killed and come back.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt as _;
use kube::api::ListParams;
use roadstead_e2e::ControlPlane;
use tokio::time::{Instant, sleep};

use super::fixture::{EAST, MANAGER, Room, WEST, alone, has, was_sent_once};
use super::loss::is_held_in_west;
use crate::shared::eventually;

/// A job of 6 CPU fits only into west.
const WEST_IS_LARGER: &[(&str, &str)] = &[(MANAGER, "16"), (EAST, "4"), (WEST, "8")];
/// Four jobs of 1 CPU at once, wherever they are.
const NARROW: &[(&str, &str)] = &[(MANAGER, "4"), (EAST, "4"), (WEST, "4")];
const AT_ONCE: usize = 4;
/// How long a manager that can store nothing is watched when everything has ended.
const DARK: Duration = Duration::from_secs(3);

/// Which processes of a control plane are killed.
#[derive(Clone, Copy)]
enum Victims {
    Etcd,
    EtcdAndApiServer,
}

impl Victims {
    /// Kills it with SIGKILL.
    fn of(self, plane: &ControlPlane) {
        plane.kill_storage().unwrap();
        match self {
            Self::Etcd => {}
            Self::EtcdAndApiServer => plane.kill_apiserver().unwrap(),
        }
    }
}

async fn worker_loses(room: Room, victims: Victims) {
    room.submit(room.job("survivor", "6", 15)).await;
    assert_eq!(room.started("survivor").await, WEST);
    room.runs_in(WEST, "survivor").await;
    let placed = room.workload_where("survivor", is_held_in_west).await;
    let west = room.shared.stage.planes().worker(WEST).unwrap();
    victims.of(west);
    room.submit(room.job("meanwhile", "4", 1)).await;
    assert_eq!(room.started("meanwhile").await, EAST);
    room.job_is(MANAGER, "meanwhile", "Complete").await;
    let now = room.workload("survivor").await.unwrap();
    assert!(is_held_in_west(&now), "{:?}", now.status);
    assert!(room.jobs(EAST).get_opt("survivor").await.unwrap().is_none());

    west.revive().await.unwrap();
    let job = room.job_is(MANAGER, "survivor", "Complete").await;
    assert_eq!(job.status.unwrap().succeeded, Some(1));
    let after = room.workload("survivor").await.unwrap();
    assert_eq!(after.uid(), placed.uid());
    assert!(was_sent_once(&after), "{:?}", after.status);
    room.submit(room.job("afterwards", "6", 1)).await;
    assert_eq!(room.started("afterwards").await, WEST);
    room.job_is(MANAGER, "afterwards", "Complete").await;
    room.is_swept().await;
}

/// Spec: safety F3, I1, I12
#[test]
fn a_worker_whose_api_server_and_etcd_die_keeps_its_job_and_gets_new_ones_when_they_are_back() {
    alone("worker-dies", WEST_IS_LARGER, |room| {
        worker_loses(room, Victims::EtcdAndApiServer)
    });
}

/// Its API server stays: it accepts connections, and can neither read nor write.
///
/// Spec: safety F3, I1, I12
#[test]
fn a_worker_whose_etcd_dies_keeps_its_job_and_gets_new_ones_when_it_is_back() {
    alone("worker-etcd-dies", WEST_IS_LARGER, |room| {
        worker_loses(room, Victims::Etcd)
    });
}

/// Names and UIDs of the jobs that were started in a worker, and whether they have ended there.
async fn started_jobs(room: Room) -> BTreeMap<(String, Option<String>), bool> {
    let mut started = BTreeMap::new();
    for worker in [EAST, WEST] {
        let jobs = room.jobs(worker).list(&ListParams::default()).await.unwrap();
        let runs = |job: &Job| job.spec.as_ref().is_some_and(|spec| spec.suspend != Some(true));
        for job in jobs.items.into_iter().filter(runs) {
            started.insert((job.name_any(), job.uid()), has(&job, "Complete"));
        }
    }
    started
}

fn running(started: &BTreeMap<(String, Option<String>), bool>) -> usize {
    started.values().filter(|has_ended| !**has_ended).count()
}

async fn manager_loses(room: Room, victims: Victims) {
    let names: Vec<String> = (0..2 * AT_ONCE).map(|index| format!("job-{index}")).collect();
    for name in &names {
        room.submit(room.job(name, "1", 8)).await;
    }
    let full = || async { (running(&started_jobs(room).await) == AT_ONCE).then_some(()) };
    eventually(full).await;
    let manager = &room.shared.stage.planes().manager;
    victims.of(manager);
    let before = started_jobs(room).await;
    eventually(|| async { (running(&started_jobs(room).await) == 0).then_some(()) }).await;
    let until = Instant::now() + DARK;
    while Instant::now() < until {
        let now = started_jobs(room).await;
        assert!(now.keys().eq(before.keys()), "{before:?} became {now:?}");
        sleep(Duration::from_millis(250)).await;
    }

    manager.revive().await.unwrap();
    let all_end = || async {
        let started = started_jobs(room).await;
        assert!(
            running(&started) <= AT_ONCE,
            "its quota was given twice: {started:?}"
        );
        let jobs = room.jobs(MANAGER).list(&ListParams::default()).await.ok()?;
        let ended = jobs.iter().filter(|job| has(job, "Complete"));
        (ended.count() == names.len()).then_some(jobs)
    };
    for job in eventually(all_end).await {
        assert_eq!(
            job.status.clone().unwrap().succeeded,
            Some(1),
            "{}",
            job.name_any()
        );
    }
    for name in &names {
        let workload = room.workload(name).await.unwrap();
        assert!(was_sent_once(&workload), "{:?}", workload.status);
    }
    room.is_swept().await;
}

/// Spec: safety F4, I1, I2, I4, I11
#[test]
fn a_manager_without_api_server_and_etcd_grants_nothing_and_goes_on_when_they_are_back() {
    alone("manager-dies", NARROW, |room| {
        manager_loses(room, Victims::EtcdAndApiServer)
    });
}

/// Spec: safety F4, I1, I2, I4, I11
#[cfg(feature = "nightly")]
#[test]
fn a_manager_without_etcd_grants_nothing_and_goes_on_when_it_is_back() {
    alone("manager-etcd-dies", NARROW, |room| {
        manager_loses(room, Victims::Etcd)
    });
}
