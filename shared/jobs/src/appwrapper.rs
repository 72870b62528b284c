//! `AppWrapper`: where the pods of what is wrapped come from. *Source*: `spec/appwrapper.md 1.4, 1.5`.

pub mod infer;
pub mod path;
