//! Leader election between replicas of one process: one replica leads, the others wait to take over.
//!
//! All replicas watch one Lease on their own API server. The holder renews it again and again. A waiting replica takes it when it was given
//! back, or when it was not renewed for its length. [`Election`] says what to do next and takes in the results; its caller sends the
//! requests and sleeps.
//!
//! Invariant: at most one replica acts at any moment ([`Election::acts_until`]), whatever is lost or delayed and however long a replica is
//! stopped. It requires that clock rates differ by less than the gap between the renewal deadline and the lease length. It rests on three
//! things:
//! - A leader counts from the moment when it *sent* the last renewal that it knows to be stored. A waiting replica counts from the moment
//!   when it *saw* the last renewal. No time that is written in the Lease is used.
//! - Each write carries the version that was read.
//! - A leader that finds another holder in the Lease never acts again: its process ends.
//!
//! A leader whose time is over stops acting and goes on trying to renew. If it still holds the Lease, no other replica has led meanwhile,
//! and it acts again. So an outage of the API server ends no process, unlike in the reference.
//!
//! *Limits*: if a user deletes the Lease, a replica that starts just then and has never seen it may lead as well, until the old leader
//! notices at its next renewal. A machine that is suspended as a whole must advance its clock by that time.
//!
//! *Source*: `spec/safety.md 3.2, F6`; the times as in `spec/api.md` (`leaderElection`).

use std::time::Duration;

use crate::lease::Moment;

/// Separates the place of a replica from the stamp of its process.
const OF_PLACE: char = '#';
/// How many looks after conflicts fit into one normal pause.
const CONFLICT_PAUSES: u32 = 10;

/// The identity of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    name: String,
    place: Option<String>,
}

impl Replica {
    /// A process in a place where no two processes ever run at the same time, such as a pod. `stamp` tells it from its predecessor. It
    /// takes over its predecessor's lease at once, because that process is certainly gone.
    pub fn in_place(place: &str, stamp: &str) -> Self {
        Self {
            name: format!("{place}{OF_PLACE}{stamp}"),
            place: Some(place.to_owned()),
        }
    }

    /// A process on `host`, where other replicas may run too.
    pub fn on_host(host: &str, stamp: &str) -> Self {
        Self {
            name: format!("{host}_{stamp}"),
            place: None,
        }
    }

    /// The name that it writes as the holder.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn succeeds(&self, holder: &str) -> bool {
        let of = holder.rsplit_once(OF_PLACE);
        self.place
            .as_deref()
            .is_some_and(|place| of.is_some_and(|(of, _)| of == place))
    }
}

/// The times of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long waiting replicas respect a Lease that is not renewed; longer than `renew_deadline`.
    pub lease: Duration,
    /// How long a leader acts after the last renewal; longer than `retry`.
    pub renew_deadline: Duration,
    /// Pause between two looks, and between two renewals.
    pub retry: Duration,
}

impl Terms {
    /// The length of the Lease in whole seconds, as the API has it. It is rounded up, because a longer Lease is safe.
    pub fn lease_secs(&self) -> u64 {
        let rest = u64::from(self.lease.subsec_nanos() > 0);
        self.lease.as_secs().saturating_add(rest).max(1)
    }

    /// How long one request may take, so that time remains for another.
    pub fn request_max(&self) -> Duration {
        self.renew_deadline / 2
    }
}

/// The fields of a stored Lease that the election uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The holder; empty when it was given back.
    pub holder: String,
    /// When it was last renewed, as the holder wrote it: only a change of this text matters.
    pub renewed: String,
    /// Its length; `None` when it has none.
    pub length: Option<Duration>,
}

/// The next step of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read the Lease.
    Look,
    /// Create the Lease as its holder.
    Create,
    /// Take over the Lease that was read.
    Claim,
    /// Renew the Lease that was written last.
    Renew,
    /// Do nothing before that moment.
    Pause(Moment),
    /// Leadership is lost: end the process.
    Lost(Loss),
}

/// Why a leader lost its leadership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The Lease was found deleted after this leader's time was over: another replica may have led since.
    Deleted,
    /// Another replica holds the Lease. The text is its name; it is empty when the Lease has no holder although it was not given back.
    Taken(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum View {
    Unknown,
    Absent,
    Present(Stored),
}

/// One replica's part in an election.
#[derive(Clone, Debug)]
pub struct Election {
    me: Replica,
    terms: Terms,
    view: View,
    /// The Lease of another holder as last seen, and since when it has not changed. It outlives the Lease: if a user deletes the Lease, its
    /// holder does not know that yet.
    held: Option<(Stored, Moment)>,
    acts_until: Option<Moment>,
    next_at: Moment,
}

impl Election {
    /// Begins as a waiting replica.
    pub fn new(me: Replica, terms: Terms) -> Self {
        Self {
            me,
            terms,
            view: View::Unknown,
            held: None,
            acts_until: None,
            next_at: Moment::default(),
        }
    }

    /// The identity of this replica.
    pub const fn replica(&self) -> &Replica {
        &self.me
    }

    /// The times of the election.
    pub const fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Until when this replica may act as the leader; `None` when it never led.
    pub const fn acts_until(&self) -> Option<Moment> {
        self.acts_until
    }

    /// The step to do at `now`.
    pub fn next(&self, now: Moment) -> Step {
        let step = match (&self.view, self.acts_until) {
            (View::Present(stored), Some(_)) if stored.holder != self.me.name => {
                return Step::Lost(Loss::Taken(stored.holder.clone()));
            }
            (View::Absent, Some(until)) if until <= now => return Step::Lost(Loss::Deleted),
            (View::Unknown, _) => Step::Look,
            (View::Absent, _) => Step::Create,
            (View::Present(_), None) => Step::Claim,
            (View::Present(_), Some(_)) => Step::Renew,
        };
        if now < self.next_at {
            Step::Pause(self.next_at)
        } else {
            step
        }
    }

    /// The Lease was read: `stored`, at `now`.
    pub fn looked(&mut self, now: Moment, stored: Option<Stored>) {
        self.observe(now, stored.as_ref());
        let is_free = match &stored {
            Some(stored) => {
                stored.holder.is_empty() || stored.holder == self.me.name || self.me.succeeds(&stored.holder)
            }
            None => self.held.is_none(),
        };
        let ends = self.held.as_ref().map_or(now, |(held, since)| {
            since.plus(held.length.unwrap_or(self.terms.lease))
        });
        if self.acts_until.is_some() || is_free || ends <= now {
            self.view = stored.map_or(View::Absent, View::Present);
            self.next_at = now;
        } else {
            // Why unknown: a Lease must be read again just before it is claimed.
            self.view = View::Unknown;
            self.next_at = now.plus(self.terms.retry).min(ends);
        }
    }

    fn observe(&mut self, now: Moment, stored: Option<&Stored>) {
        match stored {
            None => {}
            Some(stored) if stored.holder.is_empty() || stored.holder == self.me.name => self.held = None,
            Some(stored) if self.held.as_ref().is_some_and(|(held, _)| held == stored) => {}
            Some(stored) => self.held = Some((stored.clone(), now)),
        }
    }

    /// The write that was sent at `sent` is known to be stored.
    pub fn kept(&mut self, sent: Moment, stored: Stored) {
        self.acts_until = Some(sent.plus(self.terms.renew_deadline));
        self.next_at = sent.plus(self.terms.retry);
        self.held = None;
        self.view = View::Present(stored);
    }

    /// Another process wrote the Lease since it was read.
    pub fn conflicted(&mut self, now: Moment) {
        self.view = View::Unknown;
        // Why any pause: no answer of an API server may cause a storm of requests.
        self.next_at = now.plus(self.terms.retry / CONFLICT_PAUSES);
    }

    /// A request failed, or its result is unknown.
    pub fn failed(&mut self, now: Moment) {
        self.view = View::Unknown;
        self.next_at = now.plus(self.terms.retry);
    }
}

#[cfg(test)]
mod tests;
