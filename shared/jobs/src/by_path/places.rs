//! The places of pod sets in the objects of a kind.

use serde_json::Value;

use super::Path;
use crate::json;
use crate::kind::Error;

/// The largest number of pod sets of one job. *Source*: `spec/jobs.md 2.3`.
const POD_SETS_MAX: usize = 18;

/// Pod sets in one place of an object.
#[derive(Clone, Copy, Debug)]
pub struct PodSets {
    /// The place.
    pub at: At,
    /// The path of the pod template, below the place.
    pub template: Path,
    /// The number of pods made of it.
    pub pods: Pods,
}

/// A place for pod sets.
#[derive(Clone, Copy, Debug)]
pub enum At {
    /// Each entry of a list is a pod set.
    Each {
        /// The list.
        list: Path,
        /// The field of an entry that names its pod set.
        name: &'static str,
    },
    /// The values of a map under these keys, in this order, as far as they exist. The key in lower case names the pod set.
    Roles {
        /// The map.
        map: Path,
        /// Its keys.
        roles: &'static [&'static str],
    },
    /// One field.
    One {
        /// The field.
        field: Path,
        /// The name of the pod set.
        name: &'static str,
    },
    /// One field, in jobs for which `is` is true.
    Where {
        /// Whether the job has that pod set.
        is: fn(&Value) -> bool,
        /// The field.
        field: Path,
        /// The name of the pod set.
        name: &'static str,
    },
}

impl At {
    const fn path(self) -> Path {
        match self {
            Self::Each { list, .. } => list,
            Self::Roles { map, .. } => map,
            Self::One { field, .. } | Self::Where { field, .. } => field,
        }
    }
}

/// The number of pods made of a template; paths are below its place.
#[derive(Clone, Copy, Debug)]
pub enum Pods {
    /// One pod.
    One,
    /// The number at this path, 1 by default.
    Replicas(Path),
    /// The number of replicas times the pods of each, which counts only when it is greater than 1.
    ReplicasOf {
        /// The number of replicas, 1 by default.
        replicas: Path,
        /// The number of pods of each replica, 1 by default.
        pods: Path,
    },
    /// Replicas that are `batch/v1` Jobs: each has `parallelism` pods, 1 by default, but no more than its `completions`.
    Jobs {
        /// The number of Jobs, 1 by default.
        replicas: Path,
        /// The spec of the Job.
        spec: Path,
    },
}

/// A pod set of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name, lower case.
    pub name: String,
    /// The number of its equal parts.
    pub replicas: u32,
    /// The number of pods of each part.
    pub each: u32,
    /// The JSON pointer of its template.
    pub pointer: String,
    /// The path of its template for people, such as `spec.replicatedJobs[0].template.spec.template`.
    pub field: String,
}

impl Group {
    /// The number of its pods.
    ///
    /// *Errors*: more than a Workload can count.
    pub fn count(&self) -> Result<u32, Error> {
        // Limit: the API counts in signed numbers of 32 bits.
        let count = self
            .replicas
            .checked_mul(self.each)
            .filter(|count| i32::try_from(*count).is_ok());
        count.ok_or_else(|| Error::Malformed {
            field: self.field.clone(),
            found: format!("of {} times {} pods", self.replicas, self.each),
            expected: "at most 2147483647 pods",
        })
    }
}

/// All pod sets of a job, in the order of the kind.
///
/// *Errors*: there are none or too many, a name is missing or used twice, or a number is malformed.
pub(super) fn groups(kinds: &[PodSets], job: &Value) -> Result<Vec<Group>, Error> {
    let mut groups: Vec<Group> = Vec::new();
    for sets in kinds {
        for entry in entries(sets.at, job)? {
            let (replicas, each) = pods(sets.pods, &entry)?;
            let group = Group {
                replicas,
                each,
                pointer: sets
                    .template
                    .iter()
                    .fold(entry.pointer, |path, key| format!("{path}/{key}")),
                field: sets
                    .template
                    .iter()
                    .fold(entry.field, |path, key| format!("{path}.{key}")),
                name: entry.name,
            };
            if groups.iter().any(|known| known.name == group.name) {
                return Err(Error::Malformed {
                    found: format!("the second one named {}", group.name),
                    field: group.field,
                    expected: "a pod set with a name of its own (names are compared in lower case)",
                });
            }
            groups.push(group);
        }
    }
    let first = kinds.first().map(|sets| sets.at.path().join("."));
    let wrong = |found: String, expected| Error::Malformed {
        field: first.unwrap_or_default(),
        found,
        expected,
    };
    match groups.len() {
        0 => Err(wrong("without pods".to_owned(), "at least one pod set")),
        1..=POD_SETS_MAX => Ok(groups),
        many => Err(wrong(format!("of {many} pod sets"), "at most 18 pod sets")),
    }
}

struct Entry<'a> {
    name: String,
    content: &'a Value,
    pointer: String,
    field: String,
}

fn entries(at: At, job: &Value) -> Result<Vec<Entry<'_>>, Error> {
    let (pointer, field) = (format!("/{}", at.path().join("/")), at.path().join("."));
    match at {
        At::Each { list, name } => {
            let entries = json::list(job, list).iter().enumerate();
            let entry = |(index, content): (usize, &'_ Value)| {
                let field = format!("{field}[{index}]");
                match json::text(content, &[name]) {
                    Some(text) if !text.is_empty() => Ok((text.to_lowercase(), field, index)),
                    Some(_) | None => Err(Error::malformed(
                        format!("{field}.{name}"),
                        content.get(name),
                        "a name",
                    )),
                }
            };
            let found = entries.map(|(index, content)| {
                let (name, field, index) = entry((index, content))?;
                Ok(Entry {
                    name,
                    content,
                    pointer: format!("{pointer}/{index}"),
                    field,
                })
            });
            found.collect()
        }
        At::Roles { map, roles } => {
            let map = json::at(job, map);
            let present = roles
                .iter()
                .filter_map(|role| Some((*role, json::at(map?, &[role])?)));
            let entry = |(role, content): (&str, _)| Entry {
                name: role.to_lowercase(),
                content,
                pointer: format!("{pointer}/{role}"),
                field: format!("{field}.{role}"),
            };
            Ok(present.map(entry).collect())
        }
        At::Where { is, .. } if !is(job) => Ok(Vec::new()),
        At::One { field: path, name }
        | At::Where {
            field: path, name, ..
        } => {
            let content = json::at(job, path).into_iter();
            let entry = |content| Entry {
                name: name.to_owned(),
                content,
                pointer: pointer.clone(),
                field: field.clone(),
            };
            Ok(content.map(entry).collect())
        }
    }
}

/// The number of equal parts, and the number of pods in each.
fn pods(pods: Pods, entry: &Entry<'_>) -> Result<(u32, u32), Error> {
    let number = |path: Path| number(entry, path);
    Ok(match pods {
        Pods::One => (1, 1),
        Pods::Replicas(replicas) => (number(replicas)?.unwrap_or(1), 1),
        Pods::ReplicasOf { replicas, pods } => {
            (number(replicas)?.unwrap_or(1), number(pods)?.unwrap_or(1).max(1))
        }
        Pods::Jobs { replicas, spec } => {
            let of_spec = |field: &'static str| {
                let job = json::at(entry.content, spec);
                let field_path = format!("{}.{}.{field}", entry.field, spec.join("."));
                job.map_or(Ok(None), |job| as_number(job.get(field), field_path))
            };
            let parallelism = of_spec("parallelism")?.unwrap_or(1);
            let completions = of_spec("completions")?.unwrap_or(parallelism);
            (number(replicas)?.unwrap_or(1), parallelism.min(completions))
        }
    })
}

fn number(entry: &Entry<'_>, path: Path) -> Result<Option<u32>, Error> {
    as_number(
        json::at(entry.content, path),
        format!("{}.{}", entry.field, path.join(".")),
    )
}

fn as_number(value: Option<&Value>, field: String) -> Result<Option<u32>, Error> {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let fits = value.as_u64().and_then(|number| u32::try_from(number).ok());
    let fits = fits.filter(|number| i32::try_from(*number).is_ok());
    fits.map(Some).ok_or_else(|| Error::Malformed {
        field,
        found: value
            .as_i64()
            .map_or_else(|| json::type_of(value).to_owned(), |number| number.to_string()),
        expected: "a number from 0 to 2147483647",
    })
}
