//! Rules that ClusterQueue and Cohort share: resource groups and weights.
//!
//! *Source*: `spec/api.md API-2.4, API-4`.

use std::collections::BTreeSet;

use roadstead_api::kueue::v1beta2 as api;
use roadstead_core::quantity;
use roadstead_jobs::problem::{LABEL_KEY_RULE, Problem, is_label_key};

/// *Limit*: flavors over all groups.
const FLAVORS_MAX: usize = 256;
/// *Limit*: covered resources over all groups.
const RESOURCES_MAX: usize = 256;
/// *Limit*: pairs of flavor and resource in one group.
const PAIRS_MAX: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    QueueInCohort,
    /// A ClusterQueue without cohort, which cannot borrow or lend.
    LoneQueue,
    Cohort,
    RootCohort,
}

impl Holder {
    /// Why a `borrowingLimit` or `lendingLimit` is refused; `None` when both are allowed.
    const fn no_limits(self) -> Option<&'static str> {
        match self {
            Self::LoneQueue => Some("must be nil when cohort is empty"),
            Self::RootCohort => Some("must be nil when parent is empty"),
            Self::QueueInCohort | Self::Cohort => None,
        }
    }

    /// Whether it lends only its own quota, so that `lendingLimit` must not exceed `nominalQuota`. A Cohort lends the quota of its subtree.
    const fn lends_own(self) -> bool {
        matches!(self, Self::QueueInCohort | Self::LoneQueue)
    }
}

pub(super) fn groups(groups: &[api::ResourceGroup], holder: Holder, problems: &mut Vec<Problem>) {
    let (mut resources, mut flavors) = (BTreeSet::new(), BTreeSet::new());
    let (mut resource_count, mut flavor_count) = (0, 0);
    for (index, group) in groups.iter().enumerate() {
        let path = format!("spec.resourceGroups[{index}]");
        resource_count += group.covered_resources.len();
        flavor_count += group.flavors.len();
        for (at, name) in group.covered_resources.iter().enumerate() {
            let field = format!("{path}.coveredResources[{at}]");
            if !is_label_key(name) {
                problems.push(Problem::invalid(field.clone(), LABEL_KEY_RULE).of(name));
            }
            if !resources.insert(name.as_str()) {
                problems.push(Problem::duplicate(field, name));
            }
        }
        for (at, flavor) in group.flavors.iter().enumerate() {
            let field = format!("{path}.flavors[{at}]");
            if !flavors.insert(flavor.name.as_str()) {
                problems.push(Problem::duplicate(format!("{field}.name"), &flavor.name));
            }
            self::flavor(&field, flavor, &group.covered_resources, holder, problems);
        }
        let pairs = group.flavors.iter().map(|flavor| flavor.resources.len()).sum();
        if pairs > PAIRS_MAX {
            problems.push(Problem::too_many(
                format!("{path}.flavors[*].resources"),
                pairs,
                PAIRS_MAX,
            ));
        }
    }
    if flavor_count > FLAVORS_MAX {
        let field = "spec.resourceGroups[*].flavors";
        problems.push(Problem::too_many(field, flavor_count, FLAVORS_MAX));
    }
    if resource_count > RESOURCES_MAX {
        let field = "spec.resourceGroups[*].coveredResources";
        problems.push(Problem::too_many(field, resource_count, RESOURCES_MAX));
    }
}

fn flavor(
    path: &str,
    flavor: &api::FlavorQuotas,
    covered: &[String],
    holder: Holder,
    problems: &mut Vec<Problem>,
) {
    if flavor.resources.len() != covered.len() {
        let text = "flavors must have the same number of resources as the coveredResources";
        problems.push(
            Problem::invalid(format!("{path}.resources"), text).of(&flavor.resources.len().to_string()),
        );
    }
    for (index, quota) in flavor.resources.iter().enumerate() {
        let path = format!("{path}.resources[{index}]");
        if covered.get(index).is_some_and(|name| *name != quota.name) {
            let text = "must match the name in coveredResources";
            problems.push(Problem::invalid(format!("{path}.name"), text).of(&quota.name));
        }
        self::quota(&path, quota, holder, problems);
    }
}

fn quota(path: &str, quota: &api::ResourceQuota, holder: Holder, problems: &mut Vec<Problem>) {
    not_negative(&format!("{path}.nominalQuota"), &quota.nominal_quota.0, problems);
    for (name, limit) in [
        ("borrowingLimit", &quota.borrowing_limit),
        ("lendingLimit", &quota.lending_limit),
    ] {
        let Some(limit) = limit else { continue };
        let field = format!("{path}.{name}");
        not_negative(&field, &limit.0, problems);
        if let Some(why) = holder.no_limits() {
            problems.push(Problem::invalid(field, why).of(&limit.0));
        }
    }
    if let Some(lending) = quota.lending_limit.as_ref().filter(|_| holder.lends_own()) {
        let amount = |text: &str| quantity::parse(&quota.name, text).ok();
        if let (Some(lent), Some(nominal)) = (amount(&lending.0), amount(&quota.nominal_quota.0))
            && lent > nominal
        {
            let why = "must be less than or equal to the nominalQuota";
            problems.push(Problem::invalid(format!("{path}.lendingLimit"), why).of(&lending.0));
        }
    }
}

/// Checks that an amount is a quantity and not negative.
pub(super) fn not_negative(field: &str, text: &str, problems: &mut Vec<Problem>) {
    // Why without a resource name: amounts are rounded away from zero, so the sign is right in every unit.
    match quantity::parse("", text) {
        Err(why) => problems.push(Problem::invalid(field, why.to_string()).of(text)),
        Ok(amount) if amount.get() < 0 => {
            problems.push(Problem::invalid(field, "must be greater than or equal to 0").of(text));
        }
        Ok(_) => {}
    }
}

/// Checks the weight of a fair share: 0, or more than a billionth.
pub(super) fn weight(sharing: Option<&api::FairSharing>, problems: &mut Vec<Problem>) {
    let Some(sharing) = sharing else { return };
    let (field, text) = ("spec.fairSharing.weight", &sharing.weight.0);
    not_negative(field, text, problems);
    if is_at_most_a_billionth(text) {
        // Wire: the reference's words; the bound that it checks is 1n.
        problems.push(Problem::invalid(field, "When not 0, weight must be > 10e-9").of(text));
    }
}

/// Whether a positive quantity is no more than `1n`, the smallest step that a quantity has.
fn is_at_most_a_billionth(text: &str) -> bool {
    let scaled = |power: &str| {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        format!("{digits}{power}")
    };
    let billionths = match text.trim_start_matches(|c: char| !c.is_ascii_alphabetic()) {
        "n" => scaled(""),
        "u" => scaled("e3"),
        "m" => scaled("e6"),
        "" => scaled("e9"),
        // Every other suffix multiplies by a thousand or more, or is an exponent.
        exponent if exponent.starts_with(['e', 'E']) => match text.parse::<f64>() {
            Ok(number) => format!("{}", number * 1e9),
            Err(_) => return false,
        },
        _ => return false,
    };
    billionths.parse::<f64>().is_ok_and(|n| n > 0.0 && n <= 1.0)
}
