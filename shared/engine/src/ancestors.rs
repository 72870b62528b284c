//! Owners of jobs: which managed object is above a job, so that an object made by its controller is not queued a second time.
//!
//! Jobs of enabled kinds are in their caches. Owners of other known kinds (a disabled integration, an external framework, a
//! `ReplicaSet`) are read once each and remembered by UID, because the controller of an object does not change.
//!
//! Limit: if an external framework's job gets its queue label after one of its children was seen, the label counts only after a
//! restart of this process.
//!
//! *Source*: `spec/jobs.md 4.3, 11`, `spec/appwrapper.md 5.5`.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::{ApiResource, pinned_kind};
use kube::{Api, Client, ResourceExt as _};
use roadstead_api::config::GroupVersionKindName;
use roadstead_core::ancestry::{self, Reference, Seen, Stop};
use roadstead_core::kind::KindState;
use roadstead_core::name::{Key, Uid};
use roadstead_jobs::appwrapper::ROW;
use roadstead_jobs::labels;
use roadstead_kinds::TABLE;
use roadstead_kubeio::failure::Failure;

use crate::caches::{Caches, Distant, KindCache, member, resource_of};
use crate::control;

/// Wire: the message about a job with too many owners. *Source*: `spec/jobs.md 4.3`.
pub(crate) const TOO_DEEP: &str =
    "Terminated search for Kueue-managed Job because ancestor depth exceeded limit of 10";
/// The message about a job that owns itself.
pub(crate) const CYCLIC: &str =
    "cyclic ownership: the job is among its own controlling owners; remove the reference";

/// The managed object on top of a job.
#[derive(Clone)]
pub(crate) enum Top {
    Job(KindCache, Arc<DynamicObject>),
    /// A job of an external framework.
    External(Uid),
}

impl Top {
    pub(crate) fn workloads(&self, caches: &Caches) -> Vec<Key> {
        match self {
            Self::Job(kind, job) => control::workloads_of(caches, kind, job),
            Self::External(uid) => caches.owners.of(uid.as_str()),
        }
    }
}

/// What must still be known before the search for owners can end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The owner may exist, but the jobs of its kind (this plural) are not listed.
    Unlisted(String),
    Unread(Reference),
    /// The owner could not be read, and why.
    Unreadable(Failure),
}

/// How an owner's kind is handled here.
enum Standing<'a> {
    Enabled(&'a KindCache),
    External(&'a GroupVersionKindName),
    Between(ApiResource),
    Unknown,
}

fn controller(meta: &ObjectMeta) -> Option<Reference> {
    let mut owners = meta.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true))?;
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    Some(Reference {
        group: group.to_owned(),
        kind: owner.kind.clone(),
        name: owner.name.clone(),
        uid: Uid::from(owner.uid.as_str()),
    })
}

/// The cached job of an enabled kind that controls an object.
pub(crate) fn parent<'a>(
    caches: &'a Caches,
    object: &DynamicObject,
) -> Option<(&'a KindCache, Arc<DynamicObject>)> {
    let owner = controller(&object.metadata)?;
    let jobs = queued(caches, &owner)?;
    let key = Key::new(object.namespace().unwrap_or_default(), owner.name.as_str());
    let job = jobs.objects.get(&key)?;
    (job.metadata.uid.as_deref() == Some(owner.uid.as_str())).then_some((jobs, job))
}

/// Whether the controller of an object is of a kind that is queued here.
pub(crate) fn has_owner_of_managed_kind(caches: &Caches, object: &DynamicObject) -> bool {
    controller(&object.metadata).is_some_and(|owner| match standing(caches, &owner) {
        Standing::Enabled(_) | Standing::External(_) => true,
        Standing::Between(_) | Standing::Unknown => false,
    })
}

/// The top-most managed owner of an object, from what is cached or remembered.
///
/// *Errors*: see [`Stop`]; a [`Missing::Unread`] owner can be read by [`learn`].
pub(crate) fn top(caches: &Caches, object: &DynamicObject) -> Result<Option<Top>, Stop<Missing>> {
    let namespace = object.namespace().unwrap_or_default();
    ancestry::top(controller(&object.metadata), |owner| {
        look(caches, &namespace, owner)
    })
}

/// As [`top`], but reads the owners that are not known yet.
///
/// *Errors*: see [`Stop`]; never [`Missing::Unread`].
pub(crate) async fn learn(
    client: &Client,
    caches: &Caches,
    object: &DynamicObject,
) -> Result<Option<Top>, Stop<Missing>> {
    let namespace = object.namespace().unwrap_or_default();
    // Why bounded: each read makes one more owner known, and no search passes more owners than that.
    for _ in 0..=ancestry::OWNERS_MAX {
        match top(caches, object) {
            Err(Stop::Unread(Missing::Unread(owner))) => {
                let read = read(client, caches, &namespace, &owner).await;
                read.map_err(|why| Stop::Unread(Missing::Unreadable(why)))?;
            }
            known => return known,
        }
    }
    let why = Failure::passing("its owners changed each time they were read");
    Err(Stop::Unread(Missing::Unreadable(why)))
}

/// The kind of an owner, if its jobs are queued here.
fn queued<'a>(caches: &'a Caches, owner: &Reference) -> Option<&'a KindCache> {
    let jobs = caches.kind(&owner.group, &owner.kind);
    jobs.filter(|jobs| !jobs.kind.is_external())
}

fn standing<'a>(caches: &'a Caches, owner: &Reference) -> Standing<'a> {
    if let Some(jobs) = queued(caches, owner) {
        return Standing::Enabled(jobs);
    }
    let mut externals = caches.ancestors.externals.iter();
    if let Some(kind) = externals.find(|kind| kind.group == owner.group && kind.kind == owner.kind) {
        return Standing::External(kind);
    }
    // Why: all other kinds own only the objects that they made, so nothing managed is above them. The right to read owners comes
    // with `AppWrappers` and external frameworks.
    let wraps = caches.kind(ROW.group, ROW.kind).is_some() || !caches.ancestors.externals.is_empty();
    if !wraps {
        return Standing::Unknown;
    }
    if let Some(row) = TABLE.of(&owner.group, &owner.kind) {
        return Standing::Between(resource_of(row));
    }
    if owner.group == "apps" && owner.kind == "ReplicaSet" {
        let gvk = GroupVersionKind::gvk("apps", "v1", "ReplicaSet");
        return Standing::Between(ApiResource::from_gvk_with_plural(&gvk, "replicasets"));
    }
    Standing::Unknown
}

fn look(caches: &Caches, namespace: &str, owner: &Reference) -> Result<Seen<Top>, Missing> {
    let ancestors = &caches.ancestors;
    let (is_external, jobs) = match standing(caches, owner) {
        Standing::Unknown => return Ok(Seen::Nothing),
        Standing::Enabled(jobs) => (false, Some(jobs)),
        Standing::External(_) => (true, None),
        Standing::Between(_) => (false, None),
    };
    if let Some(jobs) = jobs {
        // Why first: objects listed between the two reads must count.
        let state = jobs.state();
        if let Some(job) = jobs.objects.get(&Key::new(namespace, owner.name.as_str())) {
            if job.metadata.uid.as_deref() != Some(owner.uid.as_str()) {
                return Ok(Seen::Nothing);
            }
            // Why: a job that is never queued holds no children, so no object below follows it.
            let counts = jobs.kind.is_queued(member(&job)) && ancestors.counts(labels::queue(&job.metadata));
            return Ok(Seen::Owner {
                above: controller(&job.metadata),
                managed: counts.then(|| Top::Job(jobs.clone(), job)),
            });
        }
        if state == KindState::Unknown {
            return Err(Missing::Unlisted(jobs.resource.plural.clone()));
        }
    }
    match ancestors.remembered(&owner.uid) {
        None => Err(Missing::Unread(owner.clone())),
        Some(Distant::Gone) => Ok(Seen::Nothing),
        Some(Distant::There { queue, above }) => {
            let counts = is_external && ancestors.counts(queue.as_deref());
            Ok(Seen::Owner {
                managed: counts.then(|| Top::External(owner.uid.clone())),
                above,
            })
        }
    }
}

async fn read(client: &Client, caches: &Caches, namespace: &str, owner: &Reference) -> Result<(), Failure> {
    let said = |error: kube::Error| {
        let (kind, name) = (&owner.kind, &owner.name);
        Failure::of(&error).in_doing(format_args!("reading its owner {kind} {name}"))
    };
    let resource = match standing(caches, owner) {
        Standing::Unknown => return Ok(()),
        Standing::Enabled(jobs) => {
            let api = Api::namespaced_with(client.clone(), namespace, &jobs.resource);
            let key = Key::new(namespace, owner.name.as_str());
            jobs.objects.look_up(&api, &key).await.map_err(said)?;
            if jobs.objects.get(&key).is_none() {
                caches.ancestors.remember(&owner.uid, Distant::Gone);
            }
            return Ok(());
        }
        Standing::External(kind) => {
            let gvk = GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind);
            pinned_kind(client, &gvk).await.map_err(said)?.0
        }
        Standing::Between(resource) => resource,
    };
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let found = api.get_metadata_opt(&owner.name).await.map_err(said)?;
    let there = found.filter(|found| found.metadata.uid.as_deref() == Some(owner.uid.as_str()));
    let distant = there.map_or(Distant::Gone, |found| Distant::There {
        queue: labels::queue(&found.metadata).map(str::to_owned),
        above: controller(&found.metadata),
    });
    caches.ancestors.remember(&owner.uid, distant);
    Ok(())
}

#[cfg(test)]
mod tests;
