//! A process of the product: it runs, may die at any API call, and is started again.
//!
//! Invariant: a death ends every client of that life for good, and calls under way are never answered. So a task of the product
//! that is still running can do no harm.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::fault::Side;

/// The pause before a process is started again that ended by itself or at an API call.
const RESTART: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
struct Trap {
    calls_left: u64,
    side: Side,
}

/// One process of the product, through all its lives.
#[derive(Debug, Default)]
pub(super) struct Process {
    state: Mutex<State>,
    may_start: Notify,
}

#[derive(Debug, Default)]
struct State {
    traps: Vec<Trap>,
    life: Option<CancellationToken>,
    /// The fault entries that keep it from a start.
    held_by: Vec<usize>,
}

/// The time from one start to the end that follows.
#[derive(Clone, Debug)]
pub(super) struct Life {
    process: Arc<Process>,
    over: CancellationToken,
    /// The token by which the product is told to stop.
    pub(super) stop: CancellationToken,
}

impl Process {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a life as soon as no entry holds the process.
    pub(super) async fn start(self: &Arc<Self>) -> Life {
        loop {
            let free = self.may_start.notified();
            if self.lock().held_by.is_empty() {
                break;
            }
            free.await;
        }
        self.live()
    }

    pub(super) fn live(self: &Arc<Self>) -> Life {
        let over = CancellationToken::new();
        let life = Life {
            process: self.clone(),
            // Why a child: if the process dies, its tasks are also told to stop.
            stop: over.child_token(),
            over,
        };
        self.lock().life = Some(life.over.clone());
        life
    }

    /// Ends the process at once; it does not start again before [`Process::release`].
    pub(super) fn kill(&self, entry: usize) {
        let mut state = self.lock();
        state.held_by.push(entry);
        if let Some(life) = state.life.take() {
            life.cancel();
        }
    }

    pub(super) fn release(&self, entry: usize) {
        let mut state = self.lock();
        state.held_by.retain(|holder| *holder != entry);
        self.may_start.notify_waiters();
    }

    /// Makes the process die at its `calls`-th API call, counted from 1 beginning with the next call.
    pub(super) fn trap(&self, calls: u64, side: Side) {
        self.lock().traps.push(Trap {
            calls_left: calls,
            side,
        });
    }

    /// Removes all planned deaths.
    pub(super) fn disarm(&self) {
        self.lock().traps.clear();
    }

    /// The pause before it is started again.
    pub(super) async fn rest() {
        tokio::time::sleep(RESTART).await;
    }
}

impl Life {
    pub(super) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    pub(super) async fn ended(&self) {
        self.over.cancelled().await;
    }

    pub(super) fn end(&self) {
        self.over.cancel();
    }

    /// Counts an API call; returns whether the process dies before the request arrives.
    pub(super) fn counts_down_before(&self) -> bool {
        if self.is_over() {
            return true;
        }
        let mut state = self.process.lock();
        for trap in &mut state.traps {
            trap.calls_left = trap.calls_left.saturating_sub(1);
        }
        Self::spring(&mut state, &self.over, Side::Before)
    }

    /// Whether the process dies after the API call that was just carried out.
    pub(super) fn counts_down_after(&self) -> bool {
        self.is_over() || Self::spring(&mut self.process.lock(), &self.over, Side::After)
    }

    fn spring(state: &mut State, over: &CancellationToken, side: Side) -> bool {
        let before = state.traps.len();
        state
            .traps
            .retain(|trap| trap.calls_left > 0 || trap.side != side);
        let sprung = state.traps.len() < before;
        if sprung {
            over.cancel();
        }
        sprung
    }
}
