//! The reference's operator of `AppWrappers` beside our engine, and our own controller, each on a real control plane: the same
//! `AppWrappers` end the same way.

#![cfg(feature = "nightly")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Pod, Service, ServiceAccount};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use roadstead_api::appwrapper::v1beta2::AppWrapper;
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_api::rights;
use roadstead_e2e::binaries::{Program, locate_or_build};
use roadstead_e2e::options::{BATCH_CONTROLLERS, EXIT_CODE, RUN_SECONDS};
use roadstead_e2e::stage::{Controller, Runs, SYSTEM_NAMESPACE, Solo, apply};
use roadstead_e2e::{Node, Options, Progress};
use serde::de::DeserializeOwned;
use serde_json::{Value, from_value, json};
use tokio::time::timeout;

use crate::shared::{chain, eventually_or};

/// Limit of the whole comparison, without the start of planes. The operator looks at running pods once a minute.
const DEADLINE: Duration = Duration::from_mins(15);
const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
const TEAM: &str = "default";
/// As the samples of the operator's release name it.
const QUEUE: &str = "default-queue";
const TUNING: &str = "workload.codeflare.dev.appwrapper";
const RUNNING: &str = "Running";
/// Label of a Service that no `AppWrapper` owns.
const STRANGER: &str = "stranger";

/// A cluster whose `AppWrappers` are run by one of the two.
struct Side {
    name: &'static str,
    solo: Solo,
    /// The reference's operator; `None` where our own controller runs.
    operator: Option<Controller>,
}

/// The observable state of an `AppWrapper` that rests.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    phase: String,
    retries: i32,
    /// Truth and reason of each condition.
    conditions: BTreeMap<String, String>,
    /// Truth, reason and message of the end of its Workload.
    finished: Option<String>,
    /// Pods that are left.
    pods: usize,
    /// Services that the `AppWrapper` does not own.
    strangers: usize,
}

impl Side {
    async fn start(name: &'static str, runs: Option<Runs>) -> Self {
        let progress = Progress::stderr();
        let mut options = Options::complete(name).with_node(Node::new("a", "16", "64Gi"));
        options.controllers = BATCH_CONTROLLERS.iter().map(|name| (*name).to_owned()).collect();
        let frameworks = ["batch/job", "workload.codeflare.dev/appwrapper"];
        let configuration = json!({"integrations": {"frameworks": frameworks}});
        let args: &[&str] = match runs {
            Some(_) => &["--controllers=*,-appwrapper"],
            None => &[],
        };
        let started = Solo::start_with(options, &configuration, args, progress.clone()).await;
        let solo = started.unwrap_or_else(|error| panic!("{}", chain(&error)));
        let operator = match runs {
            Some(runs) => {
                let started = Controller::start(runs, solo.plane(), &progress).await;
                Some(started.unwrap_or_else(|error| panic!("{}", chain(&error))))
            }
            None => None,
        };
        let side = Self { name, solo, operator };
        side.furnish().await;
        side
    }

    fn client(&self) -> Client {
        self.solo.client().unwrap()
    }

    async fn furnish(&self) {
        let client = self.client();
        for object in rights::appwrapper(SYSTEM_NAMESPACE) {
            apply(&client, object).await.unwrap();
        }
        let quota = |name: &str, quota: &str| json!({"name": name, "nominalQuota": quota});
        let quotas = [quota("cpu", "8"), quota("memory", "32Gi")];
        let flavors = json!([{"name": "default", "resources": quotas}]);
        let group = json!({"coveredResources": ["cpu", "memory"], "flavors": flavors});
        for object in [
            json!({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "default"}, "spec": {}}),
            json!({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": "default"},
                "spec": {"namespaceSelector": {}, "resourceGroups": [group]}}),
            json!({"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": QUEUE, "namespace": TEAM},
                "spec": {"clusterQueue": "default"}}),
        ] {
            apply(&client, object).await.unwrap();
        }
        let accounts: Api<ServiceAccount> = Api::namespaced(client, TEAM);
        self.until("its account", || async {
            accounts.get_opt("default").await.ok()?
        })
        .await;
    }

    async fn until<T, F: Future<Output = Option<T>>>(&self, what: &str, probe: impl FnMut() -> F) -> T {
        eventually_or(probe, || format!("on {}: {what}", self.name)).await
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client(), TEAM)
    }

    /// Everything that explains why a scene does not end.
    async fn state(&self) -> String {
        async fn all<K>(api: Api<K>) -> String
        where
            K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + serde::Serialize,
        {
            let listed = api.list(&ListParams::default()).await;
            let listed = listed.map(|listed| listed.items).unwrap_or_default();
            let shown = listed.into_iter().map(|mut object| {
                object.meta_mut().managed_fields = None;
                let mut shown = json!(object);
                let fields = shown.as_object_mut().unwrap();
                fields.retain(|field, _| field == "metadata" || field == "status");
                shown.to_string()
            });
            shown.collect::<Vec<_>>().join("\n")
        }
        format!(
            "{}:\n{}\n{}\n{}\nthe worker's last lines:\n{}\nthe operator's:\n{}\n",
            self.name,
            all(self.api::<AppWrapper>()).await,
            all(self.api::<Workload>()).await,
            all(self.api::<Pod>()).await,
            self.solo.log_tail(),
            self.operator
                .as_ref()
                .map(Controller::log_tail)
                .unwrap_or_default(),
        )
    }

    /// Submits the `AppWrapper`, plays its scene, waits until it rests, and deletes it.
    async fn play(&self, case: &Case) -> Outcome {
        let object: AppWrapper = from_value(case.wrapper.clone()).unwrap();
        let name = object.name_any();
        let wrappers = self.api::<AppWrapper>();
        if case.act == Act::MeetAStranger {
            let taken = json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": TEAM, "labels": {STRANGER: ""}},
                "spec": {"clusterIP": "None", "ports": [{"port": 80}]},
            });
            apply(&self.client(), taken).await.unwrap();
        }
        let made = wrappers.create(&PostParams::default(), &object).await.unwrap();
        assert!(made.spec.suspend, "{name} waits for its admission");
        self.act(case.act, &made).await;
        let ended = self.rests(&name, case.ends).await;
        let finished = self
            .until(&format!("the end of the Workload of {name}"), || async {
                let status = self.workload(&made).await?.status?;
                let finished = status.conditions.iter().find(|one| one.type_ == "Finished");
                let finished = finished.map(|one| format!("{}/{}/{}", one.status, one.reason, one.message));
                let ends = matches!(case.ends, "Succeeded" | "Failed");
                (finished.is_some() || !ends).then_some(finished)
            })
            .await;
        let pods = self.pods(&name).await.unwrap().len();
        let strangers = ListParams::default().labels(STRANGER);
        let strangers = self.api::<Service>().list(&strangers).await.unwrap().items.len();
        let status = ended.status.as_ref().unwrap();
        let outcome = Outcome {
            phase: status.phase.clone(),
            retries: status.resetting_count,
            conditions: said(&ended),
            finished,
            pods,
            strangers,
        };
        wrappers.delete(&name, &DeleteParams::default()).await.unwrap();
        self.until(&format!("{name} is gone with its pods"), || async {
            let wrapper = wrappers.get_opt(&name).await.ok()?;
            let pods = self.pods(&name).await?;
            (wrapper.is_none() && pods.is_empty()).then_some(())
        })
        .await;
        outcome
    }

    async fn act(&self, act: Act, wrapper: &AppWrapper) {
        let name = &wrapper.name_any();
        if matches!(act, Act::Nothing | Act::MeetAStranger)
            || phase(&self.rests(name, RUNNING).await) != RUNNING
        {
            return;
        }
        match act {
            Act::Nothing | Act::MeetAStranger => {}
            Act::Deactivate => self.activate(wrapper, false).await,
            Act::DeactivateAndActivate => {
                self.activate(wrapper, false).await;
                self.rests(name, "Suspended").await;
                self.activate(wrapper, true).await;
            }
            Act::DeleteChild => {
                let services = self.api::<Service>();
                services.delete(name, &DeleteParams::default()).await.unwrap();
            }
        }
    }

    /// Waits until it is in this phase for good, [`RUNNING`] with ready pods, any other phase without quota; or has failed.
    async fn rests(&self, name: &str, wished: &str) -> AppWrapper {
        let wrappers = self.api::<AppWrapper>();
        self.until(&format!("{name} is {wished}"), || async {
            let wrapper = wrappers.get(name).await.ok()?;
            let said = said(&wrapper);
            let is = |kind: &str, truth| said.get(kind).is_some_and(|said| said.starts_with(truth));
            let rests = match phase(&wrapper) {
                RUNNING => wished == RUNNING && is("PodsReady", "True"),
                there => (there == wished || there == "Failed") && is("QuotaReserved", "False"),
            };
            rests.then_some(wrapper)
        })
        .await
    }

    /// As an administrator stops and starts an admitted Workload.
    async fn activate(&self, wrapper: &AppWrapper, active: bool) {
        let stored = self.until("its Workload", || self.workload(wrapper)).await;
        let patch = Patch::Merge(json!({"spec": {"active": active}}));
        let workloads = self.api::<Workload>();
        workloads
            .patch(&stored.name_any(), &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    async fn workload(&self, wrapper: &AppWrapper) -> Option<Workload> {
        let all = self.api::<Workload>().list(&ListParams::default()).await.ok()?;
        let is_its = |one: &Workload| {
            one.owner_references()
                .iter()
                .any(|owner| Some(&owner.uid) == wrapper.metadata.uid.as_ref())
        };
        all.items.into_iter().find(is_its)
    }

    async fn pods(&self, name: &str) -> Option<Vec<Pod>> {
        let of_it = ListParams::default().labels(&format!("workload.codeflare.dev/appwrapper={name}"));
        Some(self.api::<Pod>().list(&of_it).await.ok()?.items)
    }
}

fn phase(wrapper: &AppWrapper) -> &str {
    wrapper.status.as_ref().map_or("", |status| &status.phase)
}

fn said(wrapper: &AppWrapper) -> BTreeMap<String, String> {
    let conditions = wrapper.status.iter().flat_map(|status| &status.conditions);
    conditions
        .map(|one| (one.type_.clone(), format!("{}/{}", one.status, one.reason)))
        .collect()
}

/// An `AppWrapper`, what happens to it, and how it ends.
struct Case {
    wrapper: Value,
    act: Act,
    ends: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    Nothing,
    /// An administrator deactivates its Workload once it is ready.
    Deactivate,
    /// And activates it again.
    DeactivateAndActivate,
    /// A user deletes its Service once it is ready.
    DeleteChild,
    /// An object that it does not own has the name of its first child.
    MeetAStranger,
}

/// The samples of the operator's release.
async fn samples() -> Vec<Case> {
    let read = || {
        let built = locate_or_build(&[Program::AppWrapper], &Progress::stderr());
        let built = built.unwrap_or_else(|error| panic!("{}", chain(&error)));
        let files = built.manifests(Program::AppWrapper).into_iter();
        let texts = files.map(|file| fs::read_to_string(file).unwrap());
        texts
            .map(|text| serde_saphyr::from_str(&text).unwrap())
            .collect::<Vec<Value>>()
    };
    let samples = tokio::task::spawn_blocking(read).await.unwrap();
    assert_eq!(samples.len(), 2);
    let ends_well = |wrapper| Case {
        wrapper,
        act: Act::Nothing,
        ends: "Succeeded",
    };
    samples.into_iter().map(ends_well).collect()
}

fn pod_template(seconds: u32, exit_code: u8) -> Value {
    json!({
        "metadata": {"annotations": {RUN_SECONDS: seconds.to_string(), EXIT_CODE: exit_code.to_string()}},
        "spec": {"restartPolicy": "Never", "containers": [
            {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}},
        ]},
    })
}

fn pod(name: &str, seconds: u32, exit_code: u8) -> Value {
    let mut pod = pod_template(seconds, exit_code);
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = name.into();
    pod
}

fn job(name: &str, exit_code: u8) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": pod_template(1, exit_code)},
    })
}

fn wrapper(name: &str, retries: &str, components: &[Value]) -> Value {
    let components: Vec<Value> = components.iter().map(|one| json!({"template": one})).collect();
    let tuning = json!({
        format!("{TUNING}/failureGracePeriodDuration"): "0s",
        format!("{TUNING}/retryPausePeriodDuration"): "1s",
        format!("{TUNING}/retryLimit"): retries,
    });
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
        "metadata": {
            "name": name, "namespace": TEAM, "annotations": tuning, "labels": {"kueue.x-k8s.io/queue-name": QUEUE},
        },
        "spec": {"components": components},
    })
}

fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"clusterIP": "None", "ports": [{"port": 80}]},
    })
}

fn cases() -> Vec<Case> {
    let case = |(name, retries), act, ends, components: &[Value]| Case {
        wrapper: wrapper(name, retries, components),
        act,
        ends,
    };
    let long = |name| pod(name, 600, 0);
    vec![
        case(
            ("all-succeed", "0"),
            Act::Nothing,
            "Succeeded",
            &[
                pod("all-succeed", 2, 0),
                job("all-succeed", 0),
                service("all-succeed"),
            ],
        ),
        case(
            ("pod-fails", "1"),
            Act::Nothing,
            "Failed",
            &[pod("pod-fails", 1, 3)],
        ),
        case(("job-fails", "1"), Act::Nothing, "Failed", &[job("job-fails", 3)]),
        case(
            ("one-fails", "0"),
            Act::Nothing,
            "Failed",
            &[long("lives"), job("one-fails", 3)],
        ),
        case(("stopped", "0"), Act::Deactivate, "Suspended", &[long("stopped")]),
        case(
            ("goes-on", "0"),
            Act::DeactivateAndActivate,
            RUNNING,
            &[long("goes-on"), service("goes-on")],
        ),
        case(
            ("vanishes", "1"),
            Act::DeleteChild,
            "Failed",
            &[long("vanishes"), service("vanishes")],
        ),
        case(
            ("taken", "1"),
            Act::MeetAStranger,
            "Failed",
            &[service("taken"), long("taken")],
        ),
    ]
}

/// Plays a case under the operator; again, if the operator did not see a child that it had just created, and gave up.
///
/// Spec: appwrapper 8.1 W-1
async fn play_theirs(side: &Side, case: &Case) -> Outcome {
    let mut outcome = side.play(case).await;
    for _ in 0..2 {
        let unhealthy = outcome.conditions.get("Unhealthy").map(String::as_str);
        if case.act == Act::DeleteChild || unhealthy != Some("True/MissingComponent") {
            break;
        }
        outcome = side.play(case).await;
    }
    outcome
}

/// Compares the outcomes of one case. Where ours differs on purpose, the difference is asserted.
fn compare(case: &Case, mut ours: Outcome, mut theirs: Outcome) {
    let name = &case.wrapper["metadata"]["name"];
    if case.ends == "Failed" {
        let ready = ours.conditions.remove("PodsReady");
        assert_eq!(ready.as_deref(), Some("False/Failed"), "{name}: N-9");
        theirs.conditions.remove("PodsReady");
    }
    if case.ends == "Succeeded" {
        // Why: the operator looks at pods every 5 s, and may never see short ones run.
        ours.conditions.remove("PodsReady");
        theirs.conditions.remove("PodsReady");
    }
    if case.act == Act::MeetAStranger {
        assert_eq!((ours.strangers, theirs.strangers), (1, 0), "{name}: N-32, W-35");
        theirs.strangers = 1;
    }
    assert_eq!(ours, theirs, "{name}");
}

/// Spec: appwrapper 5.1, 5.4, 5.5, B131, N-9, N-32
#[tokio::test(flavor = "multi_thread")]
async fn appwrappers_end_under_the_reference_operator_as_under_our_controller() {
    let samples = samples().await;
    let (theirs, ours) = tokio::join!(
        Side::start("operator", Some(Runs::AppWrappers)),
        Side::start("ours", None)
    );
    let play = async {
        for case in samples.into_iter().chain(cases()) {
            let (there, here) = tokio::join!(play_theirs(&theirs, &case), ours.play(&case));
            compare(&case, here, there);
        }
    };
    let played = AssertUnwindSafe(timeout(DEADLINE, play)).catch_unwind().await;
    let ended = matches!(played, Ok(Ok(())));
    if !ended {
        println!("{}\n{}", theirs.state().await, ours.state().await);
    }
    match played {
        Ok(ended) => ended.expect("the comparison must end"),
        Err(panic) => resume_unwind(panic),
    }
}
