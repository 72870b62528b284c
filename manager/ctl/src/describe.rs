//! `roadstead describe`: all that is known of one job: what `explain` says, and what it is based on.
//!
//! It reads only what the caller may read on the management cluster. Events that may not be read are left out, and that is said.

pub mod view;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use roadstead_api::kueue::v1beta2::LocalQueue;

use self::view::{Facts, describe, render};
use crate::args::Explain;
use crate::event::{About, targets};
use crate::events;
use crate::explain;
use crate::failure::Failure;
use crate::objects;
use crate::output;

/// Prints a description of every Workload that is meant.
pub async fn run(args: &Explain, now: Timestamp) -> Result<(), Failure> {
    let client = objects::connect(&args.home).await?;
    let namespace = args.namespace.clone();
    let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let mut found = Vec::new();
    for answer in explain::answers(&client, &namespace, &args.name, now).await? {
        let about = About::Only(targets(&answer.workload));
        let events = events::read(&Api::<Event>::namespaced(client.clone(), &namespace), &about).await;
        let events = events.unwrap_or_else(|failure| {
            output::say(&format!("note: events are not shown: {}", failure.why));
            Vec::new()
        });
        let queue = answer.workload.spec.queue_name.as_deref().unwrap_or_default();
        let local = Api::<LocalQueue>::namespaced(client.clone(), &namespace);
        // Why no error: the job is described without it too.
        let queue = if queue.is_empty() {
            None
        } else {
            local.get_opt(queue).await.ok().flatten()
        };
        found.push(describe(
            answer,
            Facts {
                cluster_queue: queue.map(|queue| queue.spec.cluster_queue),
                events,
            },
        ));
    }
    let names: Vec<String> = found
        .iter()
        .map(|one| format!("workload.kueue.x-k8s.io/{}", one.name))
        .collect();
    output::result(args.output, &found, &names.join("\n"), || {
        let texts: Vec<String> = found.iter().map(|one| render(one, now)).collect();
        texts.join("\n\n")
    })
}
