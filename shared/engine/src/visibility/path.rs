//! The resource that a path names, and the right that it needs.

use http::{Method, Uri};
use roadstead_api::visibility::{GROUP, PENDING_WORKLOADS as PENDING, VERSIONS};
use roadstead_serve::delegated::Question;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// `/apis`
    Groups,
    /// `/apis/GROUP`
    Group,
    /// `/apis/GROUP/VERSION`
    Version(&'static str),
    /// `/openapi/v2`
    OpenApiV2,
    /// `/openapi/v3`
    OpenApiV3,
    /// `/openapi/v3/apis/GROUP/VERSION`
    OpenApiV3Of(&'static str),
    Pending {
        version: &'static str,
        of: Of,
    },
    Unknown,
}

/// The queue whose workloads are requested.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Of {
    ClusterQueue(String),
    /// Those that came through a LocalQueue.
    LocalQueue {
        namespace: String,
        name: String,
    },
}

impl Of {
    /// The kind in the words of the reference's messages, and the name.
    pub(super) fn kind_and_name(&self) -> (&'static str, &str) {
        match self {
            Self::ClusterQueue(name) => ("clusterqueue", name),
            Self::LocalQueue { name, .. } => ("localqueue", name),
        }
    }
}

pub(super) fn parse(path: &str) -> Target {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["apis"] => Target::Groups,
        ["apis", group] if *group == GROUP => Target::Group,
        ["openapi", "v2"] => Target::OpenApiV2,
        ["openapi", "v3"] => Target::OpenApiV3,
        ["openapi", "v3", "apis", group, version] if *group == GROUP => {
            known(version).map_or(Target::Unknown, Target::OpenApiV3Of)
        }
        ["apis", group, version, rest @ ..] if *group == GROUP => match (known(version), rest) {
            (Some(version), []) => Target::Version(version),
            (Some(version), ["clusterqueues", name, last]) if *last == PENDING => Target::Pending {
                version,
                of: Of::ClusterQueue((*name).to_owned()),
            },
            (Some(version), ["namespaces", namespace, "localqueues", name, last]) if *last == PENDING => {
                Target::Pending {
                    version,
                    of: Of::LocalQueue {
                        namespace: (*namespace).to_owned(),
                        name: (*name).to_owned(),
                    },
                }
            }
            (Some(_) | None, _) => Target::Unknown,
        },
        _ => Target::Unknown,
    }
}

fn known(version: &str) -> Option<&'static str> {
    VERSIONS.into_iter().find(|known| *known == version)
}

/// The access question for a user of this path.
pub(super) fn question(method: &Method, uri: &Uri) -> Question {
    let Target::Pending { version, of } = parse(uri.path()) else {
        return Question::of_path(method, uri);
    };
    let (resource, namespace, name) = match of {
        Of::ClusterQueue(name) => ("clusterqueues", None, name),
        Of::LocalQueue { namespace, name } => ("localqueues", Some(namespace), name),
    };
    Question::Resource {
        verb: verb(method).to_owned(),
        group: GROUP,
        version: version.to_owned(),
        resource,
        subresource: PENDING,
        namespace,
        name,
    }
}

fn verb(method: &Method) -> &'static str {
    match method.as_str() {
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "get",
    }
}
