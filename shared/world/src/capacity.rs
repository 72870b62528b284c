//! Answers "is there room for these pods?" in a cluster that has no autoscaler.
//!
//! It answers ProvisioningRequests of class `check-capacity.autoscaling.x-k8s.io` from what the nodes really have left,
//! with the conditions, reasons and messages of the cluster autoscaler (`spec/provisioning.md` 13.2, 14), in the order of
//! their age. A "yes" books the room for a while, so that two requests never get the same room.
//!
//! Reading order: this file (what to answer), [`fit`] (does it fit), `demand` and `amount` (what a pod asks for).
//!
//! *Limits*: the order is age, not the priority of the workload; requests are never deleted; pod affinity, spread
//! constraints, host ports, claims of volumes and of devices are refused with a message rather than guessed.

mod amount;
mod demand;
pub mod fit;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec, PodTemplate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt;
use roadstead_api::autoscaling::v1::ProvisioningRequest;
use roadstead_api::constants::annotations::CONSUME_PROVISIONING_REQUEST;
use roadstead_api::constants::conditions::provisioning_request::{
    ACCEPTED, BOOKING_EXPIRED, CAPACITY_REVOKED, FAILED, PROVISIONED,
};
use roadstead_api::constants::conditions::{FALSE, TRUE};
use roadstead_api::constants::controllers::CLASS_CHECK_CAPACITY;

use fit::{Rooms, Set};

/// How long room is booked for the pods of a provisioned request.
const BOOKING: SignedDuration = SignedDuration::from_mins(10);
/// After this a request without an answer has failed.
const LIFETIME: SignedDuration = SignedDuration::from_hours(7 * 24);
/// How long a request waits for missing pod templates: its watch may report it before the templates. Creation times count whole seconds.
const TEMPLATE_GRACE: SignedDuration = SignedDuration::from_secs(3);

/// Parameter that names the process that must answer the request.
const PROCESSOR_INSTANCE: &str = "processorInstance";
/// Parameter by which a request without room fails at once instead of waiting.
const NO_RETRY: &str = "noRetry";
/// Parameter of Roadstead: how long room is booked, in seconds.
const BOOKING_SECONDS: &str = "bookingSeconds";

/// Which requests are answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// Only requests whose parameter `processorInstance` is this; `None`: only requests without that parameter.
    pub instance: Option<String>,
}

/// Everything that an answer depends on.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    /// All requests, whatever their class.
    pub requests: Vec<Arc<ProvisioningRequest>>,
    /// Pod templates by namespace and name.
    pub templates: BTreeMap<(String, String), Arc<PodTemplate>>,
    /// All nodes.
    pub nodes: Vec<Arc<Node>>,
    /// All pods.
    pub pods: Vec<Arc<Pod>>,
}

/// New conditions of one request.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Namespace of the request.
    pub namespace: String,
    /// Name of the request.
    pub name: String,
    /// The version of the request that was judged; the write fails if the request has another one by then.
    pub resource_version: Option<String>,
    /// All conditions, the untouched ones included.
    pub conditions: Vec<Condition>,
}

/// The answers that are due, and when to decide again if nothing changes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Verdicts {
    /// Answers to give now.
    pub answers: Vec<Answer>,
    /// When the next answer may be due; `None` if only a change can make one due.
    pub due: Option<Timestamp>,
}

/// One condition to set: type, status, reason, message.
type Word = (&'static str, &'static str, &'static str, String);

/// The answers that are due. Requests that already have the right answer are left out.
///
/// *Source*: `spec/provisioning.md` 13.2 (words), 14.2 (rules).
pub fn decide(cluster: &Cluster, policy: &Policy, now: Timestamp) -> Verdicts {
    let mut mine: Vec<&ProvisioningRequest> = cluster
        .requests
        .iter()
        .map(Arc::as_ref)
        .filter(|request| is_ours(request, policy) && !is_settled(request))
        .collect();
    mine.sort_by_key(|request| (created(request), request.uid()));
    let due = mine
        .iter()
        .flat_map(|request| deadlines(request))
        .filter(|due| *due > now)
        .min();
    let (booked, asking): (Vec<_>, Vec<_>) =
        mine.into_iter().partition(|request| request.is_true(PROVISIONED));

    let mut rooms = Rooms::of(&cluster.nodes, &cluster.pods);
    let mut answers = Vec::new();
    for request in booked {
        let words = keep_booking(cluster, request, &mut rooms, now);
        answers.extend(answer(request, words, now));
    }
    for request in asking {
        let words = judge(cluster, request, &mut rooms, now);
        answers.extend(answer(request, words, now));
    }
    Verdicts { answers, due }
}

/// Templates by namespace and name, as [`Cluster::templates`] holds them.
pub(crate) fn by_name(templates: Vec<Arc<PodTemplate>>) -> BTreeMap<(String, String), Arc<PodTemplate>> {
    let key = |template: &PodTemplate| (template.namespace().unwrap_or_default(), template.name_any());
    { templates }
        .into_iter()
        .map(|template| (key(&template), template))
        .collect()
}

/// When time alone may change the answer to a request.
fn deadlines(request: &ProvisioningRequest) -> Vec<Timestamp> {
    let booked = request
        .condition(PROVISIONED)
        .map(|condition| (condition.last_transition_time.0, booking(request)));
    [(created(request), TEMPLATE_GRACE), (created(request), LIFETIME)]
        .into_iter()
        .chain(booked)
        .filter_map(|(since, time)| since.checked_add(time).ok())
        .collect()
}

fn is_ours(request: &ProvisioningRequest, policy: &Policy) -> bool {
    let spec = &request.spec;
    spec.provisioning_class_name == CLASS_CHECK_CAPACITY
        && spec.parameters.get(PROCESSOR_INSTANCE) == policy.instance.as_ref()
        && request.metadata.deletion_timestamp.is_none()
}

fn is_settled(request: &ProvisioningRequest) -> bool {
    [FAILED, BOOKING_EXPIRED, CAPACITY_REVOKED]
        .iter()
        .any(|each| request.is_true(each))
}

fn created(request: &ProvisioningRequest) -> Timestamp {
    request
        .metadata
        .creation_timestamp
        .as_ref()
        .map_or(Timestamp::MAX, |time| time.0)
}

/// Reserves the room that a booking still needs, or ends the booking.
fn keep_booking<'a>(
    cluster: &'a Cluster,
    request: &ProvisioningRequest,
    rooms: &mut Rooms<'a>,
    now: Timestamp,
) -> Vec<Word> {
    let mut sets = match read_sets(cluster, request) {
        Ok(sets) => sets,
        Err(problem) => {
            let message = format!("Couldn't create pods, err: {}", problem.message());
            return vec![(FAILED, TRUE, "FailedToBookCapacity", message)];
        }
    };
    let name = request.name_any();
    let consumers = cluster.pods.iter().filter(|pod| {
        pod.namespace() == request.namespace()
            && pod.annotations().get(CONSUME_PROVISIONING_REQUEST) == Some(&name)
    });
    for spec in consumers.filter_map(|pod| pod.spec.as_ref()) {
        consume(&mut sets, spec);
    }
    if sets.iter().all(|set| set.count == 0) {
        let message = "Capacity booking consumed: all pods scheduled".to_owned();
        return vec![(BOOKING_EXPIRED, TRUE, "CapacityBookingConsumed", message)];
    }
    let since = request
        .condition(PROVISIONED)
        .map_or(Timestamp::MAX, |condition| condition.last_transition_time.0);
    if now.duration_since(since) >= booking(request) {
        let message = "Capacity reservation time is expired".to_owned();
        return vec![(BOOKING_EXPIRED, TRUE, "CapacityReservationTimeExpired", message)];
    }
    // Why ignored: pods without a request may have taken the room of this booking.
    rooms.place(&sets);
    Vec::new()
}

/// Counts a bound pod against a set with the same requests, else against any set.
fn consume(sets: &mut [Set<'_>], spec: &PodSpec) {
    if spec.node_name.is_none() {
        return;
    }
    let asked = demand::of_pod(spec).ok();
    let alike = sets
        .iter()
        .position(|set| set.count > 0 && Some(&set.asked) == asked.as_ref());
    let any = || sets.iter().position(|set| set.count > 0);
    if let Some(index) = alike.or_else(any) {
        sets[index].count -= 1;
    }
}

fn booking(request: &ProvisioningRequest) -> SignedDuration {
    let asked = request.spec.parameters.get(BOOKING_SECONDS);
    asked
        .and_then(|text| text.parse().ok())
        .map_or(BOOKING, SignedDuration::from_secs)
}

/// Answers a request that has no final answer yet.
fn judge<'a>(
    cluster: &'a Cluster,
    request: &ProvisioningRequest,
    rooms: &mut Rooms<'a>,
    now: Timestamp,
) -> Vec<Word> {
    let age = now.duration_since(created(request));
    if age > LIFETIME {
        return vec![(
            FAILED,
            TRUE,
            "Expired",
            "ProvisioningRequest is expired".to_owned(),
        )];
    }
    let accepted = || {
        let message = "ProvisioningRequest is accepted by ClusterAutoscaler".to_owned();
        (ACCEPTED, TRUE, "Accepted", message)
    };
    let sets = match read_sets(cluster, request) {
        Ok(sets) => sets,
        Err(Problem::Missing { .. }) if age < TEMPLATE_GRACE => return Vec::new(),
        Err(problem @ Problem::Missing { .. }) => {
            return vec![(FAILED, TRUE, "FailedToCreatePods", problem.message())];
        }
        Err(problem @ (Problem::Unsupported { .. } | Problem::Unreadable { .. })) => {
            return vec![
                accepted(),
                (FAILED, TRUE, "FailedToCheckCapacity", problem.message()),
            ];
        }
    };
    let no_retry = request
        .spec
        .parameters
        .get(NO_RETRY)
        .is_some_and(|value| value == "true");
    let result = if rooms.fits(&sets) {
        let message = "Capacity is found in the cluster".to_owned();
        (PROVISIONED, TRUE, "CapacityIsFound", message)
    } else if no_retry {
        let message = "CA could not find requested capacity".to_owned();
        (FAILED, TRUE, "CapacityIsNotFound", message)
    } else {
        let message = "Capacity is not found, CA will try to find it later.".to_owned();
        (PROVISIONED, FALSE, "CapacityIsNotFound", message)
    };
    vec![accepted(), result]
}

/// Why a request's pods cannot be judged.
enum Problem {
    Missing { referenced: usize, names: Vec<String> },
    Unsupported { template: String, what: &'static str },
    Unreadable { template: String, what: String },
}

impl Problem {
    fn message(&self) -> String {
        match self {
            Self::Missing { referenced, names } => format!(
                "missing pod templates, {referenced} pod templates were referenced, {} templates were missing: {}",
                names.len(),
                names.join(", ")
            ),
            Self::Unsupported { template, what } => {
                format!("pod template {template}: {what} cannot be checked for capacity here")
            }
            Self::Unreadable { template, what } => format!("pod template {template}: not a quantity: {what}"),
        }
    }
}

fn read_sets<'a>(cluster: &'a Cluster, request: &ProvisioningRequest) -> Result<Vec<Set<'a>>, Problem> {
    let namespace = request.namespace().unwrap_or_default();
    let mut sets = Vec::new();
    let mut names = Vec::new();
    for set in &request.spec.pod_sets {
        let template = set.pod_template_ref.name.clone();
        let found = cluster
            .templates
            .get(&(namespace.clone(), template.clone()))
            .and_then(|found| found.template.as_ref()?.spec.as_ref());
        let Some(spec) = found else {
            names.push(template);
            continue;
        };
        if let Some(what) = demand::unsupported(spec) {
            return Err(Problem::Unsupported { template, what });
        }
        let set = Set::new(spec, i64::from(set.count));
        sets.push(set.map_err(|what| Problem::Unreadable { template, what })?);
    }
    if names.is_empty() {
        Ok(sets)
    } else {
        Err(Problem::Missing {
            referenced: request.spec.pod_sets.len(),
            names,
        })
    }
}

/// The request's conditions with these words set; `None` if it has them already.
fn answer(request: &ProvisioningRequest, words: Vec<Word>, now: Timestamp) -> Option<Answer> {
    let new: Vec<Word> = words
        .into_iter()
        .filter(|(type_, status, reason, _)| {
            request
                .condition(type_)
                .is_none_or(|old| old.status != *status || old.reason != *reason)
        })
        .collect();
    if new.is_empty() {
        return None;
    }
    let old = request.status.iter().flat_map(|status| &status.conditions);
    let mut conditions: Vec<Condition> = old
        .filter(|old| new.iter().all(|(type_, ..)| old.type_ != *type_))
        .cloned()
        .collect();
    conditions.extend(new.into_iter().map(|(type_, status, reason, message)| Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: Time(now),
        observed_generation: request.metadata.generation,
    }));
    Some(Answer {
        namespace: request.namespace().unwrap_or_default(),
        name: request.name_any(),
        resource_version: request.resource_version(),
        conditions,
    })
}

#[cfg(test)]
mod tests;
