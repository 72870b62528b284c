//! The charts, rendered by the real Helm.
//!
//! The stored plain manifests are the measure: they are what `roadstead install` applies, and the tests of the installation run it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use roadstead_e2e::binaries::Program;
use serde_json::Value;
use tokio::process::Command;

use crate::shared::{output_of, tool};

/// Helm alone knows no cluster, so it has to be told what the charts are for.
const KUBERNETES: &str = "1.36.0";
const NAMESPACE: &str = "kueue-system";
/// What the charts say of a definition, so that an uninstallation leaves it and its objects.
const KEPT: &str = "/metadata/annotations/helm.sh~1resource-policy";

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name)
}

/// The objects of a stream of documents, by kind and name.
fn objects(yaml: &str) -> BTreeMap<String, Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
    let named = documents.into_iter().filter(Value::is_object).map(|object| {
        let name = object.pointer("/metadata/name").and_then(Value::as_str);
        let kind = object.get("kind").and_then(Value::as_str);
        (format!("{} {}", kind.unwrap(), name.unwrap()), object)
    });
    named.collect()
}

async fn rendered(chart: &str, more: &[&str]) -> BTreeMap<String, Value> {
    let mut helm = Command::new(tool(Program::Helm).await);
    helm.args(["template", "roadstead"])
        .arg(folder("charts").join(chart));
    helm.args(["--namespace", NAMESPACE, "--kube-version", KUBERNETES]);
    objects(&output_of(helm.args(more)).await)
}

fn plain(file: &str) -> BTreeMap<String, Value> {
    objects(&std::fs::read_to_string(folder("manifests").join(file)).unwrap())
}

#[tokio::test]
async fn helm_finds_nothing_to_complain_about() {
    for chart in ["roadstead-crds", "roadstead-manager", "roadstead-worker"] {
        let mut helm = Command::new(tool(Program::Helm).await);
        let lint = helm.args(["lint", "--strict"]).arg(folder("charts").join(chart));
        let said = output_of(lint).await;
        assert!(said.contains("1 chart(s) linted, 0 chart(s) failed"), "{said}");
    }
}

#[tokio::test]
async fn helm_renders_the_objects_of_the_plain_manifests() {
    for chart in ["roadstead-manager", "roadstead-worker"] {
        let mut wanted = plain(&format!("{chart}.yaml"));
        // The user of Helm makes the namespace: `--create-namespace`.
        assert!(wanted.remove(&format!("Namespace {NAMESPACE}")).is_some());
        let mut found = rendered(chart, &[]).await;
        for objects in [&mut wanted, &mut found] {
            same_configuration(objects, chart);
        }
        assert_same(&found, &wanted);
    }
}

/// The configuration is text in a map: Helm writes YAML where the generator writes JSON, and the pods carry its hash.
fn same_configuration(objects: &mut BTreeMap<String, Value>, chart: &str) {
    let map = objects.get_mut(&format!("ConfigMap {chart}-config")).unwrap();
    for text in map["data"].as_object_mut().unwrap().values_mut() {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text.as_str().unwrap()).unwrap();
        *text = Value::from(documents);
    }
    let deployment = objects.get_mut(&format!("Deployment {chart}")).unwrap();
    let annotations = &mut deployment["spec"]["template"]["metadata"]["annotations"];
    let hash = annotations
        .as_object_mut()
        .unwrap()
        .remove("roadstead.dev/config");
    assert!(hash.is_some_and(|hash| hash.is_string()));
}

fn assert_same(found: &BTreeMap<String, Value>, wanted: &BTreeMap<String, Value>) {
    let names = |objects: &BTreeMap<String, Value>| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(wanted));
    for (name, object) in found {
        assert_eq!(object, &wanted[name], "{name}");
    }
}

#[tokio::test]
async fn helm_keeps_the_definitions_and_leaves_those_that_others_installed() {
    let mut found = rendered("roadstead-crds", &[]).await;
    for (name, definition) in &found {
        assert_eq!(
            definition.pointer(KEPT),
            Some(&Value::from("keep")),
            "{name} goes with the release"
        );
    }
    let others = plain("crds-of-others.yaml");
    found.retain(|name, _| !others.contains_key(name));
    for definition in found.values_mut() {
        let metadata = definition["metadata"].as_object_mut().unwrap();
        let annotations = metadata["annotations"].as_object_mut().unwrap();
        annotations.remove("helm.sh/resource-policy");
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    assert_same(&found, &plain("crds.yaml"));
}

#[tokio::test]
async fn a_value_that_the_schema_does_not_know_is_refused() {
    for (value, complaint) in [
        ("replicas=many", "replicas"),
        ("replica=3", "replica"),
        (
            "configuration.webhook.port=1",
            "webhook.port is 1, but the installation sets 9443",
        ),
        (
            "configuration.namespace=a",
            "namespace is a, but the installation sets",
        ),
        (
            "configuration.apiVersion=config.kueue.x-k8s.io/v1beta1,ports.visibility=18082",
            "ports.visibility: a configuration of version config.kueue.x-k8s.io/v1beta1 cannot choose it",
        ),
    ] {
        let mut helm = Command::new(tool(Program::Helm).await);
        helm.args(["template", "roadstead"])
            .arg(folder("charts/roadstead-manager"))
            .args(["--kube-version", KUBERNETES, "--set", value]);
        let output = helm.kill_on_drop(true).output().await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(complaint),
            "{value}: {said}"
        );
    }
}

#[tokio::test]
async fn a_key_that_the_installation_sets_may_be_set_to_the_same_value() {
    let set = "configuration.webhook.port=9443,configuration.health.healthProbeBindAddress=:8081";
    let found = rendered("roadstead-manager", &["--set", set]).await;
    assert_eq!(found.len(), rendered("roadstead-manager", &[]).await.len());
}

#[tokio::test]
async fn a_configuration_of_the_older_version_gets_no_key_that_only_the_newer_one_has() {
    let text = async |more: &[&str]| {
        let found = rendered("roadstead-worker", more).await;
        let map = { found.into_iter() }.find(|(name, _)| name.starts_with("ConfigMap "));
        map.unwrap().1["data"]["config.yaml"].as_str().unwrap().to_owned()
    };
    let version = "configuration.apiVersion=config.kueue.x-k8s.io/v1beta1";
    assert!(text(&[]).await.contains("visibilityServer"));
    assert!(!text(&["--set", version]).await.contains("visibilityServer"));
}

#[tokio::test]
async fn the_service_monitor_comes_where_its_kind_is_served() {
    let with = ["--api-versions", "monitoring.coreos.com/v1/ServiceMonitor"];
    let found = rendered("roadstead-manager", &with).await;
    assert!(found.keys().any(|name| name.starts_with("ServiceMonitor ")));
}
