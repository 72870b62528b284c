//! Kubernetes Events: what happened to an object, for users. Best effort, never in the way of the work.
//!
//! Invariant: recording never blocks and never fails the caller. An event is dropped and counted when too many wait or when it
//! has waited for [`LATE`]. The same event on the same object is written once per [`QUIET`].
//!
//! *Why two lanes*: starting a job costs the API servers about ten writes. Two routine Events beside them would make it twelve,
//! and thousands of admitted jobs would wait for Events. So routine Events are written a little later and take at most a
//! twentieth of the time, less while the API server is busy. Events that a user may wait for are written at once, but rationed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::core::Request;
use kube::{Api, Client};
use roadstead_core::note::{Note, Severity};
use roadstead_core::words::cut;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::rest::Rest;
use crate::trouble::Trouble;

/// How many events may wait to be written.
const BUFFER: usize = 4096;
/// How many routine events may wait.
const ROUTINE_MAX: usize = 512;
/// How long a routine event may wait.
const LATE: Duration = Duration::from_mins(2);
/// How long the same event on the same object is not repeated.
pub const QUIET: Duration = Duration::from_mins(10);
/// Entries kept to recognise repetitions.
const REMEMBERED_MAX: usize = 20_000;
/// Events written at the same time.
const WRITERS: usize = 4;
/// [`WRITERS`] as the semaphore counts.
const WRITERS_ALL: u32 = 4;
/// Events that are written at once before they are rationed.
const BURST: u32 = 300;
/// How often one more may be written after the burst.
const RATION: Duration = Duration::from_millis(200);
/// This last part of the burst is reserved for warnings. Why others may be dropped: when thousands of Workloads wait, their
/// conditions show the reason too.
const FOR_WARNINGS: u32 = 100;
/// How long a routine event waits at least.
const LINGER: Duration = Duration::from_secs(2);
/// The pause after each routine write, as a multiple of the write's time.
const REST_PER_WORK: u32 = 19;
/// How long waiting Events are still written after the stop. *Why*: no other process reports the last decisions of this one.
const FLUSH_MAX: Duration = Duration::from_secs(1);
/// The longest pause after a routine write.
const REST_MAX: Duration = Duration::from_secs(5);
/// The API server's words about a namespace that is being deleted.
const TERMINATING: &str = "because it is being terminated";
/// The API's limit for a note, in bytes.
const NOTE_MAX: usize = 1024;
/// The longest name of an Event, in bytes; the name of its object may be as long.
const NAME_MAX: usize = 253;

/// Gives the time that events bear.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Takes events and hands them to the task that writes them; clones share it.
#[derive(Clone)]
pub struct Recorder {
    at_once: mpsc::Sender<Told>,
    routine: mpsc::Sender<Told>,
    clock: Clock,
    dropped: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
}

struct Told {
    object: ObjectReference,
    note: Note,
    at: Timestamp,
    since: Instant,
}

impl Recorder {
    /// Records that something happened to `object`.
    pub fn record(&self, object: ObjectReference, note: Note) {
        let lane = match note.severity {
            Severity::Routine => &self.routine,
            Severity::Normal | Severity::Warning => &self.at_once,
        };
        let told = Told {
            object,
            note,
            at: (self.clock)(),
            since: Instant::now(),
        };
        if lane.try_send(told).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many events were dropped because there were too many, or because the API server was too slow.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// How many events the API server did not take, or did not answer about.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

/// A recorder and the future that writes its events as `controller` until `stop`. After the stop it writes the events that still
/// wait, without pauses, for [`FLUSH_MAX`] at most.
pub fn recorder(
    client: Client,
    controller: &'static str,
    clock: Clock,
    stop: CancellationToken,
) -> (Recorder, impl Future<Output = ()> + Send + 'static) {
    let (at_once, prompt) = mpsc::channel(BUFFER);
    let (routine, later) = mpsc::channel(ROUTINE_MAX);
    let recorder = Recorder {
        at_once,
        routine,
        clock,
        dropped: Arc::default(),
        failed: Arc::default(),
    };
    let instance =
        std::env::var("POD_NAME").unwrap_or_else(|_unset| format!("{controller}-{}", std::process::id()));
    let writer = Arc::new(Writer {
        client,
        controller,
        instance,
        number: AtomicU64::new(0),
        dropped: recorder.dropped.clone(),
        failed: recorder.failed.clone(),
        unwritten: Mutex::default(),
    });
    let work = async move {
        let last = async {
            stop.cancelled().await;
            tokio::time::sleep(FLUSH_MAX).await;
        };
        tokio::select! {
            biased;
            // Why the rest is not reported: metric roadstead_events_unwritten_total ends with the process.
            () = last => {}
            // Why it waits for the stop: both lanes end as soon as no recorder is left, and the end of any part ends the
            // process.
            () = async {
                tokio::join!(writer.tell_at_once(prompt, &stop), writer.tell_later(later, &stop));
                stop.cancelled().await;
            } => {}
        }
    };
    (recorder, work)
}

/// How many more events may be written at once.
#[derive(Debug)]
struct Ration {
    left: u32,
    /// The time up to which the ration was filled.
    counted: Instant,
}

impl Ration {
    const fn new(now: Instant) -> Self {
        Self {
            left: BURST,
            counted: now,
        }
    }

    fn take(&mut self, severity: Severity, now: Instant) -> bool {
        let steps = now.duration_since(self.counted).as_millis() / RATION.as_millis();
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        self.counted += RATION.saturating_mul(steps);
        self.left = self.left.saturating_add(steps).min(BURST);
        let kept = match severity {
            Severity::Routine | Severity::Normal => FOR_WARNINGS,
            Severity::Warning => 0,
        };
        let any = self.left > kept;
        self.left -= u32::from(any);
        any
    }
}

/// Events written lately: object, reason and text.
#[derive(Default)]
struct Seen(BTreeMap<(String, String, String), Instant>);

impl Seen {
    fn identity(told: &Told) -> (String, String, String) {
        let uid = told.object.uid.clone().unwrap_or_default();
        (uid, told.note.reason.to_string(), told.note.message.clone())
    }

    fn has(&self, told: &Told, now: Instant) -> bool {
        let at = self.0.get(&Self::identity(told));
        at.is_some_and(|at| now.duration_since(*at) < QUIET)
    }

    fn note(&mut self, told: &Told, now: Instant) {
        if self.0.len() >= REMEMBERED_MAX {
            self.0.retain(|_, at| now.duration_since(*at) < QUIET);
            if self.0.len() >= REMEMBERED_MAX {
                self.0.clear();
            }
        }
        self.0.insert(Self::identity(told), now);
    }
}

struct Writer {
    client: Client,
    controller: &'static str,
    instance: String,
    number: AtomicU64,
    dropped: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    unwritten: Mutex<Unwritten>,
}

/// Whether failed writes of events were logged.
#[derive(Debug, Default)]
struct Unwritten {
    trouble: Trouble,
    last: Option<Instant>,
}

impl Unwritten {
    /// Notes a failed write; returns whether to log it. Why the text is not compared: it names the namespace or the event, so
    /// it differs each time.
    fn failed(&mut self, error: &kube::Error, now: Instant) -> bool {
        self.last = Some(now);
        let sort = if let kube::Error::Api(status) = error {
            format!("{} {}", status.code, status.reason)
        } else {
            crate::write::describe(error)
        };
        self.trouble.is_news(&sort)
    }

    /// Notes a successful write; returns whether the failure is over. Why only after [`QUIET`]: one namespace may refuse events
    /// while others accept them.
    fn written(&mut self, now: Instant) -> bool {
        self.last.is_some_and(|last| now.duration_since(last) > QUIET) && {
            self.last = None;
            self.trouble.ends()
        }
    }
}

impl Writer {
    async fn tell_at_once(self: &Arc<Self>, mut lane: mpsc::Receiver<Told>, stop: &CancellationToken) {
        let (mut seen, mut ration) = (Seen::default(), Ration::new(Instant::now()));
        let writers = Arc::new(tokio::sync::Semaphore::new(WRITERS));
        while let Some(told) = next(&mut lane, stop).await {
            let now = Instant::now();
            if seen.has(&told, now) {
                continue;
            }
            if !ration.take(told.note.severity, now) {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            seen.note(&told, now);
            let Ok(permit) = writers.clone().acquire_owned().await else {
                return;
            };
            let writer = self.clone();
            tokio::spawn(async move {
                writer.write(told).await;
                drop(permit);
            });
        }
        // Why: without this wait the end of the process would cut off the writes under way.
        let _all = writers.acquire_many(WRITERS_ALL).await;
    }

    async fn tell_later(&self, mut lane: mpsc::Receiver<Told>, stop: &CancellationToken) {
        let (mut seen, mut rest) = (
            Seen::default(),
            Rest::new(REST_PER_WORK, Duration::ZERO..=REST_MAX),
        );
        while let Some(told) = next(&mut lane, stop).await {
            let now = Instant::now();
            if seen.has(&told, now) {
                continue;
            }
            if now.duration_since(told.since) > LATE {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            seen.note(&told, now);
            let lingering = tokio::time::sleep_until(told.since + LINGER);
            stop.run_until_cancelled(lingering).await;
            let started = Instant::now();
            self.write(told).await;
            let pause = tokio::time::sleep(rest.after(started.elapsed(), 1));
            stop.run_until_cancelled(pause).await;
        }
    }

    async fn write(&self, told: Told) {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let event = event(told, (self.controller, &self.instance), number);
        let api: Api<Event> = Api::namespaced(
            self.client.clone(),
            event.metadata.namespace.as_deref().unwrap_or("default"),
        );
        let answer = send(&self.client, api.resource_url(), &event).await;
        let mut unwritten = self.unwritten.lock().unwrap_or_else(PoisonError::into_inner);
        match answer {
            Ok(()) => {
                if unwritten.written(Instant::now()) {
                    tracing::info!("Events are written again");
                }
            }
            Err(error) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                let why = crate::write::describe(&error);
                // Why not counted: a namespace that is being deleted needs no Events.
                if why.contains(TERMINATING) {
                    return;
                }
                let about = event.regarding.as_ref();
                let name = |field: Option<&String>| field.map(String::as_str).unwrap_or_default().to_owned();
                if unwritten.failed(&error, Instant::now()) {
                    tracing::warn!(
                        kind = name(about.and_then(|about| about.kind.as_ref())),
                        namespace = name(about.and_then(|about| about.namespace.as_ref())),
                        object = name(about.and_then(|about| about.name.as_ref())),
                        reason = name(event.reason.as_ref()),
                        "an Event could not be written, and it is not tried again: {why}; nothing else depends on it, and metric \
                         roadstead_events_unwritten_total counts those that follow; if this is a refusal, apply deploy/rights"
                    );
                }
            }
        }
    }
}

/// The next event of a lane; after the stop, only those that wait already.
async fn next(lane: &mut mpsc::Receiver<Told>, stop: &CancellationToken) -> Option<Told> {
    tokio::select! {
        biased;
        told = lane.recv() => told,
        () = stop.cancelled() => None,
    }
}

/// Creates the Event. The API server's answer object is not read.
async fn send(client: &Client, url: &str, event: &Event) -> Result<(), kube::Error> {
    let body = serde_json::to_vec(event).map_err(kube::Error::SerdeError)?;
    let request = Request::new(url).create(&PostParams::default(), body);
    let request = request.map_err(kube::Error::BuildRequest)?;
    client.request_text(request).await.map(drop)
}

fn event(told: Told, (controller, instance): (&str, &str), number: u64) -> Event {
    let Told { object, note, at, .. } = told;
    let namespace = object
        .namespace
        .clone()
        .filter(|n| !n.is_empty())
        .unwrap_or_else(|| "default".into());
    let name = object.name.clone().unwrap_or_default();
    let message = cut(note.message, NOTE_MAX);
    let suffix = format!(".{:x}{number:x}", at.as_nanosecond());
    let kept = name.floor_char_boundary(NAME_MAX.saturating_sub(suffix.len()));
    // Why trimmed: a name part before a dot must end in a letter or a digit.
    let stem = name.get(..kept).unwrap_or_default().trim_end_matches(['.', '-']);
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{stem}{suffix}")),
            namespace: Some(namespace),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(at)),
        type_: Some(match note.severity {
            Severity::Routine | Severity::Normal => "Normal".into(),
            Severity::Warning => "Warning".into(),
        }),
        action: Some(note.reason.to_string()),
        reason: Some(note.reason.into_owned()),
        note: Some(message),
        regarding: Some(object),
        reporting_controller: Some(controller.into()),
        reporting_instance: Some(instance.into()),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests;
