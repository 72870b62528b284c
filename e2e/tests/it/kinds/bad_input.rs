//! Bad changes by users to pending or running jobs of other kinds, on one cluster and with their own controllers.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::ground::{EAST, LONG_SECS, Room, is_true, play};
use super::kubeflow::{MPI, TRAINING};
use super::ray::RAY_JOB;
use super::scenes::Subject;

/// One of each operator.
fn subjects() -> [&'static Subject; 3] {
    [&TRAINING[0], &MPI[0], &RAY_JOB[0]]
}

/// A merge patch with this value at a JSON pointer.
fn patch_at(pointer: &str, value: Value) -> Value {
    let keys = pointer.trim_start_matches('/').rsplit('/');
    keys.fold(value, |value, key| json!({ key: value }))
}

async fn refused(room: Room, subject: &Subject, patch: Value) -> String {
    let jobs = room.api(EAST, &subject.resource());
    let sent = jobs
        .patch(&subject.name(), &PatchParams::default(), &Patch::Merge(patch))
        .await;
    sent.unwrap_err().to_string()
}

async fn changed(room: Room, subject: &Subject, patch: Value) {
    room.merge(EAST, &subject.resource(), &subject.name(), patch)
        .await;
}

/// Spec: jobs 5.1 18, 7.4, 15.55
#[test]
fn a_running_job_that_its_user_holds_goes_on_and_keeps_its_queue_and_its_controller() {
    play("kinds-flipped", &[(EAST, "16")], async |room| {
        for subject in subjects() {
            subject.submit(room, EAST, LONG_SECS, None).await;
        }
        for subject in subjects() {
            subject.running(room, EAST).await;
            let moved = json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "another"}}});
            let moved = refused(room, subject, moved).await;
            assert!(moved.contains("field is immutable"), "{moved}");
            let handed = patch_at(subject.managed_by, json!("kueue.x-k8s.io/multikueue"));
            let handed = refused(room, subject, handed).await;
            assert!(handed.contains("immutable"), "{handed}");
            changed(room, subject, patch_at(subject.suspend, json!(true))).await;
        }
        for subject in subjects() {
            let name = subject.name();
            room.until(EAST, &subject.resource(), &name, |job| {
                !subject.is_held(job) && (subject.runs)(job)
            })
            .await;
            let workload = room.workload(EAST, &name, |_| true).await;
            assert!(is_true(&workload, "Admitted"), "{name} has kept its quota");
        }
        room.running(EAST, subjects().iter().map(|subject| subject.pods).sum())
            .await;
        for subject in subjects() {
            subject.delete(room, EAST).await;
        }
        for subject in subjects() {
            room.is_empty(EAST, &subject.all_of_it()).await;
        }
    });
}

/// Spec: jobs 5.1 20, 5.3 C2, 15.18
#[test]
fn a_waiting_job_that_its_user_lets_go_is_held_again_and_may_be_changed() {
    play("kinds-waiting", &[(EAST, "1")], async |room| {
        for subject in subjects() {
            subject.submit(room, EAST, LONG_SECS, None).await;
        }
        for subject in subjects() {
            let name = subject.name();
            let before = room.workload(EAST, &name, |w| !is_true(w, "QuotaReserved")).await;
            changed(room, subject, patch_at(subject.suspend, json!(false))).await;
            let held = room
                .until(EAST, &subject.resource(), &name, |job| subject.is_held(job))
                .await;
            let mut template = held.pointer(subject.template).unwrap().clone();
            template["spec"]["containers"][0]["image"] = json!("another");
            changed(room, subject, patch_at(subject.template, template)).await;
            let is_changed = |w: &Value| w["spec"].to_string().contains("\"another\"");
            let after = room.workload(EAST, &name, is_changed).await;
            assert_eq!(
                after["metadata"]["uid"], before["metadata"]["uid"],
                "{name}: it is the same Workload"
            );
        }
        room.running(EAST, 0).await;
        for subject in subjects() {
            subject.delete(room, EAST).await;
        }
        for subject in subjects() {
            room.is_empty(EAST, &subject.all_of_it()).await;
        }
    });
}
