//! Condition `WorkerFence` of a MultiKueueCluster: whether its worker stops its jobs by itself when it is cut off.
//!
//! *Source*: `spec/safety.md` "how this fits" 2, 3.6.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{Api, Client, ResourceExt as _};
use roadstead_api::kueue::v1beta2::MultiKueueCluster;
use roadstead_core::dispatch::ways_out;
use roadstead_core::lease::{Guard, Tenure, Terms};
use roadstead_core::name::ClusterName;
use roadstead_kubeio::cache::Cache;
use roadstead_kubeio::write::{self, Written};
use serde_json::json;

use super::super::Remote;
use super::super::told::{REMEDY, Told};
use super::Lessor;

const KIND: &str = "WorkerFence";
/// The name of this write in the memory of reported failures.
const WRITING: &str = "writing condition WorkerFence";
/// How often the condition is compared with the state of the worker.
const LOOK: Duration = Duration::from_secs(2);
/// How long the manager waits to see that the worker's engine watches the lease, before the condition says that it does not.
const PATIENCE: Duration = Duration::from_secs(30);

/// Keeps the condition up to date while the worker is connected. Calls `changed` when our lease on the worker lapses or is
/// renewed again. Never ends by itself.
pub(crate) async fn tell(
    lessor: &Lessor,
    clusters: &Cache<MultiKueueCluster>,
    client: &Client,
    (remote, told): (&Remote, &Told),
    changed: impl Fn(),
) {
    let since = lessor.uptime.now();
    let mut lapsed = false;
    loop {
        tokio::time::sleep(LOOK).await;
        let guard = remote.link(|link| link.grant().guard());
        let tenure = lessor.tenure(remote);
        if lapsed != (tenure == Tenure::Lapsed) {
            lapsed = !lapsed;
            changed();
            log(lessor, remote, lapsed);
        }
        if guard != Guard::Looks && !lapsed && lessor.uptime.now().since(since) < PATIENCE {
            continue;
        }
        let name = remote.name.as_str();
        let Some(cluster) = clusters.named(name) else {
            continue;
        };
        let why = lessor.troubles.words(&remote.name);
        let mut conditions = cluster
            .status
            .as_ref()
            .map(|s| s.conditions.clone())
            .unwrap_or_default();
        let new = condition(
            (lessor, &remote.name),
            (guard, lapsed),
            why.as_deref(),
            cluster.metadata.generation,
        );
        let same =
            |old: &Condition| old.type_ == KIND && old.status == new.status && old.message == new.message;
        if conditions.iter().any(same) {
            continue;
        }
        put(&mut conditions, new);
        let patch = json!({
            "metadata": { "resourceVersion": cluster.metadata.resource_version },
            "status": { "conditions": conditions },
        });
        let api: Api<MultiKueueCluster> = Api::all(client.clone());
        match write::patch_status(&api, name, &patch).await {
            Written::Done(object) => {
                clusters.observe(*object);
                told.succeeded(name, WRITING);
            }
            Written::Gone | Written::Conflict | Written::AlreadyExists => {}
            Written::Refused(why) | Written::Unclear(why) => {
                let why =
                    format!("condition {KIND} of its MultiKueueCluster cannot be written: {why}; {REMEDY}");
                told.failed(name, WRITING, &why);
            }
        }
    }
}

/// Whether an earlier process of this manager has recorded that the worker fences itself on these terms. A record of other terms,
/// or of another version, does not count: then the worker is waited for.
pub(super) fn is_fence_recorded(cluster: &MultiKueueCluster, terms: Terms) -> bool {
    let (status, _, message) = of_guard(terms, Guard::Looks, &cluster.name_any().as_str().into());
    let mut conditions = { cluster.status.iter() }.flat_map(|status| &status.conditions);
    conditions.any(|said| said.type_ == KIND && said.status == status && said.message == message)
}

/// Replaces the condition of the same type; its time changes with its status, not with its message.
fn put(conditions: &mut Vec<Condition>, mut new: Condition) {
    if let Some(old) = { conditions.iter() }.find(|old| old.type_ == KIND && old.status == new.status) {
        new.last_transition_time = old.last_transition_time.clone();
    }
    conditions.retain(|old| old.type_ != KIND);
    conditions.push(new);
}

/// Times of conditions have whole seconds.
fn whole(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// What to do when our account may not keep a lease on a worker.
pub(super) fn remedy(namespace: &str) -> String {
    format!(
        "let the account write Leases in namespace \"{namespace}\" there, and make that namespace again if it is gone (roadstead \
         cluster join does both)"
    )
}

fn log(lessor: &Lessor, remote: &Remote, lapsed: bool) {
    let (cluster, why) = (&remote.name, lessor.troubles.words(&remote.name));
    if lapsed {
        tracing::warn!(%cluster, "{}", of_lapse(lessor.terms, why.as_deref(), &lessor.namespace));
    } else {
        tracing::info!(%cluster, "this manager's lease on the worker is renewed again");
    }
}

fn of_lapse(terms: Terms, why: Option<&str>, namespace: &str) -> String {
    format!(
        "This manager's lease on the worker was not renewed for more than {} s{}, so the worker stops jobs of queues with policy \
         Fence, and they are sent elsewhere; {}",
        terms.starts_for().as_secs(),
        why.map(|why| format!(" ({why})")).unwrap_or_default(),
        remedy(namespace)
    )
}

fn condition(
    (lessor, cluster): (&Lessor, &ClusterName),
    (guard, lapsed): (Guard, bool),
    why: Option<&str>,
    generation: Option<i64>,
) -> Condition {
    let (status, reason, message) = if lapsed {
        (
            "False",
            "LeaseLapsed",
            of_lapse(lessor.terms, why, &lessor.namespace),
        )
    } else {
        let (status, reason, message) = of_guard(lessor.terms, guard, cluster);
        let why = why.filter(|_| guard != Guard::Looks);
        (status, reason, with_why(guard, message, why, &lessor.namespace))
    };
    Condition {
        type_: KIND.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: Time(whole((lessor.clock)())),
        observed_generation: generation,
    }
}

/// Adds the cause of a failed renewal to the message. Why not if the worker watches the lease: then a failure matters only when
/// the lease lapses.
fn with_why(guard: Guard, message: String, why: Option<&str>, namespace: &str) -> String {
    let Some(why) = why else { return message };
    let remedy = remedy(namespace);
    if guard == Guard::Unmarked {
        // Why the cause first: a narrow table cuts off the rest.
        return format!(
            "This manager does not renew its lease on the worker, so nothing there stops jobs by itself: {why}; {remedy}. {message}"
        );
    }
    format!("{message}. This manager does not renew its lease there: {why}; {remedy}")
}

fn of_guard(terms: Terms, guard: Guard, cluster: &ClusterName) -> (&'static str, &'static str, String) {
    match guard {
        Guard::Looks => {
            let message = format!(
                "The worker stops jobs of queues with policy Fence when it has not heard of this manager for {} s; if its API \
                 server or its engine is dead while its nodes live, pods go on",
                terms.length().as_secs()
            );
            ("True", "Fencing", message)
        }
        Guard::Unproven => {
            let message = format!(
                "This manager has not seen yet that the worker's engine looks at its lease; where it does, that is seen within \
                 {} s. With policy Fence a job that is lost before that is waited for; if this stays, look whether the engine \
                 runs there",
                terms.mark_every().as_secs()
            );
            ("Unknown", "NotSeenYet", message)
        }
        Guard::Stopped => {
            let message = format!(
                "The worker's engine used to look at the lease of this manager and does not any more: look whether the engine runs \
                 there. {}",
                waited_for(cluster)
            );
            ("False", "EngineSilent", message)
        }
        Guard::Unmarked => {
            let message = format!("The worker does not stop jobs by itself. {}", waited_for(cluster));
            ("False", "NoFence", message)
        }
    }
}

fn waited_for(cluster: &ClusterName) -> String {
    format!(
        "With policy Fence its jobs are waited for when it is lost, as with policy Wait; {}",
        ways_out(cluster)
    )
}

#[cfg(test)]
mod tests {
    use roadstead_api::kueue::v1beta2::{ClusterSource, MultiKueueClusterSpec, MultiKueueClusterStatus};

    use super::*;

    /// Spec: safety 3.6
    #[test]
    fn a_fence_is_promised_only_where_somebody_is_seen_to_look() {
        let terms = Terms::of(Duration::from_mins(10));
        let said = [Guard::Looks, Guard::Unproven, Guard::Stopped, Guard::Unmarked].map(|guard| {
            let (status, reason, message) = of_guard(terms, guard, &"east".into());
            (status, reason, message.contains("waited for"))
        });
        assert_eq!(
            said,
            [
                ("True", "Fencing", false),
                ("Unknown", "NotSeenYet", true),
                ("False", "EngineSilent", true),
                ("False", "NoFence", true),
            ]
        );
        for guard in [Guard::Stopped, Guard::Unmarked] {
            let (.., message) = of_guard(terms, guard, &"east".into());
            assert!(message.contains("roadstead cluster give-up east"), "{message}");
            assert!(message.contains("policy RetryAnyway"), "{message}");
        }
    }

    /// Spec: safety 3.4
    #[test]
    fn a_record_counts_only_in_the_words_that_this_process_would_write() {
        let terms = Terms::of(Duration::from_mins(10));
        let source = ClusterSource {
            kube_config: None,
            cluster_profile_ref: None,
        };
        let mut cluster = MultiKueueCluster::new(
            "east",
            MultiKueueClusterSpec {
                cluster_source: source,
            },
        );
        assert!(!is_fence_recorded(&cluster, terms));
        let mut record = |guard, length| {
            let (status, reason, message) = of_guard(Terms::of(length), guard, &"east".into());
            let condition = Condition {
                type_: KIND.to_owned(),
                status: status.to_owned(),
                reason: reason.to_owned(),
                message,
                last_transition_time: Time(Timestamp::UNIX_EPOCH),
                observed_generation: None,
            };
            cluster.status = Some(MultiKueueClusterStatus {
                conditions: vec![condition],
            });
            is_fence_recorded(&cluster, terms)
        };
        assert!(record(Guard::Looks, Duration::from_mins(10)));
        assert!(
            !record(Guard::Looks, Duration::from_mins(20)),
            "the worker may still wait longer"
        );
        assert!(!record(Guard::Unmarked, Duration::from_mins(10)));
        assert!(!record(Guard::Stopped, Duration::from_mins(10)));
    }

    #[test]
    fn the_time_of_the_condition_moves_with_its_status_and_not_with_its_words() {
        let said = |status: &str, message: &str, second| Condition {
            type_: KIND.to_owned(),
            status: status.to_owned(),
            reason: "NoFence".to_owned(),
            message: message.to_owned(),
            last_transition_time: Time(Timestamp::from_second(second).unwrap()),
            observed_generation: None,
        };
        let mut conditions = vec![said("False", "no answer", 1)];
        put(&mut conditions, said("False", "forbidden", 2));
        assert_eq!(conditions, [said("False", "forbidden", 1)]);
        put(&mut conditions, said("True", "fencing", 3));
        assert_eq!(conditions, [said("True", "fencing", 3)]);
    }

    #[test]
    fn why_a_lease_is_not_renewed_is_said_where_it_matters() {
        let terms = Terms::of(Duration::from_mins(10));
        let of_lapse = |why| of_lapse(terms, why, "roadstead-system");
        let told = of_lapse(Some("leases is forbidden"));
        assert!(
            told.contains("for more than 400 s (leases is forbidden), so the worker stops"),
            "{told}"
        );
        assert!(told.contains("namespace \"roadstead-system\" there"), "{told}");
        assert!(of_lapse(None).contains("for more than 400 s, so"));
        let of_guard = |guard, why| with_why(guard, "No fence".to_owned(), why, "ns");
        let said = of_guard(Guard::Stopped, Some("leases is forbidden"));
        assert!(
            said.starts_with(
                "No fence. This manager does not renew its lease there: leases is forbidden; let"
            )
        );
        assert_eq!(of_guard(Guard::Unmarked, None), "No fence");
        let said = of_guard(Guard::Unmarked, Some("leases is forbidden"));
        assert!(
            said.contains("by itself: leases is forbidden; let the account") && said.ends_with("No fence"),
            "{said}"
        );
    }
}
