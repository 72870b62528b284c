//! Facts beside the Workload itself that count against quota: limit ranges, runtime classes, the administrator's rules.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{LimitRange, LimitRangeItem};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use roadstead_api::config::{Config, FeatureGate, TransformationStrategy};
use roadstead_core::amount::Amount;
use roadstead_core::lifecycle::Reclaim;
use roadstead_core::name::ResourceName;
use roadstead_core::quantity;
use roadstead_core::requests::{Amounts, Bounds, Claims, Input, Limits, Rules, Transformation};

/// Facts beside the Workload itself that count against quota.
#[derive(Clone, Copy)]
pub struct Accounting<'a> {
    /// The administrator's rules.
    pub rules: &'a Rules,
    /// The limit ranges of its namespace.
    pub limits: &'a Limits,
    /// The overhead of a runtime class by name.
    pub overhead: &'a dyn Fn(&str) -> Option<Amounts>,
    /// Whether annotation `kueue.x-k8s.io/priority-boost` counts.
    pub boost: Boost,
    /// Whether finished pods free their quota before their job ends.
    pub reclaim: Reclaim,
}

impl fmt::Debug for Accounting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accounting")
            .field("rules", self.rules)
            .field("limits", self.limits)
            .field("boost", &self.boost)
            .field("reclaim", &self.reclaim)
            .finish_non_exhaustive()
    }
}

impl Accounting<'_> {
    /// The accounting without any rules: only the Workload itself counts.
    pub(crate) fn plain() -> Self {
        const RULES: &Rules = &Rules {
            excluded_prefixes: Vec::new(),
            transformations: Vec::new(),
            // Why: this accounting is for processes that do not decide about quota, so it refuses no Workload.
            claims: Claims::Ignore,
        };
        const BOUNDS: Bounds = Bounds {
            min: Amounts::new(),
            max: Amounts::new(),
            default: Amounts::new(),
            default_request: Amounts::new(),
        };
        const LIMITS: &Limits = &Limits {
            container: BOUNDS,
            pod: BOUNDS,
        };
        Self {
            rules: RULES,
            limits: LIMITS,
            overhead: &|_| None,
            boost: Boost::Ignore,
            reclaim: Reclaim::Count,
        }
    }
}

/// Whether finished pods free their quota before their job ends. *Source*: gate `ReclaimablePods`.
pub fn reclaim(config: &Config) -> Reclaim {
    if config.feature_gates.enabled(FeatureGate::ReclaimablePods) {
        Reclaim::Count
    } else {
        Reclaim::Ignore
    }
}

/// Whether annotation `kueue.x-k8s.io/priority-boost` counts. *Source*: gate `PriorityBoost`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Boost {
    /// It is added to the priority.
    Count,
    /// It is ignored.
    #[default]
    Ignore,
}

impl Boost {
    /// The choice that the configuration makes.
    pub fn of(config: &Config) -> Self {
        if config.feature_gates.enabled(FeatureGate::PriorityBoost) {
            Self::Count
        } else {
            Self::Ignore
        }
    }
}

/// The administrator's rules from the configuration. A factor that is no quantity counts as zero: the configuration refuses it.
pub fn request_rules(config: &Config) -> Rules {
    let refuse = FeatureGate::KueueDRARejectWorkloadsWhenDRADisabled;
    let rules = config
        .resources
        .transformations
        .iter()
        .map(|rule| Transformation {
            input: ResourceName::from(rule.input.as_str()),
            strategy: match rule.strategy {
                TransformationStrategy::Retain => Input::Retain,
                TransformationStrategy::Replace => Input::Replace,
            },
            multiply_by: (!rule.multiply_by.is_empty())
                .then(|| ResourceName::from(rule.multiply_by.as_str())),
            outputs: rule
                .outputs
                .iter()
                .map(|(name, factor)| (ResourceName::from(name.as_str()), thousandths(factor)))
                .collect(),
        });
    Rules {
        excluded_prefixes: config.resources.exclude_resource_prefixes.clone(),
        transformations: rules.collect(),
        claims: if config.feature_gates.enabled(refuse) {
            Claims::Refuse
        } else {
            Claims::Ignore
        },
    }
}

fn thousandths(factor: &str) -> i64 {
    // Why cpu: amounts of this resource are parsed in thousandths.
    quantity::parse("cpu", factor).unwrap_or_default().get()
}

/// The bounds of one `LimitRange` for containers and pods. Amounts that do not parse are left out; the API server refuses them.
pub fn limit_range(range: &LimitRange) -> Limits {
    let mut limits = Limits::default();
    for item in range.spec.iter().flat_map(|spec| &spec.limits) {
        match item.type_.as_str() {
            "Container" => limits.container.add(&bounds(item)),
            "Pod" => limits.pod.add(&bounds(item)),
            _ => {}
        }
    }
    limits
}

fn bounds(item: &LimitRangeItem) -> Bounds {
    Bounds {
        min: amounts(item.min.as_ref()),
        max: amounts(item.max.as_ref()),
        default: amounts(item.default.as_ref()),
        default_request: amounts(item.default_request.as_ref()),
    }
}

/// The overhead of a runtime class, per pod.
pub fn overhead(class: &RuntimeClass) -> Amounts {
    amounts(
        class
            .overhead
            .as_ref()
            .and_then(|overhead| overhead.pod_fixed.as_ref()),
    )
}

fn amounts(all: Option<&BTreeMap<String, Quantity>>) -> Amounts {
    let amount = |(name, amount): (&String, &Quantity)| -> Option<(ResourceName, Amount)> {
        Some((
            ResourceName::from(name.as_str()),
            quantity::parse(name, &amount.0).ok()?,
        ))
    };
    all.into_iter().flatten().filter_map(amount).collect()
}

#[cfg(test)]
mod tests;
