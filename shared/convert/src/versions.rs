//! Conversion of an object to another version of the API: `v1beta2`, which is stored, `v1beta1`, and `v1alpha1` where it is served.
//!
//! It works on JSON, so that unknown fields are kept. `v1beta2` is the hub: every other pair is converted through it.
//!
//! Fields that only `v1beta1` has are dropped on the way to `v1beta2`, as `spec/api.md` API-11 says. Fields that only `v1beta2` has are
//! carried in the annotation [`CARRIED`] of the `v1beta1` form and restored from there, so that a `v1beta1` writer does not erase them. The
//! rest of the metadata stays unchanged.
//!
//! Unlike the anchor: it loses those fields.

mod carried;
mod clusterqueue;
mod cohort;
mod fields;
mod localqueue;
mod multikueuecluster;
mod topology;
mod workload;

use roadstead_api::constants::groups::KUEUE;
use serde_json::Value;

use fields::{Fields, Wrong};

/// Annotation on the older form of an object: the fields that only `v1beta2` has, as JSON.
pub const CARRIED: &str = "kueue.x-k8s.io/v1beta2-fields";

/// Why an object has no form in the other version.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object has no `apiVersion` or `kind`.
    #[error("an object to convert must have text in `{field}`")]
    Unnamed {
        /// The field that is not text.
        field: &'static str,
    },
    /// The kind has no versions here.
    #[error("kind `{kind}` of `{api_version}` cannot be converted; only kinds of group {KUEUE} can")]
    Kind {
        /// The object's `kind`.
        kind: String,
        /// The object's `apiVersion`.
        api_version: String,
    },
    /// The version does not have the kind.
    #[error("{kind} has no version `{api_version}`; use {KUEUE}/v1beta2")]
    Version {
        /// The object's `kind`.
        kind: &'static str,
        /// The requested version, or the object's own.
        api_version: String,
    },
    /// A field has no meaning in the other version.
    #[error("{kind} `{name}`: `{field}` must be {expected}")]
    Field {
        /// The object's `kind`.
        kind: &'static str,
        /// The object's name, empty if it has none.
        name: String,
        /// Path of the field, `[]` for any element of a list.
        field: &'static str,
        /// What the field must be.
        expected: &'static str,
    },
}

/// The object in the form of `desired_api_version` (such as `kueue.x-k8s.io/v1beta1`).
///
/// *Errors*: the kind or the version is not ours, or a field whose form differs between the versions does not fit its schema. Other fields
/// are not checked. The error of a field names the object, the field and what it must be.
///
/// *Source*: `spec/api.md` API-11.
///
/// ```
/// use roadstead_convert::versions::convert;
/// use serde_json::json;
///
/// let old = json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "spec": {"cohort": "all"}});
/// let new = convert(old, "kueue.x-k8s.io/v1beta2")?;
/// assert_eq!(new["spec"]["cohortName"], "all");
/// # Ok::<(), roadstead_convert::versions::Error>(())
/// ```
pub fn convert(mut object: Value, desired_api_version: &str) -> Result<Value, Error> {
    let text = |field| {
        let text = object.get(field).and_then(Value::as_str);
        text.map(str::to_owned).ok_or(Error::Unnamed { field })
    };
    let (kind, api_version) = (text("kind")?, text("apiVersion")?);
    let Some(kind) = KINDS
        .iter()
        .find(|known| known.name == kind && group(&api_version) == Some(KUEUE))
    else {
        return Err(Error::Kind { kind, api_version });
    };
    let (from, to) = (kind.version(&api_version)?, kind.version(desired_api_version)?);
    if from == to {
        return Ok(object);
    }
    let Value::Object(fields) = &mut object else {
        return Err(Error::Unnamed { field: "kind" });
    };
    let through_hub = (kind.to_hub)(fields, from).and_then(|()| (kind.from_hub)(fields, to));
    through_hub.map_err(|Wrong { field, expected }| Error::Field {
        kind: kind.name,
        name: name(fields).to_owned(),
        field,
        expected,
    })?;
    fields.insert("apiVersion".to_owned(), desired_api_version.into());
    Ok(object)
}

/// The versions; not every kind has all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1alpha1,
    V1beta1,
    V1beta2,
}

/// Converts an object in place between the hub and another version; does nothing if that is the hub.
type Step = fn(&mut Fields, Version) -> Result<(), Wrong>;

/// A kind and how its form differs between versions.
struct Kind {
    name: &'static str,
    has_alpha: bool,
    to_hub: Step,
    from_hub: Step,
}

impl Kind {
    const fn new(name: &'static str, to_hub: Step, from_hub: Step) -> Self {
        Self {
            name,
            has_alpha: false,
            to_hub,
            from_hub,
        }
    }

    /// A kind whose versions differ in limits and defaults only.
    const fn same(name: &'static str) -> Self {
        Self::new(name, as_it_is, as_it_is)
    }

    const fn with_alpha(self) -> Self {
        Self {
            has_alpha: true,
            ..self
        }
    }

    fn version(&self, api_version: &str) -> Result<Version, Error> {
        match api_version.split_once('/') {
            Some((KUEUE, "v1beta2")) => Ok(Version::V1beta2),
            Some((KUEUE, "v1beta1")) => Ok(Version::V1beta1),
            Some((KUEUE, "v1alpha1")) if self.has_alpha => Ok(Version::V1alpha1),
            _ => Err(Error::Version {
                kind: self.name,
                api_version: api_version.to_owned(),
            }),
        }
    }
}

/// The kinds in the order of `spec/api.md` API-1.
const KINDS: &[Kind] = &[
    Kind::new("ClusterQueue", clusterqueue::to_hub, clusterqueue::from_hub),
    Kind::new("LocalQueue", localqueue::to_hub, localqueue::from_hub),
    Kind::new("Cohort", cohort::to_hub, cohort::from_hub).with_alpha(),
    Kind::new("Workload", workload::to_hub, workload::from_hub),
    Kind::same("ResourceFlavor"),
    Kind::same("AdmissionCheck"),
    Kind::same("Topology").with_alpha(),
    Kind::same("WorkloadPriorityClass"),
    Kind::new(
        "MultiKueueCluster",
        multikueuecluster::to_hub,
        multikueuecluster::from_hub,
    ),
    Kind::same("MultiKueueConfig"),
    Kind::same("ProvisioningRequestConfig"),
];

#[expect(clippy::unnecessary_wraps, reason = "a step as those that can fail")]
const fn as_it_is(_: &mut Fields, _: Version) -> Result<(), Wrong> {
    Ok(())
}

fn group(api_version: &str) -> Option<&str> {
    api_version.split_once('/').map(|(group, _)| group)
}

fn name(fields: &Fields) -> &str {
    let name = fields.get("metadata").and_then(|metadata| metadata.get("name"));
    name.and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests;
