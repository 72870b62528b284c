//! The faults of a run: a list of entries, so that a failure is shrunk by leaving entries out.
//!
//! Invariant: an entry is complete in itself; none depends on another. *Source*: `spec/safety.md 4`.

use std::fmt;
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::kind::JobKind;

/// When the trouble may begin, and when all of it is over, after the start of the run.
pub const TROUBLE: (Duration, Duration) = (Duration::from_secs(8), Duration::from_secs(200));
/// Most entries that [`roll`] makes for one run.
const ENTRIES_MAX: usize = 9;
/// One run in this many loses events.
const LOSES_EVENTS: u32 = 6;
/// The random stream that decides whether a run loses events. Why its own stream: one more draw from the common stream would change
/// the run of every seed that is written down in a test or a report.
const LOSES_EVENTS_STREAM: u64 = 12;

/// In one run of this many with jobs of several kinds, a worker does not serve one of these kinds for a while.
const LACKS_KIND: u32 = 3;
/// The random stream that decides about `LACKS_KIND`; its own, for the same reason.
const LACKS_KIND_STREAM: u64 = 20;

/// Whether a process dies before or after an API call is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The call never arrives.
    Before,
    /// It is carried out, and the answer is lost.
    After,
}

/// Which way a network is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Neither requests nor answers arrive.
    Both,
    /// Requests do not arrive; answers and events that are under way do.
    Requests,
    /// Requests arrive and are carried out; answers and events do not come back.
    Answers,
}

/// From a process to a cluster's API server. Process and cluster 0 are the manager's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// The process that asks.
    pub from: usize,
    /// The cluster that answers.
    pub to: usize,
}

/// The requests that an account has lost the right to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Anything: its token has expired (401).
    Anything,
    /// Changes (403).
    Changes,
    /// All requests for leases (403).
    Leases,
    /// All requests for jobs (403).
    Jobs,
    /// All requests for Workloads (403).
    Workloads,
}

/// A namespace of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// The namespace of the jobs.
    Team,
    /// The namespace of the managers' leases.
    Leases,
}

/// What another client on a worker writes into a copy that was not chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgery {
    /// That it was admitted, long ago.
    Admitted,
    /// That it was evicted, long ago.
    Evicted,
    /// That it ended, long ago.
    Finished,
}

/// The name of a second manager on the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// The name of the first manager: the second one must be refused.
    Same,
    /// Another name: both share the workers.
    Otherwise,
}

/// One kind of trouble. Each may hit any process, link or cluster while the auditors watch (`crate::audit`).
///
/// Spec: safety F1, F2, F3, F4, F7, F8, F9, F10, F11, F12, F13, F14, F15, F17, F18, F19, F21, F22, F23, F24, F26, F27
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A process dies and is started again when the entry ends (F1, F2).
    ///
    /// Spec: safety F2
    Crash {
        /// Index of the process.
        process: usize,
    },
    /// A process dies at its n-th API call from now on, and is started again a second later (F1, F2, I13).
    ///
    /// Spec: safety F1
    CrashAtCall {
        /// Index of the process.
        process: usize,
        /// Counted from 1 when the entry begins.
        call: u64,
        /// On which side of the call.
        side: Side,
    },
    /// A network is cut (F7, F8).
    ///
    /// Spec: safety F7, F8
    Cut {
        /// The link that is cut.
        link: Link,
        /// Which way.
        way: Way,
    },
    /// Requests get lost (F10).
    ///
    /// Spec: safety F10
    LoseRequests {
        /// On which link.
        link: Link,
        /// Of a thousand.
        permille: u32,
    },
    /// Requests are carried out and their answers are lost (F9).
    ///
    /// Spec: safety F9
    LoseAnswers {
        /// On which link.
        link: Link,
        /// Of a thousand.
        permille: u32,
    },
    /// Requests arrive twice.
    Duplicate {
        /// On which link.
        link: Link,
        /// Of a thousand.
        permille: u32,
    },
    /// Everything takes up to this long each way, so answers overtake each other (F10, F22).
    ///
    /// Spec: safety F22
    Delay {
        /// On which link.
        link: Link,
        /// Longest delay each way, in milliseconds.
        most_ms: u64,
    },
    /// The server is overloaded: 429, 500, 503, 504 (F21, F23).
    ///
    /// Spec: safety F21, F23
    Refuse {
        /// On which link.
        link: Link,
        /// Of a thousand.
        permille: u32,
        /// The HTTP status.
        code: u16,
    },
    /// Watches stay open and show nothing (F11).
    ///
    /// Spec: safety F11
    Silence {
        /// On which link.
        link: Link,
    },
    /// Watches break off (F11, F24).
    ///
    /// Spec: safety F24
    DropWatches {
        /// On which link.
        link: Link,
    },
    /// Watches leave out every k-th event, and go on without an error (F12). A process notices this only when it compares its cache with
    /// the stored objects.
    ///
    /// Spec: safety F12
    LoseEvents {
        /// On which link.
        link: Link,
        /// One event in this many, counted over all watches of the link from the beginning of the entry; bookmarks are not counted.
        every: u64,
    },
    /// The API server drops the history of changes: watches expire with 410 (F14).
    ///
    /// Spec: safety F14
    Compact {
        /// Of which cluster.
        cluster: usize,
    },
    /// The API server cannot be reached, and keeps its objects (F3, F4).
    ///
    /// Spec: safety F3, F4
    ServerDown {
        /// Of which cluster.
        cluster: usize,
    },
    /// Reads that accept old data get the state at the beginning of this fault, and watches lag behind (F13).
    Stale {
        /// On which link.
        link: Link,
        /// How far watches lag behind at most, seconds.
        lag_secs: u64,
    },
    /// An account loses a right, or all rights (F19).
    Deny {
        /// On which link.
        link: Link,
        /// The lost right.
        right: Right,
    },
    /// When this fault ends, the storage is restored from a backup of its beginning (F15).
    Rewind {
        /// Of which cluster.
        cluster: usize,
    },
    /// A namespace is deleted, and created again when this fault ends (F27).
    NoNamespace {
        /// On which cluster.
        cluster: usize,
        /// Which of the worker's namespaces.
        which: Space,
    },
    /// A worker's API server stops serving a kind, and its objects and pods are removed at once. It serves the kind again at the end (F26).
    ///
    /// Spec: safety F26
    NoKind {
        /// Which worker.
        cluster: usize,
        /// Which kind.
        kind: JobKind,
    },
    /// Another client on a worker writes into the copies that were not chosen, every few seconds (W1, W4, W5, S13).
    Forge {
        /// On which cluster.
        cluster: usize,
        /// The forged state.
        what: Forgery,
    },
    /// A second manager, of another cluster, begins to use the same workers, and stays (F17, W10).
    ///
    /// Spec: safety F17
    Rival {
        /// Its name on the workers.
        called: Called,
    },
    /// The wall clock of a process's host jumps, for good (F18).
    ClockJump {
        /// Index of the process.
        process: usize,
        /// By how much, seconds; negative is back.
        secs: i64,
    },
}

/// A trouble with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it begins, after the start of the run.
    pub at: Duration,
    /// How long it lasts; a trouble of an instant ignores it.
    pub lasts: Duration,
    /// The trouble.
    pub fault: Fault,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, lasts) = (self.at.as_secs_f64(), self.lasts.as_secs_f64());
        write!(f, "{at:.3}s+{lasts:.3}s {:?}", self.fault)
    }
}

impl Fault {
    /// The cluster on which this fault may delay the manager's writes; 0, the manager's own, means all clusters. A fault of a worker's
    /// own process delays no write of the manager.
    pub fn troubles(&self) -> Option<usize> {
        match *self {
            Self::Crash { process } | Self::CrashAtCall { process, .. } | Self::ClockJump { process, .. } => {
                (process == 0).then_some(0)
            }
            Self::Cut { link, .. }
            | Self::LoseRequests { link, .. }
            | Self::LoseAnswers { link, .. }
            | Self::Duplicate { link, .. }
            | Self::Delay { link, .. }
            | Self::Refuse { link, .. }
            | Self::Silence { link }
            | Self::DropWatches { link }
            | Self::LoseEvents { link, .. }
            | Self::Stale { link, .. }
            | Self::Deny { link, .. } => (link.from == 0).then_some(link.to),
            Self::Compact { cluster }
            | Self::ServerDown { cluster }
            | Self::Rewind { cluster }
            | Self::NoNamespace { cluster, .. }
            | Self::NoKind { cluster, .. }
            | Self::Forge { cluster, .. } => Some(cluster),
            Self::Rival { .. } => None,
        }
    }
}

impl Fault {
    /// Whether this fault may have effects long after its end. If a watch leaves out an event, the process misses it until it compares
    /// its cache with the stored objects, and that may be long after all faults.
    pub fn lingers(&self) -> bool {
        matches!(self, Self::LoseEvents { .. })
    }

    /// The cluster whose engine this fault keeps from its own API server. Not for crashes: the auditor sees a process start and end.
    pub fn blinds(&self) -> Option<usize> {
        match *self {
            Self::Cut { link, .. }
            | Self::LoseRequests { link, .. }
            | Self::LoseAnswers { link, .. }
            | Self::Duplicate { link, .. }
            | Self::Delay { link, .. }
            | Self::Refuse { link, .. }
            | Self::Silence { link }
            | Self::DropWatches { link }
            | Self::Stale { link, .. }
            | Self::Deny { link, .. } => (link.from == link.to).then_some(link.to),
            // Why: an engine that starts while the lease is deleted assumes that its manager keeps no lease, and does not fence.
            Self::NoNamespace {
                cluster,
                which: Space::Leases,
            }
            | Self::ServerDown { cluster } => Some(cluster),
            // Why not lost events: an engine reads its lease with a get, without a watch, so lost events do not stop it from fencing.
            Self::NoNamespace { .. }
            | Self::NoKind { .. }
            | Self::LoseEvents { .. }
            | Self::Rewind { .. }
            | Self::Forge { .. }
            | Self::Rival { .. }
            | Self::Crash { .. }
            | Self::CrashAtCall { .. }
            | Self::Compact { .. }
            | Self::ClockJump { .. } => None,
        }
    }
}

/// Troubles for a manager with so many workers, in the order of their beginning. One run in eight has none.
pub(super) fn roll(dice: &mut ChaCha8Rng, workers: usize) -> Vec<Entry> {
    if dice.random_ratio(1, 8) {
        return Vec::new();
    }
    let number = dice.random_range(1..=ENTRIES_MAX);
    let mut entries: Vec<Entry> = (0..number).map(|_| entry(dice, workers)).collect();
    entries.sort_by_key(|entry| entry.at);
    let mut rivals = 0;
    // Why not both: a manager whose lease was deleted has lost its claim, so a second manager of the same name may take the worker.
    let is_unclaimed = |entry: &Entry| {
        matches!(
            entry.fault,
            Fault::NoNamespace {
                which: Space::Leases,
                ..
            }
        )
    };
    let unclaimed = entries.iter().any(is_unclaimed);
    entries.retain(|entry| {
        let Fault::Rival { called } = entry.fault else {
            return true;
        };
        rivals += 1;
        rivals == 1 && !(called == Called::Same && unclaimed)
    });
    entries
}

/// Lost events, in one of [`LOSES_EVENTS`] runs, independent of its other faults.
pub(super) fn roll_lost_events(seed: u64, workers: usize) -> Option<Entry> {
    let mut dice = ChaCha8Rng::seed_from_u64(seed);
    dice.set_stream(LOSES_EVENTS_STREAM);
    if !dice.random_ratio(1, LOSES_EVENTS) {
        return None;
    }
    let (at, lasts) = time(&mut dice);
    let link = link(&mut dice, workers);
    let every = [1, 2, 5, 20][dice.random_range(0..4)];
    Some(Entry {
        at,
        lasts,
        fault: Fault::LoseEvents { link, every },
    })
}

/// A worker that does not serve one kind of [`JobKind::DEFINED`], in one of [`LACKS_KIND`] runs, beside the faults `others`.
pub(super) fn roll_lack_of_kind(seed: u64, workers: usize, others: &[Entry]) -> Option<Entry> {
    let mut dice = ChaCha8Rng::seed_from_u64(seed);
    dice.set_stream(LACKS_KIND_STREAM);
    if !dice.random_ratio(1, LACKS_KIND) {
        return None;
    }
    let (at, lasts) = time(&mut dice);
    let cluster = dice.random_range(1..=workers);
    let kind = JobKind::DEFINED[dice.random_range(0..JobKind::DEFINED.len())];
    // Why not both: a restored storage would bring back the definition of the kind and its jobs too early.
    let goes_back = |entry: &Entry| entry.fault == Fault::Rewind { cluster };
    (!others.iter().any(goes_back)).then_some(Entry {
        at,
        lasts,
        fault: Fault::NoKind { cluster, kind },
    })
}

/// When a trouble begins, and how long it lasts.
fn time(dice: &mut ChaCha8Rng) -> (Duration, Duration) {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (first, last) = (millis(TROUBLE.0), millis(TROUBLE.1));
    // Why the square: most faults matter while jobs are placed, which is early.
    let part: f64 = dice.random_range(0.0..1.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "milliseconds of minutes"
    )]
    let at = first + ((last - first) as f64 * part * part) as u64;
    let most = match dice.random_range(0..4) {
        0 => 2_000,
        1 => 15_000,
        2 => 60_000,
        _ => 150_000,
    };
    let lasts = dice.random_range(200..=most).min(last - at);
    (Duration::from_millis(at), Duration::from_millis(lasts))
}

fn entry(dice: &mut ChaCha8Rng, workers: usize) -> Entry {
    let (at, lasts) = time(dice);
    let fault = fault(dice, workers);
    // A fault without an end of its own, or one that may strike at any time, ends with the last fault.
    let lasts = match fault {
        Fault::CrashAtCall { .. } | Fault::ClockJump { .. } | Fault::Rival { .. } => {
            TROUBLE.1.saturating_sub(at)
        }
        Fault::Crash { .. }
        | Fault::Cut { .. }
        | Fault::LoseRequests { .. }
        | Fault::LoseAnswers { .. }
        | Fault::Duplicate { .. }
        | Fault::Delay { .. }
        | Fault::Refuse { .. }
        | Fault::Silence { .. }
        | Fault::DropWatches { .. }
        | Fault::LoseEvents { .. }
        | Fault::Compact { .. }
        | Fault::Stale { .. }
        | Fault::Deny { .. }
        | Fault::Rewind { .. }
        | Fault::NoNamespace { .. }
        | Fault::NoKind { .. }
        | Fault::Forge { .. }
        | Fault::ServerDown { .. } => lasts,
    };
    Entry { at, lasts, fault }
}

/// Half of the troubles hit a link between the manager and a worker, the heart of a federation.
fn link(dice: &mut ChaCha8Rng, workers: usize) -> Link {
    match dice.random_range(0..4) {
        0 => Link { from: 0, to: 0 },
        1 => {
            let worker = dice.random_range(1..=workers);
            Link {
                from: worker,
                to: worker,
            }
        }
        _ => Link {
            from: 0,
            to: dice.random_range(1..=workers),
        },
    }
}

fn fault(dice: &mut ChaCha8Rng, workers: usize) -> Fault {
    let process = dice.random_range(0..=workers);
    let link = link(dice, workers);
    let permille = [20, 100, 400, 900][dice.random_range(0..4)];
    let way = [Way::Both, Way::Requests, Way::Answers][dice.random_range(0..3)];
    let on_worker = dice.random_range(1..=workers);
    match dice.random_range(0..27) {
        0 | 1 => Fault::Crash { process },
        2..=5 => Fault::CrashAtCall {
            process,
            call: dice.random_range(1..=120),
            side: if dice.random_ratio(1, 2) {
                Side::Before
            } else {
                Side::After
            },
        },
        6..=8 => Fault::Cut { link, way },
        9 => Fault::LoseRequests { link, permille },
        10 | 11 => Fault::LoseAnswers { link, permille },
        12 => Fault::Delay {
            link,
            most_ms: [50, 600, 8_000][dice.random_range(0..3)],
        },
        13 => Fault::Refuse {
            link,
            permille,
            code: [429, 500, 503, 504][dice.random_range(0..4)],
        },
        14 => match dice.random_range(0..2) {
            0 => Fault::Duplicate { link, permille },
            _ => Fault::DropWatches { link },
        },
        15 => match dice.random_range(0..2) {
            0 => Fault::Silence { link },
            _ => Fault::Compact { cluster: link.to },
        },
        16 => Fault::ServerDown { cluster: link.to },
        17 | 18 => {
            let rights = [
                Right::Anything,
                Right::Changes,
                Right::Leases,
                Right::Jobs,
                Right::Workloads,
            ];
            Fault::Deny {
                link,
                right: rights[dice.random_range(0..rights.len())],
            }
        }
        19 | 20 => Fault::Stale {
            link,
            lag_secs: [2, 10, 40][dice.random_range(0..3)],
        },
        21 | 22 => Fault::Rewind { cluster: on_worker },
        23 => Fault::NoNamespace {
            cluster: on_worker,
            which: if dice.random_ratio(2, 3) {
                Space::Team
            } else {
                Space::Leases
            },
        },
        24 => Fault::Forge {
            cluster: on_worker,
            what: [Forgery::Admitted, Forgery::Evicted, Forgery::Finished][dice.random_range(0..3)],
        },
        25 => Fault::Rival {
            called: if dice.random_ratio(1, 2) {
                Called::Same
            } else {
                Called::Otherwise
            },
        },
        // Why at most 30 s back: rounds and pauses of the product follow the wall clock, so a jump back makes them that much longer.
        _ => Fault::ClockJump {
            process,
            secs: [-30, 30, 3_600][dice.random_range(0..3)],
        },
    }
}
