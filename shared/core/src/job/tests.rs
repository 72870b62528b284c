use super::StopReason::{NoMatchingWorkload, NotAdmitted, WorkloadDeleted, WorkloadEvicted};
use super::*;

fn key(name: &str) -> Key {
    Key::new("lab", name)
}

fn owned(name: &str) -> OwnedWorkload {
    OwnedWorkload {
        key: key(name),
        control: Control::This,
        fit: Fit::Equivalent,
        site: Site::Here,
        stage: Stage::Pending,
        presence: Presence::Live,
        queue: "q".to_owned(),
        drift: Drift::default(),
        waiting_for: Vec::new(),
    }
}

fn observed(workloads: &[OwnedWorkload]) -> JobObserved<'_> {
    JobObserved {
        key: key("train"),
        presence: Presence::Live,
        scope: Scope::WithQueue,
        queue: Some("q"),
        parent: Parent::None,
        run: Run::Suspended,
        pods: Pods::None,
        at_deletion: AtDeletion::Held,
        ended: Ended::No,
        prebuilt: None,
        workload_name: key("job-train-12345"),
        workloads,
    }
}

fn running(workloads: &[OwnedWorkload]) -> JobObserved<'_> {
    JobObserved {
        run: Run::Running,
        pods: Pods::Some,
        ..observed(workloads)
    }
}

fn check(seen: &JobObserved<'_>, actions: &[Action], notes: &[(&str, &str)]) {
    let plan = plan(seen);
    assert_eq!(plan.actions, actions);
    let told: Vec<_> = plan
        .notes
        .iter()
        .map(|n| (n.reason.as_ref(), n.message.as_str()))
        .collect();
    assert_eq!(told, notes);
}

fn stop(reason: StopReason, restore: Option<&str>) -> Action {
    Action::Stop {
        reason,
        restore: restore.map(key),
    }
}

fn stops(seen: &JobObserved<'_>, reason: StopReason, restore: Option<&str>, told: &str) {
    check(seen, &[stop(reason, restore)], &[("Stopped", told)]);
}

/// Spec: jobs 5.4, 15.1.
#[test]
fn a_suspended_job_without_a_workload_gets_one() {
    check(
        &observed(&[]),
        &[Action::CreateWorkload(key("job-train-12345"))],
        &[("CreatedWorkload", "Created Workload: lab/job-train-12345")],
    );
    let waiting = JobObserved {
        pods: Pods::Some,
        ..observed(&[])
    };
    check(&waiting, &[], &[]);
}

/// Spec: jobs 15.5, 15.6, 15.7.
#[test]
fn what_is_not_ours_is_left_alone() {
    let nameless = JobObserved {
        queue: None,
        ..running(&[])
    };
    check(&nameless, &[], &[]);
    let outside = JobObserved {
        scope: Scope::Outside,
        ..observed(&[])
    };
    check(&outside, &[], &[]);
    let going = JobObserved {
        presence: Presence::Going,
        ..running(&[])
    };
    check(&going, &[], &[]);
    let managed_anyway = JobObserved {
        queue: Some(""),
        scope: Scope::Always,
        ..observed(&[])
    };
    assert_eq!(plan(&managed_anyway).actions.len(), 1);
}

/// Spec: jobs 5.2, 15.8, 15.9.
#[test]
fn a_child_runs_only_with_its_parent() {
    let child = |parent, run, ended| JobObserved {
        parent,
        run,
        ended,
        queue: None,
        ..observed(&[])
    };
    check(
        &child(Parent::NotAdmitted, Run::Running, Ended::No),
        &[Action::SuspendChild],
        &[("Suspended", "Kueue managed child job suspended")],
    );
    check(&child(Parent::Admitted, Run::Running, Ended::No), &[], &[]);
    check(&child(Parent::NotAdmitted, Run::Suspended, Ended::No), &[], &[]);
    check(&child(Parent::NotAdmitted, Run::Running, Ended::Yes), &[], &[]);
}

fn prebuilt(seen: JobObserved<'_>) -> JobObserved<'_> {
    JobObserved {
        prebuilt: Some("p"),
        ..seen
    }
}

/// Spec: jobs 5.3 A (deviation).
#[test]
fn a_job_that_was_put_there_with_its_workload_starts_first_and_adopts_it_later() {
    let claimed = |claim, stage: Stage| {
        let mut workload = owned("p");
        workload.control = Control::Claimed(claim);
        workload.stage = stage;
        vec![workload]
    };
    let admitted = || Stage::Admitted("cq".into());

    let fresh = claimed(Claim::Fresh, admitted());
    let held = plan(&prebuilt(observed(&fresh)));
    assert_eq!(held.actions, [Action::Start(key("p"))]);
    assert_eq!(held.follow_up, FollowUp::Adoption);
    let started = plan(&prebuilt(running(&fresh)));
    assert_eq!((started.actions, started.follow_up), (vec![], FollowUp::Adoption));

    let ripe = claimed(Claim::Ripe, admitted());
    let started = plan(&prebuilt(running(&ripe)));
    assert_eq!(started.actions, [Action::AdoptPrebuilt(key("p"))]);
    assert_eq!(started.follow_up, FollowUp::OnChange);

    for claim in [Claim::Fresh, Claim::Ripe] {
        let told = claimed(claim, Stage::Finished { news: News::Told });
        let over = plan(&prebuilt(running(&told)));
        assert_eq!((over.actions, over.follow_up), (vec![], FollowUp::OnChange));
        let mut ended = prebuilt(running(&ripe));
        ended.ended = Ended::Yes;
        let over = plan(&ended);
        assert_eq!((over.actions, over.follow_up), (vec![], FollowUp::OnChange));
    }

    let taken_back = claimed(
        Claim::Fresh,
        Stage::Evicted {
            message: "preempted".into(),
            quota: Quota::Held,
        },
    );
    let stopped = plan(&prebuilt(running(&taken_back)));
    assert_eq!(stopped.actions, [stop(WorkloadEvicted, Some("p"))]);
}

/// Spec: jobs 5.3 A, 15.14 to 15.17; multikueue 11.107.
#[test]
fn a_prebuilt_workload_is_adopted_or_refused() {
    let with = |change: fn(&mut OwnedWorkload)| {
        let mut workload = owned("p");
        change(&mut workload);
        vec![workload]
    };
    let nobody = with(|w| w.control = Control::Nobody);
    let seen = prebuilt(observed(&nobody));
    check(&seen, &[Action::AdoptPrebuilt(key("p"))], &[]);

    for workloads in [vec![], with(|w| w.control = Control::Other)] {
        let held = prebuilt(observed(&workloads));
        check(&held, &[], &[]);
        assert_eq!(plan(&held).follow_up, FollowUp::PrebuiltMissing);
        let loose = prebuilt(running(&workloads));
        stops(&loose, NoMatchingWorkload, None, "missing workload");
    }

    let different = with(|w| w.fit = Fit::Different);
    let seen = prebuilt(observed(&different));
    check(&seen, &[Action::AskOutOfSync(key("p"))], &[]);
    let over = with(|w| {
        w.fit = Fit::Different;
        w.stage = Stage::Finished { news: News::Told };
    });
    let seen = prebuilt(observed(&over));
    check(&seen, &[], &[]);
}

/// Spec: jobs 5.3 C, 15.18, 15.19.
#[test]
fn a_changed_job_updates_its_open_workload_or_gets_a_new_one() {
    let mut workload = owned("w");
    workload.fit = Fit::Different;
    check(
        &observed(&[workload.clone()]),
        &[Action::UpdateWorkloadSpec(key("w"))],
        &[(
            "UpdatedWorkload",
            "Updated not matching Workload for suspended job: lab/w",
        )],
    );
    workload.stage = Stage::Reserved;
    let workloads = [workload];
    let seen = observed(&workloads);
    check(
        &seen,
        &[Action::DeleteWorkload(key("w"))],
        &[("DeletedWorkload", "Deleted not matching Workload: lab/w")],
    );
    assert_eq!(plan(&seen).follow_up, FollowUp::Retry);
}

/// Spec: jobs 5.3 C3, 15.20, 15.21; multikueue 11.90.
#[test]
fn a_running_job_without_a_matching_workload_is_stopped() {
    let missing = "Missing Workload; unable to restore pod templates";
    stops(&running(&[]), NoMatchingWorkload, None, missing);
    let mut workload = owned("w");
    workload.fit = Fit::Different;
    workload.stage = Stage::Admitted("team".to_owned());
    stops(
        &running(&[workload.clone()]),
        NoMatchingWorkload,
        Some("w"),
        "No matching Workload; restoring pod templates according to existent Workload",
    );
    let second = OwnedWorkload {
        key: key("x"),
        ..workload.clone()
    };
    stops(&running(&[workload, second]), NoMatchingWorkload, None, missing);
}

/// Spec: jobs 5.3 C3, C4; safety I1, I4
#[test]
fn a_changed_job_that_may_run_elsewhere_waits_until_it_has_ended_there() {
    let mut workload = owned("w");
    workload.fit = Fit::Different;
    workload.site = Site::Elsewhere;
    let withdrawn = [Action::WithdrawWorkload(key("w"))];
    let told = [("DeletedWorkload", "Deleted not matching Workload: lab/w")];
    for stage in [Stage::Pending, Stage::Admitted("team".to_owned())] {
        workload.stage = stage;
        check(&running(&[workload.clone()]), &withdrawn, &told);
        check(&observed(&[workload.clone()]), &withdrawn, &told);
    }
    workload.presence = Presence::Going;
    stops(
        &running(&[workload.clone()]),
        WorkloadDeleted,
        Some("w"),
        "Workload is deleted",
    );
    check(&observed(&[workload.clone()]), &[], &[]);

    workload.presence = Presence::Live;
    workload.stage = Stage::Finished { news: News::Told };
    let workloads = [workload.clone()];
    let mut seen = observed(&workloads);
    check(&seen, &[], &[]);
    seen.ended = Ended::Yes;
    check(&seen, &[Action::DeleteWorkload(key("w"))], &told);
    workload.stage = Stage::Reserved;
    assert_eq!(
        plan(&observed(&[owned("a"), workload])).actions,
        withdrawn,
        "it is no excuse that another one fits"
    );
}

/// The controllers of some kinds run every job that is not suspended, whatever its `managedBy` says.
///
/// Spec: safety 1 I1
#[test]
fn a_job_that_must_stay_held_here_is_not_started_and_is_held_again() {
    let mut workload = owned("w");
    workload.site = Site::ElsewhereOnly;
    workload.stage = Stage::Admitted("team".to_owned());
    check(&observed(&[workload.clone()]), &[], &[]);
    stops(
        &running(&[workload.clone()]),
        NotAdmitted,
        Some("w"),
        "Held in this cluster, because it runs in a worker cluster",
    );
    workload.site = Site::Here;
    assert_eq!(plan(&observed(&[workload])).actions, [Action::Start(key("w"))]);
}

/// Of a group some pods may be shown already while others are still held.
///
/// Spec: jobs 12.9
#[test]
fn what_is_only_shown_here_is_neither_started_nor_stopped_before_its_workload_is_evicted() {
    let mut workload = owned("w");
    workload.site = Site::ElsewhereShown;
    workload.stage = Stage::Admitted("team".to_owned());
    for run in [Run::Running, Run::Partly, Run::Suspended] {
        let workloads = [workload.clone()];
        let mut seen = running(&workloads);
        seen.run = run;
        check(&seen, &[], &[]);
    }
    workload.stage = Stage::Evicted {
        message: "make room".to_owned(),
        quota: Quota::Held,
    };
    stops(&running(&[workload]), WorkloadEvicted, Some("w"), "make room");
}

/// A user has suspended and changed the job in one write, and pods are shown that have ended elsewhere meanwhile.
///
/// Spec: jobs 5.3 C4; safety I4
#[test]
fn what_goes_stays_while_pods_are_counted_that_only_it_can_take_away() {
    let mut workload = owned("w");
    workload.fit = Fit::Different;
    workload.stage = Stage::Reserved;
    let told = [("DeletedWorkload", "Deleted not matching Workload: lab/w")];
    let live = [workload.clone()];
    let mut seen = observed(&live);
    seen.pods = Pods::Some;
    check(&seen, &[Action::WithdrawWorkload(key("w"))], &told);
    workload.presence = Presence::Going;
    let workloads = [workload];
    let mut seen = observed(&workloads);
    seen.pods = Pods::Some;
    check(&seen, &[], &[]);
    seen.pods = Pods::None;
    check(&seen, &[Action::DeleteWorkload(key("w"))], &told);
}

/// Spec: jobs 15.22.
#[test]
fn of_two_equivalent_workloads_one_remains() {
    let workloads = [owned("a"), owned("b")];
    assert_eq!(
        plan(&observed(&workloads)).actions,
        [Action::DeleteWorkload(key("b"))]
    );
}

/// Spec: jobs 5.1 rows 10 to 21, 5.9, 5.17.
#[test]
fn the_job_follows_the_stage_of_its_workload() {
    let at = |stage| vec![OwnedWorkload { stage, ..owned("w") }];
    let admitted = at(Stage::Admitted("team".to_owned()));
    check(
        &observed(&admitted),
        &[Action::Start(key("w"))],
        &[("Started", "Admitted by clusterQueue team")],
    );
    check(&running(&admitted), &[], &[]);

    let evicted = at(Stage::Evicted {
        message: "make room".to_owned(),
        quota: Quota::Held,
    });
    stops(&running(&evicted), WorkloadEvicted, Some("w"), "make room");
    check(&observed(&evicted), &[], &[]);

    for stage in [Stage::Pending, Stage::Reserved] {
        stops(
            &running(&at(stage)),
            NotAdmitted,
            Some("w"),
            "Not admitted by cluster queue",
        );
    }
    let told = at(Stage::Finished { news: News::Told });
    check(&running(&told), &[], &[]);
    let fresh = at(Stage::Finished { news: News::Fresh });
    check(
        &observed(&fresh),
        &[],
        &[("FinishedWorkload", "Workload 'lab/w' is declared finished")],
    );
    let ended = JobObserved {
        ended: Ended::Yes,
        ..running(&admitted)
    };
    check(&ended, &[], &[]);
}

/// Spec: jobs 5.1 row 11.
#[test]
fn a_deleted_workload_stops_its_job() {
    let workloads = [OwnedWorkload {
        presence: Presence::Going,
        stage: Stage::Admitted("team".to_owned()),
        ..owned("w")
    }];
    stops(
        &running(&workloads),
        WorkloadDeleted,
        Some("w"),
        "Workload is deleted",
    );
    check(&observed(&workloads), &[], &[]);
}

/// Spec: jobs 5.15, 5.17, 15.46, 15.55; provisioning 15.22.
#[test]
fn a_waiting_workload_follows_the_queue_and_tells_of_its_checks() {
    let mut workload = owned("w");
    workload.queue = "old".to_owned();
    check(
        &observed(&[workload.clone()]),
        &[Action::SetQueueName {
            workload: key("w"),
            queue: "q".to_owned(),
        }],
        &[],
    );
    workload.stage = Stage::Reserved;
    workload.waiting_for = vec!["a: soon".to_owned(), "b: later".to_owned()];
    check(
        &observed(&[workload]),
        &[],
        &[("UpdatedAdmissionCheck", "a: soon; b: later")],
    );
}

/// Spec: jobs 5.3 C5, 15.40, 15.47.
#[test]
fn a_workload_follows_gates_and_priority_of_its_job() {
    let workloads = [OwnedWorkload {
        drift: Drift {
            priority: true,
            gated_by: Some(String::new()),
        },
        ..owned("w")
    }];
    check(
        &observed(&workloads),
        &[
            Action::SetGates {
                workload: key("w"),
                gated_by: String::new(),
            },
            Action::SetPriority(key("w")),
        ],
        &[
            ("UpdatedWorkload", "Updated workload AdmissionGatedBy to \"\""),
            ("UpdatedWorkload", "Updated workload priority class: lab/w"),
        ],
    );
}

/// Spec: jobs 12.8, 15.107, 15.108, 15.116
#[test]
fn a_group_of_which_some_are_held_is_stopped_started_and_let_go_as_a_whole() {
    let at = |stage: Stage| [OwnedWorkload { stage, ..owned("w") }];
    let partly = |workloads: &[OwnedWorkload]| {
        let seen = JobObserved {
            run: Run::Partly,
            at_deletion: AtDeletion::Deleted,
            ..observed(workloads)
        };
        plan(&seen).actions
    };
    let evicted = Stage::Evicted {
        message: "make room".to_owned(),
        quota: Quota::Held,
    };
    assert_eq!(partly(&at(evicted)), [stop(WorkloadEvicted, Some("w"))]);
    assert_eq!(
        partly(&at(Stage::Admitted("cq".to_owned()))),
        [Action::Start(key("w"))]
    );
    assert_eq!(partly(&at(Stage::Pending)), [stop(NotAdmitted, Some("w"))]);
    assert_eq!(
        partly(&at(Stage::Finished { news: News::Told })),
        [Action::Release]
    );
    let mut going = at(Stage::Pending);
    going[0].presence = Presence::Going;
    let held = JobObserved {
        at_deletion: AtDeletion::Deleted,
        ..observed(&going)
    };
    assert_eq!(plan(&held).actions, [stop(WorkloadDeleted, Some("w"))]);
    let gone = JobObserved {
        presence: Presence::Going,
        ..held
    };
    assert_eq!(plan(&gone).actions, [Action::Release]);
}
