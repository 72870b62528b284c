//! Which of several replicas of one process leads: the others wait, ready to take over.
//!
//! All replicas look at one Lease on their own API server. Who holds it renews it on and on; who waits takes it when it was given
//! back, or when it was not renewed for its length. [`Election`] says what to do next and takes in how that went; asking,
//! writing and sleeping are done by who owns it.
//!
//! Invariant: with clocks whose rates differ by less than the renewal deadline is shorter than the lease, at most one replica acts
//! at any moment ([`Election::acts_until`]), whatever is lost or delayed and whoever is stopped for however long. It rests on
//! three things. A leader counts from the moment it *sent* the last renewal that it knows to be stored, and one that waits from
//! the moment it *saw* the last one: never from a time that stands in the Lease. Each write carries the version that was
//! looked at. And who finds that another has held the Lease never comes back: its process ends.
//!
//! A leader whose time is over stops acting and goes on trying to renew. If the Lease is still its own, nobody has led meanwhile,
//! and it acts again: an outage of the API server ends no process, unlike in the reference.
//!
//! *Limits*: somebody who deletes the Lease while a replica starts that has never seen it makes two leaders for as long as a
//! renewal takes to notice; and a machine that is suspended as a whole must tell its clock so.
//!
//! *Source*: `spec/safety.md 3.2, F6`; the times as in `spec/api.md` (`leaderElection`).

use std::time::Duration;

use crate::lease::Moment;

/// Between the place of a replica and what tells its processes apart.
const OF_PLACE: char = '#';
/// Looks after a conflict that fit into one pause.
const CONFLICT_PAUSES: u32 = 10;

/// Who a replica is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    name: String,
    place: Option<String>,
}

impl Replica {
    /// A process in a place where no two of them ever run at a time, such as a pod. `stamp` tells it from its predecessor, whose
    /// lease it takes back at once: that one is certainly gone.
    pub fn in_place(place: &str, stamp: &str) -> Self {
        Self {
            name: format!("{place}{OF_PLACE}{stamp}"),
            place: Some(place.to_owned()),
        }
    }

    /// A process somewhere on `host`, where others may run too.
    pub fn on_host(host: &str, stamp: &str) -> Self {
        Self {
            name: format!("{host}_{stamp}"),
            place: None,
        }
    }

    /// What it writes as the holder.
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
    /// How long a Lease counts for those who wait; longer than `renew_deadline`.
    pub lease: Duration,
    /// How long a leader acts after the last renewal; longer than `retry`.
    pub renew_deadline: Duration,
    /// Pause between two looks, and between two renewals.
    pub retry: Duration,
}

impl Terms {
    /// The length of the Lease in whole seconds, as the API has it; rounded up, because it may only be too long.
    pub fn lease_secs(&self) -> u64 {
        let rest = u64::from(self.lease.subsec_nanos() > 0);
        self.lease.as_secs().saturating_add(rest).max(1)
    }

    /// How long one request may take: there must be time for another.
    pub fn request_max(&self) -> Duration {
        self.renew_deadline / 2
    }
}

/// What matters of a stored Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Who holds it; empty when it was given back.
    pub holder: String,
    /// When it was last renewed, in the holder's words: only whether they change matters.
    pub renewed: String,
    /// Its length; `None` when it has none.
    pub length: Option<Duration>,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask what is stored.
    Look,
    /// Create the Lease as its holder.
    Create,
    /// Take over the one that was looked at.
    Claim,
    /// Renew the one that was written last.
    Renew,
    /// Nothing before then.
    Pause(Moment),
    /// It is over: end the process.
    Lost(Loss),
}

/// Why a leader leads no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The Lease was deleted when its time was over: others may have held one since.
    Deleted,
    /// Another holds the Lease; empty when nobody does although it was not given back.
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
    /// What another held when last seen, and since when it is as it is. It outlives the Lease: who holds one that somebody deleted
    /// does not know yet.
    held: Option<(Stored, Moment)>,
    acts_until: Option<Moment>,
    next_at: Moment,
}

impl Election {
    /// Begins as one of those who wait.
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

    /// Who takes part.
    pub const fn replica(&self) -> &Replica {
        &self.me
    }

    /// The times.
    pub const fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Up to when this replica may act as the leader; `None` when it never led.
    pub const fn acts_until(&self) -> Option<Moment> {
        self.acts_until
    }

    /// What to do at `now`.
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

    /// A look that was answered at `now` showed this.
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
            // Why unknown: what is claimed must just have been looked at.
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

    /// Somebody else wrote it since it was looked at.
    pub fn conflicted(&mut self, now: Moment) {
        self.view = View::Unknown;
        // Why any pause: so that nothing that an API server answers makes a storm.
        self.next_at = now.plus(self.terms.retry / CONFLICT_PAUSES);
    }

    /// A request failed, or nobody knows.
    pub fn failed(&mut self, now: Moment) {
        self.view = View::Unknown;
        self.next_at = now.plus(self.terms.retry);
    }
}

#[cfg(test)]
mod tests;
