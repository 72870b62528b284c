//! The embedded API server answers as a real one does.

mod hooks;
mod product;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use hooks::Hooks;
use kube::client::Body;
use roadstead_apiserver::{Clock, HttpsCaller, Options as Embedded, Server, User};
use roadstead_e2e::Options;
use roadstead_e2e::conformance::{normal, play, scenes};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::nightly::or_nightly;
use crate::shared::{eventually, start};

/// Traces of one run, unless `CONFORMANCE_TRACES` says otherwise. `CONFORMANCE_SEED` is the first one's number.
const TRACES: u64 = or_nightly(150, 500);
/// Traces that are played at a time.
const AT_A_TIME: usize = 8;
/// Differences that are printed.
const SHOWN: usize = 400;
/// Limit until definitions and webhooks are effective.
const PREPARED_WITHIN: Duration = Duration::from_mins(1);
/// Within which a run of [`TRACES`] must end.
const DEADLINE: Duration = Duration::from_mins(5);

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

fn definitions() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
    let folders = [folder.clone(), folder.join("others")];
    let entries = { folders.iter() }.flat_map(|folder| fs::read_dir(folder).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths.filter(|path| path.is_file()).collect();
    files.sort();
    let mut out: Vec<Value> = files
        .iter()
        .map(|file| serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap())
        .collect();
    out.push(roadstead_e2e::conformance::widget_definition());
    out
}

/// Code and body of one request; a body that is null is none.
async fn send(client: &kube::Client, method: &str, at: &str, body: &Value) -> (u16, Value) {
    let bytes = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    let request = http::Request::builder()
        .method(method)
        .uri(at)
        .header("content-type", "application/json")
        .body(Body::from(bytes))
        .unwrap();
    let answer = client.send(request).await.unwrap();
    let code = answer.status().as_u16();
    let bytes = answer.into_body().collect_bytes().await.unwrap();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

async fn wait_for(client: &kube::Client, path: &str, code: u16) {
    let asking = eventually(async || (send(client, "GET", path, &Value::Null).await.0 == code).then_some(()));
    timeout(PREPARED_WITHIN, asking).await.expect(path);
}

/// Creates definitions and webhooks, and waits until they are effective.
async fn prepare(client: &kube::Client, hooks: &Hooks) {
    let at = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definitions = definitions().into_iter().map(|definition| (at, definition));
    let objects: Vec<(&str, Value)> = definitions.chain(hooks.objects()).collect();
    for (at, object) in &objects {
        let (code, answer) = send(client, "POST", at, object).await;
        assert_eq!(code, 201, "{answer}");
    }
    // Why all: definitions are served one after the other.
    for (_, object) in objects.iter().filter(|(at_, _)| *at_ == at) {
        let spec = &object["spec"];
        let versions = spec["versions"].as_array().unwrap().iter();
        for version in versions.filter(|version| version["served"] == true) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
            let path = format!("/apis/{group}/{}/{plural}", text(&version["name"]));
            wait_for(client, &path, 200).await;
        }
    }
    for word in ["deny", "mutate"] {
        let map = json!({"metadata": {"name": "x", "labels": {"hook": word}}});
        let asking = eventually(async || {
            let at = "/api/v1/namespaces/default/configmaps?dryRun=All";
            let (code, answer) = send(client, "POST", at, &map).await;
            let seen = code == 403 || answer["metadata"]["annotations"]["asked"].is_string();
            seen.then_some(())
        });
        timeout(PREPARED_WITHIN, asking).await.expect(word);
    }
}

/// The user that a server sees for a client.
async fn myself(client: &kube::Client) -> User {
    let question = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let at = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (_, answer) = send(client, "POST", at, &question).await;
    let user = &answer["status"]["userInfo"];
    let groups: Vec<&str> = user["groups"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .filter(|group| *group != "system:authenticated")
        .collect();
    let mut own = User::new(user["username"].as_str().unwrap_or_default(), &groups);
    own.extra = serde_json::from_value(user["extra"].clone()).unwrap_or_default();
    own
}

/// All differences of one trace, each with what it is about.
async fn differences(real: &kube::Client, embedded: &kube::Client, seed: u64) -> Vec<(String, String)> {
    let (namespace, steps) = scenes::generate(seed);
    let theirs = play::play(real, &namespace, &steps).await;
    let ours = play::play(embedded, &namespace, &steps).await;
    let (mut theirs, mut ours) = match (theirs, ours) {
        (Ok(theirs), Ok(ours)) => (theirs, ours),
        (theirs, ours) => {
            let says = format!("{:?} | {:?}", theirs.err(), ours.err());
            return vec![("not played".to_owned(), format!("seed {seed}: {says}"))];
        }
    };
    normal::normalize(&mut theirs);
    normal::normalize(&mut ours);
    let mut out = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let whole = |answer: &normal::Answer| json!({"code": answer.code, "warnings": answer.warnings, "body": answer.body});
        let lines = normal::differences(&whole(&theirs[at]), &whole(&ours[at]), 6);
        if lines.is_empty() {
            continue;
        }
        let plural = step
            .path
            .split('/')
            .find(|part| part.ends_with('s') && *part != "apis" && *part != "namespaces")
            .unwrap_or("");
        let body = step.body.as_ref().map_or_else(String::new, ToString::to_string);
        let message = format!(
            "theirs {} | ours {}",
            theirs[at].body["message"], ours[at].body["message"]
        );
        out.push((
            format!("{} {plural}", step.method),
            format!(
                "seed {seed} step {at} {} {} {body}\n    {}\n    {message}",
                step.method,
                step.path,
                lines.join("\n    ")
            ),
        ));
        // Why stop here: later differences may follow from this one.
        break;
    }
    out
}

/// Spec: safety 8 L1: generated requests are answered as by kube-apiserver.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generated_traces_are_answered_as_by_a_real_server() {
    let plane = start(
        Options::bare("conformance")
            .with_apiserver_flag(
                "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,LimitRanger",
            )
            // Why: traces ask for compacted versions, and with this flag the first ones are compacted after ten seconds.
            .with_apiserver_flag("--etcd-compaction-interval=5s"),
    )
    .await;
    let real = plane.client().unwrap();
    let mut options = Embedded::new(Clock::new(jiff::Timestamp::now), 7);
    options.caller = Arc::new(HttpsCaller::default());
    let server = Server::new(options);
    let embedded = kube::Client::new(server.service(myself(&real).await), "default");
    let hooks = Hooks::start().await;
    prepare(&real, &hooks).await;
    prepare(&embedded, &hooks).await;
    server.compact();
    let forgotten = "/api/v1/configmaps?resourceVersion=2&resourceVersionMatch=Exact";
    for client in [&real, &embedded] {
        wait_for(client, forgotten, 410).await;
    }
    let (first, count) = (
        number("CONFORMANCE_SEED", 1),
        number("CONFORMANCE_TRACES", TRACES),
    );
    let began = Instant::now();
    let found: Vec<(String, String)> = futures::stream::iter(first..first + count)
        .map(|seed| {
            let (real, embedded) = (real.clone(), embedded.clone());
            async move { differences(&real, &embedded, seed).await }
        })
        .buffer_unordered(AT_A_TIME)
        .concat()
        .await;
    let took = began.elapsed();
    println!(
        "{count} traces in {} s, {} with a difference",
        took.as_secs(),
        found.len()
    );
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (about, line) in &found {
        groups.entry(about).or_default().push(line);
    }
    let mut report = String::new();
    for (about, lines) in &groups {
        let _infallible = writeln!(report, "== {about}: {}", lines.len());
        for line in lines.iter().take(SHOWN / groups.len().max(1)) {
            let _infallible = writeln!(report, "{line}");
        }
    }
    assert!(found.is_empty(), "\n{report}");
    assert!(
        count > TRACES || took < DEADLINE,
        "{count} traces took {} s",
        took.as_secs()
    );
}
