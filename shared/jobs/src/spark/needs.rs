//! The objects that an application names in fields of its own, outside of pod templates. The operator adds them to its pods.

use std::collections::BTreeSet;

use serde_json::Value;

use super::pods::{DRIVER, EXECUTOR};
use crate::json;
use crate::needs::{Need, Thing};

/// The objects that its pods cannot start without.
pub(super) fn of(app: &Value) -> BTreeSet<Need> {
    let mut needs = BTreeSet::new();
    let mut add = |thing: Thing, name: Option<&str>| needs.extend(need(thing, name));
    for field in ["sparkConfigMap", "hadoopConfigMap"] {
        add(Thing::ConfigMap, json::text(app, &["spec", field]));
    }
    for role in [DRIVER, EXECUTOR] {
        for map in json::list(app, &["spec", role, "configMaps"]) {
            add(Thing::ConfigMap, json::text(map, &["name"]));
        }
        for secret in json::list(app, &["spec", role, "secrets"]) {
            add(Thing::Secret, json::text(secret, &["name"]));
        }
        let variables = json::at(app, &["spec", role, "envSecretKeyRefs"]).and_then(Value::as_object);
        for key in variables.into_iter().flat_map(|variables| variables.values()) {
            add(Thing::Secret, json::text(key, &["name"]));
        }
    }
    needs
}

/// The objects that its pods can start without: Secrets for pulling images.
pub(super) fn wanted(app: &Value) -> BTreeSet<Need> {
    let secrets = json::list(app, &["spec", "imagePullSecrets"]).iter();
    secrets
        .filter_map(|name| need(Thing::Secret, name.as_str()))
        .collect()
}

fn need(thing: Thing, name: Option<&str>) -> Option<Need> {
    let name = name.filter(|name| !name.is_empty())?.to_owned();
    Some(Need { thing, name })
}
