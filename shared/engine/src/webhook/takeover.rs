//! Writes one webhook configuration, and takes it over from an installation that used its name before.
//!
//! Invariant: after a write, the configuration has exactly the wanted entries. *Why*: server-side apply keeps the entries of other
//! field managers. Entries that Kueue left would still be called, with an authority that no server has any more, so the API server would
//! refuse every Pod or Deployment.

use std::fmt::Debug;

use jiff::{SignedDuration, Timestamp};
use kube::{Api, Resource, ResourceExt as _};
use roadstead_api::constants::names::REGISTRAR;
use roadstead_kubeio::failure::Failure;
use roadstead_kubeio::write::{self, Written};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The fields of an entry by which it selects requests. Kueue writes some that we leave out.
const SELECTING: [&str; 3] = ["matchConditions", "namespaceSelector", "objectSelector"];

/// How long a deleted configuration stays away. *Why*: an uninstallation deletes the configurations before it ends the process. If
/// the process wrote them again, they would stay, and the API server would refuse every job.
const DELETED_WAIT: SignedDuration = SignedDuration::from_mins(1);

/// When configurations that this process had written were found deleted.
#[derive(Default)]
pub(super) struct Deletion {
    found_at: Option<Timestamp>,
}

impl Deletion {
    /// Whether the configurations may be written now.
    pub(super) fn may_register(&mut self, both_exist: bool, now: Timestamp) -> bool {
        if both_exist {
            self.found_at = None;
            return true;
        }
        let found_at = *self.found_at.get_or_insert(now);
        now.duration_since(found_at) >= DELETED_WAIT
    }
}

/// Whether the configuration exists. *Why* an empty patch: the process has no right to read it.
///
/// *Errors*: the API server refused, or gave no clear answer.
pub(super) async fn exists<K>(api: &Api<K>, name: &str) -> Result<bool, Failure>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let answer = write::patch(api, name, &json!({})).await;
    let is_gone = matches!(answer, Written::Gone);
    answer.stored().map_err(failed)?;
    Ok(!is_gone)
}

/// Applies the configuration, and replaces its list of entries if another installation has left something in it.
///
/// *Errors*: the API server refused, gave no clear answer, or another client changed the configuration meanwhile.
pub(super) async fn put<K>(api: &Api<K>, wanted: &K) -> Result<(), Failure>
where
    K: Resource + Clone + Serialize + DeserializeOwned + Debug,
{
    let name = wanted.name_any();
    let stored = done(write::apply(api, wanted, REGISTRAR).await)?;
    let (wanted, found) = (serde_json::to_value(wanted)?, serde_json::to_value(&stored)?);
    let Some(webhooks) = whole_list(&wanted, &found) else {
        return Ok(());
    };
    let patch = json!({"metadata": {"resourceVersion": stored.resource_version()}, "webhooks": webhooks});
    done(write::patch(api, &name, &patch).await)?;
    tracing::info!(configuration = %name, "took the webhook configuration over: entries of another installation were removed");
    Ok(())
}

fn done<K>(answer: Written<K>) -> Result<Box<K>, Failure> {
    let changed = || Failure::passing("another client changed or deleted the registration meanwhile");
    answer.stored().map_err(failed)?.ok_or_else(changed)
}

fn failed(failure: Failure) -> Failure {
    failure.in_doing("registering the webhooks failed")
}

/// The list to put if the stored one has more than the wanted entries, or if they select other requests than wanted; else `None`.
/// Where another tool injects the authorities, the stored ones are kept.
fn whole_list(wanted: &Value, stored: &Value) -> Option<Vec<Value>> {
    let entries = |configuration: &Value| configuration["webhooks"].as_array().cloned().unwrap_or_default();
    let (mut wanted, stored) = (entries(wanted), entries(stored));
    let named = |name: &Value| stored.iter().find(|entry| entry["name"] == *name);
    let selects = |entry: &Value| SELECTING.map(|field| chosen(&entry[field]));
    let is_as_wanted =
        |entry: &Value| named(&entry["name"]).is_some_and(|found| selects(found) == selects(entry));
    if stored.len() == wanted.len() && wanted.iter().all(is_as_wanted) {
        return None;
    }
    for entry in &mut wanted {
        let injected = named(&entry["name"]).map(|found| found["clientConfig"]["caBundle"].clone());
        let client = &mut entry["clientConfig"];
        if let Some(injected) =
            injected.filter(|injected| client["caBundle"].is_null() && !injected.is_null())
        {
            client["caBundle"] = injected;
        }
    }
    Some(wanted)
}

/// A selecting field in one form: an API server writes an absent selector as an empty one, and may store conditions in another order.
fn chosen(field: &Value) -> Value {
    match field {
        Value::Object(fields) if fields.is_empty() => Value::Null,
        Value::Array(items) if items.is_empty() => Value::Null,
        Value::Array(items) => {
            let mut items = items.clone();
            items.sort_by_key(|item| item["name"].to_string());
            items.into()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            field.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(secs)
    }

    #[test]
    fn a_deleted_registration_is_written_again_only_after_an_uninstallation_had_time_to_end_the_process() {
        let mut deletion = Deletion::default();
        assert!(deletion.may_register(true, at(0)));
        assert!(!deletion.may_register(false, at(10)));
        assert!(!deletion.may_register(false, at(69)));
        assert!(deletion.may_register(false, at(70)));
        assert!(deletion.may_register(true, at(130)));
        assert!(!deletion.may_register(false, at(190)), "deleted once more");
    }

    fn entry(name: &str, authority: &str) -> Value {
        json!({"name": name, "clientConfig": {"caBundle": authority}, "failurePolicy": "Fail"})
    }

    fn of(webhooks: &[Value]) -> Value {
        json!({"webhooks": webhooks})
    }

    #[test]
    fn entries_that_kueue_left_are_removed() {
        let wanted = of(&[entry("mjob.kb.io", "new")]);
        let stored = of(&[entry("mjob.kb.io", "new"), entry("mpod.kb.io", "old")]);
        assert_eq!(
            whole_list(&wanted, &stored),
            Some(vec![entry("mjob.kb.io", "new")])
        );
        assert_eq!(whole_list(&wanted, &wanted), None);
    }

    #[test]
    fn a_selector_that_kueue_left_in_an_entry_of_ours_is_removed() {
        let wanted = of(&[entry("mjob.kb.io", "new")]);
        let mut stored = wanted.clone();
        stored["webhooks"][0]["objectSelector"] = json!({});
        stored["webhooks"][0]["namespaceSelector"] = json!({});
        assert_eq!(
            whole_list(&wanted, &stored),
            None,
            "the defaults of the API server"
        );
        stored["webhooks"][0]["objectSelector"] = json!({"matchLabels": {"a": "b"}});
        assert_eq!(
            whole_list(&wanted, &stored),
            Some(vec![wanted["webhooks"][0].clone()])
        );
    }

    #[test]
    fn conditions_in_another_order_are_as_wanted() {
        let conditions = [json!({"name": "a"}), json!({"name": "b"})];
        let mut wanted = of(&[entry("mjob.kb.io", "new")]);
        let mut stored = wanted.clone();
        wanted["webhooks"][0]["matchConditions"] = json!([conditions[0], conditions[1]]);
        stored["webhooks"][0]["matchConditions"] = json!([conditions[1], conditions[0]]);
        assert_eq!(whole_list(&wanted, &stored), None);
    }

    #[test]
    fn an_authority_that_another_tool_injected_is_kept() {
        let wanted = of(&[json!({"name": "mjob.kb.io", "clientConfig": {}})]);
        let stored = of(&[entry("mjob.kb.io", "injected"), entry("mpod.kb.io", "injected")]);
        let list = whole_list(&wanted, &stored).unwrap_or_default();
        assert_eq!(
            list,
            [json!({"name": "mjob.kb.io", "clientConfig": {"caBundle": "injected"}})]
        );
    }
}
