//! Kinds of jobs beside `batch/v1 Job`, on real control planes and with their own controllers: on one cluster, and across two.

mod argo;
mod bad_input;
mod external;
mod ground;
mod jobset;
mod kubeflow;
mod needs;
mod pods;
mod ray;
mod scenes;
mod served;
mod serving;
mod skypilot;
mod spark;
mod trainjob;
mod wrapped;
mod wrapper;
