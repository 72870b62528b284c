use std::{collections::BTreeMap, fs, path::Path};

use super::*;

/// What lies in the folder, by file name.
fn stored() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(CRD_DIR);
    fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}; run `{COMMAND}`", folder.display()))
        .map(|entry| {
            let entry = entry.unwrap();
            (
                entry.file_name().into_string().unwrap(),
                fs::read_to_string(entry.path()).unwrap(),
            )
        })
        .collect()
}

#[test]
fn stored_definitions_are_what_the_code_generates() {
    let stored = stored();
    let generated: BTreeMap<String, String> = crds()
        .unwrap()
        .into_iter()
        .map(|manifest| (manifest.file_name, manifest.content))
        .collect();

    let names: Vec<&String> = stored.keys().collect();
    let wanted: Vec<&String> = generated.keys().collect();
    assert_eq!(
        names, wanted,
        "files in {CRD_DIR} differ from the generated ones; run `{COMMAND}`"
    );
    for (name, content) in &generated {
        assert!(
            stored.get(name) == Some(content),
            "{CRD_DIR}/{name} is out of date; run `{COMMAND}`"
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

#[test]
fn whole_numbers_lose_their_fraction_and_others_keep_it() {
    let mut value = serde_json::json!({"a": 1.0, "b": [1.5, 3, "1.0"]});
    write_whole_numbers(&mut value);
    assert_eq!(value.to_string(), r#"{"a":1,"b":[1.5,3,"1.0"]}"#);
}
