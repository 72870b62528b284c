//! Every auditor accepts a run that keeps its rule and finds runs that break it.

mod contain;
mod leads;
mod pods;
mod quota;
mod rest;
mod running;
mod scene;
mod word;
