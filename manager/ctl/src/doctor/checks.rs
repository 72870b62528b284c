//! The checks: each decides from facts alone, one file for each area.

mod cluster;
mod process;
mod queues;
mod webhooks;
mod workers;

use std::collections::BTreeSet;

use roadstead_api::rights::Process;
use serde::Serialize;
use serde_json::Value;

use super::facts::{Facts, Unread};

/// Largest difference between clocks, in seconds, that credentials and leases tolerate.
const CLOCK_SECS_MAX: i64 = 30;
/// Names of faulty objects that are shown.
const SHOWN_MAX: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// The check found nothing wrong.
    Ok,
    /// It works, but an administrator should look.
    Warning,
    Failed,
    Unknown,
}

impl Level {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "WARNING",
            Self::Failed => "FAILED",
            Self::Unknown => "unknown",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) group: &'static str,
    pub(super) check: &'static str,
    pub(super) level: Level,
    pub(super) seen: String,
    /// Why it matters.
    pub(super) why: &'static str,
    /// The next command, or what to change.
    pub(super) next: Option<String>,
}

/// What was seen, and what to do if there is a problem.
struct Seen {
    level: Level,
    text: String,
    next: Option<String>,
}

fn good(text: impl Into<String>) -> Seen {
    Seen {
        level: Level::Ok,
        text: text.into(),
        next: None,
    }
}

fn bad(text: impl Into<String>, next: impl Into<String>) -> Seen {
    Seen {
        level: Level::Failed,
        text: text.into(),
        next: Some(next.into()),
    }
}

fn warning(text: impl Into<String>, next: impl Into<String>) -> Seen {
    Seen {
        level: Level::Warning,
        ..bad(text, next)
    }
}

/// Good if the list of faulty names is empty, else `otherwise` of the first few.
fn none_of(faulty: Vec<String>, fine: impl Into<String>, otherwise: impl FnOnce(String) -> Seen) -> Seen {
    if faulty.is_empty() {
        return good(fine);
    }
    let more = faulty.len().saturating_sub(SHOWN_MAX);
    let shown: Vec<String> = faulty.into_iter().take(SHOWN_MAX).collect();
    let shown = shown.join(", ");
    otherwise(if more == 0 {
        shown
    } else {
        format!("{shown} and {more} more")
    })
}

/// The first name of a list that [`none_of`] has written, for the next command.
fn first_of(names: &str) -> &str {
    names.split([' ', ',']).next().unwrap_or_default()
}

type Judge = fn(&Facts) -> Result<Seen, Unread>;

/// The clusters on which a check applies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    Both,
    Manager,
    Worker,
}

struct Check {
    name: &'static str,
    on: On,
    why: &'static str,
    judge: Judge,
}

const fn everywhere(name: &'static str, why: &'static str, judge: Judge) -> Check {
    let on = On::Both;
    Check { name, on, why, judge }
}

const fn on_manager(name: &'static str, why: &'static str, judge: Judge) -> Check {
    let on = On::Manager;
    Check { name, on, why, judge }
}

const fn on_worker(name: &'static str, why: &'static str, judge: Judge) -> Check {
    let on = On::Worker;
    Check { name, on, why, judge }
}

/// Checks that are printed under one heading.
struct Group {
    name: &'static str,
    checks: &'static [Check],
}

/// All checks, in the order in which they are printed.
const ALL: [Group; 6] = [
    cluster::CLUSTER,
    cluster::DEFINITIONS,
    process::PROCESS,
    webhooks::WEBHOOKS,
    workers::WORKERS,
    queues::QUEUES,
];

/// All findings, in the order of the checks. Checks that do not apply to this cluster are left out.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let process = facts.process();
    let fits = |on: On| match on {
        On::Both => true,
        On::Manager => process == Some(Process::Manager),
        On::Worker => process == Some(Process::Worker),
    };
    let one = |group: &Group, check: &Check| {
        let seen = (check.judge)(facts).unwrap_or_else(|Unread(why)| Seen {
            level: Level::Unknown,
            text: why,
            next: None,
        });
        Finding {
            group: group.name,
            check: check.name,
            level: seen.level,
            seen: seen.text,
            why: check.why,
            next: seen.next,
        }
    };
    let of = |group: &'static Group| {
        let checks = group.checks.iter().filter(|check| fits(check.on));
        checks.map(move |check| one(group, check))
    };
    ALL.iter().flat_map(of).collect()
}

fn name(object: &Value) -> String {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// Status and message of a condition.
fn condition<'a>(object: &'a Value, kind: &str) -> Option<(&'a str, &'a str)> {
    let found = items(object, "/status/conditions").find(|each| each["type"] == kind)?;
    Some((
        found["status"].as_str()?,
        found["message"].as_str().unwrap_or_default(),
    ))
}

/// The names of the objects of a kind that match.
fn those(facts: &Facts, kind: &str, are: impl Fn(&&Value) -> bool) -> Result<Vec<String>, Unread> {
    Ok(facts.all(kind)?.iter().filter(are).map(name).collect())
}

/// The objects whose condition is not `True`, each with the message.
fn without_condition(objects: &[Value], kind: &str) -> Vec<String> {
    let faulty = |object: &Value| match condition(object, kind) {
        Some(("True", _)) => None,
        Some((_, message)) => Some(format!("{} ({message})", name(object))),
        None => Some(format!("{} (no condition yet)", name(object))),
    };
    objects.iter().filter_map(faulty).collect()
}

fn names(objects: &[Value]) -> BTreeSet<&str> {
    objects
        .iter()
        .filter_map(|object| object["metadata"]["name"].as_str())
        .collect()
}

/// The command that repairs the installation in this cluster.
fn install(facts: &Facts) -> String {
    let of = |process: &str| format!("roadstead install {process} --namespace {}", facts.namespace);
    match facts.process() {
        Some(Process::Manager) => of("manager"),
        Some(Process::Worker) => of("worker"),
        None => format!("{} (on a worker cluster: {})", of("manager"), of("worker")),
    }
}

fn look_at_log(facts: &Facts) -> String {
    format!(
        "kubectl -n {} logs -l control-plane=controller-manager --tail=50",
        facts.namespace
    )
}

#[cfg(test)]
mod tests;
