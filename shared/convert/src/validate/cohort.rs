//! The rules for a Cohort. *Source*: `spec/api.md API-4`.

use roadstead_api::kueue::v1beta2 as api;
use roadstead_jobs::problem::Problem;

use super::quotas::{self, Holder};

/// Checks a Cohort that is being created or changed. An empty list means that it is valid.
///
/// A cycle of parents is not a problem here: it is legal, and stops admission until it is broken.
pub fn cohort(new: &api::Cohort) -> Vec<Problem> {
    let mut problems = Vec::new();
    let holder = match new.spec.parent_name.as_deref() {
        None | Some("") => Holder::RootCohort,
        Some(_) => Holder::Cohort,
    };
    quotas::groups(&new.spec.resource_groups, holder, &mut problems);
    quotas::weight(new.spec.fair_sharing.as_ref(), &mut problems);
    problems
}

#[cfg(test)]
mod tests;
