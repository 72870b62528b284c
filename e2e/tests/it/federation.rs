//! Several planes at once, and what the whole federation does on them.
//!
//! The tests share a few federations (`fixture`); each has a namespace and a queue of its own in one of them. A test that cuts, kills
//! or changes something that others need has one for itself.

mod accounts;
mod anew;
mod authority;
mod busy;
mod calls;
mod capacity;
mod checks;
mod classes;
mod clocks;
mod dispatchers;
mod explain;
mod faults;
mod fixture;
mod frozen;
mod grounds;
mod hooked;
mod identity;
mod kills;
mod kinds;
mod kubeconfigs;
mod leader;
mod leaving;
mod limits;
mod look;
mod loss;
mod main_path;
mod meddling;
mod namespaces;
mod once;
mod origin;
mod pages;
mod past;
mod pending;
mod plain;
mod poison;
mod policies;
mod preempted;
mod processes;
mod provisioning;
mod refusals;
mod registration;
mod reviews;
mod rewound;
mod rights;
mod second;
mod servers;
mod shell;
mod space;
mod stale;
mod steering;
mod strain;
mod two_managers;
mod unheard;
mod unsure;
mod vanished;
mod watched;

use roadstead_e2e::{Federation, Options};

use crate::shared::{chain, plane, within};

#[tokio::test]
async fn three_planes_start_at_once_and_are_three_clusters() {
    // Why: a first build must not count against the deadline.
    plane().await;
    within(async {
        let workers = ["worker-a", "worker-b"].map(Options::bare).into();
        let federation = Federation::start(Options::bare("manager"), workers).await;
        let federation = federation.unwrap_or_else(|error| panic!("{}", chain(&error)));
        let planes = [
            &federation.manager,
            federation.worker("worker-a").unwrap(),
            federation.worker("worker-b").unwrap(),
        ];
        let mut ids = Vec::new();
        for plane in planes {
            let namespaces = kube::Api::<k8s_openapi::api::core::v1::Namespace>::all(plane.client().unwrap());
            ids.push(namespaces.get("kube-system").await.unwrap().metadata.uid.unwrap());
        }
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 3, "each cluster has its own kube-system");
        assert!(federation.worker("worker-c").is_none());
        federation.stop();
    })
    .await;
}
