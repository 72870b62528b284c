//! The kinds of jobs whose controllers are played beside that of `batch/v1`, and their definitions.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::json;

/// A kind that is played on request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `jobset.x-k8s.io/v1alpha2 JobSet`.
    JobSet,
    /// `kubeflow.org/v1 PyTorchJob`.
    PyTorchJob,
    /// `ray.io/v1 RayJob`.
    RayJob,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::JobSet, Self::PyTorchJob, Self::RayJob];

    /// Group, version and kind.
    const fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::JobSet => ("jobset.x-k8s.io", "v1alpha2", "JobSet"),
            Self::PyTorchJob => ("kubeflow.org", "v1", "PyTorchJob"),
            Self::RayJob => ("ray.io", "v1", "RayJob"),
        }
    }

    /// The definition of the kind, with an open schema: the API server stores objects of it unchecked.
    ///
    /// *Errors*: none in practice; it is a constant.
    pub fn definition(self) -> Result<CustomResourceDefinition, serde_json::Error> {
        let (group, version, kind) = self.names();
        let singular = kind.to_lowercase();
        let plural = format!("{singular}s");
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        serde_json::from_value(json!({
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {
                    "kind": kind, "plural": plural, "singular": singular, "listKind": format!("{kind}List"),
                },
                "versions": [{
                    "name": version, "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}},
                }],
            },
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_definition_under_the_name_that_its_own_has() {
        let name = |kind: Kind| kind.definition().unwrap().metadata.name.unwrap();
        let names = Kind::ALL.map(name);
        assert_eq!(
            names,
            [
                "jobsets.jobset.x-k8s.io",
                "pytorchjobs.kubeflow.org",
                "rayjobs.ray.io"
            ]
        );
    }
}
