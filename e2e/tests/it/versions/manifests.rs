//! Manifests as users have them apply unchanged, and can be read in the stored version.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::fixture::{HUB, Shared, on_plane};

/// The documents of the files below a folder whose name begins and ends like this, by file; none if there is no folder.
fn manifests(folder: &Path, begin: &str) -> Vec<(PathBuf, Vec<Value>)> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| {
        let name = file.file_name().unwrap().to_str().unwrap();
        name.starts_with(begin) && file.extension().is_some_and(|end| end == "yaml")
    });
    files.sort();
    let read = |file: PathBuf| {
        let text = fs::read_to_string(&file).unwrap();
        let documents =
            serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        (file, documents)
    };
    files.into_iter().map(read).collect()
}

/// Applies a document. Returns the path of what is stored.
async fn apply(shared: &Shared, file: &Path, document: Value) -> String {
    if let Some(namespace) = document["metadata"]["namespace"].as_str() {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        shared.apply(namespace).await.unwrap();
    }
    let what = format!("{} {}", document["kind"], document["metadata"]["name"]);
    for _again in 0..2 {
        let applied = shared.apply(document.clone()).await;
        let applied = applied.unwrap_or_else(|error| panic!("{} {what}: {error}", file.display()));
        assert_eq!(applied["apiVersion"], document["apiVersion"], "{what}");
    }
    let (group, _) = document["apiVersion"].as_str().unwrap().split_once('/').unwrap();
    let kind = document["kind"].as_str().unwrap();
    let plural = &shared.definition(kind).spec.names.plural;
    let namespace = document["metadata"]["namespace"].as_str();
    let namespace = namespace.map_or(String::new(), |namespace| format!("namespaces/{namespace}/"));
    let name = document["metadata"]["name"].as_str().unwrap();
    let path = format!("/apis/{group}/{HUB}/{namespace}{plural}/{name}");
    let stored = shared.ask("GET", &path, None).await.unwrap();
    assert_eq!(stored["kind"], kind);
    path
}

/// Spec: api API-1; jobs, admission-engine and appwrapper by the kinds in the files.
#[test]
fn manifests_of_every_version_apply_unchanged() {
    on_plane(|shared| async move {
        let project = Path::new(env!("CARGO_MANIFEST_DIR"));
        let ours = manifests(&project.join("manifests"), "");
        assert!(ours.len() >= 4, "the project's own manifests are there");
        for (file, documents) in ours {
            assert!(!documents.is_empty(), "{}", file.display());
            for document in documents {
                apply(shared, &file, document).await;
            }
        }
        let red = shared.read(HUB, "ClusterQueue", "red").await;
        assert_eq!(red["spec"]["cohortName"], "house");
        assert_eq!(
            red["spec"]["admissionChecksStrategy"],
            json!({"admissionChecks": [{"name": "capacity"}, {"name": "federation"}]})
        );
        let house = shared.read(HUB, "Cohort", "house").await;
        assert_eq!(house["spec"]["parentName"], "company");
        let north = shared.read(HUB, "MultiKueueCluster", "north").await;
        assert_eq!(
            north["spec"]["clusterSource"]["kubeConfig"]["location"],
            "north-kubeconfig"
        );
        // Others that lie beside the project on some machines; each file is a set-up of its own.
        for (file, documents) in manifests(&project.join("../../shared/seeds"), "kueue-") {
            let mut stored = Vec::new();
            for document in documents {
                stored.push(apply(shared, &file, document).await);
            }
            for path in stored {
                shared.ask("DELETE", &path, None).await.unwrap();
            }
        }
    });
}
