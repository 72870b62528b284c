//! The group `autoscaling.x-k8s.io`: asking a cluster's autoscaler for nodes.

pub mod v1;
