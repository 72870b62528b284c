//! What the virtual nodes that stand for worker clusters answer to requests about the pods on them.
//!
//! *Source*: `spec/jobs.md 12.9`.

use std::sync::Arc;

use kube::ResourceExt as _;
use roadstead_api::constants::{annotations, names};
use roadstead_core::name::Key;
use roadstead_kinds::rows;
use roadstead_serve::webhook::NodeAnswer;

use crate::caches::Caches;

/// Says in which cluster a pod runs, and the command that works there.
pub(super) fn answer(caches: Caches) -> NodeAnswer {
    Arc::new(move |namespace, pod| match cluster_of(&caches, namespace, pod) {
        Some(cluster) => format!(
            "pod {namespace}/{pod} runs in worker cluster {cluster}, and logs, exec, attach and port-forward are not passed on to it; \
             use a kubeconfig of {cluster}: kubectl --kubeconfig {cluster}.kubeconfig -n {namespace} logs {pod}"
        ),
        None => format!("pod {namespace}/{pod} is not known to run in a worker cluster"),
    })
}

/// The worker cluster on whose node a pod is shown.
fn cluster_of(caches: &Caches, namespace: &str, pod: &str) -> Option<String> {
    let pods = caches.kind(rows::POD.group, rows::POD.kind)?;
    let pod = pods.objects.get(&Key::new(namespace, pod))?;
    let node = pod.annotations().get(annotations::VIRTUAL_NODE)?;
    node.strip_prefix(&names::virtual_node("")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Spec: jobs 12.9
    #[test]
    fn a_pod_on_a_virtual_node_names_its_cluster_and_the_command() {
        let caches = Caches::new(&roadstead_jobs::registry());
        let on_node = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "ns", "annotations": {annotations::VIRTUAL_NODE: "roadstead-east"}},
        });
        let pods = caches.kind("", "Pod").unwrap();
        pods.objects.observe(serde_json::from_value(on_node).unwrap());
        let answer = answer(caches.clone());
        let said = answer("ns", "p");
        assert!(
            said.contains("runs in worker cluster east")
                && said.ends_with("kubectl --kubeconfig east.kubeconfig -n ns logs p"),
            "{said}"
        );
        assert_eq!(
            answer("ns", "q"),
            "pod ns/q is not known to run in a worker cluster"
        );
    }
}
