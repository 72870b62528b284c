//! The lease of a manager on a worker cluster: how the worker knows that it was left alone, and how the manager knows that
//! the worker knows.
//!
//! The manager renews one object per worker, on and on. A worker that has not heard of it for the length of the lease stops
//! what it runs for that manager ([`Watch`]); a manager starts the same work elsewhere only when that has certainly
//! happened ([`Grant`]).
//!
//! Invariant: whatever is lost, delayed or reordered, and with clocks whose rates differ by up to a tenth, the worker's
//! [`Standing::Expired`] comes before the manager's [`Closing::At`], by at least [`Terms::drain`]. It rests on two
//! things. The manager counts from the moment it *sent* its last renewal. The worker counts from a moment that is *not after*
//! the one at which the renewal it sees was sent, and never from when it arrived: each renewal has a number and carries the
//! version of the one before it, so it was sent after the one before was stored, and that was not yet stored when the worker
//! looked and saw an older one.
//!
//! Nothing here reads the time of day: a [`Moment`] is time since the start of a process, on a clock that never jumps.
//!
//! *Source*: `spec/safety.md 3`.

use std::time::Duration;

/// Time since the start of a process, on its own clock that never jumps. Moments of two processes cannot be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// This long after the start.
    pub const fn after_start(time: Duration) -> Self {
        Self(time)
    }

    /// This much later.
    #[must_use]
    pub const fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }

    /// How long it is from `earlier` to this; zero when it is not later.
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// The longest time between two renewals, and between two looks.
const BEAT_MAX: Duration = Duration::from_secs(5);

/// Limit: the longest lease that a worker takes. Whoever can write the Lease there could else keep the worker waiting for years for a
/// manager that is gone.
pub const LENGTH_MAX: Duration = Duration::from_hours(24);

/// How far the number of a lease may come between two looks: of renewals a second apart, more than a hundred years.
const LEAP_MAX: u64 = 1 << 32;

/// The number of the renewal after the one of this number; always another one, whatever somebody wrote there.
pub const fn next_renewal(number: u64) -> u64 {
    match number.checked_add(1) {
        Some(next) => next,
        None => 1,
    }
}

/// Everything that follows from the length of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Terms {
    length: Duration,
}

impl Terms {
    /// A lease of this length; at least a second, in whole seconds as the API has it.
    pub fn of(length: Duration) -> Self {
        let length = Duration::from_secs(length.as_secs().max(1));
        Self { length }
    }

    /// A lease of so many seconds as somebody has written it, as a worker takes it: at most [`LENGTH_MAX`].
    pub fn written(secs: u64) -> Self {
        Self::of(Duration::from_secs(secs).min(LENGTH_MAX))
    }

    /// The lease for a manager that gives a lost worker up after `timeout`: two thirds of it, so that [`Self::closed_after`]
    /// is that time.
    pub fn for_timeout(timeout: Duration) -> Self {
        Self::of(timeout.saturating_mul(2) / 3)
    }

    /// After this long without a renewal the worker stops what it runs.
    pub const fn length(self) -> Duration {
        self.length
    }

    /// After this long without a renewal the worker starts nothing more.
    pub fn starts_for(self) -> Duration {
        self.length.saturating_mul(2) / 3
    }

    /// How often it is renewed, and how often the worker looks.
    pub fn beat(self) -> Duration {
        (self.length / 30).min(BEAT_MAX)
    }

    /// How often the worker says that it is there.
    pub fn mark_every(self) -> Duration {
        self.length / 6
    }

    /// How long a worker that has just started, and cannot know how old the lease is, waits for a sign of life.
    pub fn restart_grace(self) -> Duration {
        self.length / 5
    }

    /// How long pods may take to end after the worker told them to, unless they ask for more.
    pub fn drain(self) -> Duration {
        self.length / 10
    }

    /// How long after the last renewal was sent the manager may take for certain that nothing runs there any more:
    /// the length, a tenth for clocks of different rates, the time that pods take to end, three tenths for whatever the worker
    /// has to do in between (a restart included). One and a half lengths when pods end within [`Self::drain`].
    pub fn closed_after(self, drain: Duration) -> Duration {
        let tenth = self.length / 10;
        let without_drain = self.length.saturating_add(tenth.saturating_mul(4));
        without_drain.saturating_add(drain.max(self.drain()))
    }
}

/// Whether a manager keeps its lease on one worker, as far as it knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tenure {
    /// It does.
    #[default]
    Held,
    /// There is a lease, the worker looks at it, and it was not renewed for so long that the worker starts nothing more.
    Lapsed,
    /// This process has seen none there that the worker looks at: it is of another make, or this account may not keep one.
    Never,
}

/// What a manager knows of its own lease on one worker.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The renewals that may have arrived, as far as they matter: the last of each length.
    sent: Vec<(Moment, Terms)>,
    /// The last mark of the worker.
    mark: Option<String>,
    /// When this process saw that it was another one than before.
    marked_at: Option<Moment>,
    answered_at: Option<Moment>,
    /// Up to when the last renewal that was stored lets the worker start something; at first as if one had been stored.
    starts_until: Moment,
    /// An earlier process has recorded that the worker looks at the lease, and this one has not heard of the worker yet.
    recorded: bool,
}

/// When nothing of ours runs on a worker that does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// From then on: the worker fences itself.
    At(Moment),
    /// From then on, if the worker still does what an earlier process of this manager has recorded of it.
    Recorded(Moment),
    /// The worker was not seen to look at the lease, or had stopped to when it was last heard: it may be that nothing there stops
    /// anything.
    Never,
}

/// Whether a worker looks at the lease, as far as this process has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// It was seen to mark it, and lately when it was last heard.
    Looks,
    /// There is a mark, as old as one likes: it was not seen to change yet, which takes up to [`Terms::mark_every`].
    Unproven,
    /// It was seen to, and had stopped when it was last heard.
    Stopped,
    /// There is no mark, or no lease.
    Unmarked,
}

impl Grant {
    /// Nothing was sent by this process yet. Its predecessor may have sent something until `now`.
    pub fn new(now: Moment, terms: Terms) -> Self {
        Self {
            sent: vec![(now, terms)],
            mark: None,
            marked_at: None,
            answered_at: None,
            starts_until: now.plus(terms.starts_for()),
            recorded: false,
        }
    }

    /// The same of a worker of which an earlier process has recorded that it looks at the lease, on these terms. The record counts
    /// until this process hears of the worker.
    #[must_use]
    pub fn with_record(mut self) -> Self {
        self.recorded = true;
        self
    }

    /// This process is connected to the worker: from now on only what it sees itself counts.
    pub fn connected(&mut self) {
        self.recorded = false;
    }

    /// A renewal is about to be sent. It counts even if no answer ever comes. So does one that is found although this process
    /// did not send it: who sent it may have done so until `now`.
    pub fn sending(&mut self, now: Moment, terms: Terms) {
        self.sent.retain(|(_, other)| *other > terms);
        self.sent.push((now, terms));
    }

    /// The lease was seen, with what the worker wrote on it.
    pub fn answered(&mut self, mark: Option<&str>, now: Moment) {
        self.connected();
        let looked_before = self.answered_at.replace(now).is_some();
        if mark.is_some() && self.mark.as_deref() != mark {
            self.mark = mark.map(str::to_owned);
            // Why not at the first look of a process: what is there may be as old as one likes, and its author dead since then.
            if looked_before {
                self.marked_at = Some(now);
            }
        }
    }

    /// The renewal that was sent at `sent` is stored.
    pub fn renewed(&mut self, sent: Moment, terms: Terms) {
        self.starts_until = sent.plus(terms.starts_for());
    }

    /// How things stand. A worker whose lease has lapsed stops what it is given.
    pub fn tenure(&self, now: Moment) -> Tenure {
        match (self.answered_at, &self.mark) {
            (Some(_), _) if now < self.starts_until => Tenure::Held,
            (Some(_), Some(_)) => Tenure::Lapsed,
            (None, _) | (Some(_), None) => Tenure::Never,
        }
    }

    /// Whether the lease was ever seen there.
    pub const fn was_answered(&self) -> bool {
        self.answered_at.is_some()
    }

    /// What is known of the worker's look at the lease.
    pub fn guard(&self) -> Guard {
        let patience = self.sent.iter().map(|(_, terms)| terms.length()).max();
        match (&self.mark, self.marked_at, self.answered_at) {
            (None, _, _) | (_, _, None) => Guard::Unmarked,
            (Some(_), None, Some(_)) => Guard::Unproven,
            (Some(_), Some(marked), Some(answered))
                if answered.since(marked) > patience.unwrap_or_default() =>
            {
                Guard::Stopped
            }
            (Some(_), Some(_), Some(_)) => Guard::Looks,
        }
    }

    /// When nothing runs there any more, if nothing more is sent. `drain` is how long the pods may take to end.
    pub fn closing(&self, drain: Duration) -> Closing {
        let last = self
            .sent
            .iter()
            .map(|(at, terms)| at.plus(terms.closed_after(drain)));
        let at = last.max().unwrap_or_default();
        match self.guard() {
            Guard::Looks => Closing::At(at),
            Guard::Unmarked if self.recorded => Closing::Recorded(at),
            Guard::Unmarked | Guard::Unproven | Guard::Stopped => Closing::Never,
        }
    }
}

/// A lease as a worker sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Which object it is.
    pub uid: String,
    /// The number of the last renewal.
    pub number: u64,
    /// Its terms.
    pub terms: Terms,
}

/// What a worker knows of the lease of one manager.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    seen: Option<Seen>,
    /// Renewals from this number on were sent at this moment or later. Both grow.
    evidence: Vec<(u64, Moment)>,
    /// Starts end, work ends. `None` as long as no lease was ever seen.
    ends: Option<(Moment, Moment)>,
    /// When the last renewal of known age was sent, at the earliest.
    sent: Option<Moment>,
}

/// How a worker stands to one manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has no lease: a manager of another make, or none. It is never fenced.
    Free,
    /// The lease is fresh.
    Held,
    /// It is getting old, or its age is not known yet: nothing new is started.
    Doubtful,
    /// It was not renewed in time: what runs is to be stopped.
    Expired,
}

impl Watch {
    /// Of a lease that is seen for the first time; `before` is when an earlier look began that did not show it.
    pub fn after(before: Option<Moment>) -> Self {
        Self {
            evidence: before.map(|at| (2, at)).into_iter().collect(),
            ..Self::default()
        }
    }

    /// Of a lease that was there before this process was, as what runs here says, and that the first look, begun at `began`, did
    /// not show: somebody deleted it. It counts like one whose age is not known.
    pub fn missing(began: Moment, terms: Terms) -> Self {
        Self {
            evidence: vec![(2, began)],
            ends: Some((began, began.plus(terms.restart_grace()))),
            ..Self::default()
        }
    }

    /// A look that began at `began` showed this. Looks must not overlap, and must show what is stored, not what some cache
    /// remembers.
    pub fn looked(&mut self, began: Moment, seen: Option<Seen>) {
        let same_object = match (&self.seen, &seen) {
            (Some(old), Some(new)) => old.uid == new.uid,
            (None, _) => true,
            (Some(_), None) => false,
        };
        if !same_object {
            // Why so: what was sent for an object that is gone cannot renew its successor, whose second renewal carries the version
            // of its first.
            let last = self.evidence.last().map(|(_, at)| *at);
            self.evidence = last.map(|at| (2, at)).into_iter().collect();
        } else if !self.goes_on(seen.as_ref()) {
            // Why: no renewal does that, so somebody edited it, or the storage was restored from a backup. What is known of the old
            // numbers says nothing about the new ones: taken for proof, it would keep a dead manager's lease, or end that of a live one.
            self.evidence.clear();
        }
        if let Some(seen) = &seen {
            self.count_from(seen, began);
        }
        // Why two: the next one may already have been under way, but not the one that carries its version.
        let threshold = seen.as_ref().map_or(Some(2), |seen| seen.number.checked_add(2));
        self.prove(threshold, began);
        self.seen = seen;
    }

    /// Whether what is seen now can have come by renewals from what was seen before.
    fn goes_on(&self, seen: Option<&Seen>) -> bool {
        let (Some(old), Some(new)) = (&self.seen, seen) else {
            return true;
        };
        let leap = new.number.checked_sub(old.number);
        leap.is_some_and(|leap| leap <= LEAP_MAX)
    }

    /// A write of our own that began at `began` changed the lease, which then was as seen. Every later renewal was sent after it.
    pub fn marked(&mut self, began: Moment, seen: &Seen) {
        if self.seen.as_ref().is_some_and(|old| old.uid == seen.uid) {
            self.prove(seen.number.checked_add(1), began);
        }
    }

    /// Why an option: no renewal has a number above the last one.
    fn prove(&mut self, threshold: Option<u64>, at: Moment) {
        let Some(threshold) = threshold else { return };
        self.evidence.retain(|(other, _)| *other < threshold);
        self.evidence.push((threshold, at));
    }

    fn count_from(&mut self, seen: &Seen, began: Moment) {
        let proven = self
            .evidence
            .iter()
            .rposition(|(threshold, _)| *threshold <= seen.number);
        let length = seen.terms.length();
        let ends = match proven {
            Some(at) => {
                let sent = self.evidence[at].1;
                self.evidence.drain(..at);
                self.sent = self.sent.max(Some(sent));
                (sent.plus(seen.terms.starts_for()), sent.plus(length))
            }
            None if self.ends.is_none() => (began, began.plus(seen.terms.restart_grace())),
            None => return,
        };
        // Why never back: a shorter lease does not take back a longer one that the manager also counts with.
        self.ends = Some(match self.ends {
            Some(old) => (old.0.max(ends.0), old.1.max(ends.1)),
            None => ends,
        });
    }

    /// How things stand.
    pub fn standing(&self, now: Moment) -> Standing {
        match self.ends {
            None => Standing::Free,
            Some((_, work)) if work <= now => Standing::Expired,
            Some((starts, _)) if starts <= now => Standing::Doubtful,
            Some(_) => Standing::Held,
        }
    }

    /// When the standing changes if nothing more is seen.
    pub fn changes_at(&self, now: Moment) -> Option<Moment> {
        let (starts, work) = self.ends?;
        [starts, work].into_iter().find(|at| *at > now)
    }

    /// Whether the age of the lease is known; until then a mark of our own finds it out soonest.
    pub const fn knows_its_age(&self) -> bool {
        self.sent.is_some()
    }

    /// How long ago the last renewal of known age was sent, at most.
    pub fn age(&self, now: Moment) -> Option<Duration> {
        self.sent.map(|sent| now.since(sent))
    }

    /// What was seen at the last look.
    pub const fn last_seen(&self) -> Option<&Seen> {
        self.seen.as_ref()
    }
}

#[cfg(test)]
mod tests;
