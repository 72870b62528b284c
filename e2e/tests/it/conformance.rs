//! The embedded API server answers as a real one does.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use kube::client::Body;
use roadstead_apiserver::{Clock, Options as Embedded, Server, User};
use roadstead_e2e::Options;
use roadstead_e2e::conformance::{normal, play, trace};
use serde_json::{Value, json};

use crate::shared::{eventually, start};

/// Traces of one run, unless `CONFORMANCE_TRACES` says otherwise. `CONFORMANCE_SEED` is the first one's number.
const TRACES: u64 = 500;
/// Of 100 traces, how many may still differ. Limit: what is open is listed in `shared/apiserver/DIFFERENCES.md`; this
/// number only goes down.
const OPEN_PERCENT_MAX: u64 = 12;
/// Traces that are played at a time.
const AT_A_TIME: usize = 8;
/// Differences that are printed.
const SHOWN: usize = 400;
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
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let mut out: Vec<Value> = files
        .iter()
        .map(|file| serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap())
        .collect();
    out.push(roadstead_e2e::conformance::widget_definition());
    out
}

async fn prepare(client: &kube::Client) {
    let at = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for definition in definitions() {
        let request = http::Request::post(at)
            .header("content-type", "application/json")
            .body(Body::from(definition.to_string().into_bytes()))
            .unwrap();
        let answer = client.send(request).await.unwrap();
        let name = &definition["metadata"]["name"];
        assert_eq!(answer.status(), 201, "{name}");
    }
    eventually(async || {
        let request = http::Request::get("/apis/conformance.roadstead.dev/v1/widgets")
            .body(Body::empty())
            .unwrap();
        let answer = client.send(request).await.unwrap();
        (answer.status() == 200).then_some(())
    })
    .await;
    // Why also the last of the product's: definitions are served one after the other.
    eventually(async || {
        let request = http::Request::get("/apis/kueue.x-k8s.io/v1beta2/workloads")
            .body(Body::empty())
            .unwrap();
        let answer = client.send(request).await.unwrap();
        (answer.status() == 200).then_some(())
    })
    .await;
}

/// All differences of one trace, each with what it is about.
async fn differences(real: &kube::Client, embedded: &kube::Client, seed: u64) -> Vec<(String, String)> {
    let (namespace, steps) = trace::generate(seed);
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
        // Why no further: what follows may differ because of this.
        break;
    }
    out
}

/// Spec: safety 8 L1: generated requests are answered as by kube-apiserver.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generated_traces_are_answered_as_by_a_real_server() {
    let plane = start(
        Options::bare("conformance")
            .with_apiserver_flag("--disable-admission-plugins=ServiceAccount,TaintNodesByCondition"),
    )
    .await;
    let real = plane.client().unwrap();
    let server = Server::new(Embedded::new(Clock::new(jiff::Timestamp::now), 7));
    let embedded = kube::Client::new(server.service(User::admin()), "default");
    prepare(&real).await;
    prepare(&embedded).await;
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
    let open = u64::try_from(found.len()).unwrap();
    assert!(open * 100 <= count * OPEN_PERCENT_MAX, "\n{report}");
    assert!(
        count > TRACES || took < DEADLINE,
        "{count} traces took {} s",
        took.as_secs()
    );
}
