//! The schema's rules about a whole workload, which compare spec and status with their old values.
//!
//! They belong to no field, and the derive of the root type has no place for them, so [`crate::crd`] adds them. Source:
//! `spec/api.md` API-9.4.

use serde_json::{Value, json};

/// The rules, as the value of `x-kubernetes-validations` at the root; those about the priority's class differ by version.
pub(crate) fn object_rules(about_class: Vec<Value>) -> Value {
    let reserved = holds("self", "QuotaReserved");
    let was_reserved = holds("oldSelf", "QuotaReserved");
    let admitted = holds("self", "Admitted");
    let was_admitted = holds("oldSelf", "Admitted");
    let mut rules = vec![
        json!({
            "rule": format!(
                "!({reserved} && has(self.status.admission)) || {} == {}",
                "(has(self.spec) && has(self.spec.podSets) ? size(self.spec.podSets) : 0)",
                "(has(self.status.admission.podSetAssignments) ? size(self.status.admission.podSetAssignments) : 0)",
            ),
            "message": "podSetAssignments must have the same number of podSets as the spec",
        }),
        json!({
            "rule": format!(
                "!({reserved} && {was_reserved}) || {} == {}",
                "(has(self.spec) && has(self.spec.queueName) ? self.spec.queueName : '')",
                "(has(oldSelf.spec) && has(oldSelf.spec.queueName) ? oldSelf.spec.queueName : '')",
            ),
            "message": "queueName is immutable while workload quota reserved",
        }),
        json!({
            "rule": format!(
                "!({admitted} && {was_admitted}) || {} == {}",
                "(has(self.spec) && has(self.spec.maximumExecutionTimeSeconds) ? self.spec.maximumExecutionTimeSeconds : 0)",
                "(has(oldSelf.spec) && has(oldSelf.spec.maximumExecutionTimeSeconds) ? oldSelf.spec.maximumExecutionTimeSeconds : 0)",
            ),
            "message": "maximumExecutionTimeSeconds is immutable while workload quota reserved",
        }),
    ];
    rules.extend(about_class);
    Value::Array(rules)
}

/// The rules about `spec.priorityClassRef`.
pub(crate) fn class_rules() -> Vec<Value> {
    let was_reserved = holds("oldSelf", "QuotaReserved");
    let class = "has(self.spec) && has(self.spec.priorityClassRef)";
    let old_class = "has(oldSelf.spec) && has(oldSelf.spec.priorityClassRef)";
    // Why: the texts are ours; the specification fixes which objects are refused, not the words.
    vec![
        json!({
            "rule": format!("!({was_reserved}) || ({class}) == ({old_class})"),
            "message": "priorityClassRef cannot be added or removed while workload quota reserved",
        }),
        json!({
            "rule": format!(
                "!({was_reserved} && {class} && {old_class}) || {} && {}",
                "self.spec.priorityClassRef.group == oldSelf.spec.priorityClassRef.group",
                "self.spec.priorityClassRef.kind == oldSelf.spec.priorityClassRef.kind",
            ),
            "message": "priorityClassRef.group and priorityClassRef.kind are immutable while workload quota reserved",
        }),
        json!({
            "rule": format!(
                "!({was_reserved} && {class} && {old_class}) || {} || {}",
                "self.spec.priorityClassRef.kind == 'WorkloadPriorityClass'",
                "self.spec.priorityClassRef.name == oldSelf.spec.priorityClassRef.name",
            ),
            "message": "priorityClassRef.name of a PriorityClass is immutable while workload quota reserved",
        }),
    ]
}

/// The rules about the two fields that `v1beta1` has instead.
pub(crate) fn v1beta1_class_rules() -> Vec<Value> {
    let was_reserved = holds("oldSelf", "QuotaReserved");
    let field = |object: &str, name: &str| {
        format!("(has({object}.spec) && has({object}.spec.{name}) ? {object}.spec.{name} : '')")
    };
    let same = |name: &str| format!("{} == {}", field("self", name), field("oldSelf", name));
    vec![
        json!({
            "rule": format!("!({was_reserved}) || {}", same("priorityClassSource")),
            "message": "priorityClassSource is immutable while workload quota reserved",
        }),
        json!({
            "rule": format!(
                "!({was_reserved}) || {} == 'kueue.x-k8s.io/workloadpriorityclass' || {}",
                field("self", "priorityClassSource"),
                same("priorityClassName"),
            ),
            "message": "priorityClassName is immutable while workload quota reserved unless priorityClassSource is kueue.x-k8s.io/workloadpriorityclass",
        }),
    ]
}

/// The expression that says whether `object` has a condition of this type with status True.
fn holds(object: &str, condition_type: &str) -> String {
    format!(
        "has({object}.status) && has({object}.status.conditions) \
         && {object}.status.conditions.exists(c, c.type == '{condition_type}' && c.status == 'True')"
    )
}
