//! What Roadstead decides: quota, admission, dispatch, checks, lifecycle. Nothing else.
//!
//! This crate **never** does I/O, reads a clock, draws random numbers or iterates a hash map: `now` is an argument, every decision is a
//! value, and the same input gives the same output on every machine. Core does not fail either: an impossible request is a decision with a
//! reason.
//!
//! Reading order: [`name`] and [`amount`] (the basic types), [`condition`] and [`status`] (what a Workload's status says; [`words`]: how
//! long it may be), [`workload`] with [`taint`], [`queue`] (requests and configuration), and [`rules`] (the administrator's gates).
//!
//! Then admission: [`quota`], [`requests`] (what a pod requests), [`hierarchy`] (which queue may use how much), [`ground`] (what fits),
//! [`holders`] (the workloads that hold quota), [`nominate`] with [`flavor`] and [`preempt`] (what one workload would get, and at whose
//! cost), [`fair`] (the order), [`pending`] (the queue), [`state`] (everything known, by the numbers of [`table`] and [`class`]), [`cycle`]
//! (the decision, and its [`reason`]), [`afs`] (past usage), and [`report`] (what users see).
//!
//! Last, the decisions about one object: [`job`] and [`ancestry`], [`lifecycle`], [`check`], [`provision`], [`appwrapper`], and
//! [`dispatch`] with [`cluster`] and [`lease`] (worker clusters).
//!
//! ```
//! use roadstead_core::amount::Amount;
//! assert_eq!(Amount::new(2).plus(Amount::UNLIMITED), Amount::UNLIMITED);
//! ```

/// Whether a bug is planted (`dispatch::Bug`). Without feature `bugbank`, which no program of ours enables, it is the constant `false`.
#[cfg(feature = "bugbank")]
#[macro_export]
macro_rules! bug {
    ($policy:expr, $bug:ident) => {
        $policy.bug == Some($crate::dispatch::Bug::$bug)
    };
}
/// Nothing is planted here: the constant `false`.
#[cfg(not(feature = "bugbank"))]
#[macro_export]
macro_rules! bug {
    ($policy:expr, $bug:ident) => {
        false
    };
}

pub mod afs;
pub mod amount;
pub mod ancestry;
pub mod appwrapper;
pub mod check;
pub mod class;
pub mod cluster;
pub mod condition;
pub mod dispatch;
pub mod job;
pub mod kind;
pub mod leader;
pub mod lease;
pub mod lifecycle;
pub mod moment;
pub mod name;
pub mod note;
pub mod provision;
pub mod quantity;
pub mod queue;
pub mod requests;
pub mod retry;
pub mod rules;
pub mod status;
pub mod table;
pub mod taint;
pub mod words;
pub mod workload;

pub mod cycle;
pub mod fair;
pub mod flavor;
pub mod ground;
pub mod hierarchy;
pub mod holders;
pub mod nominate;
pub mod pending;
pub mod preempt;
pub mod quota;
pub mod reason;
pub mod report;
pub mod state;
