use jiff::SignedDuration;
use roadstead_api::config::WorkerLostPolicy;

use super::*;

mod kinds;
mod walk;

const V2: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
const V1: &str = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n";
const OURS: &str = "apiVersion: config.roadstead.dev/v1alpha1\nkind: RoadsteadConfiguration\n";

fn read(text: &str) -> Result<Config, Error> {
    parse("f.yaml", text, &[], "kueue-system")
}

fn problems(text: &str) -> Vec<String> {
    match read(text) {
        Ok(_) => Vec::new(),
        Err(Error::Problems { problems }) => problems.iter().map(ToString::to_string).collect(),
        Err(other) => panic!("{other}"),
    }
}

/// The problem of a file that has only this one.
fn only_problem(header: &str, body: &str) -> String {
    let found = problems(&format!("{header}{body}"));
    assert_eq!(found.len(), 1, "{found:#?}");
    found[0].clone()
}

fn gates(text: &str) -> Vec<GateSetting> {
    text.split(',').map(|item| item.parse().unwrap()).collect()
}

#[test]
fn no_file_and_an_empty_file_are_the_defaults() {
    let defaults = Config::without_file("kueue-system");
    assert_eq!(read("").unwrap(), defaults);
    assert_eq!(read("---\n---\n").unwrap(), defaults);
    assert_eq!(read(V2).unwrap(), defaults);
    assert_eq!(load(None, &[], "kueue-system").unwrap(), defaults);
}

#[test]
fn two_documents_in_either_order_become_one_config() {
    let ours = format!("{OURS}admission: {{paused: true}}\nmultiKueue: {{workerLostPolicy: RetryAnyway}}\n");
    let kueue = format!("{V2}multiKueue:\n  gcInterval: 30s\n");
    for text in [format!("{kueue}---\n{ours}"), format!("{ours}---\n{kueue}")] {
        let config = read(&text).unwrap();
        assert!(config.roadstead.admission_paused);
        assert_eq!(
            config.roadstead.multi_kueue.worker_lost_policy,
            WorkerLostPolicy::RetryAnyway
        );
        assert_eq!(config.multi_kueue.gc_interval, SignedDuration::from_secs(30));
    }
    assert!(read(&ours).unwrap().roadstead.admission_paused);
}

/// The file is that of a workflow engine's documentation, for users who queue the pods of workflows.
#[test]
fn a_v1beta1_file_for_workflow_pods_is_read() {
    let text = format!(
        "{V1}integrations:
  frameworks:
   - \"pod\"
  podOptions:
    # only the namespaces of teams
    namespaceSelector:
      matchExpressions:
      - {{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kueue-system]}}
    podSelector:
      matchExpressions:
      - key: workflows.argoproj.io/completed
        operator: In
        values: [ \"false\" ]
"
    );
    let config = read(&text).unwrap();
    assert_eq!(config.integrations.frameworks, ["pod"]);
    let pods = config.integrations.pod_options.unwrap().pod_selector.unwrap();
    assert_eq!(pods.match_expressions[0].values, ["false"]);
    assert_eq!(config.wait_for_pods_ready, None);
}

/// Spec: api API-13, decoding is strict.
#[test]
fn unknown_keys_are_named_with_path_line_and_the_allowed_keys_at_every_depth() {
    let found = problems(&format!(
        "{V2}manageJobsWithoutQueueNames: true
metrics:
  bindAddres: ':1'
multiKueue:
  externalFrameworks:
  - name: A.v1.b
  - name: PipelineRun.v1.tekton.dev
    nmae: x
managedJobsNamespaceSelector:
  matchExpressions:
  - key: a
    operator: Exists
    vals: []
"
    ));
    let begins = [
        "f.yaml:3:1: manageJobsWithoutQueueNames: unknown key `manageJobsWithoutQueueNames`, expected one of ",
        "f.yaml:5:3: metrics.bindAddres: unknown key `bindAddres`, expected one of `bindAddress`, ",
        "f.yaml:10:5: multiKueue.externalFrameworks[1].nmae: unknown key `nmae`, expected `name`",
        "f.yaml:15:5: managedJobsNamespaceSelector.matchExpressions[0].vals: unknown key `vals`, expected one of ",
    ];
    assert_eq!(found.len(), begins.len(), "{found:#?}");
    for (line, begin) in found.iter().zip(begins) {
        assert!(line.starts_with(begin), "{line}");
    }
}

#[test]
fn wrong_types_and_values_are_named_with_the_allowed_ones() {
    let cases = [
        (
            "waitForPodsReady: {timeout: 5}",
            "waitForPodsReady.timeout: invalid type: integer `5`",
        ),
        (
            "waitForPodsReady: {timeout: soon}",
            "waitForPodsReady.timeout: `soon` is not a duration; write a number",
        ),
        (
            "waitForPodsReady: {requeuingStrategy: {timestamp: Never}}",
            "timestamp: unknown value `Never`, expected `Eviction` or `Creation`",
        ),
        (
            "metrics: {bindAddress: '8443'}",
            "metrics.bindAddress: `8443` is not a listen address; write `:8081`",
        ),
        (
            "webhook: {port: 70000}",
            "webhook.port: invalid value: integer `70000`",
        ),
        (
            "integrations: [[pod]]",
            "integrations: invalid type: sequence, expected a mapping",
        ),
        (
            "integrations: pod",
            "integrations: invalid type: string \"pod\", expected a mapping",
        ),
        (
            "integrations: {externalFrameworks: [Job]}",
            "[0]: must be format, 'Kind.version.group.com'",
        ),
        (
            "multiKueue: {externalFrameworks: [{name: job}]}",
            "multiKueue.externalFrameworks[0].name: must be in 'kind.version.group' format",
        ),
        (
            "multiKueue: {externalFrameworks: [{}]}",
            "multiKueue.externalFrameworks[0]: missing key `name`",
        ),
        (
            "tls: {minVersion: VersionTLS10}",
            "unknown value `VersionTLS10`, expected `VersionTLS12` or `VersionTLS13`",
        ),
        (
            "featureGates: {MultiKueue: maybe}",
            "featureGates.MultiKueue: invalid type: string \"maybe\"",
        ),
    ];
    for (body, expect) in cases {
        let line = only_problem(V2, body);
        assert!(line.contains(expect) && line.starts_with("f.yaml:3:"), "{line}");
    }
}

#[test]
fn documents_of_unknown_kind_say_which_are_allowed() {
    let allowed = "allowed are config.kueue.x-k8s.io/v1beta2 Configuration, config.kueue.x-k8s.io/v1beta1 \
                   Configuration, config.roadstead.dev/v1alpha1 RoadsteadConfiguration";
    let cases = [
        ("namespace: a\n", "f.yaml:1:1: apiVersion: missing; "),
        (
            "apiVersion: config.kueue.x-k8s.io/v1\nkind: Configuration\n",
            "f.yaml:1:1: apiVersion: unknown value `",
        ),
        (
            "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Config\n",
            "f.yaml:2:1: kind: unknown value `Config`; ",
        ),
        ("- a\n", "f.yaml:1:1: a document must be a mapping; "),
    ];
    for (text, begin) in cases {
        let found = problems(text);
        assert!(
            found.len() == 1 && found[0].starts_with(begin) && found[0].ends_with(allowed),
            "{found:#?}"
        );
    }
    let twice = problems(&format!("{V2}---\n{V1}"));
    assert!(
        twice[0].contains("a second document of kind Configuration"),
        "{twice:#?}"
    );
}

#[test]
fn text_that_is_not_yaml_has_its_line() {
    let found = problems(&format!("{V2}metrics: {{\n"));
    assert!(found.len() == 1 && found[0].contains("not YAML"), "{found:#?}");
    let twice = problems(&format!("{V2}namespace: a\nnamespace: b\n"));
    assert!(
        twice.len() == 1 && twice[0].starts_with("f.yaml:4:1: "),
        "{twice:#?}"
    );
}

/// A body that breaks one rule, and the message of its only problem.
const RULES: &[(&str, &str)] = &[
    (
        "managedJobsNamespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kueue-system]}]}",
        "managedJobsNamespaceSelector: should not match the \"kube-system\" namespace",
    ),
    ("namespace: A_b", "namespace: `A_b` is not the name"),
    (
        "managedJobsNamespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]}",
        "managedJobsNamespaceSelector: should not match the \"kueue-system\" namespace",
    ),
    (
        "managedJobsNamespaceSelector: {matchExpressions: [{key: a, operator: In}]}",
        "matchExpressions[0].values: must not be empty",
    ),
    (
        "leaderElection: {resourceLock: configmaps}",
        "leaderElection.resourceLock: unsupported value",
    ),
    (
        "leaderElection: {leaseDuration: 5s}",
        "leaderElection.leaseDuration: must be longer than renewDeadline",
    ),
    (
        "leaderElection: {renewDeadline: 1s}",
        "leaderElection.renewDeadline: must be longer than retryPeriod",
    ),
    (
        "leaderElection: {retryPeriod: 0s}",
        "leaderElection.retryPeriod: must be greater than 0",
    ),
    (
        "controller: {groupKindConcurrency: {Job.batch: 0}}",
        "groupKindConcurrency.Job.batch: must be greater",
    ),
    (
        "controller: {cacheSyncTimeout: 0}",
        "controller.cacheSyncTimeout: must be greater than 0",
    ),
    (
        "tls: {cipherSuites: [RC4]}",
        "tls.cipherSuites[0]: unsupported cipher suite `RC4`; supported are TLS_ECDHE",
    ),
    (
        "tls: {minVersion: VersionTLS13, cipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]}",
        "tls.cipherSuites: must not be set when minVersion is VersionTLS13",
    ),
    (
        "tls: {curvePreferences: [CurveP1]}",
        "tls.curvePreferences[0]: unsupported curve",
    ),
    (
        "internalCertManagement: {webhookServiceName: a.b}",
        "webhookServiceName: `a.b` is not the name",
    ),
    (
        "internalCertManagement: {webhookSecretName: -a}",
        "webhookSecretName: `-a` is not the name",
    ),
    (
        "waitForPodsReady: {timeout: -1s}",
        "waitForPodsReady.timeout: must be greater than or equal to 0",
    ),
    (
        "waitForPodsReady: {recoveryTimeout: -1s}",
        "waitForPodsReady.recoveryTimeout: must be greater than or",
    ),
    (
        "waitForPodsReady: {requeuingStrategy: {backoffLimitCount: -1}}",
        "requeuingStrategy.backoffLimitCount: must be greater than or equal to 0",
    ),
    (
        "waitForPodsReady: {requeuingStrategy: {backoffMaxSeconds: -1}}",
        "backoffMaxSeconds: must be greater",
    ),
    (
        "integrations: {frameworks: [batch/jobs]}",
        "Unsupported value: \"batch/jobs\": supported values: argoproj.io/workflow, batch/job",
    ),
    (
        "integrations: {frameworks: [pod, pod]}",
        "integrations.frameworks[1]: is listed twice",
    ),
    (
        "integrations: {frameworks: [sparkoperator.k8s.io/sparkapplication]}",
        "needs the feature gate SparkApplicationIntegration",
    ),
    (
        "integrations: {externalFrameworks: [A.v1.b, A.v1.b]}",
        "externalFrameworks[1]: is listed twice",
    ),
    (
        "multiKueue: {gcInterval: -1s}",
        "multiKueue.gcInterval: must be greater than or equal to 0",
    ),
    (
        "multiKueue: {workerLostTimeout: -1s}",
        "multiKueue.workerLostTimeout: must be greater than or equal to 0",
    ),
    (
        "multiKueue: {origin: 'a b'}",
        "multiKueue.origin: `a b` is not a valid label value",
    ),
    (
        "multiKueue: {externalFrameworks: [{name: Job.v1.batch}]}",
        "externalFrameworks[0].name: conflicts with a built-in MultiKueue adapter",
    ),
    (
        "multiKueue: {externalFrameworks: [{name: Deployment.v2.apps}]}",
        "externalFrameworks[0].name: conflicts with a built-in MultiKueue adapter",
    ),
    (
        "multiKueue: {externalFrameworks: [{name: A.v1.b}, {name: A.v2.b}]}",
        "multiKueue.externalFrameworks[1].name: is listed twice",
    ),
    (
        "multiKueue: {externalFrameworks: [{name: A.v1.b}, {name: A.v1.b}]}",
        "multiKueue.externalFrameworks[1].name: is listed twice",
    ),
    (
        "multiKueue: {incrementalDispatcherConfig: {}}",
        "incrementalDispatcherConfig is only valid when dispatcherName is set to the incremental dispatcher",
    ),
    (
        "multiKueue: {dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-incremental, incrementalDispatcherConfig: {stepSize: 0}}",
        "stepSize: must be greater than or equal to 1",
    ),
    (
        "multiKueue: {clusterProfile: {accessProviders: [{name: a, execConfig: {command: c}}]}}",
        "accessProviders[0].execConfig.interactiveMode: must be one of Never, IfAvailable, Always",
    ),
    (
        "multiKueue: {clusterProfile: {accessProviders: [{name: a, execConfig: {command: c, interactiveMode: Never}}], credentialsProviders: [{name: a, execConfig: {command: c, interactiveMode: Never}}]}}",
        "credentialsProviders: must not be specified when accessProviders is specified",
    ),
    (
        "fairSharing: {}",
        "fairSharing.preemptionStrategies: must be specified",
    ),
    (
        "fairSharing: {preemptionStrategies: [LessThanInitialShare, LessThanOrEqualToFinalShare]}",
        "fairSharing.preemptionStrategies: Unsupported value",
    ),
    (
        "admissionFairSharing: {usageHalfLifeTime: -1s}",
        "usageHalfLifeTime: must be greater than or equal to 0",
    ),
    (
        "admissionFairSharing: {usageSamplingInterval: 0s}",
        "usageSamplingInterval: must be greater than 0",
    ),
    (
        "admissionFairSharing: {resourceWeights: {cpu: -1}}",
        "resourceWeights.cpu: must be greater than or equal",
    ),
    (
        "resources: {quotaCheckStrategy: IgnoreUndeclared, excludeResourcePrefixes: [a]}",
        "resources.excludeResourcePrefixes: must not be set when quotaCheckStrategy is IgnoreUndeclared",
    ),
    (
        "resources: {transformations: [{input: a}, {input: a}]}",
        "resources.transformations[1].input: is listed",
    ),
    (
        "resources: {transformations: [{input: ''}]}",
        "resources.transformations[0].input: must not be empty",
    ),
    (
        "resources: {deviceClassMappings: [{name: a, deviceClassNames: [b], sources: [{}]}]}",
        "deviceClassMappings[0].sources[0]: must have exactly one of counter and capacity",
    ),
    (
        "resources: {deviceClassMappings: [{name: a, deviceClassNames: []}]}",
        "deviceClassMappings[0].deviceClassNames: must not be empty",
    ),
    (
        "objectRetentionPolicies: {workloads: {afterFinished: -1s}}",
        "workloads.afterFinished: must be greater",
    ),
    (
        "featureGates: {Nope: true}",
        "featureGates.Nope: unknown feature gate `Nope`; the known ones are ",
    ),
    (
        "metrics: {customLabels: [{name: a}]}",
        "metrics.customLabels: needs the feature gate CustomMetricLabels",
    ),
    (
        "health: {readinessEndpointName: '{x'}",
        "health.readinessEndpointName: must consist of letters",
    ),
    (
        "health: {livenessEndpointName: readyz}",
        "health.livenessEndpointName: must differ from readinessEndpointName",
    ),
];

/// Spec: api API-13, column "Validation"; multikueue 7; jobs 3.
#[test]
fn each_rule_refuses_its_key() {
    for (body, expect) in RULES {
        let line = only_problem(V2, body);
        assert!(line.contains(expect) && line.starts_with("f.yaml:3:"), "{line}");
    }
}

/// Spec: api API-13, `metrics.customLabels`.
#[test]
fn custom_labels_have_limits_per_kind() {
    let with = |labels: &str| {
        problems(&format!(
            "{V2}featureGates: {{CustomMetricLabels: true}}\nmetrics: {{customLabels: [{labels}]}}\n"
        ))
    };
    assert_eq!(
        with("{name: team, sourceLabelKey: a}, {name: b, sourceKind: Workload, trackedValues: [x]}"),
        [""; 0]
    );
    let seven: Vec<String> = (0..7)
        .map(|n| format!("{{name: a{n}, sourceKind: Cohort}}"))
        .collect();
    assert!(with(&seven.join(","))[0].contains("at most 6 items with sourceKind Cohort"));
    let three: Vec<String> = (0..3)
        .map(|n| format!("{{name: a{n}, sourceKind: Workload, trackedValues: [x]}}"))
        .collect();
    assert!(with(&three.join(","))[0].contains("at most 2 items with sourceKind Workload"));
    assert!(with("{name: b, sourceKind: Workload}")[0].contains("must have 1 to 12 items"));
    assert!(with("{name: 1b}")[0].contains("not begin with a digit"));
    assert!(with("{name: b, sourceLabelKey: x, sourceAnnotationKey: z}")[0].contains("keep one of the two"));
    assert!(with("{name: b}, {name: b}")[0].contains("is listed twice"));
    let values: Vec<String> = (0..17).map(|n| n.to_string()).collect();
    let values = values.join("','");
    assert!(with(&format!("{{name: b, trackedValues: ['{values}']}}"))[0].contains("at most 16 items"));
}

/// Spec: jobs 3; pods of system namespaces are never held.
#[test]
fn pod_namespace_selector_must_spare_system_namespaces_when_pods_are_managed() {
    let body = |framework: &str| {
        format!(
            "{V1}integrations:\n  frameworks: [{framework}]\n  podOptions:\n    namespaceSelector: {{}}\n"
        )
    };
    let found = problems(&body("deployment"));
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(
        found[0].contains("integrations.podOptions.namespaceSelector: should not match the \"kube-system\"")
    );
    assert_eq!(problems(&body("batch/job")), [""; 0]);
}

#[test]
fn rules_of_the_second_document() {
    let cases = [
        (
            "multiKueue: {leaseNamespace: Not A Name}",
            "multiKueue.leaseNamespace: must be the name of a namespace",
        ),
        (
            "multiKueue: {workerLostPolicy: Panic}",
            "unknown value `Panic`, expected one of `Wait`, `RetryAnyway`",
        ),
        (
            "multiKueue: {tokenLifetimeSeconds: 599}",
            "multiKueue.tokenLifetimeSeconds: must be at least 600",
        ),
        (
            "webhook: {url: 'http://a'}",
            "webhook.url: must be an address such as https://",
        ),
        (
            "admission: {pause: true}",
            "admission.pause: unknown key `pause`, expected `paused`",
        ),
    ];
    for (body, expect) in cases {
        let line = only_problem(OURS, body);
        assert!(line.contains(expect) && line.starts_with("f.yaml:3:"), "{line}");
    }
    assert!(read(&format!("{OURS}webhook: {{url: 'https://10.0.0.1:9443/base'}}\n")).is_ok());
}

#[test]
fn every_problem_of_every_sort_is_reported_at_once_in_order_of_lines() {
    let text = format!(
        "{V2}nmaespace: x
webhook:
  port: high
multiKueue:
  gcInterval: -1s
integrations:
  frameworks: [pod, wat]
featureGates:
  Nope: true
---
{OURS}admission:
  paused: sometimes
multiKueue:
  tokenLifetimeSeconds: 1
"
    );
    let error = read(&text).unwrap_err();
    assert_eq!(error.exit_kind().code(), 2);
    let printed = error.to_string();
    assert!(
        printed.starts_with("the configuration has 7 problems:\n  f.yaml:3:1: nmaespace: "),
        "{printed}"
    );
    let lines: Vec<&str> = printed
        .lines()
        .skip(1)
        .map(|line| line.trim().split(": ").nth(1).unwrap())
        .collect();
    let keys = [
        "nmaespace",
        "webhook.port",
        "multiKueue.gcInterval",
        "integrations.frameworks[1]",
        "featureGates.Nope",
        "admission.paused",
        "multiKueue.tokenLifetimeSeconds",
    ];
    assert_eq!(lines, keys, "{printed}");
}

#[test]
fn problems_are_limited_in_number() {
    let keys: Vec<String> = (0..PROBLEMS_MAX + 40).map(|n| format!("k{n}: 1")).collect();
    assert_eq!(
        problems(&format!("{V2}{}\n", keys.join("\n"))).len(),
        PROBLEMS_MAX
    );
}

/// Spec: api API-13, gates of file and flag are mutually exclusive.
#[test]
fn gates_of_file_and_flag_exclude_each_other() {
    let file = format!("{V2}featureGates: {{MultiKueue: false}}\n");
    let gate = FeatureGate::MultiKueue;
    assert!(!read(&file).unwrap().feature_gates.enabled(gate));
    assert!(
        !parse("f", V2, &gates("MultiKueue=false"), "ns")
            .unwrap()
            .feature_gates
            .enabled(gate)
    );
    let error = parse("f.yaml", &file, &gates("PriorityBoost=true"), "ns")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("featureGates: cannot be used together with --feature-gates"),
        "{error}"
    );
    let error = parse("f.yaml", V2, &gates("Nope=true"), "ns")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("--feature-gates: unknown feature gate `Nope`"),
        "{error}"
    );
}

/// Spec: api API-13, `waitForPodsReady`.
#[test]
fn only_the_gate_takes_waiting_for_pods_away() {
    let config = parse("f", V2, &gates("DisableWaitForPodsReady=true"), "ns").unwrap();
    assert_eq!(config.wait_for_pods_ready, None);
}

#[test]
fn keys_without_effect_are_warned_about() {
    let config = read(&format!(
        "{V2}pprofBindAddress: ':6060'\ntls: {{curvePreferences: [X25519MLKEM768, X25519]}}\n"
    ));
    let warnings = config.unwrap().warnings;
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("pprofBindAddress") && warnings[1].contains("X25519MLKEM768"));
}

#[test]
fn secrets_are_in_no_message() {
    let provider = |entry: &str| {
        format!(
            "{V2}multiKueue:\n  clusterProfile:\n    accessProviders:\n    - name: p\n      execConfig:\n        \
             command: c\n        interactiveMode: Never\n        env:\n        - {entry}\n"
        )
    };
    let found = problems(&provider("{name: TOKEN, value: 112233}"));
    assert!(
        found.len() == 1 && found[0].contains("env[0].value: must be text"),
        "{found:#?}"
    );
    assert!(!found[0].contains("112233"));
    for entry in ["TOKEN=hush", "{name: TOKEN, vlaue: hush}", "[hush]"] {
        let found = problems(&provider(entry));
        assert!(
            !found.is_empty() && !found.join("").contains("hush"),
            "{found:#?}"
        );
    }
    assert!(!format!("{:?}", read(&provider("{name: TOKEN, value: hush}"))).contains("hush"));
}

#[test]
fn files_are_read_with_their_name_and_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    std::fs::write(&path, format!("{V2}namespace: team\n")).unwrap();
    assert_eq!(load(Some(&path), &[], "own").unwrap().namespace, "team");
    std::fs::write(&path, format!("{V2}what: 1\n")).unwrap();
    let error = load(Some(&path), &[], "own").unwrap_err().to_string();
    assert!(error.contains("config.yaml:3:1: what: unknown key"), "{error}");
    let large = usize::try_from(FILE_BYTES_MAX).unwrap() + 1;
    std::fs::write(&path, "#".repeat(large)).unwrap();
    assert!(matches!(
        load(Some(&path), &[], "own"),
        Err(Error::TooLarge { .. })
    ));
    let missing = load(Some(&folder.path().join("none")), &[], "own").unwrap_err();
    assert!(matches!(missing, Error::Read { .. }) && missing.exit_kind() == ExitKind::Usage);
}

#[test]
fn own_namespace_comes_from_the_mount_or_is_the_default() {
    let folder = tempfile::tempdir().unwrap();
    let mount = folder.path().join("namespace");
    assert_eq!(own_namespace(&mount), "kueue-system");
    std::fs::write(&mount, "roadstead-system\n").unwrap();
    assert_eq!(own_namespace(&mount), "roadstead-system");
}

#[test]
fn a_dispatcher_of_our_domains_that_is_not_ours_is_warned_about_with_the_name_that_is_near() {
    let warned = |name: &str| {
        let text = format!("{V2}multiKueue: {{dispatcherName: {name}}}\n");
        read(&text).unwrap().warnings.concat()
    };
    for fine in [
        "roadstead.dev/capacity",
        "kueue.x-k8s.io/multikueue-dispatcher-all-at-once",
        "example.com/capacity",
        "example.com/multikueue-dispatcher-incremental",
    ] {
        assert_eq!(warned(fine), "", "{fine}");
    }
    for (written, meant) in [
        ("roadstead.dev/capasity", "roadstead.dev/capacity"),
        (
            "kueue.x-k8s.io/multikueue-dispatcher-incremntal",
            "kueue.x-k8s.io/multikueue-dispatcher-incremental",
        ),
    ] {
        let text = warned(written);
        assert!(text.contains("no job is sent anywhere unless"), "{text}");
        assert!(text.ends_with(&format!("did you mean `{meant}`?")), "{text}");
    }
}

/// Spec: safety S10
#[test]
fn a_token_that_would_live_longer_than_is_asked_for_is_warned_about() {
    let warned = |secs: u32| {
        let text = format!("{OURS}multiKueue: {{tokenLifetimeSeconds: {secs}}}\n");
        read(&text).unwrap().warnings.concat()
    };
    assert_eq!(warned(86_400), "");
    assert!(warned(172_800).contains("172800 is too long, no more than 86400 s"));
}
