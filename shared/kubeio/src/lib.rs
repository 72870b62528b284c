//! kubeio
