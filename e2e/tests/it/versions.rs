//! The surface of our kinds on a real API server, in every version: what it serves, refuses, defaults, prints, explains,
//! warns of, and converts through the webhook.

mod conversion;
mod discovery;
mod fixture;
mod manifests;
mod rules;
