//! What the tests share: one plane, and deadlines.

use std::error::Error;
use std::panic::Location;
use std::path::PathBuf;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use roadstead_e2e::binaries::{Program, locate_or_build};
use roadstead_e2e::{ControlPlane, Node, Options, Progress};
use serde_json::Value;
use tokio::process::Command;
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

/// Limit of a test, without the start of planes.
const TEST_DEADLINE: Duration = Duration::from_mins(3);
/// Limit of the start of planes, a first build included.
const START_DEADLINE: Duration = Duration::from_mins(30);
/// For one thing that is waited for: more than anything may take, less than a test may take.
const PATIENCE: Duration = Duration::from_secs(150);
const POLL: Duration = Duration::from_millis(50);

static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();

/// A complete plane with one node, for tests that do not disturb it. It is never dropped and ends with this process.
pub(crate) async fn plane() -> &'static ControlPlane {
    PLANE
        .get_or_init(|| async {
            let node = Node::new("node-1", "8", "32Gi").with_resource("nvidia.com/gpu", "8");
            start(Options::complete("shared").with_audit().with_node(node)).await
        })
        .await
}

pub(crate) async fn start(options: Options) -> ControlPlane {
    let started = timeout(START_DEADLINE, ControlPlane::start(options))
        .await
        .expect("the start must end");
    started.unwrap_or_else(|error| panic!("{}", chain(&error)))
}

/// Where a tool of other people is, built if it was not there.
pub(crate) async fn tool(program: Program) -> PathBuf {
    let located = spawn_blocking(move || locate_or_build(&[program], &Progress::stderr()));
    let located = timeout(START_DEADLINE, located)
        .await
        .expect("the build must end");
    let binaries = located
        .unwrap()
        .unwrap_or_else(|error| panic!("{}", chain(&error)));
    binaries
        .path(program)
        .expect("what was asked for is there")
        .to_owned()
}

/// Runs a command to its end and returns what it wrote to its standard output. Fails with what it wrote to the other one.
pub(crate) async fn output_of(command: &mut Command) -> String {
    output_within(START_DEADLINE, command).await
}

/// [`output_of`] a command with another limit.
pub(crate) async fn output_within(limit: Duration, command: &mut Command) -> String {
    let ended = timeout(limit, command.kill_on_drop(true).output()).await;
    let output = ended.expect("the command must end").unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// The specification of a queue whose cohorts and flavors have names of one test's own, without fields that are null.
pub(crate) fn owned(mut spec: Value, own: impl Fn(&str) -> String) -> Value {
    for field in ["cohortName", "parentName"] {
        if let Some(name) = spec[field].as_str().map(&own) {
            spec[field] = name.into();
        }
    }
    for group in spec["resourceGroups"].as_array_mut().into_iter().flatten() {
        for flavor in group["flavors"].as_array_mut().into_iter().flatten() {
            flavor["name"] = own(flavor["name"].as_str().unwrap()).into();
        }
    }
    spec.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    spec
}

/// An error with all its causes.
pub(crate) fn chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Runs a test's body under its deadline.
pub(crate) async fn within<T>(body: impl Future<Output = T>) -> T {
    timeout(TEST_DEADLINE, body)
        .await
        .expect("the test must end within its deadline")
}

/// Asks until the answer is there. Fails after [`PATIENCE`], or with the test's deadline if that is earlier.
#[track_caller]
pub(crate) fn eventually<T, F: Future<Output = Option<T>>>(
    probe: impl FnMut() -> F,
) -> impl Future<Output = T> {
    eventually_or(probe, String::new)
}

/// As [`eventually`]; its failure ends with what is there instead.
#[track_caller]
pub(crate) fn eventually_or<T, F: Future<Output = Option<T>>>(
    mut probe: impl FnMut() -> F,
    instead: impl Fn() -> String,
) -> impl Future<Output = T> {
    let asked = Location::caller();
    async move {
        let answer = async {
            loop {
                if let Some(answer) = probe().await {
                    return answer;
                }
                sleep(POLL).await;
            }
        };
        timeout(PATIENCE, answer).await.unwrap_or_else(|_elapsed| {
            let waited = PATIENCE.as_secs();
            panic!("what {asked} waits for has not come in {waited} s {}", instead())
        })
    }
}

/// A client of a kubeconfig's text, as a user would make it.
pub(crate) async fn client_of(kubeconfig: &str) -> kube::Client {
    connect(Kubeconfig::from_yaml(kubeconfig).expect("the kubeconfig must parse")).await
}

/// The same for another user without groups, in whose name the user of the kubeconfig may speak.
pub(crate) async fn client_as(kubeconfig: &str, user: &str) -> kube::Client {
    let mut parsed = Kubeconfig::from_yaml(kubeconfig).expect("the kubeconfig must parse");
    for known in &mut parsed.auth_infos {
        if let Some(info) = &mut known.auth_info {
            info.impersonate = Some(user.to_owned());
        }
    }
    connect(parsed).await
}

async fn connect(parsed: Kubeconfig) -> kube::Client {
    let mut config = kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default())
        .await
        .unwrap();
    config.default_retry = false;
    kube::Client::try_from(config).unwrap()
}
