//! The group `kueue.x-k8s.io`: queues, quotas, workloads and the kinds of the federation.

pub mod v1beta2;

pub(crate) mod v1alpha1;
pub(crate) mod v1beta1;
