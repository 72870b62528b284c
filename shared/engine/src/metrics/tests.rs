use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use prometheus_client::registry::Registry;
use roadstead_api::config::{Config, CustomLabel, FeatureGates, LabelSourceKind};
use roadstead_api::kueue::v1beta2::{ClusterQueue, Cohort, LocalQueue, Workload};
use roadstead_core::afs::UsagePolicy;
use roadstead_core::state::{Event, Settings, State};
use roadstead_serve::metrics::Format;
use serde_json::{Value, json};

use super::table::{Buckets, Kind};
use super::{Change, Metric, Metrics, Update};
use crate::caches::Caches;
use crate::clock::Clock;
use crate::leader::Leadership;
use crate::queue_status::Reports;

/// The table of `spec/admission-engine.md 8`.
const SPEC: &str = include_str!("../../../spec/admission-engine.md");

fn now() -> Timestamp {
    "2026-01-01T00:01:30Z".parse().unwrap()
}

fn everything() -> Config {
    let mut config = Config::without_file("kueue-system");
    config.metrics.enable_cluster_queue_resources = true;
    config.fair_sharing = Some(roadstead_api::config::FairSharing {
        preemption_strategies: Vec::new(),
    });
    config.admission_fair_sharing = Some(roadstead_api::config::AdmissionFairSharing {
        usage_half_life_time: jiff::SignedDuration::from_mins(10),
        usage_sampling_interval: jiff::SignedDuration::from_mins(5),
        resource_weights: BTreeMap::new(),
    });
    config
}

/// Caches, a state that follows them, and metrics.
struct World {
    metrics: Metrics,
    caches: Caches,
    reports: Arc<Reports>,
    state: State,
    version: u64,
}

impl World {
    fn new(config: &Config) -> Self {
        let caches = Caches::new(&[]);
        let reports = Arc::<Reports>::default();
        let clock: Clock = Arc::new(now);
        let metrics = Metrics::new(
            config,
            &caches,
            reports.clone(),
            clock,
            Leadership::assumed(config),
        );
        let state = State::new(Settings {
            past_usage: Some(UsagePolicy {
                half_life: std::time::Duration::from_mins(10),
                sampling_interval: std::time::Duration::from_mins(5),
                resource_weights: BTreeMap::new(),
            }),
            ..Settings::default()
        });
        let mut world = Self {
            metrics,
            caches,
            reports,
            state,
            version: 0,
        };
        world.cohort(&json!({ "parentName": "all" }));
        world.cluster_queue(&json!({
            "cohortName": "team", "namespaceSelector": {},
            "admissionScope": { "admissionMode": "UsageBasedAdmissionFairSharing" },
            "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": [
                { "name": "default", "resources": [{ "name": "cpu", "nominalQuota": "4" }] },
            ]}],
        }));
        let flavor = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor",
            "metadata": { "name": "default" }, "spec": {},
        });
        let flavor = roadstead_convert::flavor(&serde_json::from_value(flavor).unwrap());
        world.tell(Event::Flavor(flavor));
        world.local_queue();
        world.tell(Event::Synced);
        world
    }

    fn metadata(&mut self, name: &str) -> Value {
        self.version += 1;
        json!({
            "name": name, "namespace": "ns", "uid": format!("uid-{name}"), "resourceVersion": self.version.to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": { "team": "red", "stage": "train" }, "annotations": { "example.com/tier": "iron" },
        })
    }

    fn tell(&mut self, event: Event) {
        self.state.apply(event, now());
        while self.state.has_work() {
            self.state.cycle(now());
        }
        self.reports.take_in(&mut self.state);
    }

    fn cluster_queue(&mut self, spec: &Value) {
        let mut meta = self.metadata("cq");
        meta["namespace"] = Value::Null;
        let queue: ClusterQueue = serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": meta, "spec": spec,
        }))
        .unwrap();
        self.tell(Event::ClusterQueue(Box::new(roadstead_convert::cluster_queue(
            &queue,
        ))));
        self.caches.cluster_queues.observe(queue);
    }

    fn cohort(&mut self, spec: &Value) {
        let mut meta = self.metadata("team");
        meta["namespace"] = Value::Null;
        let cohort: Cohort = serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": meta, "spec": spec,
        }))
        .unwrap();
        self.tell(Event::Cohort(roadstead_convert::cohort(&cohort)));
        self.caches.cohorts.observe(cohort);
    }

    fn local_queue(&mut self) {
        let meta = self.metadata("lq");
        let queue: LocalQueue = serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": meta,
            "spec": { "clusterQueue": "cq" },
        }))
        .unwrap();
        self.tell(Event::LocalQueue(roadstead_convert::local_queue(&queue)));
        self.caches.local_queues.observe(queue);
    }

    fn workload(&mut self, name: &str, cores: &str, status: &Value) {
        let meta = self.metadata(name);
        let workload: Workload = serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": meta,
            "spec": { "queueName": "lq", "podSets": [{ "name": "main", "count": 1, "template": { "spec": { "containers": [
                { "name": "c", "resources": { "requests": { "cpu": cores } } },
            ] } } }] },
            "status": status,
        }))
        .unwrap();
        self.tell(Event::Workload(Box::new(roadstead_convert::workload(&workload))));
        self.caches.workloads.observe(workload);
    }

    fn page(&self) -> String {
        let mut registry = Registry::default();
        self.metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }
}

fn holding(cores: &str, conditions: &[&str]) -> Value {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|kind| {
            json!({ "type": kind, "status": "True", "reason": kind, "message": "",
                "lastTransitionTime": "2026-01-01T00:01:00Z" })
        })
        .collect();
    json!({
        "conditions": conditions,
        "admission": { "clusterQueue": "cq", "podSetAssignments": [
            { "name": "main", "count": 1, "flavors": { "cpu": "default" }, "resourceUsage": { "cpu": cores } },
        ]},
    })
}

/// Names and labels as the specification lists them, without the prefix.
fn listed() -> BTreeMap<String, String> {
    let from = SPEC.find("\n## 8. Metrics").unwrap();
    let to = SPEC.find("\n## 9. Checkable behaviours").unwrap();
    let rows = SPEC[from..to].lines().filter(|line| line.starts_with("| `"));
    let mut all = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.split(" | ").collect();
        let labels = cells[1..].join(" | ");
        let names: Vec<&str> = cells[0].split('`').skip(1).step_by(2).collect();
        for name in names {
            all.insert(name.to_owned(), labels.clone());
            if cells[0].contains("(+ local_queue_)") {
                all.insert(format!("local_queue_{name}"), labels.clone());
            }
        }
    }
    all
}

/// Spec: admission-engine 8. The two counters of MultiKueue are the manager's.
#[test]
fn the_table_is_that_of_the_specification() {
    let mut listed = listed();
    listed.retain(|name, _| !name.starts_with("multikueue_") && name != "multikueue_");
    listed.retain(|name, _| name != "kueue_");
    let ours: BTreeMap<&str, Metric> = Metric::ALL
        .iter()
        .map(|metric| (metric.definition().name.strip_prefix("kueue_").unwrap(), *metric))
        .collect();
    let missing: Vec<&String> = listed
        .keys()
        .filter(|name| !ours.contains_key(name.as_str()))
        .collect();
    let invented: Vec<&&str> = ours.keys().filter(|name| !listed.contains_key(**name)).collect();
    assert_eq!((missing, invented), (vec![], vec![]));
    for (name, metric) in ours {
        let definition = metric.definition();
        let row = &listed[name];
        let kind = match definition.kind {
            Kind::Counter => name.ends_with("_total"),
            Kind::Gauge => !name.ends_with("_total"),
            Kind::Histogram(_) => row.starts_with('h') && name.ends_with("_seconds"),
        };
        assert!(kind, "{name}: {row}");
        let of_local = name.starts_with("local_queue_");
        assert_eq!(
            of_local,
            definition.labels.starts_with(&["name", "namespace"]),
            "{name}"
        );
    }
}

/// Spec: admission-engine 8.
#[test]
fn buckets_are_those_of_the_specification() {
    assert_eq!(Buckets::Waits(5).bounds(), [1.0, 2.5, 5.0, 10.0, 20.0]);
    assert_eq!(Buckets::Waits(14).bounds().len(), 14);
    let creation = Buckets::Creation.bounds();
    assert_eq!((creation.len(), creation[0], creation[10]), (11, 0.01, 10.24));
}

/// One update for every counter and histogram.
fn touch(world: &World) {
    for metric in Metric::ALL {
        let definition = metric.definition();
        let change = match definition.kind {
            Kind::Counter => Change::Add(1),
            Kind::Histogram(_) => Change::Observe(3.0),
            Kind::Gauge => continue,
        };
        let value = |label: &&str| match *label {
            "cluster_queue" | "preempting_cluster_queue" => Arc::from("cq"),
            "name" if definition.labels.starts_with(&["name", "namespace"]) => Arc::from("lq"),
            "namespace" => Arc::from("ns"),
            "cohort" => Arc::from("team"),
            other => Arc::from(format!("some-{other}")),
        };
        world.metrics.record(Update {
            metric: *metric,
            labels: definition.labels.iter().map(value).collect(),
            change,
        });
    }
    let skips = Update {
        metric: Metric::AdmissionCyclePreemptionSkips,
        labels: vec!["cq".into()],
        change: Change::Set(2.0),
    };
    world.metrics.record(skips);
}

/// Spec: admission-engine 8. Walks the whole table in the text that Prometheus reads.
#[test]
fn every_metric_of_the_table_is_on_the_page_under_its_exact_name_and_labels() {
    let mut world = World::new(&everything());
    touch(&world);
    world.workload("a", "3", &holding("3", &["QuotaReserved", "Admitted"]));
    world.workload("b", "9", &json!({}));
    world.workload(
        "c",
        "1",
        &holding("1", &["QuotaReserved", "Admitted", "Finished"]),
    );
    let page = world.page();
    for metric in Metric::ALL {
        let definition = metric.definition();
        let ending = match definition.kind {
            Kind::Histogram(_) => "_count",
            Kind::Counter | Kind::Gauge => "",
        };
        let start = format!("{}{ending}{{replica_role=\"leader\"", definition.name);
        let line = page.lines().find(|line| line.starts_with(&start));
        let line = line.unwrap_or_else(|| panic!("{start} is not on the page:\n{page}"));
        let labels: Vec<&str> = line[line.find('{').unwrap() + 1..line.find('}').unwrap()]
            .split(',')
            .map(|pair| pair.split('=').next().unwrap())
            .collect();
        assert_eq!(labels[1..], *definition.labels, "{line}");
    }
}

/// Spec: admission-engine 8. The reference has a gauge and a counter that differ by `_total` only.
#[test]
fn strict_readers_of_both_formats_take_every_metric_and_no_family_has_its_name_twice() {
    let mut world = World::new(&everything());
    touch(&world);
    world.workload("a", "3", &holding("3", &["QuotaReserved", "Admitted"]));
    let over = holding("1", &["QuotaReserved", "Admitted", "Finished"]);
    world.workload("c", "1", &over);
    let mut registry = Registry::default();
    world.metrics.register(&mut registry);
    let page = roadstead_serve::metrics::Metrics::new(registry, "worker", "1.2.3");
    let families = |text: &str| -> Vec<String> {
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        types
            .map(|rest| rest.split(' ').next().unwrap().to_owned())
            .collect()
    };
    let text = page.render(Format::Text).unwrap();
    let read = openmetrics_parser::prometheus::parse_prometheus(&text);
    read.unwrap_or_else(|error| panic!("{error}\n{text}"));
    for kind in [
        "# TYPE kueue_finished_workloads gauge\n",
        "# TYPE kueue_finished_workloads_total counter\n",
    ] {
        assert!(text.contains(kind), "{kind}{text}");
    }
    let open = page.render(Format::OpenMetrics).unwrap();
    let read = openmetrics_parser::openmetrics::parse_openmetrics(&open);
    read.unwrap_or_else(|error| panic!("{error}\n{open}"));
    for text in [text, open] {
        let all = families(&text);
        let once: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!(once.len(), all.len(), "{all:?}");
    }
}

/// Spec: admission-engine B229.
#[test]
fn a_queue_that_is_gone_leaves_no_series_behind() {
    let mut world = World::new(&everything());
    touch(&world);
    world.workload("a", "3", &holding("3", &["QuotaReserved", "Admitted"]));
    world.workload("b", "9", &json!({}));
    assert!(world.page().contains("cluster_queue=\"cq\""));
    world.tell(Event::ClusterQueueGone("cq".into()));
    world
        .caches
        .cluster_queues
        .forget(&roadstead_core::name::Key::new("", "cq"), None);
    let page = world.page();
    let left: Vec<&str> = page
        .lines()
        .filter(|line| line.contains("cluster_queue=\"cq\"") && !line.starts_with("kueue_local_queue"))
        .collect();
    assert_eq!(left, [""; 0]);
    let key = roadstead_core::name::Key::new("ns", "lq");
    world.tell(Event::LocalQueueGone(key.clone()));
    world.caches.local_queues.forget(&key, None);
    let page = world.page();
    let left: Vec<&str> = page
        .lines()
        .filter(|line| line.contains("namespace=\"ns\""))
        .collect();
    assert_eq!(left, [""; 0]);
}

/// Spec: admission-engine B226.
#[test]
fn pending_workloads_are_told_apart_by_whether_they_were_tried() {
    let mut world = World::new(&everything());
    world.workload("a", "9", &json!({}));
    let page = world.page();
    let line = |status: &str, count: u32| {
        let text = format!(
            "kueue_pending_workloads{{replica_role=\"leader\",cluster_queue=\"cq\",status=\"{status}\"}} {count}.0"
        );
        assert!(page.contains(&text), "{text}:\n{page}");
    };
    line("active", 0);
    line("inadmissible", 1);
    assert!(page.contains("kueue_cluster_queue_resource_pending{replica_role=\"leader\",cluster_queue=\"cq\",resource=\"cpu\"} 9.0"));
    world.workload("twin", "9", &json!({}));
    world.workload("other", "8", &json!({}));
    let page = world.page();
    let hashes = |status: &str, count: u32| {
        format!(
            "kueue_pending_scheduling_hashes{{replica_role=\"leader\",cluster_queue=\"cq\",status=\"{status}\"}} {count}.0"
        )
    };
    assert!(page.contains(&hashes("active", 0)), "{page}");
    assert!(page.contains(&hashes("inadmissible", 2)), "{page}");
}

/// Spec: admission-engine 8; api API-13. Labels of queues and Workloads become metric labels, untracked values become one.
#[test]
fn labels_of_the_operator_are_added_to_the_series_of_their_kind() {
    let mut config = everything();
    config.feature_gates = FeatureGates::resolve([("CustomMetricLabels", true)]).unwrap();
    let label = |name: &str, kind, annotation: &str, tracked: &[&str]| CustomLabel {
        name: name.to_owned(),
        source_label_key: String::new(),
        source_annotation_key: annotation.to_owned(),
        source_kind: kind,
        tracked_values: tracked.iter().map(|value| (*value).to_owned()).collect(),
    };
    config.metrics.custom_labels = vec![
        label("team", LabelSourceKind::ClusterQueue, "", &[]),
        label("tier", LabelSourceKind::LocalQueue, "example.com/tier", &["gold"]),
        label("place", LabelSourceKind::Cohort, "", &["here"]),
        label("stage", LabelSourceKind::Workload, "", &["train"]),
    ];
    let mut world = World::new(&config);
    world.workload("a", "3", &json!({}));
    world.workload("a", "3", &holding("3", &["QuotaReserved", "Admitted"]));
    let page = world.page();
    for line in [
        "kueue_admitted_workloads_total{replica_role=\"leader\",cluster_queue=\"cq\",priority_class=\"\",custom_team=\"red\",custom_stage=\"train\"} 1\n",
        "kueue_pending_workloads{replica_role=\"leader\",cluster_queue=\"cq\",status=\"active\",custom_team=\"red\"} 0.0\n",
        "kueue_local_queue_reserving_active_workloads{replica_role=\"leader\",name=\"lq\",namespace=\"ns\",custom_tier=\"kueue.x-k8s.io/_UNTRACKED_VALUE_\"} 1.0\n",
        "kueue_cohort_subtree_admitted_workloads_total{replica_role=\"leader\",cohort=\"team\",priority_class=\"\",custom_place=\"\",custom_stage=\"train\"} 1\n",
        "kueue_admitted_active_workloads{replica_role=\"leader\",cluster_queue=\"cq\",custom_team=\"red\",custom_stage=\"train\"} 1.0\n",
    ] {
        assert!(page.contains(line), "{line}{page}");
    }
    let queue = world.caches.cluster_queues.named("cq").unwrap();
    let mut queue = (*queue).clone();
    queue.metadata.resource_version = Some("999".to_owned());
    queue.metadata.labels = Some([("team".to_owned(), "blue".to_owned())].into());
    world.caches.cluster_queues.observe(queue);
    let page = world.page();
    let line = "kueue_admitted_workloads_total{replica_role=\"leader\",cluster_queue=\"cq\",priority_class=\"\",custom_team=\"blue\",custom_stage=\"train\"} 1\n";
    assert!(page.contains(line), "totals survive: {page}");
    assert!(!page.contains("custom_team=\"red\""), "{page}");
}

/// Spec: admission-engine 8. A cohort without an object has no deletion that could be seen.
#[test]
fn series_of_cohorts_follow_a_queue_that_moves() {
    let mut world = World::new(&everything());
    let spec = |cohort: &str| {
        json!({
            "cohortName": cohort, "namespaceSelector": {},
            "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": [
                { "name": "default", "resources": [{ "name": "cpu", "nominalQuota": "4" }] },
            ]}],
        })
    };
    world.cluster_queue(&spec("loose"));
    world.workload("a", "3", &json!({}));
    world.workload("a", "3", &holding("3", &["QuotaReserved", "Admitted"]));
    let counted = "kueue_cohort_subtree_admitted_workloads_total{replica_role=\"leader\",cohort=\"loose\",priority_class=\"\"} 1\n";
    assert!(world.page().contains(counted), "{}", world.page());
    world.cluster_queue(&spec("team"));
    let page = world.page();
    assert!(!page.contains("\"loose\""), "{page}");
    for line in [
        "kueue_cluster_queue_nominal_quota{replica_role=\"leader\",cohort=\"team\",cluster_queue=\"cq\",flavor=\"default\",resource=\"cpu\"} 4.0\n",
        "kueue_cohort_weighted_share{replica_role=\"leader\",cohort=\"all\"} 0.0\n",
        "kueue_cohort_weighted_share{replica_role=\"leader\",cohort=\"team\"} 0.0\n",
        "kueue_cluster_queue_resource_pending{replica_role=\"leader\",cluster_queue=\"cq\",resource=\"cpu\"} 0.0\n",
    ] {
        assert!(page.contains(line), "{line}{page}");
    }
}

/// Spec: admission-engine B232 (the page itself writes `+Inf`: `roadstead_serve::metrics`).
#[test]
fn a_limit_that_is_not_set_is_infinite() {
    let world = World::new(&everything());
    let page = world.page();
    let line = page
        .lines()
        .find(|line| line.starts_with("kueue_cluster_queue_borrowing_limit"));
    assert!(line.unwrap().ends_with(" inf"), "{line:?}");
}

/// Spec: admission-engine 8.
#[test]
fn what_is_not_switched_on_is_not_on_the_page() {
    let mut config = Config::without_file("kueue-system");
    config.metrics.local_queue_enable = false;
    let mut world = World::new(&config);
    touch(&world);
    world.workload("a", "3", &holding("3", &["QuotaReserved", "Admitted"]));
    let page = world.page();
    for absent in [
        "local_queue_",
        "cluster_queue_nominal_quota",
        "weighted_share",
        "resource_pending",
    ] {
        assert!(!page.contains(absent), "{absent}:\n{page}");
    }
    assert!(page.contains("kueue_cohort_info"), "its gate is on");
}

/// Spec: admission-engine 8.
#[test]
fn only_local_queues_that_are_selected_are_reported() {
    let mut config = everything();
    config.metrics.local_queue_selector =
        Some(serde_json::from_value(json!({ "matchLabels": { "team": "a" } })).unwrap());
    let world = World::new(&config);
    assert!(!world.page().contains("kueue_local_queue_pending_workloads"));
}

#[test]
fn a_workload_that_gets_quota_is_counted_once_for_its_queues() {
    let mut world = World::new(&everything());
    world.workload("a", "3", &json!({}));
    world.workload("a", "3", &holding("3", &["QuotaReserved", "Admitted"]));
    world.workload("a", "3", &holding("3", &["QuotaReserved", "Admitted"]));
    let page = world.page();
    for line in [
        "kueue_admitted_workloads_total{replica_role=\"leader\",cluster_queue=\"cq\",priority_class=\"\"} 1\n",
        "kueue_local_queue_admitted_workloads_total{replica_role=\"leader\",name=\"lq\",namespace=\"ns\",priority_class=\"\"} 1\n",
        "kueue_cohort_subtree_admitted_workloads_total{replica_role=\"leader\",cohort=\"all\",priority_class=\"\"} 1\n",
        "kueue_admission_wait_time_seconds_bucket{le=\"160.0\",replica_role=\"leader\",cluster_queue=\"cq\",priority_class=\"\"} 1\n",
    ] {
        assert!(page.contains(line), "{line}{page}");
    }
}
