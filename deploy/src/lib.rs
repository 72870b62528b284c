//! Manifests generated from the code, so that what is applied to a cluster cannot differ from what the binaries expect.
//!
//! It never talks to a cluster and never reads the manifests it wrote, except in the test that compares both.
//!
//! Reading order: [`crds`], [`rights`], [`visibility`], [`charts`], [`parts`] (what an image holds beside the program).

pub mod charts;
pub mod parts;

use roadstead_api::install::objects::may_be_of_others;
use roadstead_api::install::{Place, Values};
use roadstead_api::rights::{BY_DEFAULT, Process};
use roadstead_kinds::TABLE;
use serde_json::Value;

/// Folder, below this crate's, in which the `CustomResourceDefinition`s are.
pub const CRD_DIR: &str = "crds";
/// Folder, below [`CRD_DIR`], of the definitions that other software owns.
pub const OTHERS: &str = "others";
/// Folder, below this crate's, in which the rights of the processes are.
pub const RIGHTS_DIR: &str = "rights";
/// Folder, below this crate's, in which the objects of the visibility API are.
pub const VISIBILITY_DIR: &str = "visibility";
/// Folder, below this crate's, in which the plain manifests are.
pub const MANIFEST_DIR: &str = "manifests";
/// Namespace of the processes in the generated manifests; that of the reference's own installations.
const NAMESPACE: &str = "kueue-system";
/// Command that writes the manifests; named in their header and by the test that finds them out of date.
pub const COMMAND: &str = "cargo run -p roadstead-deploy";

/// A generated file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Path of the file below its folder.
    pub file_name: String,
    /// The whole content.
    pub content: String,
}

/// What can go wrong while a manifest is made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A definition could not be turned into a JSON value.
    #[error("serializing the definition of {name}")]
    Json {
        /// Name of the definition.
        name: String,
        /// The system's reason.
        #[source]
        source: serde_json::Error,
    },
    /// A definition could not be written as YAML.
    #[error("writing the definition of {name} as YAML")]
    Yaml {
        /// Name of the definition.
        name: String,
        /// The system's reason.
        #[source]
        source: serde_saphyr::ser_error::Error,
    },
    /// The default values contradict each other.
    #[error("the default values: {why}")]
    Values {
        /// Every contradiction.
        why: String,
    },
}

/// The `CustomResourceDefinition`s, one file each, named `GROUP_PLURAL.yaml`. Definitions that other software owns are in folder
/// [`OTHERS`]: administrators apply them only where they are missing.
///
/// # Errors
///
/// Only if a definition cannot be written as YAML; a test checks every definition.
pub fn crds() -> Result<Vec<Manifest>, Error> {
    roadstead_api::crd::all()
        .iter()
        .map(|definition| {
            let name = format!("{}.{}", definition.spec.names.plural, definition.spec.group);
            let mut value = serde_json::to_value(definition).map_err(|source| Error::Json {
                name: name.clone(),
                source,
            })?;
            write_whole_numbers(&mut value);
            let folder = if may_be_of_others(&name) {
                format!("{OTHERS}/")
            } else {
                String::new()
            };
            let (group, plural) = (&definition.spec.group, &definition.spec.names.plural);
            Ok(Manifest {
                file_name: format!("{folder}{group}_{plural}.yaml"),
                content: generated(&yaml(&name, &value)?),
            })
        })
        .collect()
}

/// The rights of each process in its own cluster: one file for the integrations that are on by default, and one file for each other
/// integration, to apply when it is switched on.
///
/// Two more files hold the rights of a worker that runs the `AppWrapper` controller, and of a manager with `virtualNodes.enable`.
///
/// # Errors
///
/// Only if an object cannot be written as YAML; a test checks the files of the processes and integrations.
pub fn rights() -> Result<Vec<Manifest>, Error> {
    let mut manifests = Vec::new();
    for process in Process::ALL {
        let objects = roadstead_api::rights::manifests(process, NAMESPACE, BY_DEFAULT);
        manifests.push(documents(format!("{}.yaml", process.name()), &objects)?);
        for kind in TABLE.iter().filter(|kind| !BY_DEFAULT.contains(kind)) {
            let objects = roadstead_api::rights::of_integration(process, NAMESPACE, kind);
            let file_name = format!("{}.{}.yaml", process.name(), kind.framework.replace('/', "."));
            manifests.push(documents(file_name, &objects)?);
        }
    }
    let wrappers = roadstead_api::rights::appwrapper(NAMESPACE);
    manifests.push(documents(
        "roadstead-worker-appwrapper.yaml".to_owned(),
        &wrappers,
    )?);
    let nodes = roadstead_api::rights::virtual_nodes(NAMESPACE);
    manifests.push(documents(
        "roadstead-manager-virtual-nodes.yaml".to_owned(),
        &nodes,
    )?);
    Ok(manifests)
}

/// The objects that register the visibility API in a cluster, as one file.
///
/// # Errors
///
/// Only if an object cannot be written as YAML or the default values contradict each other; a test shows that neither happens.
pub fn visibility() -> Result<Vec<Manifest>, Error> {
    let objects = roadstead_api::install::visibility::manifests(&place()?);
    Ok(vec![documents("visibility.yaml".to_owned(), &objects)?])
}

/// An installation of the worker with the default values. Why of the worker: the visibility API is the same for both.
fn place() -> Result<Place, Error> {
    Place::of(Process::Worker, NAMESPACE, &Values::default()).map_err(|refusal| Error::Values {
        why: refusal.to_string(),
    })
}

/// Several objects in one file.
fn documents(file_name: String, objects: &[Value]) -> Result<Manifest, Error> {
    let documents: Result<Vec<String>, Error> = objects
        .iter()
        .map(|object| yaml(object["metadata"]["name"].as_str().unwrap_or_default(), object))
        .collect();
    Ok(Manifest {
        file_name,
        content: generated(&documents?.join("---\n")),
    })
}

fn yaml(name: &str, value: &Value) -> Result<String, Error> {
    serde_saphyr::to_string(value).map_err(|source| Error::Yaml {
        name: name.to_owned(),
        source,
    })
}

/// The content of a file, with a first line that names the command that generated it.
fn generated(content: &str) -> String {
    format!("# Generated by `{COMMAND}`; do not edit.\n{content}")
}

/// Turns `1.0` into `1`: the Rust types store the limits of a schema as floats, but readers of a manifest expect whole numbers.
fn write_whole_numbers(value: &mut Value) {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => {}
        Value::Number(number) => {
            // Why through text: a cast of a float may lose digits, and a lint denies it.
            if let Some(whole) = number
                .to_string()
                .strip_suffix(".0")
                .and_then(|text| text.parse::<i64>().ok())
            {
                *value = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(write_whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(write_whole_numbers),
    }
}

#[cfg(test)]
mod tests;
