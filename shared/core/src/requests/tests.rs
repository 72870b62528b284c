use super::*;

fn amounts(list: &[(&str, i64)]) -> Amounts {
    let pair = |(name, value): &(&str, i64)| (ResourceName::from(*name), Amount::new(*value));
    list.iter().map(pair).collect()
}

fn container(requests: &[(&str, i64)], limits: &[(&str, i64)]) -> Container {
    Container {
        resources: Resources {
            requests: amounts(requests),
            limits: amounts(limits),
        },
        sidecar: false,
    }
}

fn pod(containers: Vec<Container>) -> Pod {
    Pod {
        containers,
        ..Pod::default()
    }
}

fn sidecar(container: Container) -> Container {
    Container {
        sidecar: true,
        ..container
    }
}

#[derive(Default)]
struct World {
    rules: Rules,
    limits: Limits,
    overhead: Option<Amounts>,
}

impl World {
    fn look(&self, pod: &Pod) -> (Amounts, Option<String>) {
        let around = Around {
            rules: &self.rules,
            limits: &self.limits,
            overhead: self.overhead.as_ref(),
        };
        let mut findings = Findings::default();
        let counted = count("spec", pod, &around, &mut findings);
        (counted, findings.sentence())
    }

    fn counts(&self, pod: &Pod, expected: &[(&str, i64)]) {
        assert_eq!(self.look(pod), (amounts(expected), None));
    }
}

/// Spec: admission-engine B189.
#[test]
fn a_limit_stands_in_for_a_missing_request() {
    let world = World::default();
    world.counts(
        &pod(vec![container(
            &[("cpu", 100)],
            &[("cpu", 200), ("memory", 2 << 30)],
        )]),
        &[("cpu", 100), ("memory", 2 << 30)],
    );
}

/// Spec: admission-engine B190.
#[test]
fn defaults_of_limit_ranges_count_for_each_container_and_leave_the_pod_as_it_is() {
    let mut world = World::default();
    world.limits.container.default_request = amounts(&[("cpu", 500)]);
    world.limits.container.default = amounts(&[("cpu", 1000), ("memory", 64)]);
    let asked = pod(vec![
        container(&[], &[]),
        container(&[("memory", 10)], &[]),
        container(&[("cpu", 200)], &[]),
    ]);
    let before = asked.clone();
    world.counts(&asked, &[("cpu", 1200), ("memory", 138)]);
    assert_eq!(asked, before);
}

/// Spec: admission-engine 4.5.
#[test]
fn several_limit_ranges_narrow_each_other_and_the_first_default_counts() {
    let bounds = |min, max, default| Bounds {
        min: amounts(&[("cpu", min)]),
        max: amounts(&[("cpu", max)]),
        default: Amounts::new(),
        default_request: amounts(default),
    };
    let mut limits = Limits::default();
    for container in [
        bounds(100, 2000, &[("cpu", 300)]),
        bounds(200, 3000, &[("cpu", 400), ("memory", 1)]),
    ] {
        limits.add(&Limits {
            container,
            pod: Bounds::default(),
        });
    }
    assert_eq!(
        limits.container,
        bounds(200, 2000, &[("cpu", 300), ("memory", 1)])
    );
}

/// Spec: admission-engine B191.
#[test]
fn init_containers_count_by_their_highest_moment_and_sidecars_stay() {
    let world = World::default();
    let mut asked = pod(vec![
        container(&[("cpu", 1000)], &[]),
        container(&[("cpu", 2000)], &[]),
    ]);
    asked.init_containers = vec![container(&[("cpu", 4000)], &[])];
    world.counts(&asked, &[("cpu", 4000)]);
    asked.init_containers = vec![
        sidecar(container(&[("cpu", 1000)], &[])),
        container(&[("cpu", 4000)], &[]),
    ];
    world.counts(&asked, &[("cpu", 5000)]);
    asked.init_containers = vec![
        container(&[("cpu", 4000)], &[]),
        sidecar(container(&[("cpu", 1000)], &[])),
    ];
    world.counts(&asked, &[("cpu", 4000)]);
    asked.init_containers = vec![sidecar(container(&[("cpu", 1500)], &[]))];
    world.counts(&asked, &[("cpu", 4500)]);
}

/// Spec: admission-engine B192.
#[test]
fn the_overhead_of_the_runtime_class_counts_when_the_template_has_none() {
    let world = World {
        overhead: Some(amounts(&[("cpu", 250)])),
        ..World::default()
    };
    let mut asked = pod(vec![container(&[("cpu", 1000)], &[])]);
    world.counts(&asked, &[("cpu", 1250)]);
    asked.overhead = amounts(&[("cpu", 10)]);
    world.counts(&asked, &[("cpu", 1010)]);
}

/// Spec: admission-engine 4.5 step 4.
#[test]
fn what_the_pod_asks_for_as_a_whole_takes_precedence() {
    let world = World::default();
    let mut asked = pod(vec![container(&[("cpu", 1000)], &[])]);
    asked.whole = Resources {
        requests: amounts(&[("cpu", 3000)]),
        limits: amounts(&[("cpu", 4000), ("memory", 100)]),
    };
    asked.overhead = amounts(&[("cpu", 1)]);
    world.counts(&asked, &[("cpu", 3001), ("memory", 100)]);
    asked.whole.requests.clear();
    world.counts(&asked, &[("cpu", 1001), ("memory", 100)]);
}

/// Spec: admission-engine 4.5 step 4. Containers do not request what they only get from a limit range.
#[test]
fn a_limit_of_the_whole_pod_counts_whole_beside_a_limit_range() {
    let mut world = World::default();
    world.limits.container.default_request = amounts(&[("cpu", 500), ("memory", 7)]);
    world.limits.container.default = amounts(&[("cpu", 900)]);
    let mut asked = pod(vec![container(&[], &[]), container(&[("memory", 5)], &[])]);
    asked.whole.limits = amounts(&[("cpu", 4000), ("memory", 100)]);
    world.counts(&asked, &[("cpu", 4000), ("memory", 12)]);
}

/// Spec: admission-engine 2.3 item 7. A field that breaks two rules is named once.
#[test]
fn a_field_outside_of_limit_ranges_is_named_once() {
    let mut world = World::default();
    world.limits.container.max = amounts(&[("cpu", 100)]);
    world.limits.container.default = amounts(&[("cpu", 50)]);
    let (_, told) = world.look(&pod(vec![container(&[("cpu", 200)], &[])]));
    let told = told.unwrap();
    assert_eq!(
        told.matches("containers[0].resources.requests[cpu]").count(),
        1,
        "{told}"
    );
}

/// Spec: admission-engine B193.
#[test]
fn excluded_names_are_not_counted() {
    let mut world = World::default();
    world.rules.excluded_prefixes = vec!["example.com/".to_owned()];
    world.counts(
        &pod(vec![container(
            &[("example.com/x", 3), ("cpu", 1), ("example.comx", 2)],
            &[],
        )]),
        &[("cpu", 1), ("example.comx", 2)],
    );
}

const MIG: &str = "nvidia.com/mig-1g.5gb";
const CREDITS: &str = "example.com/credits";

fn rule(strategy: Input, multiply_by: Option<&str>, outputs: &[(&str, i64)]) -> Transformation {
    Transformation {
        input: MIG.into(),
        strategy,
        multiply_by: multiply_by.map(ResourceName::from),
        outputs: outputs
            .iter()
            .map(|(name, factor)| (ResourceName::from(*name), *factor))
            .collect(),
    }
}

/// Spec: admission-engine B194.
#[test]
fn a_transformation_replaces_its_input_or_keeps_it() {
    let mut world = World::default();
    let asked = pod(vec![container(&[(MIG, 2), (CREDITS, 1)], &[])]);
    world.rules.transformations = vec![rule(Input::Replace, None, &[(CREDITS, 5000)])];
    world.counts(&asked, &[(CREDITS, 11)]);
    world.rules.transformations = vec![rule(Input::Retain, None, &[(CREDITS, 5000)])];
    world.counts(&asked, &[(MIG, 2), (CREDITS, 11)]);
}

/// Spec: admission-engine 4.5 step 6.
#[test]
fn a_transformation_multiplies_rounds_up_and_never_falls_below_nothing() {
    let mut world = World::default();
    let mut check =
        |multiply_by, factors: &[(&str, i64)], asked: &[(&str, i64)], expected: &[(&str, i64)]| {
            world.rules.transformations = vec![rule(Input::Replace, multiply_by, factors)];
            world.counts(&pod(vec![container(asked, &[])]), expected);
        };
    check(
        None,
        &[("cpu", 1500), (CREDITS, 333)],
        &[(MIG, 2)],
        &[("cpu", 3000), (CREDITS, 1)],
    );
    check(
        Some("cpu"),
        &[(CREDITS, 1000)],
        &[(MIG, 3), ("cpu", 2500)],
        &[("cpu", 2500), (CREDITS, 8)],
    );
    check(Some("absent"), &[(CREDITS, 1000)], &[(MIG, 3)], &[(CREDITS, 3)]);
    check(None, &[(CREDITS, -1000)], &[(MIG, 3)], &[(CREDITS, 0)]);
    let huge = i64::MAX - 1;
    check(
        Some(MIG),
        &[(CREDITS, huge)],
        &[(MIG, huge)],
        &[(CREDITS, i64::MAX)],
    );
}

fn problem(world: &World, pod: &Pod) -> String {
    world.look(pod).1.unwrap()
}

/// Spec: admission-engine B063.
#[test]
fn a_request_above_its_limit_is_told_with_its_path() {
    let mut world = World::default();
    world.limits.container.max = amounts(&[("cpu", 1)]);
    let mut asked = pod(vec![container(&[("cpu", 2000)], &[("cpu", 1000)])]);
    assert_eq!(
        problem(&world, &asked),
        "resources validation failed: spec.containers[0].resources.requests[cpu]: requests must not exceed its limits"
    );
    asked.containers.clear();
    asked.whole = container(&[("cpu", 1)], &[("cpu", 0)]).resources;
    assert!(problem(&world, &asked).contains("spec.resources.requests[cpu]"));
}

/// Spec: admission-engine B064.
#[test]
fn what_the_namespace_does_not_allow_is_told_with_its_path() {
    let mut world = World::default();
    world.limits.container.max = amounts(&[("cpu", 2000)]);
    world.limits.container.min = amounts(&[("memory", 10)]);
    world.limits.pod.max = amounts(&[("cpu", 3000)]);
    let cores = |count| container(&[("cpu", count)], &[]);
    assert_eq!(
        problem(&world, &pod(vec![cores(4000)])),
        "resources didn't satisfy LimitRange constraints: spec.containers[0].resources.requests[cpu]: requests must \
         not be above the limitRange max; spec.resources.requests[cpu]: requests must not be above the limitRange max"
    );
    let small = problem(&world, &pod(vec![container(&[("memory", 9)], &[])]));
    assert!(
        small.contains(
            "containers[0].resources.requests[memory]: requests must not be below the limitRange min"
        )
    );
    let many = problem(&world, &pod(vec![cores(2000), cores(2000)]));
    assert!(
        many.contains("spec.resources.requests[cpu]: requests must not be above"),
        "{many}"
    );
    let limit = problem(&world, &pod(vec![container(&[("cpu", 1)], &[("cpu", 2001)])]));
    assert!(limit.contains("containers[0].resources.limits[cpu]"), "{limit}");
    assert_eq!(world.look(&pod(vec![cores(2000)])).1, None);
}

/// The API server itself uses the maximum of a limit range as its default.
///
/// Spec: admission-engine B064.
#[test]
fn a_limit_that_nobody_wrote_is_the_namespaces_doing() {
    let mut world = World::default();
    world.limits.container.max = amounts(&[("cpu", 2000)]);
    world.limits.container.default = amounts(&[("cpu", 2000)]);
    let told = problem(&world, &pod(vec![container(&[("cpu", 4000)], &[])]));
    let start = "resources didn't satisfy LimitRange constraints: spec.containers[0].resources.requests[cpu]: \
                 requests must not be above the limitRange max";
    assert_eq!(told, start, "the field is named once");
    world.limits.container.max.clear();
    let told = problem(&world, &pod(vec![container(&[("cpu", 4000)], &[])]));
    assert!(
        told.ends_with("requests must not be above the limitRange default"),
        "{told}"
    );
}

/// Spec: multikueue 10.F30, 11.89
#[test]
fn devices_are_refused_or_cost_nothing() {
    let mut world = World::default();
    let mut asked = pod(vec![container(&[("cpu", 1)], &[])]);
    asked.claims_devices = true;
    assert!(problem(&world, &asked).starts_with("resources validation failed: spec.resourceClaims: "));
    world.rules.claims = Claims::Ignore;
    world.counts(&asked, &[("cpu", 1)]);
}

mod anything {
    use proptest::prelude::*;

    use super::*;

    fn any_amounts() -> impl Strategy<Value = Amounts> {
        let name = prop::sample::select(vec!["cpu", "memory", MIG, CREDITS]);
        let value = prop_oneof![Just(i64::MAX), Just(i64::MIN), -5..5_i64, any::<i64>()];
        prop::collection::btree_map(name, value, 0..4).prop_map(|all| {
            all.into_iter()
                .map(|(name, value)| (name.into(), Amount::new(value)))
                .collect()
        })
    }

    prop_compose! {
        fn any_container()(requests in any_amounts(), limits in any_amounts(), sidecar: bool) -> Container {
            Container { resources: Resources { requests, limits }, sidecar }
        }
    }

    prop_compose! {
        fn any_pod()(
            containers in prop::collection::vec(any_container(), 0..3),
            init_containers in prop::collection::vec(any_container(), 0..3),
            whole in any_container(),
            overhead in any_amounts(),
        ) -> Pod {
            Pod { containers, init_containers, whole: whole.resources, overhead, runtime_class: None, claims_devices: false }
        }
    }

    proptest! {
        #[test]
        fn no_pod_asks_for_less_than_nothing(
            pod in any_pod(), min in any_amounts(), max in any_amounts(), default in any_amounts(), factor: i64,
        ) {
            let mut world = World::default();
            world.limits.container = Bounds { min, max, default: default.clone(), default_request: default };
            world.limits.pod = world.limits.container.clone();
            world.rules.transformations = vec![rule(Input::Retain, Some("memory"), &[("cpu", factor), (CREDITS, factor)])];
            prop_assert!(world.look(&pod).0.values().all(|amount| *amount >= Amount::ZERO));
        }
    }
}
