//! Every kind that has job webhooks, built here or not.

use crate::kind::Gvk;

const fn gvk(group: &'static str, version: &'static str, kind: &'static str) -> Gvk {
    Gvk { group, version, kind }
}

/// The kinds whose webhook paths are served, so that one set of webhook configurations fits every process: where the
/// integration is off or unknown here, the answer is "allowed, unchanged".
///
/// *Source*: `spec/jobs.md 4.1, 7.1`.
pub const KNOWN: [Gvk; 18] = [
    gvk("batch", "v1", "Job"),
    gvk("jobset.x-k8s.io", "v1alpha2", "JobSet"),
    gvk("kubeflow.org", "v2beta1", "MPIJob"),
    gvk("kubeflow.org", "v1", "TFJob"),
    gvk("kubeflow.org", "v1", "PyTorchJob"),
    gvk("kubeflow.org", "v1", "PaddleJob"),
    gvk("kubeflow.org", "v1", "XGBoostJob"),
    gvk("kubeflow.org", "v1", "JAXJob"),
    gvk("trainer.kubeflow.org", "v1alpha1", "TrainJob"),
    gvk("ray.io", "v1", "RayJob"),
    gvk("ray.io", "v1", "RayCluster"),
    gvk("ray.io", "v1", "RayService"),
    gvk("workload.codeflare.dev", "v1beta2", "AppWrapper"),
    gvk("sparkoperator.k8s.io", "v1beta2", "SparkApplication"),
    gvk("", "v1", "Pod"),
    gvk("apps", "v1", "Deployment"),
    gvk("apps", "v1", "StatefulSet"),
    gvk("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),
];
