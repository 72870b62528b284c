use jiff::SignedDuration;

use super::*;
use crate::condition::Truth;
use crate::name::ClusterQueueName;
use crate::state::fixtures::{self, at, workload};
use crate::status::{Admission, Assignment, CheckState};

const CLASS: &str = "check-capacity.autoscaling.x-k8s.io";

fn pair(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

/// A text of five characters that depends on the length; enough to see where it is used.
fn suffix(text: &str) -> String {
    format!("{:05x}", text.len())
}

fn config() -> Config {
    Config {
        class: CLASS.to_owned(),
        parameters: BTreeMap::new(),
        retry_limit: 3,
        backoff: Backoff {
            base_secs: 60,
            max_secs: 1800,
        },
        node_selector: Vec::new(),
        merge: None,
    }
}

fn request(name: &str, conditions: &[(&'static str, Truth, &str)]) -> Request {
    let mut request = Request {
        name: name.to_owned(),
        identity: None,
        deleting: false,
        class: CLASS.to_owned(),
        parameters: BTreeMap::new(),
        templates: vec![format!("ppt-{name}-main")],
        conditions: Conditions::default(),
        details: BTreeMap::new(),
    };
    for (kind, truth, message) in conditions {
        request.conditions.set(*kind, *truth, "Because", *message, at(1));
    }
    request
}

/// Workload `wl`, reserved, one pod set `main` of four, check `chk` Pending and configured.
struct Case {
    workload: Workload,
    checks: BTreeMap<CheckName, Check>,
    classes: BTreeMap<PodSetName, Classes>,
    overrides: BTreeMap<String, String>,
    requests: Vec<Request>,
    templates: BTreeMap<String, TemplateOwner>,
    create_failures: BTreeMap<CheckName, CreateFailure>,
    on_eviction: OnEviction,
}

impl Case {
    fn new() -> Self {
        let mut workload = workload("wl", 0, Vec::new());
        workload.status.admission = Some(Admission {
            cluster_queue: ClusterQueueName::from("cq"),
            pod_sets: Vec::new(),
        });
        let mut case = Self {
            workload,
            checks: BTreeMap::new(),
            classes: BTreeMap::new(),
            overrides: BTreeMap::new(),
            requests: Vec::new(),
            templates: BTreeMap::new(),
            create_failures: BTreeMap::new(),
            on_eviction: OnEviction::Delete,
        };
        case.add_check("chk", Some(config()));
        case.with("QuotaReserved").pod_set("main", 4, Some(4))
    }

    fn with(mut self, kind: &'static str) -> Self {
        let conditions = &mut self.workload.status.conditions;
        conditions.set(kind, Truth::True, "Because", "", at(0));
        self
    }

    fn without(mut self, kind: &str) -> Self {
        self.workload.status.conditions.remove(kind);
        self
    }

    fn add_check(&mut self, name: &str, config: Option<Config>) {
        let managed = self
            .workload
            .pod_sets
            .iter()
            .map(|set| set.name.clone())
            .collect();
        self.checks.insert(name.into(), Check { config, managed });
        self.workload
            .status
            .checks
            .insert(name.into(), CheckState::pending(at(0)));
    }

    /// A pod set that every check manages; `assigned` of its pods were admitted.
    fn pod_set(mut self, name: &str, count: u32, assigned: Option<u32>) -> Self {
        let set = fixtures::pod_set(name, count, &[("cpu", 1)]);
        self.workload.pod_sets.push(set);
        if let Some(count) = assigned {
            self.workload
                .status
                .admission
                .as_mut()
                .unwrap()
                .pod_sets
                .push(Assignment {
                    name: name.into(),
                    flavors: BTreeMap::from([("cpu".into(), "default".into())]),
                    usage: BTreeMap::new(),
                    count,
                });
        }
        for check in self.checks.values_mut() {
            check.managed.insert(name.into());
        }
        self
    }

    fn config(mut self, change: impl FnOnce(&mut Config)) -> Self {
        let check = self.checks.get_mut(&CheckName::from("chk")).unwrap();
        change(check.config.as_mut().unwrap());
        self
    }

    fn state(mut self, phase: CheckPhase, message: &str, retry_count: Option<u32>) -> Self {
        let state = self
            .workload
            .status
            .checks
            .get_mut(&CheckName::from("chk"))
            .unwrap();
        (state.phase, state.message, state.retry_count) = (phase, message.to_owned(), retry_count);
        self
    }

    fn request(mut self, name: &str, conditions: &[(&'static str, Truth, &str)]) -> Self {
        self.requests.push(request(name, conditions));
        self
    }

    fn classes(mut self, classes: &[(&str, u32, u32)]) -> Self {
        for (name, template, scheduling) in classes {
            let classes = Classes {
                template: *template,
                scheduling: *scheduling,
            };
            self.classes.insert((*name).into(), classes);
        }
        self
    }

    fn plan(&self) -> Plan {
        plan(
            &Observed {
                workload: &self.workload,
                checks: &self.checks,
                classes: &self.classes,
                overrides: &self.overrides,
                requests: &self.requests,
                templates: &self.templates,
                create_failures: &self.create_failures,
                on_eviction: self.on_eviction,
                suffix,
                jitter: 0.9,
            },
            at(100),
        )
    }
}

impl Plan {
    fn check(&self) -> &CheckState {
        &self.status.checks[&CheckName::from("chk")]
    }

    fn says(&self) -> (CheckPhase, &str) {
        (self.check().phase, &self.check().message)
    }

    fn created(&self) -> Vec<&NewRequest> {
        let created = self.actions.iter().filter_map(|action| match action {
            Action::CreateRequest(request) => Some(request),
            Action::DeleteRequest { .. } | Action::CreateTemplates { .. } | Action::TransferOwner { .. } => {
                None
            }
        });
        created.collect()
    }

    fn created_names(&self) -> Vec<&str> {
        self.created()
            .iter()
            .map(|request| request.name.as_str())
            .collect()
    }

    fn sets(&self) -> Vec<(&str, u32)> {
        let sets = self.created()[0].pod_sets.iter();
        sets.map(|set| (set.pod_set.as_str(), set.count)).collect()
    }

    fn deleted(&self) -> Vec<&str> {
        let deleted = self.actions.iter().filter_map(|action| match action {
            Action::DeleteRequest { name } => Some(name.as_str()),
            Action::CreateRequest(_) | Action::CreateTemplates { .. } | Action::TransferOwner { .. } => None,
        });
        deleted.collect()
    }
}

mod requests;
mod table;
