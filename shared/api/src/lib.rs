//! api

pub mod config;
