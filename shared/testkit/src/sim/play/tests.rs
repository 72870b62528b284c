//! Runs that are scripted step by step, because the dice seldom make them.

use super::super::fault::{Link, Space, Way};
use super::super::kind::JobKind;
use super::super::script::{Duty, JobPlan, Spread};
use super::*;
use crate::audit::End;
use crate::audit::ending::Outcome as Ended;

/// A run with only these acts and faults.
fn told(acts: Vec<(u64, Act)>, faults: Vec<(u64, u64, Fault)>) -> Script {
    let secs = Duration::from_secs;
    let entry = |(number, (at, lasts, fault)): (usize, (u64, u64, Fault))| {
        let (at, lasts) = (secs(at), secs(lasts));
        (number, Entry { at, lasts, fault })
    };
    Script {
        acts: acts.into_iter().map(|(at, act)| (secs(at), act)).collect(),
        faults: faults.into_iter().enumerate().map(entry).collect(),
        lost: WorkerLostPolicy::Wait,
        compares: false,
        ..Script::from_seed(1)
    }
}

/// Plays a script; an error lists the broken invariants. Why no assertion: the panic hook of a run would swallow its message.
fn is_fine(script: &Script) -> Result<(), String> {
    let outcome = Player::new()?.play(script, Keep::Hash)?;
    if outcome.violations.is_empty() {
        Ok(())
    } else {
        Err(outcome.violations.join("\n"))
    }
}

/// No event would repeat a failed write of condition `Active`. The AdmissionCheck and all queues with it would stay inactive.
///
/// Spec: safety 1 I3, F21.
#[test]
fn a_worker_that_is_used_again_is_said_to_be_although_the_first_write_failed() -> Result<(), String> {
    let refuse = Fault::Refuse {
        link: Link { from: 0, to: 0 },
        permille: 1_000,
        code: 500,
    };
    let acts = vec![(20, Act::Spoil(1)), (60, Act::Mend(1))];
    is_fine(&told(acts, vec![(59, 10, refuse)]))
}

/// Plays a long job while a worker is cut off for ten minutes. An administrator does this duty just before the cut, and again when
/// the worker is shown as lost. Returns whether the job ran on two workers at once, for any worker that is cut off.
fn runs_twice(duty: impl Fn(usize) -> Duty) -> Result<bool, String> {
    let workers = Script::from_seed(1).workers.len();
    let mut overlaps = 0;
    for worker in 1..=workers {
        let job = JobPlan {
            secs: 400,
            ..missed()
        };
        let duty = Act::Steward(duty(worker));
        let acts = vec![(10, Act::Submit(job)), (49, duty.clone()), (150, duty)];
        let link = Link { from: 0, to: worker };
        let way = Way::Both;
        let script = Script {
            lost_after: Duration::from_mins(1),
            ..told(acts, vec![(50, 600, Fault::Cut { link, way })])
        };
        let outcome = Player::new()?.play(&script, Keep::Lines)?;
        if !outcome.violations.is_empty() {
            return Err(outcome.violations.join("\n"));
        }
        let is_overlap = |line: &&String| line.contains("was on two clusters");
        overlaps += outcome.trace.iter().filter(is_overlap).count();
    }
    Ok(overlaps > 0)
}

/// Spec: safety 3.5, I1
#[test]
fn a_job_runs_elsewhere_once_its_lost_worker_was_given_up_and_not_because_it_was_taken_out_or_deleted()
-> Result<(), String> {
    if !runs_twice(Duty::GiveUp)? {
        return Err("the administrator was not believed".to_owned());
    }
    for duty in [Duty::TakeOut, Duty::Unregister] {
        if runs_twice(duty)? {
            return Err(format!("{:?} was taken for a word", duty(1)));
        }
    }
    Ok(())
}

/// A job that ends while the manager's watches leave out every event of every worker.
fn end_is_missed() -> Script {
    let workers = Script::from_seed(1).workers.len();
    let lost = (1..=workers).map(|to| {
        let link = Link { from: 0, to };
        (35, 60, Fault::LoseEvents { link, every: 1 })
    });
    told(vec![(10, Act::Submit(missed()))], lost.collect())
}

fn missed() -> JobPlan {
    JobPlan::plain("missed", 45)
}

/// No later event tells the manager about the end. Only the comparison of its caches with the stored objects can find it.
///
/// Spec: safety F12
#[test]
fn an_end_that_watches_have_left_out_is_found_within_one_period() -> Result<(), String> {
    let outcome = Player::new()?.play(&end_is_missed(), Keep::Lines)?;
    let is_lost = |line: &String| line.contains("event left out: MODIFIED Job team/missed");
    if !outcome.trace.iter().any(is_lost) {
        return Err("nothing was left out".to_owned());
    }
    // Why: the run would have ended earlier if the manager had seen the end earlier.
    if outcome.took < Duration::from_hours(1) {
        return Err(format!("it was known before: {:?}", outcome.took));
    }
    if outcome.violations.is_empty() {
        Ok(())
    } else {
        Err(outcome.violations.join("\n"))
    }
}

/// As [`an_end_that_watches_have_left_out_is_found_within_one_period`], but judged before the manager compares its caches.
///
/// Spec: safety F12
#[test]
fn an_end_that_nobody_looks_for_is_held_against_the_product() -> Result<(), String> {
    let mut script = end_is_missed();
    script.resync = Duration::ZERO;
    match is_fine(&script) {
        Ok(()) => Err("nobody missed it".to_owned()),
        Err(broken) if broken.contains("I3 broken") && broken.contains("team/missed") => Ok(()),
        Err(other) => Err(other),
    }
}

/// The namespace is missing on every worker so long that the manager's last try in vain is followed by a pause of five minutes. If
/// the run were judged in this pause, I13 would be broken: the job waits, but has ended in the run without faults.
///
/// Spec: safety 1 I13
#[test]
fn a_job_is_not_compared_before_its_next_try() -> Result<(), String> {
    let workers = 1..=Script::from_seed(1).workers.len();
    let gone = |cluster| Fault::NoNamespace {
        cluster,
        which: Space::Team,
    };
    let script = Script {
        spread: Spread::AllAtOnce,
        compares: true,
        ..told(
            vec![(10, Act::Submit(missed()))],
            workers.map(|cluster| (8, 340, gone(cluster))).collect(),
        )
    };
    let outcome = Player::new()?.play(&script, Keep::Lines)?;
    if !outcome.violations.is_empty() {
        return Err(outcome.violations.join("\n"));
    }
    // Why: in a shorter run the job did not have to wait for a late try, and the test would show nothing.
    if outcome.took < Duration::from_mins(10) {
        return Err(format!("it did not have to wait: {:?}", outcome.took));
    }
    Ok(())
}

/// The trace of a run of these jobs. It is an error if one of them does not end as planned.
fn played(jobs: &[JobPlan], faults: Vec<(u64, u64, Fault)>) -> Result<Vec<String>, String> {
    let submitted = { jobs.iter() }.map(|job| (10, Act::Submit(job.clone())));
    let script = Script {
        kinds: JobKind::ALL.into(),
        ..told(submitted.collect(), faults)
    };
    let outcome = Player::new()?.play(&script, Keep::Lines)?;
    if !outcome.violations.is_empty() {
        return Err(outcome.violations.join("\n"));
    }
    for job in jobs {
        let end = if job.fails { End::Failed } else { End::Succeeded };
        for object in job.objects() {
            let place = format!("{} {}/{object}", job.kind.resource(), objects::NAMESPACE);
            let shown = outcome.ending.outcomes.get(&place);
            if shown != Some(&Ended::Ended(end)) {
                return Err(format!("{place} is {shown:?}, not {end:?}"));
            }
        }
    }
    Ok(outcome.trace)
}

/// Spec: safety 1 I2, I11.
#[test]
fn jobs_of_every_kind_run_on_a_worker_and_show_their_ends() -> Result<(), String> {
    let mut jobs = Vec::new();
    for kind in JobKind::ALL {
        for (fails, secs) in [(false, 5), (true, 1)] {
            jobs.push(JobPlan {
                name: format!("{}-{secs}", kind.plural()),
                kind,
                pods: 2,
                secs,
                fails,
                ..missed()
            });
        }
    }
    let trace = played(&jobs, Vec::new())?;
    for kind in JobKind::ALL {
        let path = kind.path(objects::NAMESPACE);
        let is_sent =
            |line: &String| line.contains(" manager>worker-") && line.contains(&format!("POST {path}"));
        if !trace.iter().any(is_sent) {
            return Err(format!("no {kind} was sent to a worker"));
        }
    }
    Ok(())
}

/// Spec: safety F26
#[test]
fn a_run_whose_kind_goes_from_its_worker_runs_elsewhere() -> Result<(), String> {
    for kind in JobKind::DEFINED {
        let mut moved = 0;
        for cluster in 1..=Script::from_seed(1).workers.len() {
            let job = JobPlan {
                kind,
                secs: 60,
                ..missed()
            };
            let trace = played(&[job], vec![(30, 400, Fault::NoKind { cluster, kind })])?;
            let path = format!("POST {}?", kind.path(objects::NAMESPACE));
            let is_made = |line: &&String| {
                line.contains(" manager>worker-") && line.contains(&path) && line.contains(" 201 ")
            };
            let made: Vec<&str> = { trace.iter().filter(is_made) }
                .filter_map(|line| line.split(' ').find(|word| word.starts_with("manager>")))
                .collect();
            match made[..] {
                [_] => {}
                // Why others may be between: the manager may create the job again on the same worker before it sees that the kind is gone.
                [first, .., last] if first != last => moved += 1,
                _ => return Err(format!("{kind} was sent to {made:?}")),
            }
        }
        if moved != 1 {
            return Err(format!("{kind} ran on {moved} workers that lost it"));
        }
    }
    Ok(())
}
