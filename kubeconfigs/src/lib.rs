//! kubeconfigs
