//! Events: what happened to an object, for people. Best effort, never in the way of the work.
//!
//! Invariant: recording never blocks and never fails the caller; when the buffer is full the event is dropped and
//! counted. The same event on the same object is written once per [`QUIET`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::core::Request;
use kube::{Api, Client};
use roadstead_core::note::{Note, Severity};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How many events may wait to be written.
const BUFFER: usize = 4096;
/// How long the same event on the same object is not repeated.
pub const QUIET: Duration = Duration::from_mins(10);
/// Entries kept to recognise repetitions.
const REMEMBERED_MAX: usize = 20_000;
/// Events written at the same time.
const WRITERS: usize = 4;
/// Events that are written at once before they are rationed.
const BURST: u32 = 300;
/// How often one more may be written after that.
const RATION: Duration = Duration::from_millis(200);
/// The last of them are for warnings: what goes well stands in the conditions too, and is told by thousands.
const FOR_WARNINGS: u32 = 100;
/// The API's limit for a note, in bytes.
const NOTE_MAX: usize = 1024;

/// Tells the time that events bear.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A place to drop events into.
#[derive(Clone, Debug)]
pub struct Recorder {
    sender: mpsc::Sender<(ObjectReference, Note)>,
    dropped: Arc<AtomicU64>,
}

impl Recorder {
    /// Records that something happened to `object`.
    pub fn record(&self, object: ObjectReference, note: Note) {
        if self.sender.try_send((object, note)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many events were dropped because there were too many, or because the API server was too slow.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// A recorder and the future that writes its events as `controller` until `stop`.
pub fn recorder(
    client: Client,
    controller: &'static str,
    clock: Clock,
    stop: CancellationToken,
) -> (Recorder, impl Future<Output = ()> + Send + 'static) {
    let (sender, receiver) = mpsc::channel(BUFFER);
    let recorder = Recorder {
        sender,
        dropped: Arc::default(),
    };
    let writer = Writer {
        client,
        controller,
        clock,
        dropped: recorder.dropped.clone(),
    };
    (recorder, writer.run(receiver, stop))
}

/// How many more events may be written now.
///
/// Why rationed: thousands of workloads admitted at once would cost the API server more in events than in admissions. What
/// they say stands in the conditions too.
#[derive(Debug)]
struct Ration {
    left: u32,
    /// Up to when what has come in since was added.
    counted: Instant,
}

impl Ration {
    const fn new(now: Instant) -> Self {
        Self {
            left: BURST,
            counted: now,
        }
    }

    /// Takes one, if there is one for this severity.
    fn take(&mut self, severity: Severity, now: Instant) -> bool {
        let steps = now.duration_since(self.counted).as_millis() / RATION.as_millis();
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        self.counted += RATION.saturating_mul(steps);
        self.left = self.left.saturating_add(steps).min(BURST);
        let kept = match severity {
            Severity::Normal => FOR_WARNINGS,
            Severity::Warning => 0,
        };
        let any = self.left > kept;
        self.left -= u32::from(any);
        any
    }
}

struct Writer {
    client: Client,
    controller: &'static str,
    clock: Clock,
    dropped: Arc<AtomicU64>,
}

impl Writer {
    async fn run(self, mut receiver: mpsc::Receiver<(ObjectReference, Note)>, stop: CancellationToken) {
        let Self {
            client,
            controller,
            clock,
            dropped,
        } = self;
        let mut ration = Ration::new(Instant::now());
        let instance =
            std::env::var("POD_NAME").unwrap_or_else(|_unset| format!("{controller}-{}", std::process::id()));
        let mut seen: BTreeMap<(String, String, String), Instant> = BTreeMap::new();
        let writers = Arc::new(tokio::sync::Semaphore::new(WRITERS));
        let mut number = 0_u64;
        loop {
            let (object, note) = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                got = receiver.recv() => match got { Some(got) => got, None => return },
            };
            let now = Instant::now();
            if seen.len() >= REMEMBERED_MAX {
                seen.retain(|_, at| now.duration_since(*at) < QUIET);
                if seen.len() >= REMEMBERED_MAX {
                    seen.clear();
                }
            }
            let identity = (
                object.uid.clone().unwrap_or_default(),
                note.reason.to_string(),
                note.message.clone(),
            );
            if seen
                .get(&identity)
                .is_some_and(|at| now.duration_since(*at) < QUIET)
            {
                continue;
            }
            if !ration.take(note.severity, now) {
                dropped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            seen.insert(identity, now);
            number += 1;
            let event = event(object, note, (controller, &instance), number, clock());
            let api: Api<Event> = Api::namespaced(
                client.clone(),
                event.metadata.namespace.as_deref().unwrap_or("default"),
            );
            let Ok(permit) = writers.clone().acquire_owned().await else {
                return;
            };
            let client = client.clone();
            tokio::spawn(async move {
                if let Err(error) = send(&client, api.resource_url(), &event).await {
                    tracing::debug!(error = crate::write::describe(&error), "writing an event failed");
                }
                drop(permit);
            });
        }
    }
}

/// Creates it. What the API server makes of it is not read.
async fn send(client: &Client, url: &str, event: &Event) -> Result<(), kube::Error> {
    let body = serde_json::to_vec(event).map_err(kube::Error::SerdeError)?;
    let request = Request::new(url).create(&PostParams::default(), body);
    let request = request.map_err(kube::Error::BuildRequest)?;
    client.request_text(request).await.map(drop)
}

fn event(
    object: ObjectReference,
    note: Note,
    (controller, instance): (&str, &str),
    number: u64,
    now: Timestamp,
) -> Event {
    let namespace = object
        .namespace
        .clone()
        .filter(|n| !n.is_empty())
        .unwrap_or_else(|| "default".into());
    let name = object.name.clone().unwrap_or_default();
    let mut message = note.message;
    if message.len() > NOTE_MAX {
        let mut end = NOTE_MAX - "…".len();
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push('…');
    }
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{name}.{:x}{number:x}", now.as_nanosecond())),
            namespace: Some(namespace),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(now)),
        type_: Some(match note.severity {
            Severity::Normal => "Normal".into(),
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
mod tests {
    use super::{BURST, FOR_WARNINGS, RATION, Ration};
    use roadstead_core::note::Severity::{Normal, Warning};
    use tokio::time::Instant;

    #[test]
    fn a_burst_is_written_and_the_rest_is_rationed() {
        let start = Instant::now();
        let mut ration = Ration::new(start);
        assert!((0..BURST).all(|_| ration.take(Warning, start)));
        assert!(!ration.take(Warning, start));
        assert!(!ration.take(Warning, start + RATION / 2));
        assert!(ration.take(Warning, start + RATION));
        assert!(!ration.take(Warning, start + RATION));
        let later = start + RATION * BURST * 3;
        assert!(
            (0..BURST).all(|_| ration.take(Warning, later)),
            "no more than a burst is saved up"
        );
        assert!(!ration.take(Warning, later));
    }

    #[test]
    fn good_news_leave_room_for_warnings() {
        let start = Instant::now();
        let mut ration = Ration::new(start);
        assert!((FOR_WARNINGS..BURST).all(|_| ration.take(Normal, start)));
        assert!(!ration.take(Normal, start));
        assert!((0..FOR_WARNINGS).all(|_| ration.take(Warning, start)));
        assert!(!ration.take(Warning, start));
    }
}
