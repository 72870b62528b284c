//! The table of `spec/api.md` API-13, row by row.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::*;

/// One key of the file.
struct Row {
    path: &'static str,
    /// Whether v1beta1 has the key too.
    old: Age,
    default: &'static str,
    /// A value, as JSON, and its read form.
    good: (&'static str, &'static str),
    /// A value, as JSON, that must be refused at a path that begins with `path`, and a part of the message.
    bad: (&'static str, &'static str),
    get: fn(&Config) -> String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Age {
    Both,
    OnlyNew,
}
use Age::{Both, OnlyNew};

fn show(value: &impl fmt::Debug) -> String {
    format!("{value:?}")
}

const BOOL: (&str, &str) = ("5", "expected a boolean");
const TEXT: (&str, &str) = ("[]", "expected a string");
const LIST: (&str, &str) = ("5", "expected a sequence");
const BIND: (&str, &str) = (r#""8443""#, "is not a listen address");
const SPAN: (&str, &str) = (r#""-1s""#, "must be greater than or equal to 0 (it is -1s)");

macro_rules! row {
    ($path:literal, $old:ident, $default:literal, $good:literal => $becomes:literal, $bad:expr, |$c:ident| $get:expr) => {
        Row {
            path: $path,
            old: $old,
            default: $default,
            good: ($good, $becomes),
            bad: $bad,
            get: |$c| show(&$get),
        }
    };
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row!("namespace", Both, "\"own\"", "\"team\"" => "\"team\"", ("\"A_b\"", "is not the name of a namespace"), |c| c.namespace),
    row!("manageJobsWithoutQueueName", Both, "false", "true" => "true", BOOL, |c| c.manage_jobs_without_queue_name),
    row!("managedJobsNamespaceSelector", Both, "(false, false, true)", r#"{"matchLabels":{"a":"b"}}"# => "(false, false, false)",
        ("{}", "should not match the \"kube-system\" namespace"),
        |c| { let s = &c.managed_jobs_namespace_selector; (s.matches_namespace_named("kube-system"), s.matches_namespace_named("own"), s.matches_namespace_named("x")) }),
    row!("webhook.port", Both, "9443", "1" => "1", ("70000", "70000"), |c| c.webhook.port),
    row!("webhook.host", Both, "\"\"", "\"h\"" => "\"h\"", TEXT, |c| c.webhook.host),
    row!("webhook.certDir", Both, "\"/tmp/k8s-webhook-server/serving-certs\"", "\"/d\"" => "\"/d\"", TEXT, |c| c.webhook.cert_dir),
    row!("health.healthProbeBindAddress", Both, "\":8081\"", "\"0\"" => "\"0\"", BIND, |c| c.health.bind.to_string()),
    row!("health.readinessEndpointName", Both, "\"readyz\"", "\"/r\"" => "\"r\"", ("\"{\"", "must consist of"), |c| c.health.readiness_endpoint),
    row!("health.livenessEndpointName", Both, "\"healthz\"", "\"l\"" => "\"l\"", ("\"readyz\"", "must differ from"), |c| c.health.liveness_endpoint),
    row!("metrics.bindAddress", Both, "\":8443\"", "\"127.0.0.1:1\"" => "\"127.0.0.1:1\"", BIND, |c| c.metrics.bind.to_string()),
    row!("metrics.enableClusterQueueResources", Both, "false", "true" => "true", BOOL, |c| c.metrics.enable_cluster_queue_resources),
    row!("metrics.customLabels", Both, "[]", "[]" => "[]", (r#"[{"name":"a"}]"#, "needs the feature gate CustomMetricLabels"), |c| c.metrics.custom_labels),
    row!("metrics.localQueueMetrics.enable", Both, "true", "false" => "false", BOOL, |c| c.metrics.local_queue_enable),
    row!("metrics.localQueueMetrics.localQueueSelector", Both, "false", "{}" => "true",
        (r#"{"matchExpressions":[{"key":"a","operator":"In"}]}"#, "must not be empty"), |c| c.metrics.local_queue_selector.is_some()),
    row!("pprofBindAddress", Both, "0", "\":1\"" => "1", BIND, |c| c.warnings.len()),
    row!("leaderElection.leaderElect", Both, "true", "false" => "false", BOOL, |c| c.leader_election.leader_elect),
    row!("leaderElection.resourceName", Both, "\"c1f6bfd2.kueue.x-k8s.io\"", "\"n\"" => "\"n\"", TEXT, |c| c.leader_election.resource_name),
    row!("leaderElection.resourceNamespace", Both, "None", "\"n\"" => "Some(\"n\")", TEXT, |c| c.leader_election.resource_namespace),
    row!("leaderElection.resourceLock", Both, "\"leases\"", "\"leases\"" => "\"leases\"", ("\"x\"", "supported is `leases` (it is x)"), |c| c.leader_election.resource_lock),
    row!("leaderElection.leaseDuration", Both, "15", "\"20s\"" => "20", ("\"10s\"", "must be longer than renewDeadline (it is 10s)"), |c| c.leader_election.lease_duration.as_secs()),
    row!("leaderElection.renewDeadline", Both, "10", "\"9s\"" => "9", ("\"2s\"", "must be longer than retryPeriod"), |c| c.leader_election.renew_deadline.as_secs()),
    row!("leaderElection.retryPeriod", Both, "2", "\"1s\"" => "1", ("\"0s\"", "must be greater than 0 (it is 0s)"), |c| c.leader_election.retry_period.as_secs()),
    row!("controller.groupKindConcurrency", Both, "[(\"ClusterQueue.kueue.x-k8s.io\", 5), (\"Cohort.kueue.x-k8s.io\", 1), (\"Job.batch\", 5), (\"LocalQueue.kueue.x-k8s.io\", 5), (\"Pod\", 5), (\"ResourceFlavor.kueue.x-k8s.io\", 1), (\"Workload.kueue.x-k8s.io\", 10)]",
        r#"{"Cohort.kueue.x-k8s.io":5,"Job.batch":1,"LocalQueue.kueue.x-k8s.io":1,"Pod":1,"ClusterQueue.kueue.x-k8s.io":1,"ResourceFlavor.kueue.x-k8s.io":1,"Workload.kueue.x-k8s.io":1}"#
        => "[(\"ClusterQueue.kueue.x-k8s.io\", 1), (\"Cohort.kueue.x-k8s.io\", 5), (\"Job.batch\", 1), (\"LocalQueue.kueue.x-k8s.io\", 1), (\"Pod\", 1), (\"ResourceFlavor.kueue.x-k8s.io\", 1), (\"Workload.kueue.x-k8s.io\", 1)]",
        (r#"{"Pod":0}"#, "must be greater than 0"), |c| c.group_kind_concurrency.iter().collect::<Vec<_>>()),
    row!("controller.cacheSyncTimeout", Both, "120", "180000000000" => "180", ("\"-1s\"", "must be greater than 0 (it is -1s)"), |c| c.cache_sync_timeout.as_secs()),
    row!("clientConnection.qps", Both, "0", "50" => "1", ("\"x\"", "expected f32"), |c| c.warnings.len()),
    row!("clientConnection.burst", Both, "0", "100" => "1", ("1.5", "expected i32"), |c| c.warnings.len()),
    row!("tls.minVersion", Both, "None", "\"VersionTLS13\"" => "Some(Tls13)", ("\"VersionTLS11\"", "expected `VersionTLS12` or `VersionTLS13`"), |c| c.tls.min_version),
    row!("tls.cipherSuites", Both, "[]", r#"["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]"# => "[\"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\"]", (r#"["RC4"]"#, "unsupported cipher suite `RC4`"), |c| c.tls.cipher_suites),
    row!("tls.curvePreferences", Both, "[]", r#"["X25519"]"# => "[\"X25519\"]", (r#"["C1"]"#, "unsupported curve `C1`"), |c| c.tls.curve_preferences),
    row!("internalCertManagement.enable", Both, "true", "false" => "false", BOOL, |c| c.cert_management.enable),
    row!("internalCertManagement.webhookServiceName", Both, "\"kueue-webhook-service\"", "\"s\"" => "\"s\"", ("\"a.b\"", "is not the name of a Service"), |c| c.cert_management.webhook_service_name),
    row!("internalCertManagement.webhookSecretName", Both, "\"kueue-webhook-server-cert\"", "\"s\"" => "\"s\"", ("\"-a\"", "is not the name of a Secret"), |c| c.cert_management.webhook_secret_name),
    row!("waitForPodsReady.timeout", Both, "Some(1800)", "\"1m\"" => "Some(60)", SPAN, |c| c.wait_for_pods_ready.as_ref().map(|w| w.timeout.as_secs())),
    row!("waitForPodsReady.blockAdmission", Both, "Some(false)", "true" => "Some(true)", BOOL, |c| c.wait_for_pods_ready.as_ref().map(|w| w.block_admission)),
    row!("waitForPodsReady.recoveryTimeout", Both, "Some(1800)", "\"0s\"" => "Some(0)", SPAN, |c| c.wait_for_pods_ready.as_ref().map(|w| w.recovery_timeout.as_secs())),
    row!("waitForPodsReady.requeuingStrategy.timestamp", Both, "Some(Eviction)", "\"Creation\"" => "Some(Creation)", ("\"Never\"", "unknown value `Never`, expected `Eviction` or `Creation`"), |c| c.wait_for_pods_ready.as_ref().map(|w| w.requeuing.timestamp)),
    row!("waitForPodsReady.requeuingStrategy.backoffLimitCount", Both, "Some(None)", "3" => "Some(Some(3))", ("-1", "must be greater than or equal to 0 (it is -1)"), |c| c.wait_for_pods_ready.as_ref().map(|w| w.requeuing.backoff_limit_count)),
    row!("waitForPodsReady.requeuingStrategy.backoffBaseSeconds", Both, "Some(60)", "3" => "Some(3)", ("-1", "must be greater than or equal to 0"), |c| c.wait_for_pods_ready.as_ref().map(|w| w.requeuing.backoff_base_seconds)),
    row!("waitForPodsReady.requeuingStrategy.backoffMaxSeconds", Both, "Some(3600)", "3" => "Some(3)", ("-1", "must be greater than or equal to 0"), |c| c.wait_for_pods_ready.as_ref().map(|w| w.requeuing.backoff_max_seconds)),
    row!("integrations.frameworks", Both, "[\"batch/job\"]", r#"["pod"]"# => "[\"pod\"]", (r#"["jobs"]"#, "Unsupported value: \"jobs\": supported values: argoproj.io/workflow, batch/job"), |c| c.integrations.frameworks),
    row!("integrations.externalFrameworks", Both, "0", r#"["A.v1.b"]"# => "1", (r#"["A"]"#, "must be format, 'Kind.version.group.com'"), |c| c.integrations.external_frameworks.len()),
    row!("integrations.labelKeysToCopy", Both, "[]", r#"["a"]"# => "[\"a\"]", LIST, |c| c.integrations.label_keys_to_copy),
    row!("multiKueue.gcInterval", Both, "60", "\"0s\"" => "0", SPAN, |c| c.multi_kueue.gc_interval.as_secs()),
    row!("multiKueue.origin", Both, "\"multikueue\"", "\"m\"" => "\"m\"", ("\"a b\"", "is not a valid label value"), |c| c.multi_kueue.origin),
    row!("multiKueue.workerLostTimeout", Both, "900", "\"1s\"" => "1", SPAN, |c| c.multi_kueue.worker_lost_timeout.as_secs()),
    row!("multiKueue.dispatcherName", Both, "\"kueue.x-k8s.io/multikueue-dispatcher-all-at-once\"", "\"example.com/mine\"" => "\"example.com/mine\"", TEXT, |c| c.multi_kueue.dispatcher_name),
    row!("multiKueue.incrementalDispatcherConfig.stepSize", OnlyNew, "3", "5" => "5", ("0", "must be greater than or equal to 1"), |c| c.multi_kueue.step_size()),
    row!("multiKueue.externalFrameworks", Both, "0", r#"[{"name":"A.v1.b"}]"# => "1", (r#"[{"name":"Job.v1.batch"}]"#, "conflicts with a built-in MultiKueue adapter"), |c| c.multi_kueue.external_frameworks.len()),
    row!("multiKueue.clusterProfile.accessProviders", OnlyNew, "0", r#"[{"name":"a","execConfig":{"command":"c","interactiveMode":"Never"}}]"# => "1", (r#"[{"name":"a","execConfig":{"command":"c"}}]"#, "must be one of Never, IfAvailable, Always"), |c| c.multi_kueue.access_providers.len()),
    row!("multiKueue.clusterProfile.credentialsProviders", OnlyNew, "0", r#"[{"name":"a","execConfig":{"command":"c","interactiveMode":"Never"}}]"# => "1", (r#"[{"name":"a"}]"#, "missing key `execConfig`"), |c| c.multi_kueue.credentials_providers.len()),
    row!("fairSharing.preemptionStrategies", Both, "None", r#"["LessThanInitialShare"]"# => "Some([LessThanInitialShare])", (r#"["More"]"#, "expected `LessThanOrEqualToFinalShare` or `LessThanInitialShare`"), |c| c.fair_sharing.as_ref().map(|f| &f.preemption_strategies)),
    row!("admissionFairSharing.usageHalfLifeTime", Both, "None", "\"1h\"" => "Some(3600)", SPAN, |c| c.admission_fair_sharing.as_ref().map(|f| f.usage_half_life_time.as_secs())),
    row!("admissionFairSharing.usageSamplingInterval", Both, "None", "\"1m\"" => "Some(60)", ("\"0s\"", "must be greater than 0 (it is 0s)"), |c| c.admission_fair_sharing.as_ref().map(|f| f.usage_sampling_interval.as_secs())),
    row!("admissionFairSharing.resourceWeights", Both, "None", r#"{"cpu":2}"# => "Some({\"cpu\": 2.0})", (r#"{"cpu":-1}"#, "must be greater than or equal to 0 (it is -1)"), |c| c.admission_fair_sharing.as_ref().map(|f| &f.resource_weights)),
    row!("resources.excludeResourcePrefixes", Both, "[]", r#"["a"]"# => "[\"a\"]", LIST, |c| c.resources.exclude_resource_prefixes),
    row!("resources.quotaCheckStrategy", OnlyNew, "BlockUndeclared", "\"IgnoreUndeclared\"" => "IgnoreUndeclared", ("\"Ignore\"", "expected `BlockUndeclared` or `IgnoreUndeclared`"), |c| c.resources.quota_check_strategy),
    row!("resources.transformations", Both, "[]", r#"[{"input":"a","multiplyBy":"b","outputs":{"c":"500m"}}]"# => "[(\"a\", Retain, \"b\", {\"c\": \"500m\"})]",
        (r#"[{"input":"a","outputs":{"c":"1x"}}]"#, "`1x` is not a quantity"), |c| c.resources.transformations.iter().map(|t| (&t.input, t.strategy, &t.multiply_by, &t.outputs)).collect::<Vec<_>>()),
    row!("resources.deviceClassMappings", Both, "0", r#"[{"name":"a","deviceClassNames":["b"],"sources":[{"counter":{"name":"n","driver":"d"}}]}]"# => "1", (r#"[{"name":"a","deviceClassNames":["b"],"sources":[{}]}]"#, "must have exactly one of counter and capacity"), |c| c.resources.device_class_mappings.len()),
    row!("objectRetentionPolicies.workloads.afterFinished", Both, "None", "\"0s\"" => "Some(0)", SPAN, |c| c.retention.after_finished.map(|s| s.as_secs())),
    row!("objectRetentionPolicies.workloads.afterDeactivatedByKueue", Both, "None", "\"1h\"" => "Some(3600)", SPAN, |c| c.retention.after_deactivated_by_kueue.map(|s| s.as_secs())),
    row!("visibilityServer.bindAddress", OnlyNew, "\"\"", "\"::1\"" => "\"::1\"", TEXT, |c| c.visibility.bind_address),
    row!("visibilityServer.bindPort", OnlyNew, "8082", "1" => "1", ("-1", "-1"), |c| c.visibility.bind_port),
    row!("featureGates", Both, "[]", r#"{"PriorityBoost":true}"# => "[(\"PriorityBoost\", true)]", (r#"{"PriorityBost":true}"#, "unknown feature gate `PriorityBost`; did you mean `PriorityBoost`?"), |c| c.feature_gate_settings.iter().collect::<Vec<_>>()),
];

/// A file in which only this key is written.
fn file(version: &str, path: &str, json: &str) -> String {
    let mut value: Value = serde_json::from_str(json).unwrap();
    for key in path.rsplit('.') {
        value = Value::Object(Map::from_iter([(key.to_owned(), value)]));
    }
    // Some keys are only valid together with another key.
    if path.starts_with("multiKueue.incremental") {
        value["multiKueue"]["dispatcherName"] = json!("kueue.x-k8s.io/multikueue-dispatcher-incremental");
    }
    if version == "v1beta1" && (path.starts_with("waitForPodsReady") || path.starts_with("fairSharing")) {
        let section = path.split('.').next().unwrap();
        value[section]["enable"] = json!(true);
    }
    value["apiVersion"] = json!(format!("config.kueue.x-k8s.io/{version}"));
    value["kind"] = json!("Configuration");
    value.to_string()
}

fn load_own(text: &str) -> Result<Config, Vec<Problem>> {
    match parse("f.yaml", text, &[], "own") {
        Ok(config) => Ok(config),
        Err(Error::Problems { problems }) => Err(problems),
        Err(other) => panic!("{other}"),
    }
}

/// Spec: api API-13, each row: default, a value, a refusal.
#[test]
fn each_key_is_defaulted_read_and_checked_in_both_versions() {
    let defaults = load_own("").unwrap();
    for row in ROWS {
        assert_eq!((row.get)(&defaults), row.default, "{}", row.path);
        for version in ["v1beta2", "v1beta1"] {
            let text = file(version, row.path, row.good.0);
            if version == "v1beta1" && row.old == OnlyNew {
                let problems = load_own(&text).unwrap_err();
                assert!(problems[0].message.starts_with("unknown key"), "{problems:?}");
                continue;
            }
            let config = load_own(&text).unwrap_or_else(|problems| panic!("{text}: {problems:?}"));
            assert_eq!((row.get)(&config), row.good.1, "{version} {}", row.path);
            let text = file(version, row.path, row.bad.0);
            let problems = load_own(&text)
                .err()
                .unwrap_or_else(|| panic!("{text}: accepted"));
            let found = problems.iter().find(|problem| {
                problem.path.starts_with(row.path) && problem.to_string().contains(row.bad.1)
            });
            assert!(found.is_some(), "{version} {}: {problems:?}", row.path);
        }
    }
}

/// Spec: api API-13. A row added to the paper must be added here.
#[test]
fn every_row_of_the_paper_is_walked() {
    let paper = include_str!("../../../../spec/api.md");
    let begin = paper.find("\n## API-13 ").unwrap();
    let section = &paper[begin..begin + paper[begin..].find("\n## API-14 ").unwrap()];
    let walked: BTreeSet<&str> = ROWS.iter().map(|row| row.path).collect();
    let (mut section_key, mut previous) = (String::new(), String::new());
    let mut count = 0;
    for line in section.lines().filter(|line| line.starts_with("| `")) {
        let cell = line.split('|').nth(1).unwrap();
        for name in cell.split('`').skip(1).step_by(2) {
            let name = name.trim_end_matches("[]");
            let path = match name.strip_prefix('.') {
                // The paper leaves out the part that the key shares with the key before it, or with its section.
                Some(rest) => {
                    let before = |path: &str| {
                        path.rsplit_once('.')
                            .map_or(String::new(), |(before, _)| before.into())
                    };
                    let places: [String; 3] = [section_key.clone(), before(&section_key), before(&previous)];
                    let mut paths = places.iter().map(|place| format!("{place}.{rest}"));
                    let found = paths.find(|path| covered(&walked, path));
                    found.unwrap_or_else(|| panic!("{name} after {previous} is not walked"))
                }
                None => {
                    name.clone_into(&mut section_key);
                    name.to_owned()
                }
            };
            assert!(covered(&walked, &path), "{path} is not walked");
            count += 1;
            previous = path;
        }
    }
    assert!(count >= 55, "{count}: the table has another form now");
}

/// A section counts when one of its keys is walked.
fn covered(walked: &BTreeSet<&str>, path: &str) -> bool {
    walked
        .iter()
        .any(|row| *row == path || row.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
}

/// Spec: api API-14.
#[test]
fn every_gate_of_the_paper_is_known_with_its_default_and_no_other() {
    let paper = include_str!("../../../../spec/api.md");
    let begin = paper.find("\n## API-14 ").unwrap();
    let section = &paper[begin..begin + paper[begin..].find("\nReleased 0.19").unwrap()];
    let (on, off) = section.split_once("Default off:").unwrap();
    let (_, on) = on.split_once("Default on:").unwrap();
    let mut listed = BTreeSet::new();
    for (text, default) in [(on, true), (off, false)] {
        for item in text.split([',', '.']) {
            let name = item.split_whitespace().next().unwrap_or_default();
            if name.is_empty() {
                continue;
            }
            let gate = FeatureGate::named(name).unwrap_or_else(|| panic!("{name} is not known"));
            assert_eq!(gate.default_on(), default, "{name}");
            assert_eq!(gate.locked(), item.contains("(locked)"), "{name}");
            listed.insert(gate);
        }
    }
    let known: BTreeSet<FeatureGate> = FeatureGate::ALL.iter().copied().collect();
    assert_eq!(listed, known);
    for gate in FeatureGate::ALL.iter().filter(|gate| gate.locked()) {
        let on = gate.default_on();
        let text = file(
            "v1beta2",
            "featureGates",
            &json!({ gate.name(): !on }).to_string(),
        );
        let problems = load_own(&text).unwrap_err();
        assert!(
            problems[0].message.ends_with(&format!("is locked to {on}")),
            "{problems:?}"
        );
        assert_eq!(problems[0].value, Some((!on).to_string()));
    }
    let text = r#"{"TopologyAwareScheduling":false,"TASProfileMixed":true}"#;
    let problems = load_own(&file("v1beta2", "featureGates", text)).unwrap_err();
    assert!(
        problems[0].message.contains("needs `TopologyAwareScheduling`"),
        "{problems:?}"
    );
}

/// The file is that of a workflow engine's documentation. Limit: without the folder of papers beside the project, the test checks nothing.
#[test]
fn the_example_of_the_papers_is_read() {
    let seed =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/seeds/argo-kueue-configuration.yaml");
    if let Ok(text) = std::fs::read_to_string(&seed) {
        let config = parse("seed", &text, &[], "kueue-system").unwrap();
        assert!(config.integrations.frameworks.iter().any(|name| name == "pod"));
    }
}
