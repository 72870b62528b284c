use roadstead_kubeio::cache::Cache;
use serde_json::{Value, json};

use super::*;
use crate::caches::Ancestors;

const CONFIG: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
const JOB: (&str, &str) = ("batch/v1", "Job");
const JOB_SET: (&str, &str) = ("jobset.x-k8s.io/v1alpha2", "JobSet");
const WRAPPER: (&str, &str) = ("workload.codeflare.dev/v1beta2", "AppWrapper");

/// One object of a chain, from the bottom up.
struct Link {
    kind: (&'static str, &'static str),
    queue: Option<&'static str>,
}

const fn link(kind: (&'static str, &'static str), queue: Option<&'static str>) -> Link {
    Link { kind, queue }
}

fn object(links: &[Link], index: usize) -> DynamicObject {
    let link = &links[index];
    let owners: Vec<Value> = { links.get(index + 1).into_iter() }
        .map(|owner| {
            json!({
                "apiVersion": owner.kind.0, "kind": owner.kind.1, "name": format!("o{}", index + 1),
                "uid": format!("u{}", index + 1), "controller": true,
            })
        })
        .collect();
    let labels = link
        .queue
        .map(|queue| json!({"kueue.x-k8s.io/queue-name": queue}));
    serde_json::from_value(json!({
        "apiVersion": link.kind.0, "kind": link.kind.1,
        "metadata": {
            "namespace": "team", "name": format!("o{index}"), "uid": format!("u{index}"),
            "ownerReferences": owners, "labels": labels,
        },
    }))
    .unwrap()
}

/// Caches of these kinds that were listed and hold the chain; owners of other kinds are remembered.
fn caches(config: &str, kinds: &[&str], links: &[Link]) -> Caches {
    let enabled: Vec<_> = roadstead_jobs::registry()
        .into_iter()
        .filter(|kind| kinds.contains(&kind.kind().kind))
        .collect();
    let text = format!("{CONFIG}{config}");
    let config = roadstead_serve::config::parse("test", &text, &[], "kueue-system").unwrap();
    let caches = Caches::new(&enabled).owned(Ancestors::of(&config));
    for index in 1..links.len() {
        let owner = object(links, index);
        let (group, kind) = (
            links[index].kind.0.split_once('/').unwrap().0,
            links[index].kind.1,
        );
        match caches.kind(group, kind) {
            Some(jobs) => Cache::observe(&jobs.objects, owner),
            None => caches.ancestors.remember(
                &Uid::from(format!("u{index}")),
                Distant::There {
                    queue: labels::queue(&owner.metadata).map(str::to_owned),
                    above: controller(&owner.metadata),
                },
            ),
        }
    }
    caches
}

/// The kind on top of the chain's first object.
fn top_of(config: &str, kinds: &[&str], links: &[Link]) -> Option<String> {
    let caches = caches(config, kinds, links);
    match top(&caches, &object(links, 0)).unwrap()? {
        Top::Job(_, job) => Some(job.name_any()),
        Top::External(uid) => Some(uid.as_str().to_owned()),
    }
}

/// The rows of the table, from the bottom up.
///
/// Spec: appwrapper 5.5, B137; jobs 4.3
#[test]
fn what_an_appwrapper_holds_belongs_to_it_whatever_stands_between() {
    let all = ["Job", "JobSet", "AppWrapper"];
    let queue = Some("q");
    let unqueued = "manageJobsWithoutQueueName: true\n";
    let found = |top: usize| Some(format!("o{top}"));
    let check = |config: &str, kinds: &[&str], links: &[Link], expect: Option<String>| {
        assert_eq!(top_of(config, kinds, links), expect, "{config}");
    };
    check("", &all, &[link(JOB, None), link(WRAPPER, queue)], found(1));
    let nested = [link(JOB, queue), link(JOB_SET, queue), link(WRAPPER, queue)];
    check("", &all, &nested, found(2));
    check("", &["Job", "AppWrapper"], &nested, found(2));
    let plain = [link(JOB, queue), link(WRAPPER, None)];
    check("", &all, &plain, None);
    check(unqueued, &all, &plain, found(1));
    let inner = [link(JOB, queue), link(JOB_SET, queue), link(WRAPPER, None)];
    check("", &all, &inner, found(1));
    let deployed = [
        link(("v1", "Pod"), None),
        link(("apps/v1", "ReplicaSet"), None),
        link(("apps/v1", "Deployment"), None),
        link(WRAPPER, queue),
    ];
    check("", &all, &deployed, found(3));
    check("", &["Job"], &[link(JOB, queue), link(WRAPPER, queue)], None);
}

/// Spec: jobs 11; appwrapper 5.5
#[test]
fn a_job_of_an_external_framework_is_an_ancestor_if_it_names_a_queue() {
    let external = "integrations: {externalFrameworks: [AppWrapper.v1beta2.workload.codeflare.dev]}\n";
    let queued = [link(JOB, Some("q")), link(WRAPPER, Some("q"))];
    assert_eq!(top_of(external, &["Job"], &queued), Some("u1".to_owned()));
    let plain = [link(JOB, Some("q")), link(WRAPPER, None)];
    assert_eq!(top_of(external, &["Job"], &plain), None);
}

/// Spec: jobs 4.3
#[test]
fn an_owner_that_is_not_known_is_asked_for_and_another_object_of_its_name_is_not_it() {
    let links = [
        link(JOB, Some("q")),
        link(JOB_SET, None),
        link(WRAPPER, Some("q")),
    ];
    let caches = caches("", &["Job", "AppWrapper"], &links[..1]);
    let reference = controller(&object(&links, 0).metadata).unwrap();
    let missing = top(&caches, &object(&links, 0)).err().unwrap();
    assert_eq!(missing, Stop::Unread(Missing::Unread(reference.clone())));
    caches.ancestors.remember(&reference.uid, Distant::Gone);
    assert!(top(&caches, &object(&links, 0)).unwrap().is_none());

    let short = [link(JOB, Some("q")), link(WRAPPER, Some("q"))];
    let unlisted = top(&caches, &object(&short, 0)).err().unwrap();
    assert_eq!(
        unlisted,
        Stop::Unread(Missing::Unlisted("appwrappers".to_owned()))
    );
    let mut other = object(&short, 1);
    other.metadata.uid = Some("another".to_owned());
    caches
        .kind("workload.codeflare.dev", "AppWrapper")
        .unwrap()
        .objects
        .observe(other);
    assert!(top(&caches, &object(&short, 0)).unwrap().is_none());
}
