use serde_json::{Value, json};

use super::*;
use crate::objects::Scope;

fn now() -> Timestamp {
    "2026-11-21T10:00:09Z".parse().unwrap()
}

fn cluster(name: &str, connected: &str, version: u32) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster",
        "metadata": {"name": name, "uid": name, "resourceVersion": version.to_string(), "creationTimestamp": "2026-11-21T10:00:00Z"},
        "spec": {"clusterSource": {}},
        "status": {"conditions": [{"type": "Active", "status": connected, "reason": "R", "message": "",
            "lastTransitionTime": "2026-11-21T10:00:00Z"}]},
    }))
    .unwrap()
}

fn shown(format: ListFormat, events: Vec<Event<DynamicObject>>) -> String {
    let asked = Asked {
        what: What::Clusters,
        name: None,
        selector: None,
        scope: Scope::All,
    };
    let mut news = News::new(Sheet::new(&asked, format));
    let lines = events
        .into_iter()
        .map(|event| news.lines(event, &asked, now()).unwrap());
    lines
        .filter(|text| !text.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Spec: experience 3
#[test]
fn a_watch_shows_the_list_and_then_only_what_changes_in_it() {
    let text = shown(
        ListFormat::Table,
        vec![
            Event::Init,
            Event::InitApply(cluster("east", "True", 1)),
            Event::InitApply(cluster("west", "True", 2)),
            Event::InitDone,
            // A change that no column shows.
            Event::Apply(cluster("east", "True", 3)),
            Event::Apply(cluster("east", "False", 4)),
            // The watch restarts: west was deleted meanwhile, east is unchanged.
            Event::Init,
            Event::InitApply(cluster("east", "False", 4)),
            Event::InitDone,
            Event::Delete(cluster("east", "False", 5)),
        ],
    );
    assert_eq!(
        text,
        "NAME   CONNECTED   CLOSED   AGE\n\
         east   True        -        9s\n\
         west   True        -        9s\n\
         east   False       -        9s\n\
         west   True        -        deleted\n\
         east   False       -        deleted"
    );
}

#[test]
fn a_watch_for_scripts_prints_each_version_of_an_object() {
    let text = shown(
        ListFormat::Json,
        vec![
            Event::Init,
            Event::InitApply(cluster("east", "True", 1)),
            Event::InitDone,
            Event::Apply(cluster("east", "True", 2)),
        ],
    );
    let objects = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    let versions: Vec<Value> = objects
        .map(|object| object.unwrap()["metadata"]["resourceVersion"].clone())
        .collect();
    assert_eq!(versions, ["1", "2"]);
}
