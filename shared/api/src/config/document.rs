//! One YAML document of the file: which kind it is, and how it becomes (part of) a [`Config`].

use serde::{Deserialize, Deserializer};

use super::roadstead::RoadsteadConfiguration;
use super::{Config, v1beta1, v1beta2};

/// The documents a configuration file may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentKind {
    /// `config.kueue.x-k8s.io/v1beta1`, kind `Configuration`.
    KueueV1Beta1,
    /// `config.kueue.x-k8s.io/v1beta2`, kind `Configuration`.
    KueueV1Beta2,
    /// `config.roadstead.dev/v1alpha1`, kind `RoadsteadConfiguration`.
    Roadstead,
}

impl DocumentKind {
    /// Every kind.
    pub const ALL: &'static [Self] = &[Self::KueueV1Beta2, Self::KueueV1Beta1, Self::Roadstead];

    /// The `apiVersion` and `kind` of such a document.
    pub const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::KueueV1Beta1 => ("config.kueue.x-k8s.io/v1beta1", "Configuration"),
            Self::KueueV1Beta2 => ("config.kueue.x-k8s.io/v1beta2", "Configuration"),
            Self::Roadstead => ("config.roadstead.dev/v1alpha1", "RoadsteadConfiguration"),
        }
    }

    /// The document kind with these names.
    pub fn named(api_version: &str, kind: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|candidate| candidate.names() == (api_version, kind))
    }

    /// Reads a document of this kind.
    ///
    /// # Errors
    /// The deserializer's first error: an unknown key, a wrong type, a bad value.
    pub fn read<'de, D: Deserializer<'de>>(self, deserializer: D) -> Result<Document, D::Error> {
        Ok(Document(match self {
            Self::KueueV1Beta1 => Written::V1Beta1(Box::new(Deserialize::deserialize(deserializer)?)),
            Self::KueueV1Beta2 => Written::V1Beta2(Box::new(Deserialize::deserialize(deserializer)?)),
            Self::Roadstead => Written::Roadstead(RoadsteadConfiguration::deserialize(deserializer)?),
        }))
    }
}

/// One document, read but without defaults.
pub struct Document(Written);

enum Written {
    V1Beta1(Box<v1beta1::Configuration>),
    V1Beta2(Box<v1beta2::Configuration>),
    Roadstead(RoadsteadConfiguration),
}

impl Config {
    /// The configuration without a file. `own_namespace` is the namespace of the process.
    pub fn without_file(own_namespace: &str) -> Self {
        Self::from_documents([], own_namespace)
    }

    /// Merges the documents of one file, with every default. Of two documents of one kind the later one counts; the
    /// loader refuses such files.
    pub fn from_documents(documents: impl IntoIterator<Item = Document>, own_namespace: &str) -> Self {
        let (mut config, mut own) = (None, None);
        for document in documents {
            match document.0 {
                Written::V1Beta1(written) => config = Some(written.fill(own_namespace)),
                Written::V1Beta2(written) => config = Some(written.fill(own_namespace)),
                Written::Roadstead(written) => own = Some(written),
            }
        }
        let config = config.unwrap_or_else(|| v1beta2::Configuration::default().fill(own_namespace));
        // Why last: its defaults follow the namespace that the other document names.
        let roadstead = own.unwrap_or_default().fill(&config.namespace);
        Self { roadstead, ..config }
    }
}
