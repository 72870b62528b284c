//! Server-side apply.

use serde_json::{Value, json};

use crate::conformance::trace::{APPLY, Dice, MERGE, Step};
use crate::conformance::values::{CONFIG_MAP, JOB, POD, Sample, WIDGET, WORKLOAD};

const SAMPLES: &[Sample] = &[CONFIG_MAP, POD, JOB, WIDGET, WORKLOAD, WIDGET];

fn by(sample: Sample, name: &str, manager: &str, force: &str, config: Value) -> Step {
    let mut config = config;
    config["apiVersion"] = sample.group_version.into();
    config["kind"] = sample.kind.into();
    config["metadata"]["name"] = name.into();
    Step::patch(
        format!("{}?fieldManager={manager}{force}", sample.at(name)),
        APPLY,
        config,
    )
}

/// A small configuration that a manager applies to an object.
fn opinion(sample: Sample, dice: &mut Dice) -> Value {
    let word = *dice.pick(&["x", "y"]);
    match sample.plural {
        "configmaps" => match dice.below(3) {
            0 => json!({"data": {"a": word}}),
            1 => json!({"data": {"b": word, "c": word}}),
            _ => json!({"metadata": {"labels": {"team": word}}}),
        },
        "widgets" => match dice.below(7) {
            0 => json!({"spec": {"size": *dice.pick(&[2, 3]), "parts": [{"name": word, "count": 2}]}}),
            1 => json!({"spec": {"size": 1, "words": [word, "z"]}}),
            2 => json!({"spec": {"size": 1, "whole": {"a": word}}}),
            3 => json!({"spec": {"size": 1, "free": {"deep": {"er": word}, "list": [1, 2]}}}),
            4 => json!({"spec": {"size": 1, "many": {word: 1}}}),
            5 => json!({"spec": {"size": 1, "parts": [{"name": "a"}, {"name": "b", "count": 5}]}}),
            _ => json!({"metadata": {"annotations": {"example.com/a": word}}, "spec": {"size": 1}}),
        },
        "workloads" => match dice.below(3) {
            0 => json!({"spec": {"queueName": word}}),
            // Why not the pod sets: the rest of a template without a schema is a listed difference.
            1 => json!({"spec": {"queueName": word, "active": true}}),
            _ => json!({"metadata": {"labels": {"team": word}}, "spec": {"active": false}}),
        },
        "pods" => match dice.below(3) {
            0 => json!({"metadata": {"labels": {"team": word}, "finalizers": ["example.com/a"]}}),
            1 => json!({"spec": {"containers": [{"name": "main", "image": format!("i:{word}")}]}}),
            _ => {
                json!({"spec": {"containers": [{"name": "main", "image": "i"}], "tolerations": [{"key": word, "operator": "Exists"}]}})
            }
        },
        _ => match dice.below(4) {
            0 => json!({"spec": {"suspend": dice.chance(50)}}),
            1 => json!({"metadata": {"labels": {"team": word}}}),
            2 => json!({"spec": {"parallelism": *dice.pick(&[1, 2])}}),
            _ => json!({"spec": {"suspend": true, "template": {"spec": {"nodeSelector": {"zone": word}}}}}),
        },
    }
}

/// One manager that applies different configurations.
pub(super) fn alone(dice: &mut Dice) -> Vec<Step> {
    let sample = *dice.pick(SAMPLES);
    let name = sample.name(dice);
    let whole = sample.object(&name, dice);
    let first = opinion(sample, dice);
    let second = opinion(sample, dice);
    vec![
        by(sample, &name, "m1", "", whole.clone()),
        by(sample, &name, "m1", "", whole),
        by(sample, &name, "m1", "", first.clone()),
        by(sample, &name, "m1", "", first),
        by(sample, &name, "m1", "", second),
        Step::get(sample.at(&name)),
    ]
}

/// Two managers with conflicting configurations.
pub(super) fn together(dice: &mut Dice) -> Vec<Step> {
    let sample = *dice.pick(SAMPLES);
    let name = sample.name(dice);
    let mut steps = vec![by(sample, &name, "m1", "", sample.object(&name, dice))];
    for _ in 0..5 {
        let manager = *dice.pick(&["m1", "m2", "m3"]);
        let force = *dice.pick(&["", "&force=true"]);
        let config = opinion(sample, dice);
        steps.push(by(sample, &name, manager, force, config));
    }
    steps.push(Step::get(sample.at(&name)));
    steps
}

/// Applies and ordinary changes of the same fields.
pub(super) fn after_update(dice: &mut Dice) -> Vec<Step> {
    let sample = *dice.pick(SAMPLES);
    let name = sample.name(dice);
    let mut steps = vec![Step::post(sample.list(), sample.object(&name, dice))];
    for _ in 0..5 {
        let config = opinion(sample, dice);
        steps.push(match dice.below(3) {
            0 => Step::patch(
                format!("{}?fieldManager=patcher", sample.at(&name)),
                MERGE,
                config,
            ),
            1 => by(sample, &name, "m1", "&force=true", config),
            _ => by(sample, &name, "m1", "", config),
        });
    }
    steps.push(Step::get(sample.at(&name)));
    steps
}

/// Two managers of a status.
pub(super) fn status(dice: &mut Dice) -> Vec<Step> {
    let name = WIDGET.name(dice);
    let mut steps = vec![Step::post(WIDGET.list(), WIDGET.object(&name, dice))];
    let at = format!("{}/status", WIDGET.at(&name));
    for _ in 0..4 {
        let manager = *dice.pick(&["m1", "m2"]);
        let kind = *dice.pick(&["Ready", "Done"]);
        let word = *dice.pick(&["True", "False"]);
        let status = json!({"size": dice.below(3), "conditions": [{"type": kind, "status": word}]});
        let config = json!({"apiVersion": WIDGET.group_version, "kind": WIDGET.kind, "metadata": {"name": name, "labels": {"ignored": "x"}}, "status": status, "spec": {"size": 9}});
        let force = *dice.pick(&["", "&force=true"]);
        steps.push(match dice.below(3) {
            0 => Step::patch(at.clone(), MERGE, json!({"status": status, "spec": {"size": 9}, "metadata": {"annotations": {"example.com/z": "z"}}})),
            _ => Step::patch(format!("{at}?fieldManager={manager}{force}"), APPLY, config),
        });
    }
    steps.push(Step::get(WIDGET.at(&name)));
    steps
}

/// Invalid applies.
pub(super) fn wrong(dice: &mut Dice) -> Vec<Step> {
    let name = WIDGET.name(dice);
    let at = WIDGET.at(&name);
    let full = |object: Value| Step::patch(format!("{at}?fieldManager=m"), APPLY, object);
    let base = WIDGET.object(&name, dice);
    let mut twice = base.clone();
    twice["spec"]["parts"] = json!([{"name": "a"}, {"name": "a"}]);
    let mut set_twice = base.clone();
    set_twice["spec"]["words"] = json!(["a", "a"]);
    let mut other_version = base.clone();
    other_version["apiVersion"] = "other/v1".into();
    let mut fields = base.clone();
    fields["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    let mut unnamed = base.clone();
    unnamed["metadata"] = json!({});
    let mut foreign = base.clone();
    foreign["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000".into();
    let mut unknown = base.clone();
    unknown["spec"]["nothing"] = 1.into();
    let mut pod = POD.object(&name, dice);
    pod["spec"]["nothing"] = 1.into();
    let mut all = vec![
        Step::patch(at.clone(), APPLY, base.clone()),
        full(twice),
        full(set_twice),
        full(other_version),
        full(fields),
        full(unnamed),
        full(foreign),
        full(unknown),
        full(json!({})),
        Step::patch(format!("{at}/status?fieldManager=m"), APPLY, base),
        Step::patch(format!("{}?fieldManager=m", POD.at(&name)), APPLY, pod),
    ];
    while all.len() > 6 {
        let at = dice.below(all.len());
        all.remove(at);
    }
    all
}
