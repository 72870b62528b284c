use roadstead_kinds::{Kind, rows};

use super::*;

/// Spec: jobs 3, 4.1, multikueue 5.4
#[test]
fn an_invented_kind_is_followed_by_every_rule_about_integrations() {
    static GATED: Kind = Kind {
        implies: Some(rows::POD.framework),
        gate: Some("PriorityBoost"),
        ..rows::INVENTED
    };
    static ROWS: [&Kind; 2] = [&rows::JOB, &GATED];
    let read = |body: &str, gates: &[GateSetting]| {
        parse_with(Kinds::new(&ROWS), "f", &format!("{V1}{body}"), (gates, "ns"))
    };
    let problems = |body: &str| match read(body, &gates("PriorityBoost=true")) {
        Err(Error::Problems { problems }) => problems.iter().map(ToString::to_string).collect(),
        other => vec![format!("{other:?}")],
    };
    let listed = "integrations: {frameworks: [example.com/train]}\n";
    let ungated = read(listed, &[]).unwrap_err().to_string();
    assert!(
        ungated.contains("needs the feature gate PriorityBoost"),
        "{ungated}"
    );
    assert_eq!(
        read(listed, &gates("PriorityBoost=true")).unwrap().warnings,
        [""; 0]
    );
    let unknown = problems("integrations: {frameworks: [ray.io/rayjob]}\n");
    assert!(
        unknown[0].contains("supported values: batch/job, example.com/train"),
        "{unknown:?}"
    );
    let all = "integrations: {frameworks: [example.com/train], podOptions: {namespaceSelector: {}}}\n";
    assert!(problems(all)[0].contains("should not match the \"kube-system\""));
    let external = problems("multiKueue: {externalFrameworks: [{name: Train.v1.example.com}]}\n");
    assert!(
        external[0].contains("conflicts with a built-in MultiKueue adapter"),
        "{external:?}"
    );
}
