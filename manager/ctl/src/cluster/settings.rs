//! What the account on a worker takes from the configurations of the processes: the manager's origin, and the namespace of its Lease.
//!
//! Why read: the manager looks for its Lease under the name of its own origin, in the namespace of its own configuration. An account
//! under another name or in another namespace has no right to that Lease, so the worker has no fence; and `leave` would look for the
//! account and the jobs of another manager.
//!
//! *Source*: `spec/safety.md` 3.8, 6.

use std::path::Path;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use roadstead_api::config::Config;
use roadstead_api::install::objects::{CONFIG_FILE, config_name};
use roadstead_api::install::owned;
use roadstead_api::rights::Process;
use roadstead_kubeconfigs::account::rights::Account;
use roadstead_serve::config;

use crate::args::Owner;
use crate::engines::{self, Found};
use crate::failure::{Code, Failure};
use crate::output::say;

/// The settings of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// Namespace and name of the `ConfigMap`.
    pub(super) source: String,
    pub(super) origin: String,
    pub(super) lease_namespace: String,
}

/// Settings, or why there are none to compare with.
pub(super) type Read = Result<Settings, String>;

/// The account of the manager: the flags must agree with its configuration, which gives the defaults.
///
/// An installation without the `ConfigMap` is one of another kind: then only the flags count, and the command says so.
pub(super) async fn account(owner: &Owner, namespace: &str, manager: &Client) -> Result<Account, Failure> {
    let read = of_manager(manager, namespace).await?;
    let account = agreed(owner, namespace, &read)?;
    if let Err(why) = &read {
        say(&format!(
            "note: {why}, so origin {} and namespace {} of the account are not compared with the manager's configuration; if they differ \
             from its multiKueue.origin and multiKueue.leaseNamespace, the worker has no fence",
            account.origin(),
            account.namespace()
        ));
    }
    Ok(account)
}

async fn of_manager(manager: &Client, namespace: &str) -> Result<Read, Failure> {
    let name = config_name(Process::Manager);
    let source = format!("{namespace}/{name}");
    let maps = Api::<ConfigMap>::namespaced(manager.clone(), namespace);
    match maps.get_opt(&name).await {
        Ok(Some(map)) => Ok(parsed(source, &map, namespace)),
        Ok(None) => Ok(Err(format!("the management cluster has no ConfigMap {source}"))),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            Ok(Err(format!("you may not read ConfigMap {source}")))
        }
        Err(error) => Err(Failure::request(
            format!("reading ConfigMap {source} failed"),
            &error,
        )),
    }
}

fn parsed(source: String, map: &ConfigMap, namespace: &str) -> Read {
    let Some(text) = map.data.as_ref().and_then(|data| data.get(CONFIG_FILE)) else {
        return Err(format!("ConfigMap {source} has no key {CONFIG_FILE}"));
    };
    match config::parse(&source, text, &[], namespace) {
        Ok(config) => Ok(Settings {
            source,
            origin: config.multi_kueue.origin,
            lease_namespace: config.roadstead.multi_kueue.lease_namespace,
        }),
        Err(error) => Err(format!("ConfigMap {source} cannot be used ({error})")),
    }
}

/// The account by the flags alone, with the defaults of a manager in this namespace.
pub(super) fn by_flags(owner: &Owner, namespace: &str) -> Result<Account, Failure> {
    let defaults = Config::without_file(namespace);
    named(
        owner.origin.as_ref().unwrap_or(&defaults.multi_kueue.origin),
        { owner.worker_namespace.as_ref() }.unwrap_or(&defaults.roadstead.multi_kueue.lease_namespace),
    )
}

fn agreed(owner: &Owner, namespace: &str, read: &Read) -> Result<Account, Failure> {
    let Ok(settings) = read else {
        return by_flags(owner, namespace);
    };
    let Settings {
        source,
        origin,
        lease_namespace,
    } = settings;
    let differs = |flag: &str, given: &str, key: &str, set: &str, next: String| {
        let why = format!(
            "{key} in ConfigMap {source} is {set}, and the worker has a fence only if both are the same"
        );
        Err(Failure::new(format!("{flag} {given} is not what the manager uses"), why, next).code(Code::Usage))
    };
    if let Some(given) = owner.origin.as_ref().filter(|given| *given != origin) {
        let next = format!(
            "leave --origin out, or name another manager with --manager-kubeconfig and --namespace; to give this manager the origin {given} \
             while it has no workers: set configuration.multiKueue.origin in its values, then roadstead install manager --values FILE"
        );
        return differs("--origin", given, "multiKueue.origin", origin, next);
    }
    if let Some(given) = { owner.worker_namespace.as_ref() }.filter(|given| *given != lease_namespace) {
        let next = format!(
            "leave --worker-namespace out; if roadstead-worker runs in {given}: set roadsteadConfiguration.multiKueue.leaseNamespace to the \
             same namespace in the values of the manager and of every worker, then install them again with --values FILE"
        );
        let key = "multiKueue.leaseNamespace";
        return differs("--worker-namespace", given, key, lease_namespace, next);
    }
    named(origin, lease_namespace)
}

fn named(origin: &str, namespace: &str) -> Result<Account, Failure> {
    Account::new(origin, namespace).map_err(|error| {
        Failure::new(
            "the account on the worker cannot be named after the manager",
            error.to_string(),
            "give --origin the value of multiKueue.origin in the manager's configuration",
        )
        .code(Code::Usage)
    })
}

/// Says it if neither Roadstead nor Kueue is installed on this worker: the manager connects all the same, and no job starts.
pub(super) async fn look_for_engine(worker: &Client, kubeconfig: &Path) {
    // Why no failure: an engine may be installed under names that are not known, and a worker's administrator need not have the right
    // to list Deployments.
    let is_empty = |found: Vec<Found>| !found.iter().any(Found::is_engine);
    if engines::found(worker).await.is_ok_and(is_empty) {
        say(&format!(
            "warning: neither Roadstead nor Kueue was found on this worker, so no job would start there: roadstead install worker \
             --kubeconfig {}",
            kubeconfig.display()
        ));
    }
}

/// Says it if `roadstead-worker` on this worker looks for Leases in another namespace than the account's.
///
/// Why only said: a worker without a fence keeps its jobs while it is lost, but never runs one twice.
pub(super) async fn compare_worker(worker: &Client, account: &Account) {
    let of_worker = format!("{}={}", owned::LABEL, Process::Worker.name());
    let maps = Api::<ConfigMap>::all(worker.clone());
    // Why no failure: a worker with Kueue has no such ConfigMap, and a worker's administrator need not have the right to list them.
    let found = maps.list(&ListParams::default().labels(&of_worker)).await;
    for map in found.into_iter().flat_map(|list| list.items) {
        let namespace = map.namespace().unwrap_or_default();
        let read = parsed(format!("{namespace}/{}", map.name_any()), &map, &namespace);
        if let Some(note) = read.ok().and_then(|settings| elsewhere(&settings, account)) {
            say(&note);
        }
    }
}

fn elsewhere(settings: &Settings, account: &Account) -> Option<String> {
    let (theirs, ours) = (&settings.lease_namespace, account.namespace());
    (theirs != ours).then(|| {
        format!(
            "note: this worker has no fence: roadstead-worker looks for Leases in namespace {theirs} (ConfigMap {} on the worker), and the \
             manager keeps its Lease in {ours}; set roadsteadConfiguration.multiKueue.leaseNamespace: {ours} in the worker's values, then: \
             roadstead install worker --namespace {} --values FILE",
            settings.source,
            settings.source.split('/').next().unwrap_or_default()
        )
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const API: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
    const OURS: &str = "---\napiVersion: config.roadstead.dev/v1alpha1\nkind: RoadsteadConfiguration\n";

    fn owner(origin: Option<&str>, worker_namespace: Option<&str>) -> Owner {
        Owner {
            origin: origin.map(str::to_owned),
            worker_namespace: worker_namespace.map(str::to_owned),
        }
    }

    fn map(text: &str) -> ConfigMap {
        ConfigMap {
            data: Some(BTreeMap::from([(CONFIG_FILE.to_owned(), text.to_owned())])),
            ..ConfigMap::default()
        }
    }

    fn installed(origin: &str) -> Read {
        let text =
            format!("{API}multiKueue: {{origin: {origin}}}\n{OURS}multiKueue: {{leaseNamespace: leases}}\n");
        parsed("ours/roadstead-manager-config".to_owned(), &map(&text), "ours")
    }

    /// Spec: safety 3.2, safety 3.8
    #[test]
    fn the_account_is_that_of_the_configuration_and_other_flags_are_refused_with_both_values() {
        let read = installed("east-hub");
        for flags in [owner(None, None), owner(Some("east-hub"), Some("leases"))] {
            let account = agreed(&flags, "ours", &read).unwrap();
            assert_eq!(
                account.username(),
                "system:serviceaccount:leases:roadstead-east-hub"
            );
        }
        let refused = agreed(&owner(Some("multikueue"), None), "ours", &read).unwrap_err();
        assert_eq!(refused.code, Code::Usage);
        for word in ["--origin multikueue", "is east-hub", "leave --origin out"] {
            assert!(refused.to_string().contains(word), "{refused}");
        }
        let refused = agreed(&owner(None, Some("kueue-system")), "ours", &read).unwrap_err();
        for word in [
            "--worker-namespace kueue-system",
            "is leases",
            "leave --worker-namespace out",
        ] {
            assert!(refused.to_string().contains(word), "{refused}");
        }
    }

    /// Spec: safety 3.2
    #[test]
    fn an_origin_that_is_no_plain_name_joins_by_the_configuration_and_by_the_flag() {
        for (flags, read) in [
            (owner(None, None), installed("My_1.x")),
            (owner(Some("My_1.x"), Some("leases")), installed("My_1.x")),
            (owner(Some("My_1.x"), None), Err("there is none".to_owned())),
        ] {
            let account = agreed(&flags, "ours", &read).unwrap();
            assert_eq!(account.name(), "roadstead-x4d795f312e78");
            assert!(account.selector().ends_with("roadstead.dev/origin=My_1.x"));
        }
        let refused = agreed(&owner(Some("a b"), None), "ours", &Err(String::new())).unwrap_err();
        assert!(refused.why.contains("1 to 63"), "{refused}");
    }

    #[test]
    fn without_a_configuration_the_flags_and_the_defaults_of_the_namespace_count() {
        for nothing in [
            ConfigMap::default(),
            map("nonsense: true"),
            map(&format!("{API}multiKueue: {{origin: a b}}\n")),
        ] {
            let read = parsed("ours/c".to_owned(), &nothing, "ours");
            assert!(
                read.as_ref().unwrap_err().contains("ConfigMap ours/c"),
                "{read:?}"
            );
            let name = |flags: &Owner| agreed(flags, "ours", &read).unwrap().username();
            assert_eq!(
                name(&owner(None, None)),
                "system:serviceaccount:ours:roadstead-multikueue"
            );
            assert_eq!(
                name(&owner(Some("a"), Some("b"))),
                "system:serviceaccount:b:roadstead-a"
            );
        }
        let defaults = parsed("ours/c".to_owned(), &map(API), "ours").unwrap();
        assert_eq!(
            (defaults.origin.as_str(), defaults.lease_namespace.as_str()),
            ("multikueue", "ours")
        );
    }

    #[test]
    fn a_worker_that_looks_for_leases_elsewhere_is_said_with_both_namespaces() {
        let account = Account::new("multikueue", "kueue-system").unwrap();
        let settings = |lease_namespace: &str| Settings {
            source: "team-kueue/roadstead-worker-config".to_owned(),
            origin: "multikueue".to_owned(),
            lease_namespace: lease_namespace.to_owned(),
        };
        assert_eq!(elsewhere(&settings("kueue-system"), &account), None);
        let said = elsewhere(&settings("team-kueue"), &account).unwrap();
        assert!(
            said.contains("namespace team-kueue") && said.contains("Lease in kueue-system"),
            "{said}"
        );
    }
}
