//! How many objects one core converts: `cargo bench -p roadstead-convert --bench versions`.

#![expect(clippy::unwrap_used, reason = "a benchmark may fail loudly")]

use divan::Bencher;
use divan::counter::ItemsCount;
use roadstead_convert::versions::convert;
use serde_json::{Value, json};

const OLD: &str = "kueue.x-k8s.io/v1beta1";
const HUB: &str = "kueue.x-k8s.io/v1beta2";

fn main() {
    divan::main();
}

/// A workload as it is stored: two pod sets with templates, admitted on so many nodes.
fn workload(nodes: usize) -> Value {
    let container = json!({"name": "c", "image": "i", "env": vec![json!({"name": "A", "value": "b"}); 20],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}});
    let set =
        |name: &str| json!({"name": name, "count": 8, "template": {"spec": {"containers": [container]}}});
    let roots: Vec<String> = (0..nodes).map(|node| node.to_string()).collect();
    let place = json!({"levels": ["kubernetes.io/hostname"], "slices": [{
        "domainCount": nodes,
        "valuesPerLevel": [{"individual": {"prefix": "node-", "roots": roots}}],
        "podCounts": {"universal": 1},
    }]});
    json!({
        "apiVersion": HUB, "kind": "Workload", "metadata": {"name": "w", "namespace": "n"},
        "spec": {
            "queueName": "q", "podSets": [set("leader"), set("workers")], "preemptionGates": [{"name": "multikueue"}],
            "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "p"},
        },
        "status": {"admission": {"clusterQueue": "q", "podSetAssignments": [
            {"name": "leader", "count": 8}, {"name": "workers", "count": 8, "topologyAssignment": place},
        ]}},
    })
}

fn cluster_queue() -> Value {
    let quota = json!([{"name": "cpu", "nominalQuota": "9"}, {"name": "memory", "nominalQuota": "9Gi"}]);
    let flavors: Vec<_> = (0..8)
        .map(|index| json!({"name": format!("f{index}"), "resources": quota}))
        .collect();
    json!({
        "apiVersion": HUB, "kind": "ClusterQueue", "metadata": {"name": "q"},
        "spec": {"cohortName": "c", "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": flavors}]},
    })
}

fn run(bencher: Bencher<'_, '_>, object: &Value, version: &str) {
    bencher
        .counter(ItemsCount::new(1_usize))
        .with_inputs(|| object.clone())
        .bench_values(|object| convert(object, version).unwrap());
}

#[divan::bench(args = [0, 8, 1000])]
fn workload_to_v1beta1(bencher: Bencher<'_, '_>, nodes: usize) {
    run(bencher, &workload(nodes), OLD);
}

#[divan::bench(args = [0, 8, 1000])]
fn workload_to_v1beta2(bencher: Bencher<'_, '_>, nodes: usize) {
    run(bencher, &convert(workload(nodes), OLD).unwrap(), HUB);
}

#[divan::bench]
fn cluster_queue_to_v1beta1(bencher: Bencher<'_, '_>) {
    run(bencher, &cluster_queue(), OLD);
}

#[divan::bench]
fn cluster_queue_to_v1beta2(bencher: Bencher<'_, '_>) {
    run(bencher, &convert(cluster_queue(), OLD).unwrap(), HUB);
}
