//! Objects of an earlier run of `install` that the present values, or the present version, do not ask for any more.
//!
//! Invariant: only objects with the label of this installation are deleted; never a definition or a namespace, which hold what users made.

use roadstead_api::rights::Process;
use serde_json::Value;

use super::cluster::{Site, title};
use super::remove::{in_order, is_gathering, kinds};
use crate::failure::Failure;

/// Objects with the label of the installation that are not wanted, in the order in which they are deleted.
fn not_wanted(marked: Vec<Value>, wanted: &[Value]) -> Vec<Value> {
    let is_wanted = |object: &Value| wanted.iter().any(|each| title(each) == title(object));
    let holds_others = |object: &Value| {
        let kind = object["kind"].as_str();
        matches!(kind, None | Some("Namespace" | "CustomResourceDefinition"))
    };
    let mut found = marked;
    found.retain(|object| !holds_others(object) && !is_wanted(object));
    in_order(&mut found);
    found
}

impl Site {
    pub(super) async fn obsolete(&self, process: Process, wanted: &[Value]) -> Result<Vec<Value>, Failure> {
        let marked = self
            .marked(&kinds(process, &self.namespace), process.name())
            .await?;
        Ok(not_wanted(marked, wanted))
    }

    /// Deletes these objects; returns their kinds and names.
    pub(super) async fn retire(&self, objects: &[Value]) -> Result<Vec<String>, Failure> {
        for object in objects.iter().filter(|object| is_gathering(object)) {
            self.end_gathering(object).await?;
        }
        let mut removed = Vec::with_capacity(objects.len());
        for object in objects {
            removed.push(self.delete(object).await?);
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use roadstead_api::install::{Values, manifests, objects::definitions};
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn what_the_values_do_not_ask_for_any_more_goes_and_definitions_and_namespaces_stay() {
        let made = |values: Value| {
            let values: Values = from_value(values).unwrap();
            manifests(Process::Manager, "ours", &values).unwrap()
        };
        let before = made(json!({}));
        assert_eq!(not_wanted(before.clone(), &before), [Value::Null; 0]);
        let now = made(json!({
            "networkPolicy": {"enabled": false}, "podDisruptionBudget": {"enabled": false}, "rolesForPeople": {"enabled": false},
        }));
        let marked = [before.clone(), definitions("ours")].concat();
        let gone: Vec<String> = not_wanted(marked, &now).iter().map(title).collect();
        for title in [
            "networkpolicy/ours/roadstead-manager",
            "poddisruptionbudget/ours/roadstead-manager",
            "clusterrole/kueue-batch-admin-role",
        ] {
            assert!(gone.iter().any(|each| each == title), "{title} in {gone:?}");
        }
        assert!(
            gone.iter().all(|each| !each.starts_with("customresource")),
            "{gone:?}"
        );
        assert_eq!(gone.len(), before.len() - now.len());
        let everything: Vec<String> = not_wanted(before, &[]).iter().map(title).collect();
        assert!(
            everything.iter().all(|each| !each.starts_with("namespace/")),
            "{everything:?}"
        );
    }
}
