//! `ClusterQueue` in `v1beta1`.

use serde_json::json;

use super::{LIST_TYPE, PLAIN, any_number_of_conditions, plain_list, unused_past_usage};
use crate::kueue::v1beta2;
use crate::older::Older;

/// Another name of the cohort, a flat list of checks, more words of flavor fungibility, fewer limits.
pub(crate) fn clusterqueue(schema: &mut Older) {
    any_number_of_conditions(schema);
    schema.rename("spec", "cohortName", "cohort");
    schema.replace_rule(
        "spec",
        v1beta2::BORROWING_NEEDS_COHORT,
        v1beta2::borrowing_needs("cohort"),
    );
    schema.remove("spec", "concurrentAdmissionPolicy");
    for (choice, older) in [("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")] {
        let path = format!("spec.flavorFungibility.{choice}");
        schema.set(
            &path,
            "enum",
            ["MayStopSearch", "TryNextFlavor", older].as_slice(),
        );
        schema.reword(
            &path,
            "look at the remaining flavors first.",
            &format!("look at the remaining flavors first. {older}: the older word for MayStopSearch."),
        );
    }
    schema.cut("spec.admissionScope.admissionMode", "enum");
    checks(schema);
    status(schema);
}

fn checks(schema: &mut Older) {
    let (strategy, list) = (
        "spec.admissionChecksStrategy",
        "spec.admissionChecksStrategy.admissionChecks",
    );
    schema.cut(strategy, "required");
    plain_list(schema, list);
    schema.cut(list, "minItems");
    schema.lift(list, "maxItems", ": 1 to 64");
    let (name, flavors) = (format!("{list}[].name"), format!("{list}[].onFlavors"));
    schema.cut(&name, "minLength");
    schema.reword(&name, "1 to 316", "at most 316");
    schema.set(&flavors, LIST_TYPE, PLAIN);
    schema.lift(&flavors, "maxItems", ": at most 64");
    schema.add(
        "spec",
        "admissionChecks",
        json!({
            "description": "Names of the AdmissionChecks that all workloads of this queue need, each at most 316 characters: \
                            the older form. Unless empty it replaces admissionChecksStrategy, as which it reads back.",
            "type": "array",
            "items": {"type": "string", "maxLength": 316},
            LIST_TYPE: PLAIN,
        }),
    );
}

fn status(schema: &mut Older) {
    schema.add(
        "status.fairSharing",
        "admissionFairSharingStatus",
        unused_past_usage(),
    );
    schema.add(
        "status",
        "pendingWorkloadsStatus",
        json!({
            "description": "Not used any more: the first workloads that wait.",
            "type": "object",
            "required": ["lastChangeTime"],
            "properties": {
                "clusterQueuePendingWorkload": {
                    "description": "Not used any more.",
                    "type": "array",
                    LIST_TYPE: PLAIN,
                    "items": {
                        "type": "object",
                        "required": ["name", "namespace"],
                        "properties": {
                            "name": {"description": "Name of the workload.", "type": "string"},
                            "namespace": {"description": "Namespace of the workload.", "type": "string"},
                        },
                    },
                },
                "lastChangeTime": {"description": "Not used any more.", "type": "string", "format": "date-time"},
            },
        }),
    );
}
