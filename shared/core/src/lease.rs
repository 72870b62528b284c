//! The lease of a manager on a worker cluster. By it the worker notices that the manager is gone or cut off, and the manager knows by when
//! the worker must have noticed.
//!
//! The manager renews one Lease object per worker, again and again. A worker that sees no renewal for the length of the lease stops what it
//! runs for that manager ([`Watch`]). The manager starts the same work elsewhere only when that has certainly happened ([`Grant`]).
//!
//! Invariant: the worker's [`Standing::Expired`] comes before the manager's [`Closing::At`], by at least [`Terms::drain`]. This holds
//! whatever is lost, delayed or reordered, and with clocks whose rates differ by up to a tenth. It rests on two things:
//! - The manager counts from the moment when it *sent* its last renewal.
//! - The worker counts from a moment that is *not after* the sending of the renewal it sees, and never from its arrival. Each renewal has a
//!   number and carries the version of its predecessor, so it was sent after its predecessor was stored. If a look of the worker shows a
//!   renewal older than that predecessor, the renewal was sent after that look began.
//!
//! Nothing here reads the wall clock: a [`Moment`] is time since the start of a process, on a clock that never jumps.
//!
//! *Source*: `spec/safety.md 3`.

use std::time::Duration;

/// Time since the start of a process, on its own clock that never jumps. Moments of two processes cannot be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// The moment this long after the start of the process.
    pub const fn after_start(time: Duration) -> Self {
        Self(time)
    }

    /// The moment this much later.
    #[must_use]
    pub const fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }

    /// The time from `earlier` to this moment; zero when it is not later.
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// The longest time between two renewals, and between two looks at the lease.
const BEAT_MAX: Duration = Duration::from_secs(5);

/// Limit: the longest lease that a worker accepts. Otherwise any client that can write the Lease could make the worker wait for years for a
/// manager that is gone.
pub const LENGTH_MAX: Duration = Duration::from_hours(24);

/// The largest plausible growth of the number between two looks: with a renewal each second, more than a hundred years.
const LEAP_MAX: u64 = 1 << 32;

/// The number of the renewal after the one of this number; always a different one, whatever number another client wrote.
pub const fn next_renewal(number: u64) -> u64 {
    match number.checked_add(1) {
        Some(next) => next,
        None => 1,
    }
}

/// All times that follow from the length of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Terms {
    length: Duration,
}

impl Terms {
    /// The terms of this length: at least a second, in whole seconds as the API has it.
    pub fn of(length: Duration) -> Self {
        let length = Duration::from_secs(length.as_secs().max(1));
        Self { length }
    }

    /// The terms that a worker accepts for a written length in seconds: at most [`LENGTH_MAX`].
    pub fn written(secs: u64) -> Self {
        Self::of(Duration::from_secs(secs).min(LENGTH_MAX))
    }

    /// The terms for a manager that gives up a lost worker after `timeout`: two thirds of it, so that [`Self::closed_after`] equals that
    /// time.
    pub fn for_timeout(timeout: Duration) -> Self {
        Self::of(timeout.saturating_mul(2) / 3)
    }

    /// After this long without a renewal the worker stops what it runs.
    pub const fn length(self) -> Duration {
        self.length
    }

    /// After this long without a renewal the worker starts no new jobs.
    pub fn starts_for(self) -> Duration {
        self.length.saturating_mul(2) / 3
    }

    /// The time between two renewals, and between two looks of the worker.
    pub fn beat(self) -> Duration {
        (self.length / 30).min(BEAT_MAX)
    }

    /// The time between two marks with which the worker shows that it watches the lease.
    pub fn mark_every(self) -> Duration {
        self.length / 6
    }

    /// How long a worker that has just started, and cannot know the age of the lease, waits for a renewal.
    pub fn restart_grace(self) -> Duration {
        self.length / 5
    }

    /// How long pods may take to end after the worker stopped them, unless they ask for more.
    pub fn drain(self) -> Duration {
        self.length / 10
    }

    /// The time from the sending of the last renewal until the manager may rely on it that the worker runs nothing any more. It is the sum
    /// of the length, a tenth for different clock rates, the time that pods take to end, and three tenths for the work of the worker in
    /// between (a restart included). One and a half lengths when pods end within [`Self::drain`].
    pub fn closed_after(self, drain: Duration) -> Duration {
        let tenth = self.length / 10;
        let without_drain = self.length.saturating_add(tenth.saturating_mul(4));
        without_drain.saturating_add(drain.max(self.drain()))
    }
}

/// Whether a manager keeps its lease on one worker, as far as it knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tenure {
    /// The lease is renewed in time.
    #[default]
    Held,
    /// The worker watches the lease, and it was not renewed for so long that the worker starts no new jobs.
    Lapsed,
    /// This process has seen no lease there that the worker watches: the worker runs other software, or this account may not keep a lease.
    Never,
}

/// The manager's knowledge of its own lease on one worker.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The renewals that may have arrived and still matter: the last one, and earlier ones that granted a longer lease.
    sent: Vec<(Moment, Terms)>,
    /// The last mark that the worker wrote on the lease.
    mark: Option<String>,
    /// When this process saw the mark change.
    marked_at: Option<Moment>,
    answered_at: Option<Moment>,
    /// Until when the last stored renewal lets the worker start jobs. A new grant counts as if a renewal had just been stored.
    starts_until: Moment,
    /// An earlier process has recorded that the worker watches the lease, and this process has not heard from the worker yet.
    recorded: bool,
}

/// When nothing of ours runs any more on a worker that does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// From that moment on: the worker fences itself.
    At(Moment),
    /// From that moment on, if the worker still does what an earlier process of this manager has recorded.
    Recorded(Moment),
    /// Never for certain: the worker was not seen to watch the lease, or had stopped watching when it was last heard. So possibly nothing
    /// stops the jobs there.
    Never,
}

/// Whether a worker watches the lease, as far as this process has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Its mark was seen to change, and had changed recently when the worker was last heard.
    Looks,
    /// There is a mark of unknown age: it was not seen to change yet, which takes up to [`Terms::mark_every`].
    Unproven,
    /// Its mark was seen to change, but had stopped changing when the worker was last heard.
    Stopped,
    /// The lease has no mark, or there is no lease.
    Unmarked,
}

impl Grant {
    /// A grant before this process has sent anything. Its predecessor may have sent renewals until `now`.
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

    /// The grant for a worker of which an earlier process has recorded that it watches the lease, on these terms. The record counts until
    /// this process hears from the worker.
    #[must_use]
    pub fn with_record(mut self) -> Self {
        self.recorded = true;
        self
    }

    /// This process is connected to the worker: from now on only what it sees itself counts.
    pub fn connected(&mut self) {
        self.recorded = false;
    }

    /// A renewal is about to be sent. It counts even if no answer ever comes. A renewal that is found, and that this process did not send,
    /// counts as sent at `now`: its sender may have sent it until then.
    pub fn sending(&mut self, now: Moment, terms: Terms) {
        self.sent.retain(|(_, other)| *other > terms);
        self.sent.push((now, terms));
    }

    /// The lease was read, with the mark of the worker.
    pub fn answered(&mut self, mark: Option<&str>, now: Moment) {
        self.connected();
        let looked_before = self.answered_at.replace(now).is_some();
        if mark.is_some() && self.mark.as_deref() != mark {
            self.mark = mark.map(str::to_owned);
            // Why not at the first look of a process: the mark may be of any age, and the engine that wrote it may have ended since.
            if looked_before {
                self.marked_at = Some(now);
            }
        }
    }

    /// The renewal that was sent last is stored.
    pub fn renewed(&mut self) {
        if let Some((sent, terms)) = self.sent.last() {
            self.starts_until = sent.plus(terms.starts_for());
        }
    }

    /// The tenure at `now`. A worker whose lease has lapsed stops what it is given.
    pub fn tenure(&self, now: Moment) -> Tenure {
        match (self.answered_at, &self.mark) {
            (Some(_), _) if now < self.starts_until => Tenure::Held,
            (Some(_), Some(_)) => Tenure::Lapsed,
            (None, _) | (Some(_), None) => Tenure::Never,
        }
    }

    /// Whether the lease was ever read there.
    pub const fn was_answered(&self) -> bool {
        self.answered_at.is_some()
    }

    /// Whether the worker watches the lease, by its mark.
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

    /// When nothing runs there any more, if no more renewals are sent. `drain` is how long the pods may take to end.
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
    /// UID of the Lease object.
    pub uid: String,
    /// The number of the last renewal.
    pub number: u64,
    /// Its terms, from the length that is written in it.
    pub terms: Terms,
}

/// The worker's knowledge of the lease of one manager.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    seen: Option<Seen>,
    /// Renewals from this number on were sent at this moment or later. Numbers and moments both grow.
    evidence: Vec<(u64, Moment)>,
    /// When the worker must start no more jobs, and when it must stop the running ones. `None` as long as no lease was ever seen.
    ends: Option<(Moment, Moment)>,
    /// The earliest moment at which the last renewal of known age can have been sent.
    sent: Option<Moment>,
}

/// How a worker must treat the work of one manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There is no lease: the manager runs other software, or there is none. Its work is never fenced.
    Free,
    /// The lease is fresh.
    Held,
    /// The lease is getting old, or its age is not known yet: nothing new is started.
    Doubtful,
    /// The lease was not renewed in time: its work must stop.
    Expired,
}

impl Watch {
    /// The watch of a lease that is seen for the first time; `before` is when an earlier look began that did not show it.
    pub fn after(before: Option<Moment>) -> Self {
        Self {
            evidence: before.map(|at| (2, at)).into_iter().collect(),
            ..Self::default()
        }
    }

    /// The watch of a lease that was deleted: jobs on this worker show that it existed before this process began, but the first look, begun
    /// at `began`, did not find it. It counts like a lease of unknown age.
    pub fn missing(began: Moment, terms: Terms) -> Self {
        Self {
            evidence: vec![(2, began)],
            ends: Some((began, began.plus(terms.restart_grace()))),
            ..Self::default()
        }
    }

    /// A look that began at `began` showed `seen`. Looks must not overlap. They must read what is stored, not a cache.
    pub fn looked(&mut self, began: Moment, seen: Option<Seen>) {
        let same_object = match (&self.seen, &seen) {
            (Some(old), Some(new)) => old.uid == new.uid,
            (None, _) => true,
            (Some(_), None) => false,
        };
        if !same_object {
            // Why: renewals of a deleted Lease cannot renew the Lease that replaces it. The second renewal of the new Lease carries the
            // version of its first, so it was sent after the last known moment.
            let last = self.evidence.last().map(|(_, at)| *at);
            self.evidence = last.map(|at| (2, at)).into_iter().collect();
        } else if !self.goes_on(seen.as_ref()) {
            // Why: a renewal never lowers the number or makes it leap, so a user edited the lease, or the storage was restored from a
            // backup. The evidence about old numbers says nothing about the new ones. Used as proof, it would keep a dead manager's lease,
            // or end a live manager's lease.
            self.evidence.clear();
        }
        if let Some(seen) = &seen {
            self.count_from(seen, began);
        }
        // Why plus 2: the next renewal may have been on its way already. The one after it carries the next one's version, so it was sent
        // after this look began.
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

    /// A write of our own that began at `began` changed the lease, which was then as `seen`. Every later renewal was sent after it.
    pub fn marked(&mut self, began: Moment, seen: &Seen) {
        if self.seen.as_ref().is_some_and(|old| old.uid == seen.uid) {
            self.prove(seen.number.checked_add(1), began);
        }
    }

    /// Records that renewals from `threshold` on were sent at `at` or later. `None`: the number is the largest possible, so no higher one
    /// follows.
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
        // Why the times never move back: the manager also counts with an earlier, longer lease, so a shorter lease does not replace it.
        self.ends = Some(match self.ends {
            Some(old) => (old.0.max(ends.0), old.1.max(ends.1)),
            None => ends,
        });
    }

    /// The standing at `now`.
    pub fn standing(&self, now: Moment) -> Standing {
        match self.ends {
            None => Standing::Free,
            Some((_, work)) if work <= now => Standing::Expired,
            Some((starts, _)) if starts <= now => Standing::Doubtful,
            Some(_) => Standing::Held,
        }
    }

    /// When the standing changes if no renewal is seen.
    pub fn changes_at(&self, now: Moment) -> Option<Moment> {
        let (starts, work) = self.ends?;
        [starts, work].into_iter().find(|at| *at > now)
    }

    /// Whether the age of the lease is known; until then a mark of our own is the fastest way to find out.
    pub const fn knows_its_age(&self) -> bool {
        self.sent.is_some()
    }

    /// The largest possible age of the last renewal of known age.
    pub fn age(&self, now: Moment) -> Option<Duration> {
        self.sent.map(|sent| now.since(sent))
    }

    /// The lease as seen at the last look.
    pub const fn last_seen(&self) -> Option<&Seen> {
        self.seen.as_ref()
    }
}

#[cfg(test)]
mod tests;
