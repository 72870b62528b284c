//! The run: set up, submit, watch, cut the link, count.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use kube::api::{DynamicObject, PostParams};
use kube::{Api, Client};
use roadstead_api::rights;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::Args;
use super::accident::{Order, Script};
use super::card::{Accident, Card, Evacuation, Percentiles, PodGroup};
use super::evacuation;
use super::script::{self, EAST, MANAGER, Part, Planned, Shape, TENANTS, WEST};
use super::view::{View, Voice};
use crate::link::Cut;
use crate::observer::ledger::{Event, Outcome, Step, Subject, Violation};
use crate::observer::{Cluster, Observer};
use crate::options::Kind;
use crate::stage::{SYSTEM_NAMESPACE, Stage, apply};

/// Pause between two submissions.
const PAUSE: Duration = Duration::from_millis(150);
/// How often the run checks, without a step, that all processes live and whether the link must be cut or healed.
const TICK: Duration = Duration::from_millis(100);
/// Base of the time limit for all jobs after the last submission; each job adds to it.
const PATIENCE: Duration = Duration::from_mins(2);
const PATIENCE_PER_JOB: Duration = Duration::from_secs(2);
/// How long the removal of leftovers in workers may take.
const SWEEP: Duration = Duration::from_secs(45);

/// Runs the demo.
pub(super) async fn run(args: &Args) -> anyhow::Result<Card> {
    let mut interrupted = std::pin::pin!(interruption()?);
    let voice = Voice::new(args.json);
    let shown = tokio::select! {
        biased;
        () = &mut interrupted => Err(anyhow!("interrupted; everything that was started is gone")),
        shown = show(args, &voice) => shown,
    }?;
    let Shown {
        stage,
        steps,
        view,
        card,
        kubeconfigs,
        observer,
    } = shown;
    if args.keep {
        say_how_to_look(&voice, &stage, kubeconfigs.as_ref());
        tokio::select! {
            biased;
            () = interrupted => {}
            () = follow(steps, view) => {}
        }
    }
    drop((observer, kubeconfigs));
    stage.stop();
    Ok(card)
}

/// The running federation after the demo, kept alive for `--keep`.
struct Shown {
    stage: Stage,
    observer: Observer,
    steps: mpsc::Receiver<Step>,
    view: View,
    card: Card,
    kubeconfigs: Option<Kubeconfigs>,
}

async fn show(args: &Args, voice: &Voice) -> anyhow::Result<Shown> {
    let started = Instant::now();
    let kind = args.kind();
    voice.line(match kind {
        Kind::Embedded => "embedded control planes: API servers inside this process, on loopback only",
        Kind::Real => "real control planes: etcd, kube-apiserver and what is beside them",
    });
    let stage = Stage::start(script::clusters(kind), voice.progress()).await?;
    let shapes = Shape::shown(kind);
    if shapes.contains(&Shape::AppWrapper) {
        let_wrap(&stage).await?;
    } else {
        voice.line("jobs are Jobs and a group of pods: other kinds are shown with --control-plane embedded");
    }
    let kubeconfigs = args
        .kubeconfigs
        .as_deref()
        .map(|dir| Kubeconfigs::write(dir, &stage))
        .transpose()?;
    let (observer, mut steps) = observe(&stage, shapes).await?;
    let setup = started.elapsed();
    let jobs = script::jobs(usize::from(args.jobs), kind);
    voice.line(&format!("submitting {} jobs to the manager", jobs.len()));

    let mut view = View::new(voice.clone());
    let mut run = Run::new(&jobs, args.calm);
    let deadline = Instant::now() + PATIENCE + PATIENCE_PER_JOB * u32::from(args.jobs);
    let mut submission = std::pin::pin!(submit(stage.client(MANAGER)?, &jobs));
    let mut submitted = None;
    let evacuated = jobs
        .iter()
        .find(|job| job.part == Part::Evacuated)
        .filter(|_| !args.calm);
    let west = stage.client(WEST)?;
    let mut evacuation = std::pin::pin!(async move {
        match evacuated {
            Some(job) => evacuation::play(west, job, voice).await.map(Some),
            None => Ok(None),
        }
    });
    let mut moved = None;
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !(submitted.is_some() && moved.is_some() && run.is_over()) && Instant::now() < deadline {
        tokio::select! {
            biased;
            Some(step) = steps.recv() => {
                view.show(&step);
                run.note(&step);
            }
            result = &mut submission, if submitted.is_none() => submitted = Some(result?),
            result = &mut evacuation, if moved.is_none() => moved = Some(result?),
            _ = ticks.tick() => stage.check()?,
        }
        let due = run.accident.as_mut();
        if let Some(order) = due.and_then(|accident| accident.due(Instant::now())) {
            obey(order, &stage, voice)?;
        }
    }
    stage.link(WEST)?.heal();
    let created = submitted.unwrap_or_default();
    voice.line("looking for leftovers in the workers");
    let orphans = observer.close(SWEEP).await.context("looking for leftovers")?;
    let memory = stage.memory(MANAGER)?;
    let card = run.card(
        &jobs,
        &created,
        &observer,
        &Measured {
            orphans: orphans.len(),
            seconds: started.elapsed(),
            setup,
            manager_kb: memory.resident_kb,
            kind,
            evacuation: evacuated.map(|job| Evacuation {
                job: format!("{}/{}", job.namespace, job.name),
                moved: moved.flatten(),
            }),
        },
    );
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&card)?)?;
    } else {
        writeln!(out, "\n{card}\n")?;
    }
    drop(out);
    Ok(Shown {
        stage,
        observer,
        steps,
        view,
        card,
        kubeconfigs,
    })
}

/// Cuts or mends the cable to west.
fn obey(order: Order, stage: &Stage, voice: &Voice) -> anyhow::Result<()> {
    let link = stage.link(WEST)?;
    let what = match order {
        Order::Cut => {
            link.cut(Cut::Refuse);
            "is cut; its jobs go on"
        }
        Order::Mend => {
            link.heal();
            "is mended"
        }
    };
    voice.line(&format!("{:<22} the cable to {WEST} {what}", "ACCIDENT"));
    Ok(())
}

/// Starts the observer of all clusters, and creates objects there that no controller owns.
async fn observe(stage: &Stage, shapes: &[Shape]) -> anyhow::Result<(Observer, mpsc::Receiver<Step>)> {
    let cluster = |name: &str| -> anyhow::Result<Cluster> {
        let client = stage.client(name)?;
        Ok(Cluster {
            name: name.to_owned(),
            client,
        })
    };
    let kinds = shapes.iter().map(|shape| shape.resource()).collect();
    let workers = vec![cluster(EAST)?, cluster(WEST)?];
    let (observer, steps) = Observer::of_kinds(cluster(MANAGER)?, workers, kinds);
    for tenant in TENANTS {
        observer
            .plant(tenant)
            .await
            .context("planting objects that no controller owns")?;
    }
    Ok((observer, steps))
}

/// Gives the workers the rights to create the wrapped jobs.
async fn let_wrap(stage: &Stage) -> anyhow::Result<()> {
    for worker in [EAST, WEST] {
        for object in rights::appwrapper(SYSTEM_NAMESPACE) {
            apply(&stage.client(worker)?, object).await?;
        }
    }
    Ok(())
}

/// Waits for Ctrl-C or SIGTERM.
fn interruption() -> anyhow::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            biased;
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

async fn follow(mut steps: mpsc::Receiver<Step>, mut view: View) {
    while let Some(step) = steps.recv().await {
        view.show(&step);
    }
}

/// Creates the jobs one after the other. Returns when each creation began.
async fn submit(client: Client, jobs: &[Planned]) -> anyhow::Result<BTreeMap<(String, String), Instant>> {
    let mut created = BTreeMap::new();
    for planned in jobs {
        let resource = planned.shape.resource();
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), planned.namespace, &resource);
        let key = (planned.namespace.to_owned(), planned.name.clone());
        created.insert(key, Instant::now());
        for object in &planned.objects {
            let object: DynamicObject = serde_json::from_value(object.clone())?;
            api.create(&PostParams::default(), &object)
                .await
                .with_context(|| {
                    format!(
                        "creating {} {}/{}",
                        resource.kind, planned.namespace, planned.name
                    )
                })?;
        }
        sleep(PAUSE).await;
    }
    Ok(created)
}

/// State of one job.
#[derive(Debug, Default)]
struct Progress {
    waiting: Option<String>,
    started: bool,
    /// Whether the job waited for quota, or waited while a cluster was lost.
    had_to_wait: bool,
    finished: Option<Outcome>,
}

/// State of all jobs.
struct Run {
    jobs: BTreeMap<Subject, (Part, Progress)>,
    accident: Option<Script>,
    /// Whether the manager shows a cluster as lost at present.
    lost: bool,
}

/// Measurements besides the jobs.
#[derive(Clone)]
struct Measured {
    orphans: usize,
    seconds: Duration,
    setup: Duration,
    manager_kb: u64,
    kind: Kind,
    evacuation: Option<Evacuation>,
}

impl Run {
    fn new(jobs: &[Planned], calm: bool) -> Self {
        let survivor = jobs.iter().find(|job| job.part == Part::LivesThroughAccident);
        let subject = |job: &Planned| Subject::Job(job.namespace.to_owned(), job.name.clone());
        Self {
            accident: survivor
                .filter(|_| !calm)
                .map(|job| Script::new(job.namespace, &job.name)),
            jobs: jobs
                .iter()
                .map(|job| (subject(job), (job.part, Progress::default())))
                .collect(),
            lost: false,
        }
    }

    fn note(&mut self, step: &Step) {
        if let Some(accident) = &mut self.accident {
            accident.note(step);
        }
        if let Event::Active(active, _) = step.event {
            self.lost = !active;
        }
        if self.lost {
            let waiting = self.jobs.values_mut().filter(|(_, progress)| !progress.started);
            waiting.for_each(|(_, progress)| progress.had_to_wait = true);
        }
        let Some((_, progress)) = self.jobs.get_mut(&step.subject) else {
            return;
        };
        match &step.event {
            Event::Waiting(reason) => {
                progress.waiting = Some(reason.clone());
                progress.had_to_wait = true;
            }
            Event::Reserved => progress.waiting = None,
            Event::Started(_) => progress.started = true,
            Event::Finished(outcome) => progress.finished = Some(*outcome),
            Event::Submitted
            | Event::Stopped(_)
            | Event::Ended(..)
            | Event::Gone
            | Event::Active(..)
            | Event::Capacity(..) => {}
        }
    }

    /// Whether every job is in its expected state, and the accident is over.
    fn is_over(&self) -> bool {
        let settled = |(part, progress): &(Part, Progress)| match part {
            Part::NeverFits => progress.waiting.is_some(),
            Part::Runs | Part::OnlyIn(_) | Part::LivesThroughAccident | Part::Evacuated | Part::Together => {
                progress.finished.is_some()
            }
        };
        self.jobs.values().all(settled) && self.accident.as_ref().is_none_or(Script::is_over)
    }

    fn card(
        &self,
        jobs: &[Planned],
        created: &BTreeMap<(String, String), Instant>,
        observer: &Observer,
        measured: &Measured,
    ) -> Card {
        let Measured {
            orphans,
            seconds,
            setup,
            manager_kb,
            kind,
            evacuation,
        } = measured.clone();
        let mut violations = observer.violations();
        let mut never_fit_reasons = Vec::new();
        let mut unfinished = Vec::new();
        let (mut dispatch, mut idle) = (Vec::new(), Vec::new());
        for job in jobs {
            let name = format!("{}/{}", job.namespace, job.name);
            let subject = Subject::Job(job.namespace.to_owned(), job.name.clone());
            let Some((_, progress)) = self.jobs.get(&subject) else {
                continue;
            };
            let start = observer.started(job.namespace, &job.name);
            let submitted = created.get(&(job.namespace.to_owned(), job.name.clone()));
            if let (Some((at, _)), Some(submitted)) = (&start, submitted) {
                let took = at.duration_since(*submitted);
                dispatch.push(took);
                idle.extend((!progress.had_to_wait).then_some(took));
            }
            match (job.part, start) {
                (Part::NeverFits, None) => {
                    never_fit_reasons.extend(
                        progress
                            .waiting
                            .as_ref()
                            .map(|reason| format!("{name}: {reason}")),
                    );
                }
                (Part::NeverFits, Some((_, cluster))) => {
                    violations.push(misplaced(format!(
                        "{name} fits nowhere and was started in {cluster}"
                    )));
                }
                (Part::OnlyIn(home), Some((_, cluster))) if cluster != home => {
                    violations.push(misplaced(format!(
                        "{name} has room only in {home} and was started in {cluster}"
                    )));
                }
                (
                    Part::OnlyIn(_)
                    | Part::Runs
                    | Part::LivesThroughAccident
                    | Part::Evacuated
                    | Part::Together,
                    _,
                ) => {}
            }
            if job.part != Part::NeverFits && progress.finished != Some(Outcome::Succeeded) {
                let reason = progress
                    .waiting
                    .as_ref()
                    .map(|reason| format!(": {reason}"))
                    .unwrap_or_default();
                unfinished.push(format!("{name}{reason}"));
            }
        }
        let finished = |(_, progress): &&(Part, Progress)| progress.finished == Some(Outcome::Succeeded);
        Card {
            submitted: created.len(),
            finished: self.jobs.values().filter(finished).count(),
            never_fit: jobs.iter().filter(|job| job.part == Part::NeverFits).count(),
            never_fit_reasons,
            unfinished,
            duplicate_runs: observer.duplicate_runs(),
            orphans,
            dispatch_ms: Percentiles::of(dispatch),
            dispatch_idle_ms: Percentiles::of(idle),
            control_plane: match kind {
                Kind::Embedded => "embedded",
                Kind::Real => "real",
            },
            clusters: [MANAGER, EAST, WEST].map(str::to_owned).into(),
            accident: self.accident.as_ref().map(|script| accident(script, jobs)),
            evacuation,
            pod_group: jobs
                .iter()
                .find(|job| job.part == Part::Together)
                .map(|job| PodGroup {
                    job: format!("{}/{}", job.namespace, job.name),
                    pods: job.objects.len(),
                    ran: observer.pods_of_group(job.namespace, &job.name),
                }),
            violations,
            seconds: rounded(seconds.as_secs_f64()),
            setup_seconds: rounded(setup.as_secs_f64()),
            manager_rss_mb: rounded(u32::try_from(manager_kb).map_or(f64::MAX, f64::from) / 1024.0),
        }
    }
}

fn misplaced(sentence: String) -> Violation {
    Violation {
        invariant: "placement",
        sentence,
    }
}

fn accident(script: &Script, jobs: &[Planned]) -> Accident {
    let job = jobs.iter().find(|job| job.part == Part::LivesThroughAccident);
    Accident {
        cluster: WEST.to_owned(),
        seconds: rounded(script.dark(Instant::now()).as_secs_f64()),
        job: job
            .map(|job| format!("{}/{}", job.namespace, job.name))
            .unwrap_or_default(),
        ended_unseen: script.ended_unseen(),
        seen_after_ms: script
            .seen_after()
            .and_then(|after| u64::try_from(after.as_millis()).ok()),
    }
}

/// Rounds to one decimal digit.
fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn say_how_to_look(voice: &Voice, stage: &Stage, kubeconfigs: Option<&Kubeconfigs>) {
    let path = |cluster: &str| match kubeconfigs {
        Some(written) => written.path(cluster),
        None => stage.kubeconfig(cluster),
    };
    voice.plain("The federation stays up until Ctrl-C. To look around, in another terminal:\n");
    voice.plain(&format!("  export KUBECONFIG={}", path(MANAGER).display()));
    voice.plain("  kubectl get jobs,jobsets,pytorchjobs,rayjobs,appwrappers,pods -A");
    voice.plain("  kubectl get workloads -A");
    for verb in ["get jobs -A -o wide", "top"] {
        voice.plain(&format!("  {} {verb}", stage.program().display()));
    }
    for worker in [EAST, WEST] {
        voice.plain(&format!(
            "  kubectl --kubeconfig {} get jobs,pods -A",
            path(worker).display()
        ));
    }
    voice.plain("");
}

/// Kubeconfig files for the user, removed with this.
struct Kubeconfigs {
    dir: PathBuf,
    files: Vec<PathBuf>,
}

impl Kubeconfigs {
    fn write(dir: &Path, stage: &Stage) -> anyhow::Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("making directory {}", dir.display()))?;
        let dir = dir
            .canonicalize()
            .with_context(|| format!("looking at {}", dir.display()))?;
        let mut written = Self {
            dir,
            files: Vec::new(),
        };
        let planes = stage.planes();
        for plane in std::iter::once(&planes.manager).chain(&planes.workers) {
            let path = written.path(plane.name());
            plane.write_kubeconfig(&path)?;
            written.files.push(path);
        }
        Ok(written)
    }

    fn path(&self, cluster: &str) -> PathBuf {
        self.dir.join(format!("{cluster}.kubeconfig"))
    }
}

impl Drop for Kubeconfigs {
    fn drop(&mut self) {
        for file in &self.files {
            // Why ignored: the user may have removed it already.
            let _ = fs::remove_file(file);
        }
    }
}
