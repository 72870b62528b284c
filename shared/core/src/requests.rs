//! The request of one pod, as counted against quota.
//!
//! The steps are those of `spec/admission-engine.md 4.5`, in its order: overhead of the runtime class, defaults of limit ranges, limits for
//! missing requests, the pod's total, names that do not count, transformations. None of them changes the stored Workload. Devices (step 7)
//! are not counted here; a pod that claims devices has a problem, see [`Claims`].
//!
//! Invariant: the result holds no negative amount, and no request causes a panic or a wrap-around.

use std::collections::BTreeMap;
use std::fmt;

use crate::amount::Amount;
use crate::name::ResourceName;

mod limits;
mod transform;

pub use limits::{Bounds, Limits};
pub use transform::{Input, Transformation};

/// Amounts by resource.
pub type Amounts = BTreeMap<ResourceName, Amount>;

/// Requests and limits of a container or of a whole pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Its requests.
    pub requests: Amounts,
    /// Its limits.
    pub limits: Amounts,
}

/// The parts of a container that cost quota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// Its resources.
    pub resources: Resources,
    /// Whether it is an init container that keeps running.
    pub sidecar: bool,
}

/// The parts of a pod template that cost quota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Containers, in order.
    pub containers: Vec<Container>,
    /// Init containers, in order.
    pub init_containers: Vec<Container>,
    /// `spec.resources`: the requests and limits of the pod as a whole.
    pub whole: Resources,
    /// Its `spec.overhead`.
    pub overhead: Amounts,
    /// Its `spec.runtimeClassName`.
    pub runtime_class: Option<String>,
    /// Whether it claims devices (`spec.resourceClaims`).
    pub claims_devices: bool,
}

/// How the administrator wants resources counted. *Source*: `spec/api.md API-13`, `resources`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Prefixes of resource names that do not count.
    pub excluded_prefixes: Vec<String>,
    /// Rewrites of requests, at most one per input.
    pub transformations: Vec<Transformation>,
    /// What happens to pods that claim devices.
    pub claims: Claims,
}

/// What happens to pods that claim devices. *Source*: gate `KueueDRARejectWorkloadsWhenDRADisabled`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Claims {
    /// They are refused, because Roadstead cannot count the devices.
    #[default]
    Refuse,
    /// Their devices cost nothing.
    Ignore,
}

/// Facts beside the pod itself that count.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// The administrator's rules.
    pub rules: &'a Rules,
    /// The limit ranges of the namespace.
    pub limits: &'a Limits,
    /// The overhead of the pod's runtime class.
    pub overhead: Option<&'a Amounts>,
}

/// Problems of the requests of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Requests that are invalid by themselves.
    pub invalid: Vec<String>,
    /// Requests that the limit ranges of the namespace forbid.
    pub outside_limits: Vec<String>,
}

impl Findings {
    /// Records a request that the namespace forbids; a field that is already named is not named again.
    fn outside(&mut self, field: &str, text: &str) {
        let start = format!("{field}: ");
        if !self.outside_limits.iter().any(|told| told.starts_with(&start)) {
            self.outside_limits.push(format!("{field}: {text}"));
        }
    }

    /// The problems as one sentence, in the words of `spec/admission-engine.md 2.3` items 6 and 7; the former hides the latter.
    pub fn sentence(&self) -> Option<String> {
        // Wire: both phrases up to the colon.
        if !self.invalid.is_empty() {
            Some(format!(
                "resources validation failed: {}",
                self.invalid.join("; ")
            ))
        } else if !self.outside_limits.is_empty() {
            let all = self.outside_limits.join("; ");
            Some(format!("resources didn't satisfy LimitRange constraints: {all}"))
        } else {
            None
        }
    }
}

/// A place in a pod's spec. It is spelt out only when there is a finding about it.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The path of the spec.
    pub spec: &'a str,
    /// A list of containers in it and the index there; `None` for the spec itself.
    pub container: Option<(&'static str, usize)>,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.spec)?;
        match self.container {
            Some((list, index)) => write!(f, ".{list}[{index}]"),
            None => Ok(()),
        }
    }
}

/// The request of one pod. `path` is that of the pod's spec, for the findings.
pub fn count(path: &str, pod: &Pod, around: &Around<'_>, findings: &mut Findings) -> Amounts {
    if pod.claims_devices && around.rules.claims == Claims::Refuse {
        findings.invalid.push(format!(
            "{path}.resourceClaims: device claims cannot be counted here: request the devices as extended resources, or \
             switch gate KueueDRARejectWorkloadsWhenDRADisabled off to run the pods without counting them"
        ));
    }
    validate(path, pod, findings);
    let mut full = pod.clone();
    complete(&mut full, around);
    let total = total(&full);
    around.limits.check(path, &full, &total, findings);
    check_defaults(path, pod, &full, findings);
    let counts = |name: &ResourceName| {
        let excluded = &around.rules.excluded_prefixes;
        !excluded
            .iter()
            .any(|prefix| name.as_str().starts_with(prefix.as_str()))
    };
    let counted: Amounts = total.into_iter().filter(|(name, _)| counts(name)).collect();
    let mut counted = transform::apply(&around.rules.transformations, &counted);
    for amount in counted.values_mut() {
        *amount = (*amount).max(Amount::ZERO);
    }
    counted
}

/// Fills in the values that the API server will fill in when the pod is created.
fn complete(pod: &mut Pod, around: &Around<'_>) {
    if pod.overhead.is_empty() {
        pod.overhead = around.overhead.cloned().unwrap_or_default();
    }
    // Why not for all: the requests of the containers themselves add up to the pod's request. Why before limit ranges: the API server
    // defaults a pod first, too. So a limit of the whole pod counts in full although its containers get defaults.
    let asked: Vec<&ResourceName> = { pod.containers.iter().chain(&pod.init_containers) }
        .flat_map(|container| {
            container
                .resources
                .requests
                .keys()
                .chain(container.resources.limits.keys())
        })
        .collect();
    let mut limits = pod.whole.limits.clone();
    limits.retain(|name, _| !asked.contains(&name));
    fill_in(&mut pod.whole.requests, &limits);
    for container in pod.containers.iter_mut().chain(&mut pod.init_containers) {
        around.limits.fill(&mut container.resources);
        fill_in(&mut container.resources.requests, &container.resources.limits);
    }
}

/// Copies the entries that are missing.
fn fill_in(to: &mut Amounts, from: &Amounts) {
    for (name, amount) in from {
        to.entry(name.clone()).or_insert(*amount);
    }
}

fn containers<'a>(spec: &'a str, pod: &'a Pod) -> impl Iterator<Item = (Place<'a>, &'a Container)> {
    let listed = |list: &'static str, all: &'a [Container]| {
        let place = move |index| Place {
            spec,
            container: Some((list, index)),
        };
        let numbered = all.iter().enumerate();
        numbered.map(move |(index, container)| (place(index), container))
    };
    listed("initContainers", &pod.init_containers).chain(listed("containers", &pod.containers))
}

fn validate(path: &str, pod: &Pod, findings: &mut Findings) {
    let mut check = |place: Place<'_>, resources: &Resources| {
        for (name, request) in &resources.requests {
            if resources.limits.get(name).is_some_and(|limit| request > limit) {
                findings.invalid.push(format!(
                    "{place}.resources.requests[{name}]: requests must not exceed its limits"
                ));
            }
        }
    };
    for (place, container) in containers(path, pod) {
        check(place, &container.resources);
    }
    let whole = Place {
        spec: path,
        container: None,
    };
    check(whole, &pod.whole);
}

/// Looks for requests above limits that only a limit range of the namespace has set.
fn check_defaults(path: &str, asked: &Pod, full: &Pod, findings: &mut Findings) {
    for ((place, full), (_, asked)) in containers(path, full).zip(containers(path, asked)) {
        for (name, request) in &full.resources.requests {
            let own = asked.resources.limits.contains_key(name);
            if !own
                && full
                    .resources
                    .limits
                    .get(name)
                    .is_some_and(|limit| request > limit)
            {
                findings.outside(
                    &format!("{place}.resources.requests[{name}]"),
                    "requests must not be above the limitRange default",
                );
            }
        }
    }
}

/// The total of a pod: the larger of its containers with sidecars, and of the highest moment of its init containers. Requests of the pod as
/// a whole replace it. Overhead is added.
fn total(pod: &Pod) -> Amounts {
    let mut running = Amounts::new();
    for container in &pod.containers {
        add(&mut running, &container.resources.requests);
    }
    let (mut sidecars, mut peak) = (Amounts::new(), Amounts::new());
    for container in &pod.init_containers {
        let mut moment = sidecars.clone();
        add(&mut moment, &container.resources.requests);
        raise(&mut peak, &moment);
        if container.sidecar {
            sidecars = moment;
        }
    }
    add(&mut running, &sidecars);
    raise(&mut running, &peak);
    running.extend(pod.whole.requests.clone());
    add(&mut running, &pod.overhead);
    running
}

fn add(to: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = to.entry(name.clone()).or_default();
        *sum = sum.plus(*amount);
    }
}

fn raise(to: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let highest = to.entry(name.clone()).or_default();
        *highest = (*highest).max(*amount);
    }
}

#[cfg(test)]
mod tests;
