//! The time of a cluster, which its API server tells with each answer.
//!
//! Why not the clock of this machine: it may be an hour off, or jump, and the next replica runs on another machine. A time that
//! one process writes is the start from which the next one counts (`spec/safety.md` F18).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use http::header::DATE;
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};
use roadstead_core::moment::later;
use tokio::time::Instant;

/// By how much an answer's time may be behind the last one: it names whole seconds, and may have been under way for a while.
const LATE: SignedDuration = SignedDuration::from_secs(5);

/// The time of day by the answers of one API server, and by the monotonic clock between them. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ServerTime(Arc<Mutex<Option<Heard>>>);

#[derive(Clone, Copy, Debug)]
struct Heard {
    time: Timestamp,
    at: Instant,
}

impl Heard {
    fn told(self, now: Instant) -> Timestamp {
        let passed = SignedDuration::try_from(now.duration_since(self.at)).unwrap_or(SignedDuration::MAX);
        later(self.time, passed)
    }
}

impl ServerTime {
    /// The time now; `None` before the first answer.
    pub fn now(&self) -> Option<Timestamp> {
        let heard = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heard.map(|heard| heard.told(Instant::now()))
    }

    /// Waits until there was an answer, for at most `most`.
    pub async fn learn(&self, client: &kube::Client, most: Duration) {
        if self.now().is_none() {
            // Why the result is ignored: a refusal is dated too, and without an answer other requests follow soon.
            let _ = tokio::time::timeout(most, client.apiserver_version()).await;
        }
    }

    pub(crate) fn read(&self, headers: &HeaderMap) {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok());
        if let Some(date) = date {
            self.hear(date, Instant::now());
        }
    }

    fn hear(&self, date: Timestamp, now: Instant) {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let told = heard.map(|heard| heard.told(now));
        if told.is_none_or(|told| told < date || told > later(date, LATE)) {
            *heard = Some(Heard { time: date, at: now });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_second(secs).unwrap()
    }

    /// Spec: safety F18
    #[tokio::test(start_paused = true)]
    async fn the_time_is_the_servers_and_goes_on_between_its_answers() {
        let time = ServerTime::default();
        assert_eq!(time.now(), None);
        let hear = |date: &'static str| {
            let date = http::HeaderValue::from_static(date);
            time.read(&HeaderMap::from_iter([(DATE, date)]));
        };
        hear("Sun, 06 Nov 1994 08:49:37 GMT");
        let first: Timestamp = "1994-11-06T08:49:37Z".parse().unwrap();
        assert_eq!(time.now(), Some(first));
        tokio::time::advance(Duration::from_millis(61_900)).await;
        let went_on = first + SignedDuration::from_millis(61_900);
        assert_eq!(time.now(), Some(went_on));
        for date in ["", "tomorrow", "Sun, 06 Nov 1994 08:50:38 GMT"] {
            hear(date);
            assert_eq!(time.now(), Some(went_on), "{date:?} says nothing new");
        }
        hear("Sun, 06 Nov 1994 08:50:39 GMT");
        assert_eq!(time.now(), Some(first + SignedDuration::from_secs(62)));
    }

    /// Spec: safety F18
    #[tokio::test(start_paused = true)]
    async fn a_late_answer_takes_nothing_back_and_a_server_whose_clock_was_put_back_is_believed() {
        let time = ServerTime::default();
        for (date, told) in [
            (1_000, 1_000),
            (995, 1_000),
            (994, 994),
            (4_600, 4_600),
            (1_000, 1_000),
        ] {
            time.hear(at(date), Instant::now());
            assert_eq!(time.now(), Some(at(told)), "{date}");
        }
    }
}
