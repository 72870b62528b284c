//! Every kind of job, as a table: its API, the controller that runs it, the rights it needs, and the places of its pods.
//!
//! Data only. It **never** decides anything, and imports nothing. Code that needs a list of kinds takes [`Kinds`] and walks it, so that a
//! new kind is one row here and one file in `shared/jobs`.
//!
//! Reading order: this file (the columns), `rows` (the rows).
//!
//! ```
//! let job = roadstead_kinds::TABLE.named("batch/job").unwrap();
//! assert_eq!((job.api_version().as_str(), job.plural), ("batch/v1", "jobs"));
//! ```

pub mod rows;

use std::fmt;

/// One kind of job. *Source*: `spec/jobs.md 4.1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Name of the integration in `integrations.frameworks`.
    pub framework: &'static str,
    /// Group of its API; empty for the core group.
    pub group: &'static str,
    /// Version of its API.
    pub version: &'static str,
    /// Name of the kind.
    pub kind: &'static str,
    /// Its plural in the API.
    pub plural: &'static str,
    /// The field that names the controller of a job; `None` when the kind has no such field.
    pub managed_by: Option<ManagedBy>,
    /// What keeps its controller in the manager's cluster from running a job that runs on a worker.
    pub idle: Idle,
    /// How many objects make up a job of this kind.
    pub members: Members,
    /// Which of its objects are reviewed by webhooks.
    pub review: Review,
    /// What its integration can do beyond queueing in one cluster.
    pub abilities: &'static [Ability],
    /// The rights that the processes need for it.
    pub rights: Rights,
    /// The integration that is enabled together with this one, because this one works through it.
    pub implies: Option<&'static str>,
    /// The feature gate that must be on for it.
    pub gate: Option<&'static str>,
    /// The places of its pod templates, for an `AppWrapper` that wraps it; empty when the `AppWrapper` must declare them.
    ///
    /// *Source*: `spec/appwrapper.md 1.5`.
    pub wrapped: &'static [PodPlace],
}

/// The field in which a job names its controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagedBy {
    /// The path of the field.
    pub path: &'static [&'static str],
    /// The name of the field in a refusal. Wire: for some kinds it differs from the path. *Source*: `spec/jobs.md 10.1`.
    pub said: &'static str,
    /// The controller that runs the job when the field is absent. *Source*: `spec/jobs.md 10.2`.
    pub default: &'static str,
}

/// What keeps the controller of a kind in the manager's cluster from running a job that runs on a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// The controller heeds [`Kind::managed_by`]. So the manager's job is released as well, and shows the status of its copy.
    ManagedBy,
    /// The controller heeds no such field. So the manager's job stays suspended, and shows only the end of its copy: the controller would
    /// overwrite any other status.
    Held,
    /// No controller runs the job while its gate is set. So the manager's job keeps its gate, and shows the status of its copy.
    Gate,
}

/// How many objects make up a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Members {
    /// One object.
    One,
    /// One object or a group of them that share a name. *Source*: `spec/jobs.md 12`.
    Group,
    /// One object, and the pods that its own controller makes; the pod integration handles these pods.
    WithPods,
}

/// Which objects of a kind are reviewed by webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Review {
    /// Every object.
    Every,
    /// Only objects that name a queue; every object if jobs without a queue are held too. Why: a cluster has many objects of such a kind,
    /// or writes them often, and each of them would wait for the webhook.
    Queued,
}

/// What an integration can do beyond queueing in one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// A job may name the Workload that describes it. *Source*: `spec/jobs.md 7.3`.
    Prebuilt,
    /// A running job may change its size. *Source*: `spec/jobs.md 6`.
    Elastic,
    /// A manager sends jobs of the kind to workers. *Source*: `spec/multikueue.md 5`.
    Dispatched,
}

/// The rights that the processes need for a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// The engine's rights in its own cluster, on a manager and on a worker.
    pub engine: &'static [Right],
    /// The manager's rights on a worker.
    pub account: &'static [Right],
}

/// Verbs on one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// The resource.
    pub on: On,
    /// The verbs, in alphabetical order.
    pub verbs: &'static [&'static str],
}

/// The resource of a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// The objects of the kind.
    Objects,
    /// This subresource of the objects.
    Part(&'static str),
    /// Another resource.
    Other {
        /// Its group.
        group: &'static str,
        /// Its plural.
        resource: &'static str,
    },
}

/// A place of pod templates in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodPlace {
    /// The object that holds the template.
    pub holder: Holder,
    /// The path of the template, below its holder; empty when the holder itself is the template.
    pub template: &'static [&'static str],
    /// What a missing template means.
    pub absent: Absent,
    /// The number of pods made from it.
    pub pods: Pods,
}

/// The object that holds a pod template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The object at this path, if it exists; the whole object for an empty path.
    At(&'static [&'static str]),
    /// Each entry of the list at this path.
    EachOf(&'static [&'static str]),
}

/// What a missing pod template means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// The holder makes no pods.
    NoPods,
    /// The object is invalid.
    Wrong,
    /// The template is not checked.
    Unseen,
}

/// The number of pods made from a template; paths are below its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pods {
    /// One pod.
    One,
    /// The number at this path, 1 by default; another type there is an error.
    Replicas(&'static [&'static str]),
    /// The number at the first path for each of the number at the second, both 1 by default; another type there is an error.
    ReplicasOf(&'static [&'static str], &'static [&'static str]),
    /// `parallelism` of the job spec at this path, but no more than its `completions`.
    OfJob(&'static [&'static str]),
    /// `parallelism` of the job spec at this path, but no more than its `completions`, for each of the holder's `replicas`.
    OfJobs(&'static [&'static str]),
}

impl Kind {
    /// `group/version`, as in `apiVersion`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Whether it is the kind of this group and name, whatever its version.
    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.group == group && self.kind == kind
    }

    /// Whether its integration has this ability.
    pub fn can(&self, ability: Ability) -> bool {
        self.abilities.contains(&ability)
    }
}

impl Right {
    /// Group and resource, as an RBAC rule names them.
    pub fn resource(&self, kind: &Kind) -> (&'static str, String) {
        match self.on {
            On::Objects => (kind.group, kind.plural.to_owned()),
            On::Part(part) => (kind.group, format!("{}/{part}", kind.plural)),
            On::Other { group, resource } => (group, resource.to_owned()),
        }
    }
}

/// A kind as the reference prints it: `batch/v1, Kind=Job`.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, Kind={}", self.api_version(), self.kind)
    }
}

/// The kinds in a fixed order. A test makes a copy with one more row and passes it to the code that walks the table.
#[derive(Clone, Copy, Debug)]
pub struct Kinds(&'static [&'static Kind]);

/// The table of all kinds.
pub const TABLE: Kinds = Kinds(&rows::ALL);

impl Kinds {
    /// A table of these rows.
    pub const fn new(rows: &'static [&'static Kind]) -> Self {
        Self(rows)
    }

    /// All rows.
    pub fn iter(self) -> impl Iterator<Item = &'static Kind> {
        self.0.iter().copied()
    }

    /// The kind of this group and name, whatever its version.
    pub fn of(self, group: &str, kind: &str) -> Option<&'static Kind> {
        self.iter().find(|row| row.is(group, kind))
    }

    /// The kind whose integration has this name.
    pub fn named(self, framework: &str) -> Option<&'static Kind> {
        self.iter().find(|row| row.framework == framework)
    }

    /// The kinds whose integration is enabled when these are listed in `integrations.frameworks`, in the order of the table.
    pub fn enabled(self, frameworks: &[String]) -> Vec<&'static Kind> {
        let listed = |name: &str| frameworks.iter().any(|listed| listed == name);
        let implied = |name: &str| {
            self.iter()
                .any(|row| row.implies == Some(name) && listed(row.framework))
        };
        self.iter()
            .filter(|row| listed(row.framework) || implied(row.framework))
            .collect()
    }

    /// Names of all integrations, in alphabetical order.
    pub fn frameworks(self) -> Vec<&'static str> {
        let mut names: Vec<&str> = self.iter().map(|row| row.framework).collect();
        names.sort_unstable();
        names
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Spec: jobs 4.1, jobs 7.1
    #[test]
    fn nineteen_kinds_are_known_each_once_under_every_name() {
        let distinct = |name: fn(&Kind) -> String| TABLE.iter().map(name).collect::<BTreeSet<_>>().len();
        assert_eq!(distinct(|row| row.framework.to_owned()), 19);
        assert_eq!(distinct(|row| row.kind.to_owned()), 19);
        assert_eq!(distinct(|row| format!("{}/{}", row.group, row.plural)), 19);
        assert_eq!(TABLE.iter().count(), 19);
        assert_eq!(TABLE.of("kubeflow.org", "MPIJob").unwrap().version, "v2beta1");
        assert_eq!(TABLE.of("batch", "MPIJob"), None);
        assert_eq!(rows::POD.to_string(), "v1, Kind=Pod");
    }

    /// Spec: jobs 4.1
    #[test]
    fn an_integration_that_works_through_pods_brings_theirs_with_it() {
        let through_pods: BTreeSet<&str> = { TABLE.iter() }
            .filter(|row| row.implies == Some(rows::POD.framework))
            .map(|row| row.kind)
            .collect();
        let expected = ["Deployment", "LeaderWorkerSet", "StatefulSet"];
        assert_eq!(through_pods, expected.into());
    }

    /// Spec: jobs 10.1, 10.2
    #[test]
    fn a_refusal_calls_the_field_as_the_reference_does() {
        let said = |row: &Kind| row.managed_by.map(|by| (by.said, by.path.join(".")));
        let policy = "spec.runPolicy.managedBy".to_owned();
        assert_eq!(said(&rows::PYTORCH_JOB), Some(("spec.managedBy", policy.clone())));
        assert_eq!(said(&rows::MPI_JOB), Some((policy.as_str(), policy.clone())));
        assert_eq!(
            said(&rows::JOB_SET),
            Some(("spec.managedBy", "spec.managedBy".to_owned()))
        );
        assert_eq!(said(&rows::POD), None);
    }

    #[test]
    fn only_what_is_listed_is_enabled() {
        let enabled = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            TABLE.enabled(&names)
        };
        assert_eq!(enabled(&["batch/job"]), [&rows::JOB]);
        assert!(enabled(&["no.such/kind"]).is_empty());
    }

    #[test]
    fn each_kind_may_be_read_and_written_and_verbs_are_in_order() {
        for row in TABLE.iter() {
            let Rights { engine, account } = row.rights;
            for right in engine.iter().chain(account) {
                assert!(right.verbs.is_sorted(), "{row}: {right:?}");
            }
            let reads = |rights: &[Right]| {
                let objects = rights.iter().filter(|right| right.on == On::Objects);
                objects.flat_map(|right| right.verbs).any(|verb| *verb == "watch")
            };
            assert!(reads(engine), "{row}");
            assert_eq!(reads(account), row.can(Ability::Dispatched), "{row}");
        }
    }
}
