//! Kinds of jobs beside `batch/v1 Job`, on real control planes and with their own controllers: on one cluster, and across two.

mod argo;
mod ground;
mod jobset;
mod pods;
mod ray;
mod served;
