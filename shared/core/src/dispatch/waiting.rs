//! Why a Workload that holds quota on the manager does not run: one reason, a sentence, a next step.

use std::fmt;

use jiff::Timestamp;

use super::capacity::Closed;
use super::observed::{Behind, Cause};
use crate::name::{CheckName, ClusterName};
use crate::note::Note;

pub(super) const NOT_SERVED: &str = "KindNotServedOnCluster";
/// Jobs of that kind cannot be read on a cluster.
pub(super) const NOT_READABLE: &str = "KindNotReadableOnCluster";

/// The top reason why a Workload waits. [`fmt::Display`] prints the sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Other admission checks of the manager come first.
    OtherChecks {
        /// The checks that are not Ready.
        checks: Vec<CheckName>,
    },
    /// `spec.active` is false.
    Deactivated,
    /// The local job does not exist or has ended, so nothing can be sent.
    NoLocalJob,
    /// Another Workload goes before it.
    BehindAnother {
        /// The other Workload.
        first: Behind,
    },
    /// The MultiKueueConfig lists no cluster or cannot be loaded.
    NoClusterListed,
    /// The external dispatcher has nominated no listed cluster yet.
    NotNominated {
        /// Clusters that it has nominated and that are not listed.
        unlisted: Vec<ClusterName>,
    },
    /// No cluster has a queue that could take it; this is the first of them.
    QueueClosed {
        /// The name of the cluster.
        cluster: ClusterName,
        /// Why its queue takes nothing.
        why: Closed,
    },
    /// Something that it needs is missing on these clusters, and no other connected cluster could take it.
    Missing {
        /// The missing object.
        what: Missing,
        /// The clusters without it.
        clusters: Vec<ClusterName>,
    },
    /// Every connected cluster that may take it is cordoned.
    Cordoned {
        /// The cordoned clusters.
        clusters: Vec<ClusterName>,
    },
    /// None of the clusters that may take it is connected: the listed ones, or those of them that were asked or nominated.
    NoClusterConnected {
        /// The clusters.
        clusters: Vec<ClusterName>,
    },
    /// Every connected cluster failed lately; this is the first of them.
    ClusterFailed {
        /// The name of the cluster.
        cluster: ClusterName,
        /// The cause of its failure.
        cause: Cause,
        /// The error or message of the cluster; may be empty.
        detail: String,
    },
    /// No cluster that could take it serves the kind of the job; this is the first of them.
    KindNotServed {
        /// The cluster.
        cluster: ClusterName,
        /// The kind.
        kind: String,
    },
    /// Jobs of this kind cannot be read on a cluster: on the one that holds it, or on the first of those that could take it.
    KindNotReadable {
        /// The cluster.
        cluster: ClusterName,
        /// The kind.
        kind: String,
        /// The error of its API server.
        why: String,
    },
    /// Leftovers of an earlier round are being removed, or the previous run is stopping.
    StoppingOnWorker {
        /// The name of the cluster.
        cluster: ClusterName,
        /// The error with which the cluster refused to stop or delete that run; empty if it did not refuse.
        refusal: String,
    },
    /// It is offered; no worker has admitted it yet.
    WaitingForWorkers {
        /// Workers that reserved quota and wait for checks of their own.
        reserved: Vec<ClusterName>,
        /// Workers that have not reserved quota.
        queued: Vec<ClusterName>,
    },
    /// The worker that holds it does not answer.
    WorkerLost {
        /// The name of the worker.
        cluster: ClusterName,
        /// Since when; `None` when that is not known.
        since: Option<Timestamp>,
        /// When the run there is given up; `None` means only when an administrator gives it up.
        until: Option<Timestamp>,
    },
}

/// An object that a job needs and a worker lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The namespace of the job.
    Namespace(String),
    /// The LocalQueue that the job names.
    LocalQueue {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
    },
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(name) => write!(f, "namespace {name}"),
            Self::LocalQueue { name, namespace } => write!(f, "LocalQueue {name} in namespace {namespace}"),
        }
    }
}

impl Waiting {
    /// A CamelCase token.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::OtherChecks { .. } => "OtherChecksNotReady",
            Self::Deactivated => "Deactivated",
            Self::NoLocalJob => "NoLocalJob",
            Self::BehindAnother { .. } => "BehindAnotherWorkload",
            Self::NoClusterListed => "NoClusterListed",
            Self::NotNominated { .. } => "NotNominated",
            Self::QueueClosed { why, .. } => why.as_str(),
            Self::Missing { what, .. } => match what {
                Missing::Namespace(_) => Cause::NamespaceMissing.as_str(),
                Missing::LocalQueue { .. } => Closed::QueueMissing.as_str(),
            },
            Self::Cordoned { .. } => "ClusterCordoned",
            Self::NoClusterConnected { .. } => "NoClusterConnected",
            Self::ClusterFailed { cause, .. } => cause.as_str(),
            Self::KindNotServed { .. } => NOT_SERVED,
            Self::KindNotReadable { .. } => NOT_READABLE,
            Self::StoppingOnWorker { refusal, .. } => {
                if refusal.is_empty() {
                    "StoppingOnWorker"
                } else {
                    "DeletionRefusedByCluster"
                }
            }
            Self::WaitingForWorkers { .. } => "WaitingForWorkers",
            Self::WorkerLost { .. } => "WorkerLost",
        }
    }

    /// The Event with this reason.
    pub fn note(&self) -> Note {
        let message = format!("{self}; next: {}", self.next_step());
        match self {
            Self::OtherChecks { .. }
            | Self::Deactivated
            | Self::NoLocalJob
            | Self::BehindAnother { .. }
            | Self::NotNominated { .. }
            | Self::Cordoned { .. }
            | Self::WaitingForWorkers { .. } => Note::normal(self.reason(), message),
            Self::StoppingOnWorker { refusal, .. } if refusal.is_empty() => {
                Note::normal(self.reason(), message)
            }
            Self::NoClusterListed
            | Self::QueueClosed { .. }
            | Self::Missing { .. }
            | Self::NoClusterConnected { .. }
            | Self::ClusterFailed { .. }
            | Self::KindNotServed { .. }
            | Self::KindNotReadable { .. }
            | Self::StoppingOnWorker { .. }
            | Self::WorkerLost { .. } => Note::warning(self.reason(), message),
        }
    }

    /// What the user or the administrator can do about it.
    pub fn next_step(&self) -> String {
        match self {
            Self::OtherChecks { .. } => "look at the named AdmissionChecks of this workload".to_owned(),
            Self::Deactivated => "set spec.active of the workload to true".to_owned(),
            Self::NoLocalJob => "create the job again or delete the workload".to_owned(),
            Self::BehindAnother { first } => pass(first),
            Self::NoClusterListed => {
                "register a worker: roadstead cluster join NAME --kubeconfig FILE; if one is registered (roadstead cluster list), list it \
                 in the MultiKueueConfig of the AdmissionCheck"
                    .to_owned()
            }
            Self::NotNominated { unlisted } if unlisted.is_empty() => {
                "see that the dispatcher that multiKueue.dispatcherName names is running".to_owned()
            }
            Self::NotNominated { unlisted } => format!(
                "make the dispatcher of multiKueue.dispatcherName nominate clusters of the MultiKueueConfig, or add {} to the MultiKueueConfig",
                plain(unlisted)
            ),
            Self::QueueClosed { cluster, why } => open_again(cluster, why),
            Self::Missing { what, clusters } => {
                let first = clusters.first().map_or("NAME", ClusterName::as_str);
                format!(
                    "create {what} on {} (roadstead sync plan {first} shows what it lacks)",
                    plain(clusters)
                )
            }
            Self::Cordoned { clusters } => {
                let first = clusters.first().map_or("NAME", ClusterName::as_str);
                format!(
                    "if it is cordoned: roadstead cluster uncordon {first}; else look at MultiKueueCluster \"{first}\": it is being \
                     deleted, or its Secret is gone"
                )
            }
            Self::NoClusterConnected { clusters } => {
                let first = clusters.first().map_or("NAME", ClusterName::as_str);
                format!("roadstead cluster list; the whole message: kubectl describe multikueuecluster {first}")
            }
            Self::ClusterFailed { cluster, cause, .. } => mend(cluster, *cause),
            Self::KindNotServed { cluster, kind } => format!(
                "install the CustomResourceDefinition of {kind} and its controller on cluster \"{cluster}\", or list a cluster that has \
                 them; nothing needs to be restarted"
            ),
            Self::KindNotReadable { cluster, .. } => format!(
                "read the error, and let the account used on cluster \"{cluster}\" list and watch the kind (roadstead cluster join with \
                 its integration); it goes on by itself"
            ),
            Self::StoppingOnWorker { cluster, refusal } => {
                if refusal.is_empty() {
                    "nothing: it goes on when the old run is gone; if it stays, look for what holds its pods there".to_owned()
                } else {
                    format!(
                        "read the error, and let the account used on cluster \"{cluster}\" change and delete it (roadstead cluster \
                         join gives it the rights it needs), or delete it there yourself"
                    )
                }
            }
            Self::WaitingForWorkers { .. } => {
                "wait for free quota, or give the named clusters more: roadstead top clusters shows their load".to_owned()
            }
            Self::WorkerLost {
                cluster,
                until: Some(_),
                ..
            } => format!("bring cluster \"{cluster}\" back before then to keep the run"),
            Self::WorkerLost { cluster, .. } => {
                format!("bring cluster \"{cluster}\" back, or {}", ways_out(cluster))
            }
        }
    }
}

/// What the administrator or the user can do about a cluster that failed.
fn mend(cluster: &ClusterName, cause: Cause) -> String {
    match cause {
        Cause::NameConflict => {
            format!("rename the job, or remove the object of the same name from cluster \"{cluster}\"")
        }
        Cause::CreateRefused => {
            format!(
                "read the error; if it says forbidden: roadstead cluster join {cluster} --kubeconfig FILE; else change the job, or the \
                 policy that the error names"
            )
        }
        Cause::WebhookFailed => {
            format!("read the error, and look at the named webhook on cluster \"{cluster}\"")
        }
        Cause::NamespaceMissing => format!("create the namespace on cluster \"{cluster}\""),
        Cause::NoAnswer => format!("look at the API server of cluster \"{cluster}\""),
        Cause::SpecDrift => {
            format!("find the webhook or policy that changes workloads on cluster \"{cluster}\"")
        }
        Cause::OutOfSync => {
            format!("find the webhook or policy that changes jobs on cluster \"{cluster}\"")
        }
        Cause::OwnerNotFound => {
            format!(
                "find what deletes jobs on cluster \"{cluster}\" (a controller, a script, a user): its audit log says which"
            )
        }
        Cause::Rejected => {
            format!("look at the admission checks on cluster \"{cluster}\"")
        }
        Cause::Evicted | Cause::FinishedEarly => "nothing: it is tried again".to_owned(),
        Cause::Outdated => {
            format!("find out whether the storage of cluster \"{cluster}\" was restored from a backup")
        }
        Cause::LeaseLapsed => format!(
            "restore the right to write Leases on cluster \"{cluster}\", and the namespace for them: roadstead cluster join {cluster} \
             --kubeconfig FILE"
        ),
        Cause::JobFailed => format!(
            "look at the status of the job for why it failed on cluster \"{cluster}\"; to have it tried there again, delete the job and \
             create it again"
        ),
        Cause::DependencyMissing => format!(
            "create it on cluster \"{cluster}\", or mark the reference in the job as optional, or let it be carried there (annotation \
             roadstead.dev/carries-needs on the namespace here, roadstead.dev/accepts-from there); the cluster is looked at again by itself"
        ),
    }
}

/// How a job gets away from a lost cluster that the manager waits for: an administrator gives the cluster up, or sets another policy.
pub fn ways_out(cluster: &ClusterName) -> String {
    format!(
        "if you know that its jobs do not run there any more: roadstead cluster give-up {cluster}; with policy RetryAnyway (annotation \
         roadstead.dev/worker-lost-policy of the ClusterQueue) they are started elsewhere after workerLostTimeout, and may run twice"
    )
}

/// What the administrator can do about a queue that takes nothing.
fn open_again(cluster: &ClusterName, why: &Closed) -> String {
    match why {
        Closed::QueueMissing => {
            format!(
                "create the namespace and the LocalQueue of that name on cluster \"{cluster}\" (roadstead sync plan {cluster})"
            )
        }
        Closed::ClusterQueueMissing { name } => format!(
            "create ClusterQueue \"{name}\" on cluster \"{cluster}\", or let the LocalQueue there name another"
        ),
        Closed::QueueStopped => format!(
            "see spec.stopPolicy and condition Active on cluster \"{cluster}\": kubectl describe localqueues,clusterqueues -A"
        ),
        Closed::NotAnswering { .. } => format!("look at the API server of cluster \"{cluster}\""),
    }
}

/// Why a queue takes nothing, in a sentence.
fn closed(cluster: &ClusterName, why: &Closed) -> String {
    match why {
        Closed::QueueMissing => format!("cluster \"{cluster}\" has no such queue in this namespace"),
        Closed::ClusterQueueMissing { name } => {
            format!("cluster \"{cluster}\" has no ClusterQueue \"{name}\", which its LocalQueue names")
        }
        Closed::QueueStopped => {
            format!(
                "on cluster \"{cluster}\" the LocalQueue of the job, or its ClusterQueue, is stopped or inactive"
            )
        }
        Closed::NotAnswering { words } => {
            let colon = if words.is_empty() { "" } else { ": " };
            format!("cluster \"{cluster}\" leaves requests unanswered, or fails them{colon}{words}")
        }
    }
}

impl fmt::Display for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Placed(first) => {
                write!(
                    f,
                    "it goes to the cluster that takes workload \"{first}\", which has none yet"
                )
            }
            Self::SameJob(first) => write!(f, "workload \"{first}\" of the same job goes first"),
        }
    }
}

/// What a user does about a Workload that goes first.
fn pass(first: &Behind) -> String {
    match first {
        Behind::Placed(first) => format!(
            "see why workload \"{first}\" waits, or let each pod go to any cluster: annotation roadstead.dev/spread: \"true\" on the \
             pod template"
        ),
        Behind::SameJob(first) => format!(
            "a job has one workload: delete this one, or workload \"{first}\", and see that its controller makes no second one"
        ),
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherChecks { checks } => {
                write!(f, "other admission checks are not ready: {}", list(checks))
            }
            Self::Deactivated => f.write_str("the workload is deactivated"),
            Self::NoLocalJob => f.write_str("the job of this workload does not exist or has ended"),
            Self::BehindAnother { first } => first.fmt(f),
            Self::NoClusterListed => f.write_str("the AdmissionCheck of this job leads to no worker cluster"),
            Self::NotNominated { unlisted } if unlisted.is_empty() => {
                f.write_str("the external dispatcher has nominated no cluster yet")
            }
            Self::NotNominated { unlisted } => write!(
                f,
                "the external dispatcher has nominated {}, which the MultiKueueConfig does not list",
                list(unlisted)
            ),
            Self::QueueClosed { cluster, why } => f.write_str(&closed(cluster, why)),
            Self::Missing { what, clusters } => write!(f, "{what} is missing on {}", plain(clusters)),
            Self::Cordoned { clusters } => write!(f, "no new work is sent to {}", list(clusters)),
            Self::NoClusterConnected { clusters } => {
                write!(f, "no cluster that may take it is connected: {}", list(clusters))
            }
            Self::ClusterFailed {
                cluster,
                cause,
                detail,
            } => {
                let what = match cause {
                    Cause::NameConflict => "has an object of the same name that is not ours",
                    Cause::CreateRefused => "refused to create it",
                    Cause::WebhookFailed => "has a webhook that stood in its way",
                    Cause::NamespaceMissing => "has no such namespace",
                    Cause::NoAnswer => "did not answer",
                    Cause::SpecDrift => "changed its specification",
                    Cause::OutOfSync => "found the job out of sync with its workload",
                    Cause::OwnerNotFound => "no longer has the job, which was deleted there",
                    Cause::Rejected => "rejected it",
                    Cause::Evicted => "evicted it",
                    Cause::FinishedEarly => "finished it before it was chosen",
                    Cause::Outdated => "shows a copy from an earlier dispatch",
                    Cause::DependencyMissing => "lacks what the pods of the job name",
                    Cause::JobFailed => "has failed the job",
                    Cause::LeaseLapsed => {
                        "has not received this manager's Lease renewal in time, so it would stop the job"
                    }
                };
                write!(f, "cluster \"{cluster}\" {what}")?;
                // Why not the time of the next try: it changes with each try, and each change would be written again.
                if detail.is_empty() {
                    Ok(())
                } else {
                    write!(f, ": {detail}")
                }
            }
            Self::KindNotServed { cluster, kind } => {
                write!(f, "cluster \"{cluster}\" does not serve {kind}")
            }
            Self::KindNotReadable { cluster, kind, why } => {
                write!(f, "jobs of {kind} cannot be read on cluster \"{cluster}\": {why}")
            }
            Self::StoppingOnWorker { cluster, refusal } => {
                if refusal.is_empty() {
                    write!(f, "an earlier run is still stopping on cluster \"{cluster}\"")
                } else {
                    write!(
                        f,
                        "cluster \"{cluster}\" refuses to stop or delete an earlier run: {refusal}"
                    )
                }
            }
            Self::WaitingForWorkers { reserved, queued } => {
                let mut parts = Vec::new();
                if !reserved.is_empty() {
                    parts.push(format!("waiting for checks on {}", list(reserved)));
                }
                if !queued.is_empty() {
                    parts.push(format!("waiting for quota on {}", list(queued)));
                }
                f.write_str(&parts.join(", "))
            }
            Self::WorkerLost {
                cluster,
                since,
                until,
                ..
            } => {
                write!(f, "cluster \"{cluster}\" does not answer")?;
                if let Some(since) = since {
                    write!(f, " since {since:.0}")?;
                }
                match until {
                    Some(until) => write!(f, ", it is given up at {until:.0}"),
                    None => f.write_str(", and the job is not started elsewhere"),
                }
            }
        }
    }
}

/// The warning when a run on a lost cluster is given up without proof that it stopped. Unlike the anchor: the user is told.
pub(super) fn may_run_twice(cluster: &ClusterName) -> String {
    format!(
        "Worker cluster \"{cluster}\" is lost and is not known to have stopped the job: it may run twice until the \
         cluster is back"
    )
}

fn plain(names: &[ClusterName]) -> String {
    let names: Vec<&str> = names.iter().map(ClusterName::as_str).collect();
    names.join(", ")
}

fn list<T: fmt::Display>(names: &[T]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("\"{name}\"")).collect();
    names.join(", ")
}
