//! I4: admitted use never exceeds the quota, borrowing included.
//!
//! A Workload that may run on a worker also keeps its quota on the management cluster meanwhile.
//!
//! The auditor judges whenever a Workload begins to hold more: then its ClusterQueue must have enough quota. A user may lower a quota
//! below its use. Use that a restored storage brings back is counted but not judged. The sums come from the slow model of
//! [`reference`](crate::reference). *Source*: `spec/admission-engine.md 2.4`.

use std::collections::BTreeMap;
use std::sync::Arc;

use roadstead_apiserver::{RESTORER, Stored};
use serde_json::Value;

use super::Findings;
use super::book::Seen;
use super::object::{at, holds_quota, is_deleting, is_true, list, text};
use crate::reference::{Model, Node, Pair, Quota as Limits};

const QUEUES: &str = "clusterqueues.kueue.x-k8s.io";
const COHORTS: &str = "cohorts.kueue.x-k8s.io";
/// One unit of a resource: amounts are counted in billionths, so that none is rounded.
const ONE: i128 = 1_000_000_000;
/// The deepest tree of cohorts; a deeper one is taken for a circle.
const DEPTH: usize = 32;

/// A Workload's use of one ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Use {
    queue: Arc<str>,
    amounts: BTreeMap<Pair, i128>,
}

#[derive(Default)]
struct Cluster {
    queues: BTreeMap<Arc<str>, Arc<Stored>>,
    cohorts: BTreeMap<Arc<str>, Arc<Stored>>,
    /// By namespace and name of the Workload.
    uses: BTreeMap<(Arc<str>, Arc<str>), Use>,
    /// Names of flavors and resources; their index is their number.
    words: Vec<String>,
    /// Built when it is needed, and dropped when a quota changes.
    forest: Option<Forest>,
}

struct Forest {
    model: Model,
    queues: BTreeMap<Arc<str>, usize>,
}

/// The auditor of I4.
#[derive(Default)]
pub(super) struct Quota(BTreeMap<Arc<str>, Cluster>);

impl Quota {
    pub(super) fn saw(&mut self, seen: &Seen<'_>, findings: &mut Findings) {
        let place = &seen.place;
        if !seen.is_workload() && *place.resource != *QUEUES && *place.resource != *COHORTS {
            return;
        }
        let cluster = self.0.entry(place.cluster.clone()).or_default();
        if !seen.is_workload() {
            let kept = if *place.resource == *QUEUES {
                &mut cluster.queues
            } else {
                &mut cluster.cohorts
            };
            match &seen.change.new {
                Some(new) => kept.insert(place.name.clone(), new.clone()),
                None => kept.remove(&place.name),
            };
            // Why: a change of status changes no quota.
            if seen.before().map(|old| &old["spec"]) != seen.after().map(|new| &new["spec"]) {
                cluster.forest = None;
            }
            return;
        }
        let lends = |w: Option<&Value>| w.is_some_and(lends_what_may_be_used);
        if lends(seen.after()) && !lends(seen.before()) {
            let what = "it names the cluster that may run it and holds no quota for that".to_owned();
            findings.of("I4", place, seen.case(), what);
        }
        let key = (place.namespace.clone(), place.name.clone());
        let now = seen
            .after()
            .map(|workload| cluster.use_of(workload))
            .unwrap_or_default();
        let before = cluster.uses.get(&key).cloned().unwrap_or_default();
        if now == before {
            return;
        }
        cluster.count(&before, -1);
        cluster.count(&now, 1);
        let grown: Vec<Pair> = now
            .amounts
            .iter()
            .filter(|(pair, amount)| {
                let had = (now.queue == before.queue).then(|| before.amounts.get(pair));
                **amount > had.flatten().copied().unwrap_or(0)
            })
            .map(|(pair, _)| *pair)
            .collect();
        let queue = now.queue.clone();
        if now.amounts.is_empty() {
            cluster.uses.remove(&key);
        } else {
            cluster.uses.insert(key, now);
        }
        // Why not judged: a restore is reported object by object. In between, Workloads that return and Workloads that go both
        // hold quota. The restored state was judged when it was first stored.
        if *seen.change.user == *RESTORER {
            return;
        }
        for pair in grown {
            if let Some(what) = cluster.excess(&queue, pair) {
                findings.of("I4", place, seen.case(), what);
            }
        }
    }
}

impl Cluster {
    /// The use of a Workload: the amounts of its admission, without its reclaimable pods.
    fn use_of(&mut self, workload: &Value) -> Use {
        let mut amounts = BTreeMap::new();
        if !holds_quota(workload) {
            return Use::default();
        }
        for set in list(workload, &["status", "admission", "podSetAssignments"]) {
            let count = set["count"].as_i64().map_or(1, i128::from).max(1);
            let gone = list(workload, &["status", "reclaimablePods"])
                .iter()
                .find(|reclaimable| reclaimable["name"] == set["name"])
                .and_then(|reclaimable| reclaimable["count"].as_i64())
                .map_or(0, i128::from);
            let usage = at(set, &["resourceUsage"]).as_object();
            for (resource, amount) in usage.into_iter().flatten() {
                let pair = (
                    self.number(text(set, &["flavors", resource])),
                    self.number(resource),
                );
                *amounts.entry(pair).or_default() += parse(amount) * (count - gone).max(0) / count;
            }
        }
        amounts.retain(|_, amount| *amount > 0);
        Use {
            queue: text(workload, &["status", "admission", "clusterQueue"]).into(),
            amounts,
        }
    }

    fn number(&mut self, word: &str) -> usize {
        let known = self.words.iter().position(|known| known == word);
        known.unwrap_or_else(|| {
            self.words.push(word.to_owned());
            self.words.len() - 1
        })
    }

    /// Adds a use to the sums, or subtracts it.
    fn count(&mut self, used: &Use, sign: i128) {
        let Some(forest) = &mut self.forest else { return };
        if let Some(queue) = forest.queues.get(&used.queue) {
            for (pair, amount) in &used.amounts {
                *forest.model.0[*queue].used.entry(*pair).or_default() += sign * amount;
            }
        }
    }

    /// The use above the quota, in words.
    fn excess(&mut self, queue: &Arc<str>, pair: Pair) -> Option<String> {
        if self.forest.is_none() {
            self.forest = Some(self.plant());
        }
        let forest = self.forest.as_ref()?;
        let Some(node) = forest.queues.get(queue) else {
            return Some(format!(
                "it holds quota of ClusterQueue {queue}, which is not there"
            ));
        };
        let missing = -forest.model.available(*node, pair);
        (missing > 0).then(|| {
            let (flavor, resource) = (&self.words[pair.0], &self.words[pair.1]);
            let used = forest.model.0[*node].used.get(&pair).copied().unwrap_or(0);
            format!(
                "ClusterQueue {queue} uses {} of {resource} in flavor {flavor}, {} too much",
                shown(used),
                shown(missing)
            )
        })
    }

    /// Builds the forest of cohorts and queues.
    fn plant(&mut self) -> Forest {
        let mut model = Model::default();
        let (mut queues, mut cohorts) = (BTreeMap::new(), BTreeMap::new());
        let named: Vec<_> = self.cohorts.clone().into_iter().collect();
        for (name, cohort) in &named {
            cohorts.insert(name.to_string(), model.0.len());
            model.0.push(self.node(cohort));
        }
        for (name, queue) in self.queues.clone() {
            let mut node = self.node(&queue);
            node.is_queue = true;
            node.parent = parent(
                first_of(&queue, &["cohortName", "cohort"]),
                &mut cohorts,
                &mut model,
            );
            queues.insert(name, model.0.len());
            model.0.push(node);
        }
        for (name, cohort) in &named {
            let above = first_of(cohort, &["parentName", "parent"]);
            let at = cohorts[&**name];
            model.0[at].parent = parent(above, &mut cohorts, &mut model);
        }
        break_circles(&mut model);
        let mut forest = Forest { model, queues };
        for used in self.uses.values() {
            if let Some(queue) = forest.queues.get(&used.queue) {
                for (pair, amount) in &used.amounts {
                    *forest.model.0[*queue].used.entry(*pair).or_default() += amount;
                }
            }
        }
        forest
    }

    fn node(&mut self, object: &Value) -> Node {
        let mut node = Node::default();
        for group in list(object, &["spec", "resourceGroups"]) {
            for flavor in list(group, &["flavors"]) {
                for resource in list(flavor, &["resources"]) {
                    let pair = (
                        self.number(text(flavor, &["name"])),
                        self.number(text(resource, &["name"])),
                    );
                    let limit = |key: &str| resource.get(key).filter(|v| !v.is_null()).map(parse);
                    let limits = Limits {
                        nominal: parse(&resource["nominalQuota"]),
                        borrow: limit("borrowingLimit"),
                        lend: limit("lendingLimit"),
                    };
                    node.quotas.insert(pair, limits);
                }
            }
        }
        node
    }
}

/// Whether a Workload may run on the cluster that it names, but holds no quota.
fn lends_what_may_be_used(workload: &Value) -> bool {
    let named = !text(workload, &["status", "clusterName"]).is_empty();
    named && !holds_quota(workload) && !is_true(workload, "Finished") && !is_deleting(workload)
}

/// The node of a cohort. A cohort that only others name exists, without quota of its own.
fn parent(name: &str, cohorts: &mut BTreeMap<String, usize>, model: &mut Model) -> Option<usize> {
    if name.is_empty() {
        return None;
    }
    if let Some(at) = cohorts.get(name) {
        return Some(*at);
    }
    model.0.push(Node::default());
    cohorts.insert(name.to_owned(), model.0.len() - 1);
    Some(model.0.len() - 1)
}

/// Breaks circles of cohorts. Cohorts in a circle admit nothing; here the walk must only end.
fn break_circles(model: &mut Model) {
    for start in 0..model.0.len() {
        let (mut at, mut steps) = (start, 0);
        while let Some(above) = model.0[at].parent {
            steps += 1;
            if steps > DEPTH {
                model.0[at].parent = None;
                break;
            }
            at = above;
        }
    }
}

fn first_of<'a>(object: &'a Value, keys: &[&str]) -> &'a str {
    keys.iter()
        .map(|key| text(object, &["spec", key]))
        .find(|name| !name.is_empty())
        .unwrap_or("")
}

/// A quantity of Kubernetes, such as `1500m`, `2Gi`, `1e3`; zero when it cannot be parsed.
fn parse(value: &Value) -> i128 {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return 0,
    };
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-' && c != '+')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "n" => 1,
        "u" => 1_000,
        "m" => ONE / 1_000,
        "" => ONE,
        "k" => ONE * 1_000,
        "M" => ONE * 1_000_000,
        "G" => ONE * 1_000_000_000,
        "T" => ONE * 1_000_000_000_000,
        "P" => ONE * 1_000_000_000_000_000,
        "E" => ONE * 1_000_000_000_000_000_000,
        "Ki" => ONE << 10,
        "Mi" => ONE << 20,
        "Gi" => ONE << 30,
        "Ti" => ONE << 40,
        "Pi" => ONE << 50,
        "Ei" => ONE << 60,
        _ => match unit.strip_prefix(['e', 'E']).map(str::parse::<u32>) {
            Some(Ok(power)) => ONE.saturating_mul(10_i128.saturating_pow(power)),
            Some(Err(_)) | None => return 0,
        },
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let whole: i128 = whole.parse().unwrap_or(0);
    let scale = 10_i128.saturating_pow(u32::try_from(part.len()).unwrap_or(0));
    let part: i128 = part.parse().unwrap_or(0);
    whole.saturating_mul(unit) + part.saturating_mul(unit) / scale
}

fn shown(amount: i128) -> String {
    let (whole, part) = (amount / ONE, amount % ONE);
    if part == 0 {
        whole.to_string()
    } else {
        format!("{whole}.{part:09}")
    }
}
