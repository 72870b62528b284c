//! Every auditor sees a run that keeps its rule and runs that break it.

mod contain;
mod leads;
mod pods;
mod quota;
mod rest;
mod running;
mod scene;
mod word;
