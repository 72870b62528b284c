//! The `CustomResourceDefinition`s of all kinds.
