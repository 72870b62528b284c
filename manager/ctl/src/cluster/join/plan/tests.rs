use clap::Parser as _;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use roadstead_api::constants::controllers::{MULTIKUEUE, PROVISIONING_REQUEST};
use roadstead_api::kueue::v1beta2::{AdmissionCheck, MultiKueueConfig};
use roadstead_kinds::rows;
use roadstead_kubeconfigs::account::rights::Account;
use roadstead_kubeconfigs::secret::CREDENTIAL_LABEL;
use serde_json::{from_value, json};

use super::super::{Seen, cluster_object, config_object};
use super::{ConfigStep, CredentialStep, not_active, plan};
use crate::args::{Area, Cli, ClusterVerb, Join};
use crate::cluster::account::{State, Step};
use crate::failure::{Code, Failure};

fn args(more: &[&str]) -> Join {
    let fixed = ["roadstead", "cluster", "join", "east", "--kubeconfig", "w"];
    let cli = Cli::try_parse_from(fixed.iter().chain(more)).unwrap();
    let Area::Cluster {
        verb: ClusterVerb::Join(join),
    } = cli.area
    else {
        panic!("not a join");
    };
    Join {
        integrations: vec![&rows::JOB],
        ..join
    }
}

fn seen(state: State) -> Seen {
    Seen {
        steps: vec![Step {
            object: "clusterrole/roadstead-multikueue".to_owned(),
            state,
            lost: Vec::new(),
        }],
        secret: None,
        cluster: None,
        configs: Vec::new(),
        checks: vec![check("multikueue"), check("any")],
    }
}

fn check(config: &str) -> AdmissionCheck {
    let spec = json!({
        "controllerName": MULTIKUEUE,
        "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": config},
    });
    from_value(json!({"metadata": {"name": config}, "spec": spec})).unwrap()
}

fn our_secret() -> Secret {
    let mut secret = Secret::default();
    secret
        .labels_mut()
        .insert(CREDENTIAL_LABEL.to_owned(), "east".to_owned());
    secret
}

fn configs(names: &[&str], cluster: &str) -> Vec<MultiKueueConfig> {
    names.iter().map(|name| config_object(name, cluster)).collect()
}

/// Spec: experience 1 P1
#[test]
fn first_run_creates_everything() {
    let args = args(&[]);
    let plan = plan(&args, &seen(State::Missing), false).unwrap();
    assert_eq!(
        plan.changes(&args),
        [
            "worker clusterrole/roadstead-multikueue",
            "manager secret/roadstead-east",
            "manager multikueuecluster/east",
            "manager multikueueconfig/multikueue",
        ]
    );
    let account = Account::new("multikueue", "roadstead-system").unwrap();
    let text = plan.describe(&args, &account, "https://k.example");
    assert!(text.contains("batch: jobs: create"), "{text}");
    assert!(
        text.contains("serviceaccounts/token (only roadstead-multikueue): create (in roadstead-system)"),
        "{text}"
    );
}

/// Spec: experience 1 P1 ("second run changes nothing")
#[test]
fn second_run_changes_nothing_and_says_so() {
    let args = args(&[]);
    let mut seen = seen(State::Same);
    seen.secret = Some(our_secret());
    seen.cluster = Some(cluster_object("east"));
    seen.configs = configs(&["any"], "east");
    let plan = plan(&args, &seen, true).unwrap();
    assert!(plan.is_nothing());
    assert!(plan.changes(&args).is_empty());
    let account = Account::new("multikueue", "roadstead-system").unwrap();
    let text = plan.describe(&args, &account, "https://k.example");
    assert!(text.ends_with("nothing to change"), "{text}");
    assert!(!text.contains("rights of"), "{text}");
}

#[test]
fn rights_that_the_account_loses_are_in_the_plan() {
    let args = args(&[]);
    let mut seen = seen(State::Different);
    seen.steps[0].lost = vec!["jobset.x-k8s.io: jobsets: create".to_owned()];
    let account = Account::new("multikueue", "roadstead-system").unwrap();
    let text = plan(&args, &seen, true)
        .unwrap()
        .describe(&args, &account, "https://k.example");
    let (_, lost) = text.split_once("rights that it loses\n").unwrap();
    assert!(
        lost.starts_with("    jobset.x-k8s.io: jobsets: create\n"),
        "{text}"
    );
    assert!(lost.contains("--integrations"), "{text}");
}

#[test]
fn only_what_differs_is_written() {
    let args = args(&[]);
    let mut seen = seen(State::Different);
    seen.secret = Some(our_secret());
    seen.cluster = Some(cluster_object("east"));
    seen.configs = configs(&["any"], "west");
    let good = plan(&args, &seen, true).unwrap();
    assert_eq!(
        good.changes(&args),
        [
            "worker clusterrole/roadstead-multikueue",
            "manager multikueueconfig/any"
        ]
    );
    assert_eq!(
        plan(&args, &seen, false).unwrap().credential,
        CredentialStep::Make
    );
}

#[test]
fn cluster_goes_into_the_only_config_or_the_named_one() {
    let config = |more: &[&str], names: &[&str]| {
        let mut seen = seen(State::Same);
        seen.configs = configs(names, "west");
        plan(&args(more), &seen, true).map(|plan| plan.config)
    };
    let add = |name: &str| ConfigStep::Add {
        name: name.to_owned(),
    };
    let create = |name: &str| ConfigStep::Create {
        name: name.to_owned(),
    };
    assert_eq!(config(&[], &[]).unwrap(), create("multikueue"));
    assert_eq!(config(&[], &["a"]).unwrap(), add("a"));
    assert_eq!(config(&["--config-name", "b"], &["a", "b"]).unwrap(), add("b"));
    assert_eq!(config(&["--config-name", "c"], &["a", "b"]).unwrap(), create("c"));
    let failure = config(&[], &["a", "b"]).unwrap_err();
    assert_eq!(failure.code, Code::Usage);
    assert!(failure.why.contains("a, b"), "{failure}");
}

/// After `leave` has deleted the config with its last cluster, the check that names it must not stay inactive.
#[test]
fn without_a_config_the_one_that_checks_name_is_created_and_a_config_without_a_check_is_warned_of() {
    let planned = |more: &[&str], configs_of: &[&str], checks: &[&str]| {
        let (args, mut seen) = (args(more), seen(State::Same));
        seen.configs = configs(configs_of, "west");
        seen.checks = checks.iter().map(|name| check(name)).collect();
        // A check of another controller does not count.
        seen.checks.push(check("other"));
        seen.checks.last_mut().unwrap().spec.controller_name = PROVISIONING_REQUEST.to_owned();
        let plan = plan(&args, &seen, true)?;
        let account = Account::new("multikueue", "kueue-system").unwrap();
        let text = plan.describe(&args, &account, "https://k.example");
        let warning = text
            .lines()
            .find(|line| line.starts_with("warning:"))
            .map(str::to_owned);
        Ok::<_, Failure>((plan.config, warning))
    };
    let create = |name: &str| ConfigStep::Create {
        name: name.to_owned(),
    };
    let add = |name: &str| ConfigStep::Add {
        name: name.to_owned(),
    };
    assert_eq!(planned(&[], &[], &["prod"]), Ok((create("prod"), None)));
    assert_eq!(planned(&[], &[], &["prod", "prod"]), Ok((create("prod"), None)));
    assert_eq!(planned(&[], &["a", "prod"], &["prod"]), Ok((add("prod"), None)));
    assert!(planned(&[], &["a", "b"], &["prod"]).is_err());
    for (more, configs_of, checks, config, next) in [
        (
            &[][..],
            &[][..],
            &[][..],
            create("multikueue"),
            "create an AdmissionCheck",
        ),
        (
            &[],
            &[],
            &["prod", "test"],
            create("multikueue"),
            "prod, test: to join",
        ),
        (
            &[],
            &["a"],
            &["prod"],
            add("a"),
            "prod: to join one of these, use --config-name",
        ),
        (
            &["--config-name", "b"],
            &[],
            &["prod"],
            create("b"),
            "prod: to join",
        ),
    ] {
        let (step, warning) = planned(more, configs_of, checks).unwrap();
        assert_eq!(step, config);
        assert!(
            warning.as_ref().is_some_and(|text| text.contains(next)),
            "{warning:?}"
        );
    }
}

#[test]
fn full_config_is_not_overfilled() {
    let mut seen = seen(State::Same);
    seen.configs = configs(&["a"], "west");
    seen.configs[0].spec.clusters = (0..20).map(|n| format!("c{n}")).collect();
    let failure = plan(&args(&[]), &seen, true).unwrap_err();
    assert!(failure.next.contains("--config-name"), "{failure}");
}

/// Spec: safety 1 I7
#[test]
fn objects_of_others_are_not_taken_over() {
    let mut foreign = seen(State::Same);
    foreign.secret = Some(Secret::default());
    let failure = plan(&args(&[]), &foreign, false).unwrap_err();
    assert!(failure.why.contains("roadstead.dev/credential=east"), "{failure}");

    let mut foreign = seen(State::Same);
    foreign.cluster = Some(cluster_object("west"));
    let failure = plan(&args(&[]), &foreign, false).unwrap_err();
    assert!(failure.what.contains("registered already"), "{failure}");
}

#[test]
fn timeout_says_what_the_manager_said_and_what_to_do() {
    let args = args(&["--timeout", "5s"]);
    let silent = not_active(&args, "https://k.example", None);
    assert_eq!(silent.code, Code::TimedOut);
    assert!(
        silent.next.contains("kubectl -n kueue-system get pods"),
        "{silent}"
    );
    let said = Some(("ClientConnectionFailed", "connection refused"));
    for usual in ["https://k.example", "https://k.example:6443"] {
        let away = not_active(&args, usual, said);
        assert!(!away.next.contains("networkPolicy"), "{away}");
    }
    let lacks = "Workload is not served there (404 page not found): install its CustomResourceDefinition";
    let empty = not_active(
        &args,
        "https://k.example:16443",
        Some(("ClientConnectionFailed", lacks)),
    );
    assert!(
        empty.next.starts_with("roadstead install worker --kubeconfig"),
        "{empty}"
    );
    let away = not_active(&args, "https://k.example:16443", said);
    assert!(
        away.next.contains("for port 16443 set networkPolicy.apiServers"),
        "{away}"
    );
    assert_eq!(away.why, "ClientConnectionFailed: connection refused");
    assert!(away.next.contains("--server"), "{away}");
}
