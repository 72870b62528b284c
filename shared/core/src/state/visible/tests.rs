use super::super::fixtures::{World, asks, cores, workload};
use super::super::{Event, State};
use crate::name::ClusterQueueName;
use crate::workload::Workload;

fn with_priority(name: &str, created: i64, priority: i32, cpu: i64) -> Workload {
    Workload {
        priority,
        ..asks(name, created, cpu)
    }
}

fn names(state: &State, limit: usize) -> Option<Vec<String>> {
    let entries = state.pending_in_order(&"cq".into(), limit)?;
    Some(entries.iter().map(|entry| entry.key.name.to_string()).collect())
}

/// Spec: admission-engine B228, api API-15.
#[test]
fn parked_and_fresh_workloads_stand_in_one_order() {
    let mut world = World::new(cores(2));
    // It never fits, so it is put aside in the first cycle.
    world.put(with_priority("large", 1, 0, 9));
    world.put(with_priority("running", 2, 9, 2));
    world.run();
    world.put(with_priority("late", 20, 0, 1));
    world.put(with_priority("early", 10, 0, 1));
    world.put(with_priority("urgent", 30, 5, 1));
    assert_eq!(
        names(&world.state, 9).unwrap(),
        ["urgent", "large", "early", "late"]
    );
    world.run();
    assert_eq!(
        names(&world.state, 9).unwrap(),
        ["urgent", "large", "early", "late"]
    );
    for limit in 0..4 {
        let all = names(&world.state, 9).unwrap();
        assert_eq!(names(&world.state, limit).unwrap(), all[..limit]);
    }
}

/// Spec: admission-engine B228, api API-15.
#[test]
fn an_unknown_queue_has_no_list_and_an_empty_one_an_empty_list() {
    let mut world = World::new(cores(2));
    assert_eq!(names(&world.state, 9), Some(Vec::new()));
    assert_eq!(world.state.pending_in_order(&"other".into(), 9), None);
    world.tell(Event::ClusterQueueGone(ClusterQueueName::new("cq")));
    assert_eq!(names(&world.state, 9), None);
}

#[test]
fn an_entry_says_whose_it_is() {
    let mut world = World::new(cores(0));
    let asked = workload("a", 7, Vec::new());
    world.put(with_priority("a", 7, -3, 1));
    let entries = world.state.pending_in_order(&"cq".into(), 9).unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!((&entries[0].key, &entries[0].uid), (&asked.key, &asked.uid));
    assert_eq!((entries[0].priority, entries[0].local_queue.as_str()), (-3, "lq"));
    assert_eq!(entries[0].created, asked.created);
}
