//! The one place where the engine learns the time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use roadstead_core::lease::Moment;
use roadstead_core::moment::later;
use roadstead_kubeio::date::ServerTime;
use tokio::time::Instant;

/// Gives the time; passed in, so that a simulation can pass its own.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A steady clock is corrected by at most one part in `SLEW` of the time that passes.
/// *Source*: the drift of `spec/safety.md F18`.
const SLEW: u32 = 10;
/// Millionths of a whole.
const MILLION: u32 = 1_000_000;
/// By how much a clock may be wrong before it is reported.
const WRONG: SignedDuration = SignedDuration::from_mins(1);

/// How long this process has been up, by a clock that never jumps. Everything about leases is measured with it, never with the
/// time of day (`spec/safety.md F18`).
#[derive(Clone, Copy, Debug)]
pub struct Uptime {
    started: Instant,
    /// By how many millionths it runs too fast.
    ppm: i32,
}

impl Uptime {
    /// Starts now.
    pub fn start() -> Self {
        Self::drifting(0)
    }

    /// Starts now and runs by so many millionths too fast, or (negative) too slow; for a simulation.
    pub fn drifting(ppm: i32) -> Self {
        let started = Instant::now();
        Self { started, ppm }
    }

    /// The time since the start.
    pub fn now(&self) -> Moment {
        Moment::after_start(self.age())
    }

    fn age(&self) -> Duration {
        let age = self.started.elapsed();
        let off = age.saturating_mul(self.ppm.unsigned_abs()) / MILLION;
        if self.ppm < 0 {
            age.saturating_sub(off)
        } else {
            age.saturating_add(off)
        }
    }
}

/// The clock of the machine.
pub fn system() -> Clock {
    Arc::new(Timestamp::now)
}

/// The clock of an API server, by its answers; the machine's clock before the first answer (`spec/safety.md F18`).
pub fn of_server(time: ServerTime) -> Clock {
    Arc::new(move || time.now().unwrap_or_else(Timestamp::now))
}

/// Logs a warning when the machine's clock differs from the API server's.
pub fn compare(time: &ServerTime) {
    let Some(served) = time.now() else { return };
    let off = Timestamp::now().duration_since(served);
    if off.abs() > WRONG {
        tracing::warn!(
            "the clock of this machine is off by {} s from that of the API server, which is used for all but the dates of log lines; \
             correct the wrong one",
            off.as_secs()
        );
    }
}

/// The time of `wall` without its jumps, so that pauses, back-offs and time limits are as long as they should be (`spec/safety.md
/// F18`). After a jump it runs up to a tenth faster or slower until both agree again.
pub fn steady(wall: Clock, uptime: Uptime) -> Clock {
    let steady = Mutex::new(Steady::starting(wall()));
    Arc::new(move || {
        let mut steady = steady.lock().unwrap_or_else(PoisonError::into_inner);
        steady.read(uptime.age(), wall())
    })
}

struct Steady {
    told: Timestamp,
    /// The age of the process at which `told` was given.
    at: Duration,
    /// Whether the warning about the machine's clock was given.
    warned: bool,
}

impl Steady {
    const fn starting(wall: Timestamp) -> Self {
        Self {
            told: wall,
            at: Duration::ZERO,
            warned: false,
        }
    }

    /// The time to show when the process has this age and the machine's clock shows `wall`.
    fn read(&mut self, age: Duration, wall: Timestamp) -> Timestamp {
        // Why: two threads may read their age in one order and arrive here in the other.
        let Some(passed) = age.checked_sub(self.at) else {
            return self.told;
        };
        let signed = |span| SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
        let most = signed(passed / SLEW);
        let ahead = later(self.told, signed(passed));
        let gap = wall.duration_since(ahead);
        if (gap.abs() > WRONG) != self.warned {
            self.warned = !self.warned;
            self.tell(gap);
        }
        (self.told, self.at) = (later(ahead, gap.clamp(-most, most)), age);
        self.told
    }

    fn tell(&self, gap: SignedDuration) {
        if self.warned {
            tracing::warn!(
                "the time of day has jumped by {} s; time limits are kept as they were, and the times that this process shows \
                 follow slowly (restart it to make them follow at once)",
                gap.as_secs()
            );
        } else {
            tracing::info!("the times that this process shows agree with the time of day again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_second(secs).unwrap()
    }

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// Spec: safety F18
    #[test]
    fn a_jump_of_the_machine_is_followed_slowly_and_never_backwards() {
        let mut clock = Steady::starting(at(1_000_000));
        assert_eq!(clock.read(secs(100), at(1_000_100)), at(1_000_100));
        for hour in [3_600, -3_600] {
            let mut clock = Steady::starting(at(1_000_000));
            let forth = clock.read(secs(10), at(1_000_010 + hour));
            assert_eq!(forth, at(1_000_010 + hour.signum()), "by a tenth of ten seconds");
            let mut last = forth;
            for age in 11..36_100 {
                let told = clock.read(secs(age), at(1_000_000 + hour + i64::try_from(age).unwrap()));
                let passed = told.duration_since(last);
                let (least, most) = (
                    SignedDuration::from_millis(900),
                    SignedDuration::from_millis(1_100),
                );
                assert!(least <= passed && passed <= most, "{passed}");
                last = told;
            }
            assert_eq!(last, at(1_000_000 + hour + 36_099), "after ten hours both agree");
        }
    }

    /// Spec: safety F18
    #[tokio::test(start_paused = true)]
    async fn a_host_may_be_fast_or_slow() {
        let hosts = [45_000, 0, -45_000].map(Uptime::drifting);
        tokio::time::advance(secs(1_000)).await;
        assert_eq!(
            hosts.map(|host| host.age()),
            [secs(1_045), secs(1_000), secs(955)]
        );
    }

    #[test]
    fn it_goes_on_when_it_is_asked_often_or_out_of_turn_and_at_the_ends_of_time() {
        let mut clock = Steady::starting(at(0));
        for nanos in 0..1_000 {
            clock.read(Duration::from_nanos(nanos), at(3_600));
        }
        let told = clock.read(Duration::from_micros(1), at(3_600));
        assert!(told <= at(0) + SignedDuration::from_nanos(1_100), "{told}");
        assert_eq!(clock.read(Duration::ZERO, at(3_600)), told, "not back");
        assert_eq!(
            Steady::starting(Timestamp::MAX).read(secs(100), Timestamp::MIN),
            later(Timestamp::MAX, SignedDuration::from_secs(-10))
        );
    }
}
