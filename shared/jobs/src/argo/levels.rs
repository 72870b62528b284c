//! Which pods of a Workflow run at the same time.
//!
//! A level is a group of parallel steps, or the tasks of a DAG that are equally far from its beginning. Quota is asked for the level that
//! needs most. If no level needs the most of every resource, quota is asked for all levels together that no other level covers.
//!
//! Limit: when branches of a DAG run at different speeds, tasks of two levels may run at the same time. Quota is not asked for their sum.

use std::collections::{BTreeMap, BTreeSet};

use roadstead_core::amount::Amount;
use serde_json::{Value, json};

use super::pods::{self, Amounts};
use crate::json;
use crate::podset::JobPodSet;
use crate::problem::is_label;

/// The largest number of pod sets of one job. *Source*: `spec/jobs.md 2.3`.
const POD_SETS_MAX: usize = 18;
/// Limit: different levels of one template, because each is compared with each.
const LEVELS_MAX: usize = 256;
/// Limit: templates within templates.
const DEPTH_MAX: usize = 32;
/// Limit: the API counts in signed numbers of 32 bits.
const PODS_MAX: u32 = i32::MAX.unsigned_abs();

/// The pods of a level, by template.
type Level = BTreeMap<String, u32>;

/// The pod sets of a Workflow.
///
/// *Errors*: the pod sets depend on a value that is known only when the Workflow runs; a phrase that names it.
pub(super) fn pod_sets(workflow: &Value) -> Result<Vec<JobPodSet>, String> {
    let mut reader = Reader::of(workflow)?;
    let entry = json::text(workflow, &["spec", "entrypoint"]).ok_or("spec.entrypoint is missing")?;
    let mut levels = reader.levels(entry)?;
    if let Some(exit) = json::text(workflow, &["spec", "onExit"]) {
        levels.extend(reader.levels(exit)?);
    }
    let level = reader.together(levels)?;
    if level.is_empty() {
        return Err("none of its templates makes a pod".to_owned());
    }
    if level.len() > POD_SETS_MAX {
        return Err(format!(
            "{} templates run at the same time, at most 18 can be counted",
            level.len()
        ));
    }
    let at_once = json::int(workflow, &["spec", "parallelism"]).and_then(|most| u32::try_from(most).ok());
    let mut sets = Vec::new();
    for (template, count) in level {
        let name = pods::set_name(&template);
        let is_taken = sets.iter().any(|set: &JobPodSet| set.name == name);
        if is_taken || !is_label(&name) {
            return Err(format!(
                "template {template:?} gives no pod set a name of its own"
            ));
        }
        let count = at_once
            .filter(|most| *most > 0)
            .map_or(count, |most| count.min(most));
        if count > PODS_MAX {
            return Err(format!("template {template:?} has more pods than can be counted"));
        }
        sets.push(JobPodSet {
            name,
            count,
            min_count: None,
            template: reader
                .pods
                .remove(&template)
                .map(|(pod, _)| pod)
                .unwrap_or_default(),
        });
    }
    Ok(sets)
}

struct Reader<'a> {
    workflow: &'a Value,
    templates: BTreeMap<&'a str, &'a Value>,
    /// The templates that were read already.
    known: BTreeMap<&'a str, Vec<Level>>,
    /// The templates that are being read, each within the one before.
    within: Vec<&'a str>,
    /// The pod of each template that makes one, and its requests.
    pods: BTreeMap<String, (Value, Amounts)>,
}

impl<'a> Reader<'a> {
    fn of(workflow: &'a Value) -> Result<Self, String> {
        for field in ["workflowTemplateRef", "templateDefaults", "podSpecPatch", "hooks"] {
            if json::at(workflow, &["spec", field]).is_some_and(|value| *value != json!({})) {
                return Err(format!("spec.{field} is set"));
            }
        }
        let templates = json::list(workflow, &["spec", "templates"]).iter();
        Ok(Self {
            workflow,
            templates: templates
                .filter_map(|template| Some((json::text(template, &["name"])?, template)))
                .collect(),
            known: BTreeMap::new(),
            within: Vec::new(),
            pods: BTreeMap::new(),
        })
    }

    /// The levels of a template, one after the other.
    fn levels(&mut self, name: &str) -> Result<Vec<Level>, String> {
        let Some((name, template)) = self
            .templates
            .get_key_value(name)
            .map(|(name, found)| (*name, *found))
        else {
            return Err(format!("template {name:?} is missing"));
        };
        if let Some(levels) = self.known.get(name) {
            return Ok(levels.clone());
        }
        if self.within.contains(&name) {
            return Err(format!("template {name:?} calls itself"));
        }
        if self.within.len() >= DEPTH_MAX {
            return Err(format!(
                "template {name:?} is within more than {DEPTH_MAX} others"
            ));
        }
        self.within.push(name);
        let levels = self.of_template(name, template);
        self.within.pop();
        let levels = levels.and_then(|levels| self.few(levels));
        let levels = levels.map_err(|why| format!("template {name:?}: {why}"))?;
        self.known.insert(name, levels.clone());
        Ok(levels)
    }

    fn of_template(&mut self, name: &str, template: &'a Value) -> Result<Vec<Level>, String> {
        for field in ["podSpecPatch", "daemon", "http", "plugin"] {
            let found = json::at(template, &[field]);
            if found.is_some_and(|value| *value != Value::Bool(false)) {
                return Err(format!("{field} is set"));
            }
        }
        let mut levels = Vec::new();
        for group in json::list(template, &["steps"]) {
            let steps: Vec<&Value> = group.as_array().into_iter().flatten().collect();
            levels.extend(self.side_by_side(&steps)?);
        }
        for tasks in by_distance(json::list(template, &["dag", "tasks"]))? {
            levels.extend(self.side_by_side(&tasks)?);
        }
        if let Some(containers) = pods::containers(template) {
            let pod = pods::pod(self.workflow, template, &containers);
            let requests = pods::requests(&pod)?;
            self.pods.insert(name.to_owned(), (pod, requests));
            levels.push(Level::from([(name.to_owned(), 1)]));
        }
        Ok(levels)
    }

    /// The levels of steps that run beside each other.
    fn side_by_side(&mut self, steps: &[&'a Value]) -> Result<Vec<Level>, String> {
        let mut sum = Level::new();
        for step in steps {
            let times = times(step)?;
            let name = json::text(step, &["template"]);
            let name = name.ok_or_else(|| format!("{} names no template of this Workflow", called(step)))?;
            let levels = self.levels(name)?;
            if let ([_], 1) = (steps, times) {
                return Ok(levels);
            }
            for (template, count) in self.together(levels)? {
                let known = sum.entry(template).or_default();
                *known = known.saturating_add(count.saturating_mul(times));
            }
        }
        Ok(if sum.is_empty() { Vec::new() } else { vec![sum] })
    }

    fn needs(&self, level: &Level) -> Amounts {
        let mut sum = Amounts::new();
        for (template, count) in level {
            for (name, amount) in self
                .pods
                .get(template)
                .into_iter()
                .flat_map(|(_, requests)| requests)
            {
                let known = sum.entry(name.clone()).or_default();
                *known = known.plus(amount.times(i64::from(*count)));
            }
        }
        sum
    }

    /// The levels that no other level covers; of two that cover each other, the first.
    fn few(&self, levels: Vec<Level>) -> Result<Vec<Level>, String> {
        let unique: BTreeSet<Level> = levels.into_iter().collect();
        let levels: Vec<Level> = unique.into_iter().collect();
        if levels.len() > LEVELS_MAX {
            return Err(format!("more than {LEVELS_MAX} of its groups of steps differ"));
        }
        let needs: Vec<Amounts> = levels.iter().map(|level| self.needs(level)).collect();
        let covers = |one: &Amounts, other: &Amounts| {
            let of = |name| one.get(name).copied().unwrap_or(Amount::new(0));
            other.iter().all(|(name, amount)| *amount <= of(name))
        };
        let is_covered = |at: usize| {
            (0..levels.len()).any(|by| {
                let first = by < at || !covers(&needs[at], &needs[by]);
                by != at && covers(&needs[by], &needs[at]) && first
            })
        };
        let kept = (0..levels.len()).filter(|at| !is_covered(*at));
        Ok(kept.map(|at| levels[at].clone()).collect())
    }

    fn together(&self, levels: Vec<Level>) -> Result<Level, String> {
        Ok(union(self.few(levels)?))
    }
}

/// For each template, the largest number of its pods in one level.
fn union(levels: Vec<Level>) -> Level {
    let mut most = Level::new();
    for (template, count) in levels.into_iter().flatten() {
        let known = most.entry(template).or_default();
        *known = count.max(*known);
    }
    most
}

fn called(step: &Value) -> String {
    format!("step {:?}", json::text(step, &["name"]).unwrap_or_default())
}

/// How many times a step runs at the same time.
fn times(step: &Value) -> Result<u32, String> {
    let wrong = |field: &str| Err(format!("{field} of {} is known only when it runs", called(step)));
    for field in ["withParam", "templateRef", "inline", "hooks"] {
        if json::at(step, &[field]).is_some_and(|value| *value != json!({})) {
            return wrong(field);
        }
    }
    if let Some(items) = json::at(step, &["withItems"]).and_then(Value::as_array) {
        return Ok(u32::try_from(items.len()).unwrap_or(u32::MAX));
    }
    let Some(sequence) = json::at(step, &["withSequence"]) else {
        return Ok(1);
    };
    let number = |field: &str| {
        let value = json::at(sequence, &[field])?;
        value.as_i64().or_else(|| value.as_str()?.parse().ok())
    };
    let count = match (number("count"), number("start"), number("end")) {
        (Some(count), _, None) => Some(count),
        (None, start, Some(end)) => {
            Some(end.abs_diff(start.unwrap_or(0))).and_then(|steps| i64::try_from(steps).ok()?.checked_add(1))
        }
        _ => None,
    };
    match count.and_then(|count| u32::try_from(count).ok()) {
        Some(count) => Ok(count),
        None => wrong("withSequence"),
    }
}

/// The tasks of a DAG by the length of the longest way to each.
///
/// *Errors*: the tasks wait for each other in a circle.
fn by_distance(tasks: &[Value]) -> Result<Vec<Vec<&Value>>, String> {
    let name = |task: &'_ Value| json::text(task, &["name"]).unwrap_or_default().to_owned();
    let names: BTreeSet<String> = tasks.iter().map(name).collect();
    let waits_for = |task: &Value| -> BTreeSet<String> {
        let listed = json::list(task, &["dependencies"])
            .iter()
            .filter_map(Value::as_str);
        let said = json::text(task, &["depends"]).unwrap_or_default();
        // Why only the part before the dot: it is the name of a task, and the rest names an outcome of that task.
        let words = said.split(|c: char| !(c.is_alphanumeric() || matches!(c, '-' | '_' | '.')));
        let words = words.filter_map(|word| word.split('.').next());
        let all = listed.chain(words).map(str::to_owned);
        all.filter(|word| names.contains(word)).collect()
    };
    let mut left: Vec<&Value> = tasks.iter().collect();
    let mut done = BTreeSet::new();
    let mut levels = Vec::new();
    while !left.is_empty() {
        let (ready, waiting): (Vec<&Value>, Vec<&Value>) = left
            .into_iter()
            .partition(|task| waits_for(task).is_subset(&done));
        if ready.is_empty() {
            return Err("its tasks wait for each other".to_owned());
        }
        done.extend(ready.iter().map(|task| name(task)));
        levels.push(ready);
        left = waiting;
    }
    Ok(levels)
}
