use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;

const TERMS: Terms = Terms {
    lease: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry: Duration::from_secs(2),
};
/// Histories of the property test; together they take a second or two.
const CASES: u32 = 256;

fn at(millis: u64) -> Moment {
    Moment::after_start(Duration::from_millis(millis))
}

fn held_by(holder: &str, renewed: u64) -> Stored {
    Stored {
        holder: holder.to_owned(),
        renewed: renewed.to_string(),
        length: Some(TERMS.lease),
    }
}

fn anywhere(name: &str) -> Election {
    Election::new(Replica::on_host(name, "1"), TERMS)
}

/// A leader whose last renewal was sent at `sent`.
fn leading(sent: Moment) -> Election {
    let mut election = anywhere("a");
    election.kept(sent, held_by("a_1", 0));
    election
}

#[test]
fn a_lease_that_is_missing_is_created_and_then_renewed_in_time() {
    let mut election = anywhere("a");
    assert_eq!(election.next(at(0)), Step::Look);
    election.looked(at(5), None);
    assert_eq!(election.next(at(5)), Step::Create);
    assert_eq!(election.acts_until(), None, "what is not stored does not count");
    election.kept(at(5), held_by("a_1", 5));
    assert_eq!(election.acts_until(), Some(at(10_005)), "from when it was sent");
    assert_eq!(election.next(at(20)), Step::Pause(at(2_005)));
    assert_eq!(election.next(at(2_005)), Step::Renew);
}

#[test]
fn a_lease_that_was_given_back_is_taken_at_once_and_one_that_is_held_is_waited_for() {
    let mut election = anywhere("b");
    election.looked(at(0), Some(held_by("", 1)));
    assert_eq!(election.next(at(0)), Step::Claim);
    let mut election = anywhere("b");
    for (now, renewed) in [(0, 1), (2_000, 2), (4_000, 2), (16_999, 2)] {
        election.looked(at(now), Some(held_by("a_1", renewed)));
        assert!(matches!(election.next(at(now)), Step::Pause(_)), "{now}");
    }
    assert_eq!(
        election.next(at(16_999)),
        Step::Pause(at(17_000)),
        "counted from when the second renewal was seen, whatever time stands in it"
    );
    assert_eq!(election.next(at(17_000)), Step::Look, "it may have come back");
    election.looked(at(17_000), Some(held_by("a_1", 2)));
    assert_eq!(election.next(at(17_000)), Step::Claim);
}

#[test]
fn only_a_predecessor_in_the_same_place_is_followed_at_once() {
    let after = |me: Replica, holder: &str| {
        let mut election = Election::new(me, TERMS);
        election.looked(at(0), Some(held_by(holder, 1)));
        election.next(at(0))
    };
    let in_place = |stamp| Replica::in_place("pod-0", stamp);
    assert_eq!(after(in_place("2"), in_place("1").name()), Step::Claim);
    assert!(matches!(after(in_place("2"), "pod-1#1"), Step::Pause(_)));
    let on_host = |stamp| Replica::on_host("pod-0", stamp);
    assert!(matches!(
        after(in_place("2"), on_host("1").name()),
        Step::Pause(_)
    ));
    assert!(matches!(after(on_host("2"), on_host("1").name()), Step::Pause(_)));
    assert!(matches!(
        after(on_host("2"), in_place("1").name()),
        Step::Pause(_)
    ));
}

/// Spec: safety F6
#[test]
fn a_leader_that_cannot_renew_stops_acting_and_goes_on_if_nobody_has_led_meanwhile() {
    let mut election = leading(at(0));
    election.failed(at(9_000));
    assert_eq!(election.acts_until(), Some(at(10_000)), "whatever it tries");
    election.failed(at(60_000));
    assert_eq!(election.next(at(62_000)), Step::Look);
    election.looked(at(62_000), Some(held_by("a_1", 9)));
    assert_eq!(election.next(at(62_000)), Step::Renew);
    assert_eq!(election.acts_until(), Some(at(10_000)), "a look is no renewal");
    election.kept(at(62_000), held_by("a_1", 10));
    assert_eq!(election.acts_until(), Some(at(72_000)));
    // A leader that was stopped does not know better: the version that it carries does.
    assert_eq!(leading(at(0)).next(at(60_000)), Step::Renew);
}

/// Spec: safety F6
#[test]
fn a_leader_that_finds_another_has_lost_and_one_that_finds_itself_goes_on() {
    for holder in ["b_1", "", "a_2"] {
        let mut election = leading(at(0));
        election.conflicted(at(2_000));
        assert_eq!(election.next(at(2_000)), Step::Pause(at(2_200)));
        assert_eq!(election.next(at(2_200)), Step::Look);
        election.looked(at(2_210), Some(held_by(holder, 9)));
        assert_eq!(
            election.next(at(2_210)),
            Step::Lost(Loss::Taken(holder.to_owned()))
        );
    }
    let mut election = leading(at(0));
    election.failed(at(3_000));
    election.looked(at(5_000), Some(held_by("a_1", 9)));
    assert_eq!(election.next(at(5_000)), Step::Renew);
    assert_eq!(election.acts_until(), Some(at(10_000)), "a look is no renewal");
}

#[test]
fn a_lease_that_somebody_deletes_is_made_anew_by_its_holder_first() {
    let mut leader = leading(at(0));
    leader.conflicted(at(2_000));
    leader.looked(at(2_000), None);
    assert_eq!(leader.next(at(2_000)), Step::Create);
    assert_eq!(
        leader.next(at(10_000)),
        Step::Lost(Loss::Deleted),
        "others may have had one since"
    );
    let mut waits = anywhere("b");
    waits.looked(at(0), Some(held_by("a_1", 1)));
    waits.looked(at(2_000), None);
    assert_eq!(waits.next(at(2_000)), Step::Pause(at(4_000)));
    waits.looked(at(15_000), None);
    assert_eq!(waits.next(at(15_000)), Step::Create);
}

#[test]
fn a_lease_is_written_in_whole_seconds_and_never_too_short() {
    let secs = |millis| {
        let lease = Duration::from_millis(millis);
        Terms { lease, ..TERMS }.lease_secs()
    };
    assert_eq!([secs(0), secs(1_000), secs(1_001), secs(15_000)], [1, 1, 2, 15]);
}

/// A request on its way to the API server, or its answer on the way back.
#[derive(Clone, Debug)]
struct Request {
    from: usize,
    /// The life of the replica that sent it.
    life: u32,
    step: Step,
    version: u64,
    sent: Moment,
    arrives: u64,
    answered: Option<u64>,
    answer: Option<Answer>,
}

#[derive(Clone, Debug)]
enum Answer {
    Seen(Option<Stored>, u64),
    Kept(Stored, u64),
    Conflict,
}

/// Trouble in one step of time for one replica.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    None,
    /// Stopped for so many ticks.
    Stop(u64),
    /// Killed, and started again in the same place.
    Kill,
    /// Its next request arrives so many ticks later; the answer is lost.
    Lost(u64),
    Release,
}

struct Replicant {
    election: Election,
    life: u32,
    version: u64,
    /// Thousandths of real time by which its clock advances.
    rate: u64,
    waits_since: Option<u64>,
    stopped_until: u64,
    lossy: Option<u64>,
}

/// How finely time passes.
const TICK: u64 = 100;

struct World {
    replicas: Vec<Replicant>,
    stored: Option<(Stored, u64)>,
    written: u64,
    under_way: Vec<Request>,
}

fn in_place(place: usize, life: u32) -> Election {
    Election::new(Replica::in_place(&place.to_string(), &life.to_string()), TERMS)
}

impl World {
    fn new(rates: &[u64]) -> Self {
        let replica = |(place, rate): (usize, &u64)| Replicant {
            election: in_place(place, 0),
            life: 0,
            version: 0,
            rate: *rate,
            waits_since: None,
            stopped_until: 0,
            lossy: None,
        };
        Self {
            replicas: rates.iter().enumerate().map(replica).collect(),
            stored: None,
            written: 0,
            under_way: Vec::new(),
        }
    }

    fn now_of(&self, index: usize, now: u64) -> Moment {
        at(now * self.replicas[index].rate / 1_000)
    }

    /// The replicas that may act now by their own clocks.
    fn acting(&self, now: u64) -> Vec<usize> {
        let acts = |index: &usize| {
            let election = &self.replicas[*index].election;
            let own = self.now_of(*index, now);
            election.acts_until().is_some_and(|until| own < until)
                && !matches!(election.next(own), Step::Lost(_))
        };
        (0..self.replicas.len()).filter(acts).collect()
    }

    fn restart(&mut self, index: usize) {
        let replica = &mut self.replicas[index];
        replica.life += 1;
        replica.election = in_place(index, replica.life);
        replica.waits_since = None;
        replica.stopped_until = 0;
    }

    fn trouble(&mut self, index: usize, now: u64, trouble: Trouble) {
        match trouble {
            Trouble::None => {}
            Trouble::Stop(ticks) => self.replicas[index].stopped_until = now + ticks * TICK,
            Trouble::Kill => self.restart(index),
            Trouble::Lost(ticks) => self.replicas[index].lossy = Some(ticks * TICK),
            Trouble::Release => {
                let name = self.replicas[index].election.replica().name().to_owned();
                self.restart(index);
                if let Some((stored, _)) = self.stored.clone().filter(|(stored, _)| stored.holder == name) {
                    self.written += 1;
                    let free = Stored {
                        holder: String::new(),
                        ..stored
                    };
                    self.stored = Some((free, self.written));
                }
            }
        }
    }

    fn arrive(&mut self, now: u64) {
        for index in 0..self.under_way.len() {
            let request = &self.under_way[index];
            if request.arrives > now || request.answer.is_some() {
                continue;
            }
            let holder = Replica::in_place(&request.from.to_string(), &request.life.to_string());
            let fits = self.stored.as_ref().map_or(0, |(_, version)| *version) == request.version;
            let answer = match (&request.step, &self.stored) {
                (Step::Look, stored) => {
                    let version = stored.as_ref().map_or(0, |(_, version)| *version);
                    Answer::Seen(stored.as_ref().map(|(stored, _)| stored.clone()), version)
                }
                (Step::Create, Some(_)) => Answer::Conflict,
                _ if !fits => Answer::Conflict,
                _ => {
                    self.written += 1;
                    let stored = held_by(holder.name(), self.written);
                    self.stored = Some((stored.clone(), self.written));
                    Answer::Kept(stored, self.written)
                }
            };
            self.under_way[index].answer = Some(answer);
        }
    }

    /// One replica that is not stopped takes in the answers and does its next step.
    fn act(&mut self, index: usize, now: u64) {
        let own = self.now_of(index, now);
        let life = self.replicas[index].life;
        if let Some(since) = self.replicas[index].waits_since {
            let ours = |request: &Request| request.from == index && request.life == life;
            let come = |request: &Request| {
                ours(request) && request.answer.is_some() && request.answered.is_some_and(|at| at <= now)
            };
            let replica = &mut self.replicas[index];
            if let Some(found) = self.under_way.iter().position(come) {
                let request = self.under_way.remove(found);
                replica.waits_since = None;
                match request.answer {
                    Some(Answer::Seen(stored, version)) => {
                        replica.version = version;
                        replica.election.looked(own, stored);
                    }
                    Some(Answer::Kept(stored, version)) => {
                        replica.version = version;
                        replica.election.kept(request.sent, stored);
                    }
                    Some(Answer::Conflict) => replica.election.conflicted(own),
                    None => {}
                }
            } else if now - since >= 5_000 {
                replica.waits_since = None;
                replica.election.failed(own);
                // Sent requests may still arrive; no process reads the answers.
                for request in self.under_way.iter_mut().filter(|request| ours(request)) {
                    request.answered = None;
                }
            } else {
                return;
            }
        }
        let step = self.replicas[index].election.next(own);
        match step {
            Step::Pause(_) => {}
            Step::Lost(_) => self.restart(index),
            Step::Look | Step::Create | Step::Claim | Step::Renew => {
                let replica = &mut self.replicas[index];
                let lossy = replica.lossy.take();
                replica.waits_since = Some(now);
                self.under_way.push(Request {
                    from: index,
                    life,
                    version: if step == Step::Create { 0 } else { replica.version },
                    step,
                    sent: own,
                    arrives: now + lossy.unwrap_or(TICK),
                    answered: lossy.is_none().then_some(now + 2 * TICK),
                    answer: None,
                });
            }
        }
    }
}

fn troubles() -> impl Strategy<Value = Trouble> {
    prop_oneof![
        160 => Just(Trouble::None),
        2 => (1_u64..300).prop_map(Trouble::Stop),
        1 => Just(Trouble::Kill),
        4 => (1_u64..150).prop_map(Trouble::Lost),
        1 => Just(Trouble::Release),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: CASES, rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Spec: safety F6
    #[test]
    fn two_never_lead_at_the_same_time_and_somebody_does_in_the_end(
        rates in prop::collection::vec(900_u64..=1_100, 3),
        history in prop::collection::vec(prop::collection::vec(troubles(), 3), 900),
    ) {
        let mut world = World::new(&rates);
        let calm = 500;
        for (tick, troubles) in (0_u64..).zip(history.iter()) {
            let now = tick * TICK;
            world.arrive(now);
            for (index, trouble) in troubles.iter().enumerate() {
                if tick < calm {
                    world.trouble(index, now, *trouble);
                }
                if world.replicas[index].stopped_until <= now {
                    world.act(index, now);
                }
                let acting = world.acting(now);
                prop_assert!(acting.len() <= 1, "{acting:?} at {now} ms");
            }
        }
        let end = 900 * TICK;
        prop_assert_eq!(world.acting(end).len(), 1, "40 s after the last trouble: {:?}", world.stored);
    }
}
