//! Admission and conversion by webhooks, which the test serves.

use serde_json::{Value, json};

use crate::conformance::trace::{APPLY, Dice, JSON_PATCH, MERGE, Step};
use crate::conformance::values::{CONFIG_MAP, GADGET, GADGET_OLD, Sample, WIDGET};

fn hooked(sample: Sample, name: &str, word: &str, dice: &mut Dice) -> Value {
    let mut object = sample.object(name, dice);
    object["metadata"]["labels"] = json!({"hook": word});
    object
}

/// Creation, change and deletion of objects that a webhook reviews.
pub(super) fn admission(dice: &mut Dice) -> Vec<Step> {
    let sample = *dice.pick(&[CONFIG_MAP, WIDGET, GADGET, GADGET_OLD]);
    let name = sample.name(dice);
    let at = sample.at(&name);
    let word = *dice.pick(&["deny", "warn", "broken", "ignored", "mutate", "exact", "mutate"]);
    let label = |word: &str| json!({"metadata": {"labels": {"hook": word, "n": "1"}}});
    let mut steps = vec![
        Step::post(
            format!("{}?dryRun=All", sample.list()),
            hooked(sample, &name, word, dice),
        ),
        Step::post(sample.list(), hooked(sample, &name, word, dice)),
        Step::post(sample.list(), sample.object(&format!("{name}-free"), dice)),
        Step::patch(sample.at(&format!("{name}-free")), MERGE, label(word)),
        Step::patch(at.clone(), MERGE, json!({"metadata": {"labels": {"n": "2"}}})),
    ];
    if sample == WIDGET {
        steps.push(Step::patch(
            format!("{at}/status"),
            MERGE,
            json!({"status": {"size": 3}}),
        ));
    }
    let mut config = hooked(sample, &name, word, dice);
    config["metadata"]["labels"]["applied"] = "yes".into();
    steps.push(Step::patch(
        format!("{at}?fieldManager=m&force=true"),
        APPLY,
        config,
    ));
    steps.push(Step::get(at.clone()));
    if dice.chance(50) {
        steps.push(Step::patch(at.clone(), MERGE, label("none")));
    }
    steps.push(Step::delete(at));
    steps
}

/// A webhook that reviews only some objects.
pub(super) fn conditions(dice: &mut Dice) -> Vec<Step> {
    let name = CONFIG_MAP.name(dice);
    let at = CONFIG_MAP.at(&name);
    let mut object = hooked(CONFIG_MAP, &name, "conditional", dice);
    let first = *dice.pick(&["yes", "no"]);
    object["data"] = json!({"ask": first});
    let mut bare = hooked(CONFIG_MAP, &format!("{name}-bare"), "conditional", dice);
    bare["data"] = Value::Null;
    let mut other = hooked(CONFIG_MAP, &format!("{name}-other"), "conditional", dice);
    other["data"] = json!({"other": "x"});
    vec![
        Step::post(CONFIG_MAP.list(), object),
        Step::patch(at.clone(), MERGE, json!({"data": {"ask": "yes"}})),
        Step::patch(at.clone(), MERGE, json!({"data": {"ask": "no", "more": "x"}})),
        Step::post(CONFIG_MAP.list(), bare),
        Step::post(CONFIG_MAP.list(), other),
        Step::delete(at),
    ]
}

/// One object in two versions.
pub(super) fn conversion(dice: &mut Dice) -> Vec<Step> {
    let (old, new) = (GADGET_OLD, GADGET);
    let name = old.name(dice);
    let version = format!("$rv:Gadget/{name}");
    let mut failing = old.object(&format!("{name}-f"), dice);
    failing["metadata"]["labels"] = json!({"convert": "fail"});
    let mut replaced = new.object(&name, dice);
    replaced["metadata"]["resourceVersion"] = version.as_str().into();
    replaced["spec"] = json!({"amount": 9});
    let by = |sample: Sample, config: Value| {
        let mut config = config;
        config["apiVersion"] = sample.group_version.into();
        config["kind"] = "Gadget".into();
        config["metadata"]["name"] = name.as_str().into();
        Step::patch(
            format!("{}?fieldManager=m&force=true", sample.at(&name)),
            APPLY,
            config,
        )
    };
    let mut steps = vec![
        Step::post(old.list(), old.object(&name, dice)),
        Step::get(new.at(&name)),
        Step::get(old.list()),
        Step::get(new.list()),
        Step::watch(
            format!("{}?watch=true&resourceVersion=0&timeoutSeconds=5", old.list()),
            1,
        ),
    ];
    let mut changes = vec![
        Step::patch(old.at(&name), MERGE, json!({"spec": {"size": 4}})),
        Step::patch(
            new.at(&name),
            MERGE,
            json!({"spec": {"amount": 5, "color": "red"}}),
        ),
        Step::patch(old.at(&name), MERGE, json!({"spec": {"size": -1}})),
        Step::patch(old.at(&name), MERGE, json!({"spec": {"amount": 1}})),
        Step::patch(
            new.at(&name),
            JSON_PATCH,
            json!([{"op": "replace", "path": "/spec/amount", "value": 7}]),
        ),
        Step::put(new.at(&name), replaced),
        Step::patch(
            format!("{}/status", old.at(&name)),
            MERGE,
            json!({"status": {"done": dice.below(3)}}),
        ),
        by(old, json!({"spec": {"size": 3}})),
        by(new, json!({"spec": {"amount": 3, "color": "green"}})),
        by(
            new,
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"amount": 6}}),
        ),
        Step::post(old.list(), failing),
    ];
    while changes.len() > 6 {
        let at = dice.below(changes.len());
        changes.remove(at);
    }
    steps.extend(changes);
    steps.push(Step::get(old.at(&name)));
    steps.push(Step::get(new.at(&name)));
    steps.push(Step::delete(old.at(&name)));
    steps
}
