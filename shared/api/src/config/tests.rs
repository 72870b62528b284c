use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;

fn v2(value: Value) -> Config {
    Config::from_documents([DocumentKind::KueueV1Beta2.read(value).unwrap()], "own")
}

fn v1(value: Value) -> Config {
    Config::from_documents([DocumentKind::KueueV1Beta1.read(value).unwrap()], "own")
}

/// Spec: api API-13, table of defaults.
#[test]
fn each_key_has_the_default_of_the_table() {
    let config = v2(json!({}));
    assert_eq!(config, Config::without_file("own"));
    assert_eq!(config.namespace, "own");
    assert!(!config.manage_jobs_without_queue_name);
    let selector = &config.managed_jobs_namespace_selector;
    assert!(!selector.matches_namespace_named("kube-system"));
    assert!(!selector.matches_namespace_named("own"));
    assert!(selector.matches_namespace_named("team-a"));
    assert_eq!(config.webhook.bind(), BindAddress::all(9443));
    assert_eq!(
        config.webhook.cert_dir.to_str(),
        Some("/tmp/k8s-webhook-server/serving-certs")
    );
    assert_eq!(config.health.bind, BindAddress::all(8081));
    assert_eq!(config.health.readiness_endpoint, "readyz");
    assert_eq!(config.health.liveness_endpoint, "healthz");
    assert_eq!(config.metrics.bind, BindAddress::all(8443));
    assert!(!config.metrics.enable_cluster_queue_resources && config.metrics.local_queue_enable);
    assert_eq!(config.metrics.local_queue_selector, None);
    assert_eq!(config.metrics.custom_labels, []);
    assert!(config.leader_election.leader_elect);
    assert_eq!(config.leader_election.resource_name, "c1f6bfd2.kueue.x-k8s.io");
    assert_eq!(config.leader_election.resource_lock, "leases");
    let lease = &config.leader_election;
    let seconds = [lease.lease_duration, lease.renew_deadline, lease.retry_period].map(|span| span.as_secs());
    assert_eq!(seconds, [15, 10, 2]);
    assert_eq!(config.group_kind_concurrency["Workload.kueue.x-k8s.io"], 10);
    assert_eq!(config.group_kind_concurrency["Job.batch"], 5);
    assert_eq!(config.cache_sync_timeout, SignedDuration::from_mins(2));
    assert_eq!(config.tls, Tls::default());
    assert!(config.cert_management.enable);
    assert_eq!(
        config.cert_management.webhook_service_name,
        "kueue-webhook-service"
    );
    assert_eq!(
        config.cert_management.webhook_secret_name,
        "kueue-webhook-server-cert"
    );
    assert_eq!(config.integrations.frameworks, ["batch/job"]);
    assert_eq!(config.multi_kueue.gc_interval, SignedDuration::from_mins(1));
    assert_eq!(config.multi_kueue.origin, "multikueue");
    assert_eq!(
        config.multi_kueue.worker_lost_timeout,
        SignedDuration::from_mins(15)
    );
    assert_eq!(config.multi_kueue.dispatcher_name, DISPATCHER_ALL_AT_ONCE);
    assert_eq!(config.multi_kueue.step_size(), 3);
    assert_eq!(config.fair_sharing, None);
    assert_eq!(config.admission_fair_sharing, None);
    assert_eq!(config.resources, Resources::default());
    assert_eq!(config.retention, Retention::default());
    assert_eq!(
        (
            config.visibility.bind_address.as_str(),
            config.visibility.bind_port
        ),
        ("", 8082)
    );
    assert_eq!(config.feature_gate_settings, BTreeMap::new());
    let mut own = Roadstead::default();
    "own".clone_into(&mut own.multi_kueue.lease_namespace);
    assert_eq!(config.roadstead, own);
}

/// Spec: api API-13, `waitForPodsReady`.
#[test]
fn waiting_for_pods_is_on_with_thirty_minutes_in_v1beta2() {
    let wait = v2(json!({})).wait_for_pods_ready.unwrap();
    assert_eq!(wait.timeout, SignedDuration::from_mins(30));
    assert_eq!(wait.recovery_timeout, wait.timeout);
    assert!(!wait.block_admission);
    assert_eq!(wait.requeuing.timestamp, RequeueTimestamp::Eviction);
    assert_eq!(wait.requeuing.backoff_limit_count, None);
    assert_eq!(
        (
            wait.requeuing.backoff_base_seconds,
            wait.requeuing.backoff_max_seconds
        ),
        (60, 3600)
    );
    let wait =
        v2(json!({"waitForPodsReady": {"timeout": "5m", "recoveryTimeout": "0s"}})).wait_for_pods_ready;
    assert_eq!(wait.unwrap().recovery_timeout, SignedDuration::ZERO);
}

/// Spec: api API-13, v1beta1 differences.
#[test]
fn waiting_for_pods_is_off_in_v1beta1_until_enabled() {
    assert_eq!(v1(json!({})).wait_for_pods_ready, None);
    assert_eq!(
        v1(json!({"waitForPodsReady": {"timeout": "1m"}})).wait_for_pods_ready,
        None
    );
    let wait = v1(json!({"waitForPodsReady": {"enable": true}}))
        .wait_for_pods_ready
        .unwrap();
    assert_eq!(wait.timeout, SignedDuration::from_mins(5));
    assert!(wait.block_admission);
}

/// Spec: api API-13, v1beta1 differences.
#[test]
fn fair_sharing_of_v1beta1_fills_both_strategies_when_enabled() {
    assert_eq!(v1(json!({"fairSharing": {"enable": false}})).fair_sharing, None);
    let both = [
        PreemptionStrategy::LessThanOrEqualToFinalShare,
        PreemptionStrategy::LessThanInitialShare,
    ];
    let sharing = v1(json!({"fairSharing": {"enable": true, "preemptionStrategies": []}})).fair_sharing;
    assert_eq!(sharing.unwrap().preemption_strategies, both);
    let sharing = v2(json!({"fairSharing": {}})).fair_sharing;
    assert_eq!(sharing.unwrap().preemption_strategies, []);
}

/// Spec: api API-13, v1beta1 differences.
#[test]
fn keys_of_the_other_version_are_refused() {
    let only_new = [
        json!({"visibilityServer": {}}),
        json!({"resources": {"quotaCheckStrategy": "BlockUndeclared"}}),
        json!({"multiKueue": {"clusterProfile": {}}}),
        json!({"multiKueue": {"incrementalDispatcherConfig": {}}}),
        json!({"metrics": {"customLabels": [{"name": "a", "sourceKind": "Cohort"}]}}),
        json!({"metrics": {"customLabels": [{"name": "a", "trackedValues": []}]}}),
    ];
    for value in only_new {
        assert!(DocumentKind::KueueV1Beta2.read(value.clone()).is_ok(), "{value}");
        assert!(DocumentKind::KueueV1Beta1.read(value.clone()).is_err(), "{value}");
    }
    let only_old = [
        json!({"queueVisibility": {"clusterQueues": {"maxCount": 10}, "updateIntervalSeconds": 5}}),
        json!({"integrations": {"podOptions": {}}}),
        json!({"waitForPodsReady": {"enable": true}}),
        json!({"fairSharing": {"enable": true}}),
    ];
    for value in only_old {
        assert!(DocumentKind::KueueV1Beta1.read(value.clone()).is_ok(), "{value}");
        assert!(DocumentKind::KueueV1Beta2.read(value.clone()).is_err(), "{value}");
    }
}

#[test]
fn legacy_queue_visibility_is_accepted_with_a_warning() {
    assert_eq!(v1(json!({"queueVisibility": {}})), v1(json!({})));
}

/// Spec: api API-13; empty text and null count as not written, as in the reference.
#[test]
fn empty_and_null_count_as_not_written() {
    let config = v2(json!({
        "namespace": "", "metrics": {"bindAddress": ""}, "health": {"healthProbeBindAddress": null},
        "webhook": {"certDir": ""}, "multiKueue": {"origin": "", "gcInterval": null}, "integrations": null,
    }));
    assert_eq!(config, Config::without_file("own"));
}

#[test]
fn every_section_can_be_written() {
    let config = v2(json!({
        "namespace": "ns", "manageJobsWithoutQueueName": true,
        "managedJobsNamespaceSelector": {"matchLabels": {"team": "a"}},
        "webhook": {"port": 1, "host": "h", "certDir": "/c"},
        "health": {"healthProbeBindAddress": "0", "readinessEndpointName": "/r", "livenessEndpointName": "l"},
        "metrics": {"bindAddress": "[::1]:0", "enableClusterQueueResources": true,
            "customLabels": [{"name": "team", "sourceLabelKey": "k", "sourceKind": "Workload", "trackedValues": ["a"]}],
            "localQueueMetrics": {"enable": false, "localQueueSelector": {"matchLabels": {"a": "b"}}}},
        "pprofBindAddress": ":6060",
        "leaderElection": {"leaderElect": false, "resourceName": "x", "resourceNamespace": "y",
            "resourceLock": "leases", "leaseDuration": "1m", "renewDeadline": "40s", "retryPeriod": "1.5s"},
        "controller": {"groupKindConcurrency": {"Pod": 9}, "cacheSyncTimeout": 3_000_000_000_u64},
        "clientConnection": {"qps": -1, "burst": 7},
        "tls": {"minVersion": "VersionTLS12", "cipherSuites": ["A"], "curvePreferences": ["X25519", 23]},
        "internalCertManagement": {"enable": false, "webhookServiceName": "s", "webhookSecretName": "t"},
        "integrations": {"frameworks": ["pod"], "externalFrameworks": ["A.v1.b.c"], "labelKeysToCopy": ["l"]},
        "multiKueue": {"dispatcherName": DISPATCHER_INCREMENTAL, "incrementalDispatcherConfig": {"stepSize": 5},
            "externalFrameworks": [{"name": "PipelineRun.v1.tekton.dev"}],
            "clusterProfile": {"accessProviders": [{"name": "p", "execConfig": {"command": "c", "args": ["a"],
                "env": [{"name": "TOKEN", "value": "hush"}], "apiVersion": "v", "interactiveMode": "Never"}}]}},
        "fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]},
        "admissionFairSharing": {"usageHalfLifeTime": "1h", "resourceWeights": {"cpu": 2}},
        "resources": {"excludeResourcePrefixes": ["x"], "quotaCheckStrategy": "IgnoreUndeclared",
            "transformations": [{"input": "i", "strategy": "Replace", "multiplyBy": "m", "outputs": {"cpu": 2, "memory": "1.5Gi"}}],
            "deviceClassMappings": [{"name": "d", "deviceClassNames": ["e"],
                "sources": [{"counter": {"name": "n", "driver": "f", "deviceSelector": {"cel": {"expression": "true"}}}}]}]},
        "objectRetentionPolicies": {"workloads": {"afterFinished": "0s", "afterDeactivatedByKueue": "168h"}},
        "visibilityServer": {"bindAddress": "127.0.0.1", "bindPort": 1234},
        "featureGates": {"MultiKueue": false},
    }));
    assert_eq!(config.namespace, "ns");
    assert_eq!(config.health.bind, BindAddress::Disabled);
    assert_eq!(config.health.readiness_endpoint, "r");
    assert_eq!(
        config.metrics.bind,
        BindAddress::Listen {
            host: "::1".into(),
            port: 0
        }
    );
    assert_eq!(
        config.metrics.custom_labels[0].source_kind,
        LabelSourceKind::Workload
    );
    assert_eq!(
        config.leader_election.retry_period,
        SignedDuration::from_millis(1500)
    );
    assert_eq!(config.group_kind_concurrency["Pod"], 9);
    assert_eq!(config.cache_sync_timeout, SignedDuration::from_secs(3));
    assert_eq!(config.tls.curve_preferences, ["X25519", "23"]);
    assert_eq!(config.integrations.external_frameworks[0].to_string(), "A.v1.b.c");
    assert_eq!(config.multi_kueue.step_size(), 5);
    assert_eq!(config.resources.transformations[0].outputs["cpu"], "2");
    assert_eq!(config.retention.after_finished, Some(SignedDuration::ZERO));
    assert_eq!(config.visibility.bind_port, 1234);
    assert_eq!(
        config.feature_gate_settings,
        BTreeMap::from([("MultiKueue".into(), false)])
    );
    let printed = format!("{config:?}");
    assert!(
        printed.contains("TOKEN") && !printed.contains("hush"),
        "a secret was printed"
    );
}

#[test]
fn second_document_has_its_defaults_and_its_keys() {
    let defaults = Roadstead::default();
    assert!(!defaults.admission_paused && defaults.webhook.manage_configurations);
    assert_eq!(defaults.webhook.url, None);
    assert_eq!(defaults.multi_kueue.worker_lost_policy, WorkerLostPolicy::Fence);
    assert_eq!(defaults.multi_kueue.lease_namespace, "kueue-system");
    assert_eq!(defaults.multi_kueue.token_lifetime_seconds, 3600);
    assert!(!defaults.multi_kueue.allow_loopback_workers);
    let empty = DocumentKind::Roadstead.read(json!({})).unwrap();
    assert_eq!(
        Config::from_documents([empty], "kueue-system").roadstead,
        defaults
    );
    for (documents, wanted) in [
        (vec![], "own"),
        (vec![DocumentKind::Roadstead.read(json!({})).unwrap()], "own"),
        (
            vec![
                DocumentKind::KueueV1Beta2
                    .read(json!({"namespace": "named"}))
                    .unwrap(),
            ],
            "named",
        ),
    ] {
        let config = Config::from_documents(documents, "own");
        assert_eq!(config.roadstead.multi_kueue.lease_namespace, wanted);
    }
    let written = DocumentKind::Roadstead
        .read(json!({
            "apiVersion": "config.roadstead.dev/v1alpha1", "kind": "RoadsteadConfiguration",
            "admission": {"paused": true},
            "webhook": {"url": "https://example.test:1", "manageConfigurations": false},
            "metrics": {"certDir": "/certificates"},
            "multiKueue": {"workerLostPolicy": "RetryAnyway", "allowLoopbackWorkers": true, "tokenLifetimeSeconds": 900,
                "managesEveryQueuedJob": true},
        }))
        .unwrap();
    let roadstead = Config::from_documents([written], "own").roadstead;
    assert!(roadstead.admission_paused && !roadstead.webhook.manage_configurations);
    assert_eq!(
        roadstead.multi_kueue.worker_lost_policy,
        WorkerLostPolicy::RetryAnyway
    );
    assert_eq!(roadstead.multi_kueue.token_lifetime_seconds, 900);
    assert_eq!(roadstead.metrics_cert_dir, Some("/certificates".into()));
    assert!(roadstead.multi_kueue.manages_every_queued_job);
    assert!(
        DocumentKind::Roadstead
            .read(json!({"multiKueue": {"workerlostpolicy": "Wait"}}))
            .is_err()
    );
}

#[test]
fn durations_are_read_as_go_reads_them() {
    let good = [
        ("0", 0),
        ("300ms", 300_000_000),
        ("1h30m", 5_400_000_000_000),
        ("1.5h", 5_400_000_000_000),
        ("-2s", -2_000_000_000),
        ("+1us", 1_000),
        ("1µs", 1_000),
        (".5s", 500_000_000),
        ("1.s", 1_000_000_000),
    ];
    for (text, nanos) in good {
        assert_eq!(
            parse_go_duration(text),
            Ok(SignedDuration::from_nanos(nanos)),
            "{text}"
        );
    }
    for text in [
        "",
        "-",
        "5",
        "1d",
        "s",
        ".s",
        "1h 30m",
        "300000h2562047h",
        "1..5s",
        "99999999999999999999999h",
    ] {
        assert!(parse_go_duration(text).is_err(), "{text}");
    }
}

#[test]
fn listen_addresses_have_three_forms() {
    let listen = |host: &str, port| {
        Ok(BindAddress::Listen {
            host: host.into(),
            port,
        })
    };
    assert_eq!(BindAddress::parse(":8081"), listen("", 8081));
    assert_eq!(BindAddress::parse("127.0.0.1:0"), listen("127.0.0.1", 0));
    assert_eq!(BindAddress::parse("[::1]:80"), listen("::1", 80));
    assert_eq!(BindAddress::parse("0"), Ok(BindAddress::Disabled));
    for text in ["8081", ":", ":x", ":70000", "::1:80", "[::1:80", "host"] {
        assert!(BindAddress::parse(text).is_err(), "{text}");
    }
    assert_eq!(BindAddress::parse("[::1]:80").unwrap().to_string(), "[::1]:80");
}

#[test]
fn quantities_and_kind_names_are_checked_while_read() {
    let with = |quantity: Value| {
        let input = json!({"resources": {"transformations": [{"input": "a", "outputs": {"cpu": quantity}}]}});
        DocumentKind::KueueV1Beta2.read(input).is_ok()
    };
    for good in [
        json!("500m"),
        json!(2),
        json!("1.5Gi"),
        json!("1e3"),
        json!("-1"),
        json!(0.5),
    ] {
        assert!(with(good.clone()), "{good}");
    }
    for bad in [
        json!("a lot"),
        json!(""),
        json!("1GiB"),
        json!("1.2.3"),
        json!(true),
    ] {
        assert!(!with(bad.clone()), "{bad}");
    }
    assert_eq!(GroupVersionKindName::parse("Job.v1"), None);
    assert_eq!(GroupVersionKindName::parse("Job..batch"), None);
}

/// Spec: api API-14.
#[test]
fn gates_have_defaults_locks_and_known_names() {
    let gates = FeatureGates::default();
    assert!(gates.enabled(FeatureGate::MultiKueue));
    assert!(!gates.enabled(FeatureGate::DisableWaitForPodsReady));
    let gates = FeatureGates::resolve([("MultiKueue", false), ("PriorityBoost", true)]).unwrap();
    assert!(!gates.enabled(FeatureGate::MultiKueue) && gates.enabled(FeatureGate::PriorityBoost));
    let problems = FeatureGates::resolve([("TLSOptions", false), ("Multikueue", true)]).unwrap_err();
    assert_eq!(problems.len(), 2);
    assert!(problems[0].to_string().contains("locked to true"));
    assert!(
        problems[1]
            .to_string()
            .contains("unknown feature gate `Multikueue`")
    );
    assert!(FeatureGates::resolve([("TLSOptions", true)]).is_ok());
}

/// Spec: api API-14, last sentence.
#[test]
fn gates_need_the_gate_that_they_build_on() {
    let bare = ("UnadmittedWorkloadsObservability", false);
    let problems = FeatureGates::resolve([bare, ("UnadmittedWorkloadsExplicitStatus", true)]).unwrap_err();
    assert_eq!(
        problems[0].to_string(),
        "feature gate `UnadmittedWorkloadsExplicitStatus` needs `UnadmittedWorkloadsObservability`; switch that on or this off"
    );
    let off = ("TopologyAwareScheduling", false);
    let problems = FeatureGates::resolve([off, ("TASBalancedPlacement", true)]).unwrap_err();
    assert_eq!(
        problems,
        [GateProblem::Needs {
            gate: FeatureGate::TASBalancedPlacement,
            needed: FeatureGate::TopologyAwareScheduling,
        }]
    );
    let gates = FeatureGates::resolve([off]).unwrap();
    assert!(
        !gates.enabled(FeatureGate::TASProfileMixed),
        "a default-on topology gate stayed on alone"
    );
}

#[test]
fn selectors_answer_like_kubernetes() {
    let selector: LabelSelector = serde_json::from_value(json!({
        "matchLabels": {"a": "1"},
        "matchExpressions": [
            {"key": "b", "operator": "NotIn", "values": ["x"]},
            {"key": "c", "operator": "Exists"},
            {"key": "d", "operator": "DoesNotExist"},
            {"key": "a", "operator": "In", "values": ["1", "2"]},
        ],
    }))
    .unwrap();
    let labels = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
    assert!(selector.matches(&labels(&[("a", "1"), ("c", "")])));
    assert!(!selector.matches(&labels(&[("a", "1"), ("c", ""), ("b", "x")])));
    assert!(!selector.matches(&labels(&[("a", "1"), ("c", ""), ("d", "")])));
    assert!(!selector.matches(&labels(&[("a", "2"), ("c", "")])));
    assert!(!selector.matches(&labels(&[("a", "1")])));
    let typo = serde_json::from_value::<LabelSelector>(json!({"matchLabel": {}}));
    assert!(typo.unwrap_err().to_string().contains("`matchLabels`"));
}
