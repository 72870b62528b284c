//! The input of both sides: a small world of queues, and moves in it. All of it comes from a seed.

use std::fmt;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::side::View;

/// Moves of a sequence.
const MOVES: usize = 10;
/// Priorities of jobs; a class for each is there.
pub(super) const PRIORITIES: [i32; 3] = [0, 10, 20];
const FLAVORS: [&str; 2] = ["a", "b"];

/// A world and what happens in it.
#[derive(Debug, Clone)]
pub(super) struct Sequence {
    pub(super) seed: u64,
    /// Names of flavors.
    pub(super) flavors: Vec<&'static str>,
    /// Cohorts by name, with their specification.
    pub(super) cohorts: Vec<(String, Value)>,
    /// ClusterQueues by name, with their specification.
    pub(super) queues: Vec<(String, Value)>,
    pub(super) moves: Vec<Move>,
}

/// Something that happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Move {
    /// A job comes.
    Submit {
        job: String,
        queue: String,
        pods: u32,
        cpu: u32,
        priority: i32,
    },
    /// One of those that run ends.
    Finish(Chosen),
    /// One of those that are there is deleted.
    Delete(Chosen),
    /// A queue has this stop policy from now on.
    Stop { queue: String, policy: &'static str },
    /// A queue has another specification from now on.
    Change { queue: String, spec: Value },
}

/// The job that a move concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Chosen {
    /// The job with this number among the possible ones.
    Number(usize),
    /// This one.
    Job(String),
}

impl Move {
    /// The move with its job resolved; `None` if there is none.
    pub(super) fn settled(&self, seen: &View) -> Option<Self> {
        let pick = |chosen: &Chosen, suffix: &str, value: &str| {
            let Chosen::Number(number) = chosen else {
                return Some(chosen.clone());
            };
            let fits = |(name, said): (&String, &String)| {
                let job = name.strip_prefix("job ")?.strip_suffix(suffix)?;
                said.starts_with(value).then(|| job.to_owned())
            };
            let jobs: Vec<String> = seen.iter().filter_map(fits).collect();
            let job = jobs.get(number.checked_rem(jobs.len())?)?;
            Some(Chosen::Job(job.clone()))
        };
        match self {
            Self::Finish(chosen) => pick(chosen, " runs", "true").map(Self::Finish),
            Self::Delete(chosen) => pick(chosen, " runs", "").map(Self::Delete),
            Self::Submit { .. } | Self::Stop { .. } | Self::Change { .. } => Some(self.clone()),
        }
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, spec) in &self.cohorts {
            writeln!(f, "    cohort {name}: {spec}")?;
        }
        for (name, spec) in &self.queues {
            writeln!(f, "    queue {name}: {spec}")?;
        }
        for (at, one) in self.moves.iter().enumerate() {
            writeln!(f, "    {at}: {one:?}")?;
        }
        Ok(())
    }
}

/// Makes a sequence.
struct Maker {
    chance: ChaCha8Rng,
    flavors: Vec<&'static str>,
    cohorts: Vec<String>,
}

impl Maker {
    fn below(&mut self, end: usize) -> usize {
        self.chance.random_range(0..end)
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        let at = self.below(of.len());
        of[at]
    }

    /// True in `cases` of a hundred cases.
    fn in_hundred(&mut self, cases: usize) -> bool {
        self.below(100) < cases
    }

    fn groups(&mut self, in_cohort: bool) -> Value {
        let flavors = self.flavors.clone();
        let quotas: Vec<Value> = { flavors.into_iter() }
            .map(|flavor| {
                let nominal = self.below(7);
                let mut quota = json!({"name": "cpu", "nominalQuota": nominal.to_string()});
                if in_cohort && self.in_hundred(25) {
                    quota["borrowingLimit"] = self.below(5).to_string().into();
                }
                if in_cohort && self.in_hundred(20) {
                    quota["lendingLimit"] = self.below(nominal + 1).to_string().into();
                }
                json!({"name": flavor, "resources": [quota]})
            })
            .collect();
        json!([{"coveredResources": ["cpu"], "flavors": quotas}])
    }

    fn cohort(&mut self, at: usize) -> Value {
        let mut spec = json!({});
        if at > 0 && self.in_hundred(60) {
            let parent = self.below(at);
            spec["parentName"] = self.cohorts[parent].clone().into();
        }
        if self.in_hundred(25) {
            let within = spec.get("parentName").is_some();
            spec["resourceGroups"] = self.groups(within);
        }
        if self.in_hundred(25) {
            spec["fairSharing"] = json!({"weight": self.one(&["0", "1", "2"])});
        }
        spec
    }

    fn queue(&mut self) -> Value {
        let in_cohort = !self.cohorts.is_empty() && self.in_hundred(85);
        let reclaim = self.one(&["Never", "LowerPriority", "Any"]);
        let mut preemption = json!({
            "withinClusterQueue": self.one(&["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
            "reclaimWithinCohort": reclaim,
        });
        if reclaim != "Never" && self.in_hundred(30) {
            preemption["borrowWithinCohort"] = json!({"policy": "LowerPriority"});
            if self.in_hundred(50) {
                preemption["borrowWithinCohort"]["maxPriorityThreshold"] = self.one(&PRIORITIES).into();
            }
        }
        let search = ["MayStopSearch", "TryNextFlavor"];
        let mut spec = json!({
            "namespaceSelector": {},
            "queueingStrategy": self.one(&["BestEffortFIFO", "BestEffortFIFO", "StrictFIFO"]),
            "preemption": preemption,
            "flavorFungibility": {"whenCanBorrow": self.one(&search), "whenCanPreempt": self.one(&search)},
            "resourceGroups": self.groups(in_cohort),
        });
        if in_cohort {
            let cohort = self.below(self.cohorts.len());
            spec["cohortName"] = self.cohorts[cohort].clone().into();
            if self.in_hundred(25) {
                spec["fairSharing"] = json!({"weight": self.one(&["0", "1", "2"])});
            }
        }
        spec
    }
}

impl Sequence {
    pub(super) fn generate(seed: u64) -> Self {
        let mut maker = Maker {
            chance: ChaCha8Rng::seed_from_u64(seed),
            flavors: Vec::new(),
            cohorts: Vec::new(),
        };
        let flavors = 1 + maker.below(FLAVORS.len());
        maker.flavors = FLAVORS[..flavors].to_vec();
        maker.cohorts = (0..maker.below(4)).map(|at| format!("c{at}")).collect();
        let cohorts = (0..maker.cohorts.len())
            .map(|at| (format!("c{at}"), maker.cohort(at)))
            .collect();
        let queues: Vec<(String, Value)> = (0..2 + maker.below(3))
            .map(|at| (format!("q{at}"), maker.queue()))
            .collect();
        let mut moves = Vec::new();
        for at in 0..MOVES {
            let queue = queues[maker.below(queues.len())].0.clone();
            let dice = maker.below(100);
            moves.push(if at < 3 || dice < 55 {
                Move::Submit {
                    job: format!("j{at}"),
                    queue,
                    pods: u32::try_from(1 + maker.below(3)).unwrap(),
                    cpu: u32::try_from(1 + maker.below(3)).unwrap(),
                    priority: maker.one(&PRIORITIES),
                }
            } else if dice < 75 {
                Move::Finish(Chosen::Number(maker.below(8)))
            } else if dice < 83 {
                Move::Delete(Chosen::Number(maker.below(8)))
            } else if dice < 93 {
                let policy = maker.one(&["Hold", "HoldAndDrain", "None", "None"]);
                Move::Stop { queue, policy }
            } else {
                Move::Change {
                    queue,
                    spec: maker.queue(),
                }
            });
        }
        Self {
            seed,
            flavors: maker.flavors,
            cohorts,
            queues,
            moves,
        }
    }
}
