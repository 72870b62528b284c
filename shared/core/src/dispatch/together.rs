//! Workloads whose pods belong together (steps of a Workflow, pods of a Deployment, replicas of a `LeaderWorkerSet`) go to one cluster:
//! the one that took the first of them.
//!
//! Invariant: of the Workloads that belong together, have the same needs and have no cluster yet, all but the oldest wait. So no two of
//! them get a cluster at the same time, and no two wait for each other.
//!
//! *Source*: `spec/jobs.md 9.11, 9.13, 13.2`, `spec/multikueue.md 3.13`.

use jiff::Timestamp;

use crate::name::ClusterName;

/// The order in which Workloads that belong together are placed: the smaller one goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Age<'a> {
    /// When it was created, in whole seconds.
    pub created: Option<Timestamp>,
    /// Its name. Why: Workloads created in the same second need an order too.
    pub name: &'a str,
}

/// Where a Workload is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// It has this cluster.
    In(ClusterName),
    /// It seeks a cluster, and has the same needs as the Workload that is being placed.
    Seeking,
    /// It has no cluster, and has other needs or does not seek one now.
    Nowhere,
}

/// Where a Workload may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Course {
    /// To this cluster only.
    To(ClusterName),
    /// To none before the Workload of this name has one.
    Behind(String),
    /// To each cluster of its check.
    Free,
}

impl Course {
    /// Whether a Workload that was told to go this way has to be placed anew, because another of the set got this cluster, or with `None`
    /// stopped seeking one or was deleted.
    pub fn changes(&self, cluster: Option<&ClusterName>) -> bool {
        match (self, cluster) {
            (Self::To(own), Some(cluster)) => own != cluster,
            // Why after a deletion too: it may have been the last of the set in that cluster.
            (Self::To(_), None) | (Self::Behind(_) | Self::Free, _) => true,
        }
    }
}

/// The search for a cluster for one Workload, among the Workloads that belong together with it.
#[derive(Clone, Debug)]
pub struct Search<'a> {
    own: Age<'a>,
    first: Option<(Option<Timestamp>, String)>,
}

impl<'a> Search<'a> {
    /// Starts the search for a Workload of this age.
    pub const fn new(own: Age<'a>) -> Self {
        Self { own, first: None }
    }

    /// Looks at another Workload of the set. Returns `Some` if that one decides: it has a cluster, and `takes` is true for that cluster.
    /// Why a cluster may be passed over: a lost cluster must not stop the rest of the set.
    pub fn meet(
        &mut self,
        other: Age<'_>,
        place: Place,
        takes: impl FnOnce(&ClusterName) -> bool,
    ) -> Option<Course> {
        match place {
            Place::In(cluster) => return takes(&cluster).then_some(Course::To(cluster)),
            Place::Seeking if other < self.first() => {
                self.first = Some((other.created, other.name.to_owned()));
            }
            Place::Seeking | Place::Nowhere => {}
        }
        None
    }

    /// The oldest Workload met so far that seeks a cluster; before that, the one being placed.
    fn first(&self) -> Age<'_> {
        match &self.first {
            Some((created, name)) => Age {
                created: *created,
                name,
            },
            None => self.own,
        }
    }

    /// The answer when all others have been met.
    pub fn end(self) -> Course {
        self.first.map_or(Course::Free, |(_, name)| Course::Behind(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn age(seconds: i64, name: &str) -> Age<'_> {
        Age {
            created: Timestamp::from_second(seconds).ok(),
            name,
        }
    }

    fn at(cluster: &str) -> Place {
        Place::In(ClusterName::from(cluster))
    }

    fn course<'a>(
        own: Age<'_>,
        others: impl IntoIterator<Item = &'a (Age<'a>, Place)>,
        closed: &str,
    ) -> Course {
        let mut search = Search::new(own);
        let takes = |cluster: &ClusterName| cluster.as_str() != closed;
        let mut others = others.into_iter();
        let decided = others.find_map(|(age, place)| search.meet(*age, place.clone(), takes));
        decided.unwrap_or_else(|| search.end())
    }

    /// Where `own` may go, in whatever order the others are met; the cluster `closed` takes nothing.
    fn check(own: Age<'_>, others: &[(Age<'_>, Place)], closed: &str, expected: &Course) {
        assert_eq!(&course(own, others, closed), expected, "{others:?}");
        assert_eq!(&course(own, others.iter().rev(), closed), expected, "in reverse");
    }

    /// Spec: jobs 9.11, 9.13
    #[test]
    fn a_workload_that_follows_into_a_cluster_is_not_placed_anew_for_each_that_goes_there() {
        let [east, west] = ["east", "west"].map(ClusterName::from);
        let follows = Course::To(east.clone());
        let behind = Course::Behind("a".to_owned());
        assert!(!follows.changes(Some(&east)));
        assert!(
            follows.changes(Some(&west)),
            "it may have been passed over before"
        );
        assert!(follows.changes(None), "the last in east may be gone");
        for course in [behind, Course::Free] {
            assert!(course.changes(Some(&east)) && course.changes(None), "{course:?}");
        }
    }

    /// Spec: jobs 9.13, 15.129; multikueue 3.13, 11.93, 11.94
    #[test]
    fn a_replica_follows_the_first_that_has_a_cluster_whatever_their_ages() {
        let to = |cluster: &str| Course::To(ClusterName::from(cluster));
        let younger = [(age(9, "b"), at("west"))];
        check(age(1, "a"), &younger, "", &to("west"));
        let two = [(age(3, "c"), at("west")), (age(2, "b"), at("east"))];
        check(age(4, "d"), &two, "east", &to("west"));
        check(age(1, "a"), &two, "west", &to("east"));
        let one_seeks = [(age(1, "a"), Place::Seeking), (age(2, "b"), at("east"))];
        check(age(4, "d"), &one_seeks, "", &to("east"));
    }

    /// Spec: jobs 9.11, 9.13; multikueue 3.13
    #[test]
    fn of_those_without_a_cluster_all_but_the_oldest_wait() {
        let behind = |name: &str| Course::Behind(name.to_owned());
        let others = [(age(1, "b"), Place::Seeking), (age(1, "c"), Place::Seeking)];
        check(age(1, "d"), &others, "", &behind("b"));
        check(age(1, "a"), &others, "", &Course::Free);
        check(age(2, "a"), &others, "", &behind("b"));
        check(age(0, "z"), &others, "", &Course::Free);
        let full = [(age(1, "a"), at("east")), (age(2, "b"), Place::Seeking)];
        check(age(3, "c"), &full, "east", &behind("b"));
        let idle = [(age(1, "a"), Place::Nowhere)];
        check(age(2, "b"), &idle, "", &Course::Free);
        check(age(2, "b"), &[], "", &Course::Free);
    }
}
