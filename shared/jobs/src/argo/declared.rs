//! Pod sets that a user declares for a Workflow, in annotation `roadstead.dev/pod-sets`.

use roadstead_core::quantity;
use serde_json::{Map, Value, json};

use super::pods;
use crate::json;
use crate::podset::JobPodSet;
use crate::problem::is_label;

/// What such an annotation looks like.
pub(super) const EXAMPLE: &str = r#"[{"name": "train", "count": 4, "requests": {"cpu": "8"}}]"#;
/// The largest number of pod sets of one job. *Source*: `spec/jobs.md 2.3`.
const POD_SETS_MAX: usize = 18;
const FIELDS: [&str; 3] = ["name", "count", "requests"];

/// The declared pod sets. Their pods go where those of the template of the same name may go, else where those of the Workflow may go.
///
/// *Errors*: a phrase that names the entry, its field and what is allowed.
pub(super) fn pod_sets(text: &str, workflow: &Value) -> Result<Vec<JobPodSet>, String> {
    let wrong = |what: &str| format!("{what}; must be a JSON list such as {EXAMPLE}");
    let value: Value = text
        .parse()
        .map_err(|error| wrong(&format!("it is no JSON ({error})")))?;
    let entries = value.as_array().ok_or_else(|| wrong(json::type_of(&value)))?;
    if entries.is_empty() || entries.len() > POD_SETS_MAX {
        return Err(wrong(&format!(
            "{} entries, 1 to {POD_SETS_MAX} are allowed",
            entries.len()
        )));
    }
    let mut sets: Vec<JobPodSet> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let set = pod_set(entry, workflow).map_err(|(field, why)| format!("entry {index}: {field} {why}"))?;
        if sets.iter().any(|known| known.name == set.name) {
            return Err(format!("entry {index}: name {:?} is used twice", set.name));
        }
        sets.push(set);
    }
    Ok(sets)
}

fn pod_set(entry: &Value, workflow: &Value) -> Result<JobPodSet, (String, String)> {
    let wrong = |field: &str, why: &str| (field.to_owned(), why.to_owned());
    let Some(fields) = entry.as_object() else {
        return Err(wrong("it", "must be an object with name, count and requests"));
    };
    if let Some(other) = fields.keys().find(|field| !FIELDS.contains(&field.as_str())) {
        return Err(wrong(
            other,
            "is unknown, only name, count and requests are allowed",
        ));
    }
    let is_name = |name: &&str| !name.is_empty() && is_label(name) && pods::set_name(name) == **name;
    let name = json::text(entry, &["name"]).filter(is_name);
    let why = "must be of lower case letters, digits and '-', at most 63";
    let name = name.ok_or_else(|| wrong("name", why))?;
    let count = json::int(entry, &["count"]).filter(|count| (1..=i64::from(i32::MAX)).contains(count));
    let count = count.and_then(|count| u32::try_from(count).ok());
    let count = count.ok_or_else(|| wrong("count", "must be a number from 1 to 2147483647"))?;
    let requests = json::at(entry, &["requests"]).and_then(Value::as_object);
    let requests = requests.ok_or_else(|| wrong("requests", "must be an object of quantities"))?;
    let mut quantities = Map::new();
    for (resource, amount) in requests {
        // Why numbers too: in manifests they are quantities everywhere.
        let text = match amount {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => String::new(),
        };
        if let Err(error) = quantity::parse(resource, &text) {
            return Err((format!("requests[{resource}]"), format!("is {amount}: {error}")));
        }
        quantities.insert(resource.clone(), Value::String(text));
    }
    let mut all = json::list(workflow, &["spec", "templates"]).iter();
    let template =
        all.find(|template| json::text(template, &["name"]).is_some_and(|own| pods::set_name(own) == name));
    let main = json!({"name": "main", "resources": {"requests": quantities}});
    let empty = json!({});
    let mut pod = pods::pod(workflow, template.unwrap_or(&empty), &[main]);
    json::remove(&mut pod, &["spec", "initContainers"]);
    Ok(JobPodSet {
        name: name.to_owned(),
        count,
        min_count: None,
        template: pod,
    })
}
