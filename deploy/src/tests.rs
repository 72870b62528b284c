use std::{collections::BTreeMap, fs, path::Path};

use super::*;

/// The files below the folder, by path.
fn stored(folder: &str) -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.clone()];
    while let Some(next) = folders.pop() {
        let entries = fs::read_dir(&next)
            .unwrap_or_else(|error| panic!("{}: {error}; run `{COMMAND}`", next.display()));
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(&folder).unwrap().display().to_string();
                found.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn stored_manifests_are_what_the_code_generates() {
    compare(CRD_DIR, crds().unwrap());
    compare(RIGHTS_DIR, rights().unwrap());
    compare(VISIBILITY_DIR, visibility().unwrap());
    compare(MANIFEST_DIR, charts::plain().unwrap());
    compare(charts::CHART_DIR, charts::charts().unwrap());
}

fn compare(folder: &str, generated: Vec<Manifest>) {
    let stored = stored(folder);
    let generated: BTreeMap<String, String> = generated
        .into_iter()
        .map(|manifest| (manifest.file_name, manifest.content))
        .collect();

    let names: Vec<&String> = stored.keys().collect();
    let wanted: Vec<&String> = generated.keys().collect();
    assert_eq!(
        names, wanted,
        "files in {folder} differ from the generated ones; run `{COMMAND}`"
    );
    for (name, content) in &generated {
        assert!(
            stored.get(name) == Some(content),
            "{folder}/{name} is out of date; run `{COMMAND}`"
        );
    }
}

#[test]
fn yaml_reads_back_as_the_definition() {
    let definitions = roadstead_api::crd::all();
    for (manifest, definition) in crds().unwrap().iter().zip(&definitions) {
        let read: Value = serde_saphyr::from_str(&manifest.content).unwrap();
        let mut wanted = serde_json::to_value(definition).unwrap();
        write_whole_numbers(&mut wanted);
        assert_eq!(read, wanted, "{}", manifest.file_name);
    }
}

/// Why: if we applied a definition that another controller owns, that controller could break.
#[test]
fn definitions_that_others_own_are_apart_and_not_applied_with_ours() {
    let names = |manifest: &Manifest| -> Vec<String> {
        let objects: Vec<Value> = serde_saphyr::from_multiple(&manifest.content).unwrap();
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
        objects.iter().map(name).collect()
    };
    let others = [
        "appwrappers.workload.codeflare.dev",
        "provisioningrequests.autoscaling.x-k8s.io",
    ];
    let apart: Vec<Manifest> = { crds().unwrap().into_iter() }
        .filter(|manifest| manifest.file_name.starts_with("others/"))
        .collect();
    let mut found: Vec<String> = apart.iter().flat_map(names).collect();
    found.sort();
    assert_eq!(found, others);
    let plain = charts::plain().unwrap();
    let of = |file: &str| names(plain.iter().find(|manifest| manifest.file_name == file).unwrap());
    let mut found = of("crds-of-others.yaml");
    found.sort();
    assert_eq!(found, others);
    let ours = of("crds.yaml");
    assert!(
        ours.len() > 8 && others.iter().all(|name| !ours.contains(&(*name).to_owned())),
        "{ours:?}"
    );
}

/// Spec: safety 6
#[test]
fn rights_read_back_as_the_objects() {
    let manifests = rights().unwrap();
    for process in Process::ALL {
        let read = |file_name: String| -> Vec<Value> {
            let manifest = manifests.iter().find(|manifest| manifest.file_name == file_name);
            serde_saphyr::from_multiple(&manifest.unwrap().content).unwrap()
        };
        let own = read(format!("{}.yaml", process.name()));
        assert_eq!(
            own,
            roadstead_api::rights::manifests(process, NAMESPACE, BY_DEFAULT)
        );
        for kind in TABLE.iter().filter(|kind| !BY_DEFAULT.contains(kind)) {
            let added = read(format!(
                "{}.{}.yaml",
                process.name(),
                kind.framework.replace('/', ".")
            ));
            assert_eq!(
                added,
                roadstead_api::rights::of_integration(process, NAMESPACE, kind)
            );
        }
    }
}

/// Spec: api API-15.
#[test]
fn visibility_is_registered_in_both_versions_on_port_443_to_8082() {
    let manifests = visibility().unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&manifests[0].content).unwrap();
    assert_eq!(
        objects,
        roadstead_api::install::visibility::manifests(&place().unwrap())
    );
    let of_kind = |kind: &str| -> Vec<&Value> {
        let objects = objects.iter();
        objects.filter(|object| object["kind"] == kind).collect()
    };
    let services = of_kind("APIService");
    assert_eq!(services.len(), 2);
    for service in services {
        let spec = &service["spec"];
        assert_eq!(
            (&spec["groupPriorityMinimum"], &spec["versionPriority"]),
            (&100.into(), &100.into())
        );
        assert_eq!(spec["service"]["port"], 443);
        assert!(spec.get("insecureSkipTLSVerify").is_none());
    }
    let port = &of_kind("Service")[0]["spec"]["ports"][0];
    assert_eq!((&port["port"], &port["targetPort"]), (&443.into(), &8082.into()));
}

#[test]
fn whole_numbers_lose_their_fraction_and_others_keep_it() {
    let mut value = serde_json::json!({"a": 1.0, "b": [1.5, 3, "1.0"]});
    write_whole_numbers(&mut value);
    assert_eq!(value.to_string(), r#"{"a":1,"b":[1.5,3,"1.0"]}"#);
}
