//! Label selectors of the configuration file: strict when read, and matched against labels here.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A label selector in which an unknown key is an error. Empty selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LabelSelector {
    /// Labels that must have exactly these values.
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements; all must hold.
    pub match_expressions: Vec<Requirement>,
}

/// One requirement of a [`LabelSelector`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Requirement {
    /// Label key.
    pub key: String,
    /// How `values` are compared.
    pub operator: SelectorOperator,
    /// Values for `In` and `NotIn`; must be empty for the others.
    #[serde(default)]
    pub values: Vec<String>,
}

/// Operators of label selectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum SelectorOperator {
    /// The label has one of the values.
    In,
    /// The label is absent or has none of the values.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

impl LabelSelector {
    /// Selects all namespaces except `names`.
    pub fn namespaces_except(names: &[&str]) -> Self {
        let mut values: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        values.dedup();
        Self {
            match_labels: BTreeMap::new(),
            match_expressions: vec![Requirement {
                key: NAMESPACE_NAME_LABEL.into(),
                operator: SelectorOperator::NotIn,
                values,
            }],
        }
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| {
                let value = labels.get(&requirement.key);
                let listed = value.is_some_and(|value| requirement.values.contains(value));
                match requirement.operator {
                    SelectorOperator::In => listed,
                    SelectorOperator::NotIn => !listed,
                    SelectorOperator::Exists => value.is_some(),
                    SelectorOperator::DoesNotExist => value.is_none(),
                }
            })
    }

    /// Whether a namespace is selected that has no label but its name.
    pub fn matches_namespace_named(&self, name: &str) -> bool {
        self.matches(&BTreeMap::from([(NAMESPACE_NAME_LABEL.into(), name.into())]))
    }
}

/// Label that the API server puts on each namespace with the namespace's own name.
const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";
