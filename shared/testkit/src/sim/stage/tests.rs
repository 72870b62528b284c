//! Faults of whole clusters really happen.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::super::kind::JobKind;
use super::super::play::Player;
use super::super::trace::Keep;
use super::*;

const WORKER: usize = 1;

/// The number of the fault that starts the second manager.
const RIVALRY: usize = 7;

async fn stage(player: &Player) -> Arc<Stage> {
    furnished(player, &Script::from_seed(1).with_faults(&[])).await
}

async fn furnished(player: &Player, script: &Script) -> Arc<Stage> {
    let stage = Stage::set(player.template(), script, Trace::new(Keep::Hash));
    stage.furnish(script).await.unwrap();
    stage
}

/// A run with a second manager and no other trouble.
fn with_rival(called: Called) -> Script {
    let mut script = Script::from_seed(1).with_faults(&[]);
    let entry = super::super::fault::Entry {
        at: Duration::from_secs(8),
        lasts: Duration::from_mins(1),
        fault: Fault::Rival { called },
    };
    script.faults.push((RIVALRY, entry));
    script
}

async fn get(stage: &Stage, path: &str) -> (StatusCode, Value) {
    objects::ask(&stage.servers[WORKER], Method::GET, path, None).await
}

fn with_player(test: impl AsyncFnOnce(Player)) {
    let player = Player::new().unwrap();
    super::super::play::runtime().unwrap().block_on(test(player));
}

/// Spec: safety F15.
#[test]
fn a_restored_storage_has_what_it_had_when_the_backup_was_made() {
    with_player(async |player| {
        let stage = stage(&player).await;
        let fault = Fault::Rewind { cluster: WORKER };
        stage.begin(1, fault).await;
        let version = stage.servers[WORKER].version();
        let jobs = vec![objects::foreign_job(JobKind::Job, "later")];
        objects::create(&stage.servers[WORKER], jobs).await.unwrap();
        let path = format!("{}/later", JobKind::Job.path(objects::NAMESPACE));
        assert_eq!(get(&stage, &path).await.0, StatusCode::OK);
        stage.end(1, fault);
        assert_eq!(get(&stage, &path).await.0, StatusCode::NOT_FOUND);
        assert_eq!(stage.servers[WORKER].version(), version);
    });
}

/// The played controllers and nodes notice that the storage was restored, even if its versions have caught up before they connect
/// again.
///
/// Spec: safety F15
#[test]
fn the_world_ends_what_a_backup_brings_back_however_far_the_versions_are() {
    with_player(async |player| {
        let stage = stage(&player).await;
        let server = &stage.servers[WORKER];
        let (mut world, script, until) = (JoinSet::new(), Script::from_seed(1), CancellationToken::new());
        stage.enliven(WORKER, &script, &mut world, &until);
        let (jobs, mut job) = objects::foreign_job(JobKind::Job, "back");
        job["spec"]["suspend"] = json!(false);
        job["spec"]["template"]["metadata"] = json!({"annotations": {roadstead_world::RUN_SECONDS: "600"}});
        objects::create(server, vec![(jobs, job)]).await.unwrap();
        let path = format!("{}/back", JobKind::Job.path(objects::NAMESPACE));
        let pass = || tokio::time::sleep(Duration::from_secs(30));
        pass().await;
        let fault = Fault::Rewind { cluster: WORKER };
        stage.begin(1, fault).await;
        let foreground = json!({"propagationPolicy": "Foreground"});
        let delete = || objects::ask(server, Method::DELETE, &path, Some(&foreground));
        assert_eq!(get(&stage, &path).await.1["status"]["active"], 1);
        delete().await;
        pass().await;
        assert_eq!(get(&stage, &path).await.0, StatusCode::NOT_FOUND);
        let ahead = server.version();
        stage.end(1, fault);
        // These changes have versions below `ahead`. A watch that continued from its last version would not report them.
        delete().await;
        server.settle();
        let mut number = 0;
        while server.version() < ahead {
            objects::create(
                server,
                vec![objects::foreign_job(JobKind::Job, &format!("other-{number}"))],
            )
            .await
            .unwrap();
            number += 1;
        }
        pass().await;
        assert_eq!(get(&stage, &path).await.0, StatusCode::NOT_FOUND);
        until.cancel();
    });
}

/// Spec: safety F27.
#[test]
fn a_namespace_goes_with_all_that_is_in_it_and_comes_again_empty() {
    with_player(async |player| {
        let stage = stage(&player).await;
        let jobs = vec![objects::foreign_job(JobKind::Job, "gone")];
        objects::create(&stage.servers[WORKER], jobs).await.unwrap();
        let fault = Fault::NoNamespace {
            cluster: WORKER,
            which: Space::Team,
        };
        stage.begin(1, fault).await;
        stage.servers[WORKER].settle();
        let path = "/api/v1/namespaces/team";
        assert_eq!(get(&stage, path).await.0, StatusCode::NOT_FOUND);
        let housekeeping = tokio::spawn(stage.clone().restore_namespaces());
        stage.end(1, fault);
        tokio::time::sleep(COLLECT_EVERY * 2).await;
        assert_eq!(get(&stage, path).await.0, StatusCode::OK);
        let job = format!("{}/gone", JobKind::Job.path(objects::NAMESPACE));
        assert_eq!(get(&stage, &job).await.0, StatusCode::NOT_FOUND);
        housekeeping.abort();
    });
}

/// Spec: safety F26.
#[test]
fn a_kind_goes_with_its_objects_and_is_served_again_empty() {
    with_player(async |player| {
        let stage = stage(&player).await;
        let jobs = JobKind::ALL.map(|kind| objects::foreign_job(kind, "gone"));
        objects::create(&stage.servers[WORKER], jobs.into())
            .await
            .unwrap();
        let fault = Fault::NoKind {
            cluster: WORKER,
            kind: JobKind::JobSet,
        };
        let link = Link { from: 0, to: WORKER };
        let client = stage
            .wire(link)
            .unwrap()
            .client(&Arc::<Process>::default().live(), "manager");
        let discovered = async |group: &str| {
            let path = format!("/apis/{group}");
            let request = http::Request::get(path).body(Vec::new()).unwrap();
            client.request_text(request).await.is_ok()
        };
        let (goes, stays) = ("jobset.x-k8s.io/v1alpha2", "batch/v1");
        assert!(discovered(goes).await);
        stage.begin(1, fault).await;
        assert!(!discovered(goes).await && discovered(stays).await);
        stage.end(1, fault);
        assert!(discovered(goes).await);
        for (kind, found) in [
            (JobKind::Job, StatusCode::OK),
            (JobKind::JobSet, StatusCode::NOT_FOUND),
            (JobKind::PyTorchJob, StatusCode::OK),
            (JobKind::RayJob, StatusCode::OK),
            (JobKind::AppWrapper, StatusCode::OK),
            (JobKind::Pod, StatusCode::OK),
        ] {
            let job = format!("{}/gone", kind.path(objects::NAMESPACE));
            assert_eq!(get(&stage, &job).await.0, found, "{kind}");
        }
    });
}

/// Spec: safety F27, F15.
#[test]
fn a_backup_without_the_namespace_does_not_take_it_away_for_good() {
    with_player(async |player| {
        let stage = stage(&player).await;
        let path = "/api/v1/namespaces/team";
        let gone = Fault::NoNamespace {
            cluster: WORKER,
            which: Space::Team,
        };
        let rewind = Fault::Rewind { cluster: WORKER };
        stage.begin(1, gone).await;
        stage.servers[WORKER].settle();
        stage.begin(2, rewind).await;
        let housekeeping = tokio::spawn(stage.clone().restore_namespaces());
        stage.end(1, gone);
        tokio::time::sleep(COLLECT_EVERY * 2).await;
        assert_eq!(get(&stage, path).await.0, StatusCode::OK);
        stage.end(2, rewind);
        assert_eq!(get(&stage, path).await.0, StatusCode::NOT_FOUND);
        tokio::time::sleep(COLLECT_EVERY * 2).await;
        assert_eq!(get(&stage, path).await.0, StatusCode::OK);
        housekeeping.abort();
    });
}

/// The second manager chooses copies too. An end that is forged in its chosen copy would be one that a manager must believe.
///
/// Spec: safety W4, W5, S13.
#[test]
fn what_is_forged_stands_in_copies_that_were_not_chosen_and_in_no_others() {
    with_player(async |player| {
        let script = with_rival(Called::Otherwise);
        let (stage, rival) = (furnished(&player, &script).await, script.workers.len() + 1);
        let workload = |name: &str| {
            let object = json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
                "metadata": {
                    "name": name, "namespace": objects::NAMESPACE,
                    "labels": {"kueue.x-k8s.io/multikueue-origin": "multikueue"},
                },
                "spec": {"podSets": [{"name": "main", "count": 1, "template": {"spec": {
                    "restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/main"}],
                }}}]},
            });
            (objects::workloads_path(), object)
        };
        for (number, names) in [
            (0, vec!["chosen", "other"]),
            (rival, vec!["theirs"]),
            (WORKER, vec!["chosen", "other", "theirs"]),
        ] {
            let all = names.into_iter().map(workload).collect();
            objects::create(&stage.servers[number], all).await.unwrap();
        }
        for (number, name) in [(0, "chosen"), (rival, "theirs")] {
            let path = format!("{}/{name}/status", objects::workloads_path());
            let chosen = json!({"status": {"clusterName": cluster_name(WORKER)}});
            let (status, _) = objects::ask(&stage.servers[number], Method::PATCH, &path, Some(&chosen)).await;
            assert_eq!(status, StatusCode::OK);
        }
        for (what, kind) in [
            (Forgery::Admitted, "Admitted"),
            (Forgery::Evicted, "Evicted"),
            (Forgery::Finished, "Finished"),
        ] {
            stage.forge(WORKER, what).await;
            let says = async |name: &str| {
                let (_, copy) = get(&stage, &format!("{}/{name}", objects::workloads_path())).await;
                let conditions = copy["status"]["conditions"].as_array().cloned();
                conditions.into_iter().flatten().any(|one| one["type"] == kind)
            };
            assert!(says("other").await, "{kind}");
            assert!(!says("chosen").await, "{kind}");
            assert!(!says("theirs").await, "{kind}");
        }
    });
}

#[test]
fn a_second_manager_has_a_cluster_and_ways_of_its_own_and_waits_for_its_time() {
    with_player(async |player| {
        let script = with_rival(Called::Same);
        let stage = Stage::set(player.template(), &script, Trace::new(Keep::Hash));
        let rival = script.workers.len() + 1;
        assert_eq!(stage.name(rival), RIVAL);
        assert!(
            stage
                .wire(Link {
                    from: rival,
                    to: WORKER
                })
                .is_some()
        );
        let starts = stage.processes[rival].start();
        assert!(
            tokio::time::timeout(Duration::from_mins(1), starts)
                .await
                .is_err()
        );
        stage.begin(RIVALRY, Fault::Rival { called: Called::Same }).await;
        stage.processes[rival].start().await;
    });
}

/// Spec: safety 4. Every kind of trouble is rolled.
#[test]
fn every_fault_comes_within_a_few_hundred_seeds() {
    let mut kinds = BTreeMap::<String, u64>::new();
    for seed in 0..600 {
        for (_, entry) in Script::from_seed(seed).faults {
            let said = format!("{:?}", entry.fault);
            let kind = said.split([' ', '{']).next().unwrap_or_default().to_owned();
            *kinds.entry(kind).or_default() += 1;
        }
    }
    assert_eq!(kinds.len(), 21, "{kinds:?}");
    assert!(kinds.values().all(|count| *count >= 10), "{kinds:?}");
}
