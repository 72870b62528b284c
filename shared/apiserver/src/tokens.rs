//! The bearer tokens that a server has issued: they are stored instead of signed.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;

use crate::request::User;

/// Most tokens that are kept; the oldest are dropped.
const TOKENS_MAX: usize = 10_000;
#[derive(Clone)]
pub(crate) struct Holder {
    pub(crate) user: User,
    pub(crate) expires: Option<Timestamp>,
    pub(crate) audiences: Vec<String>,
    /// Namespace, name and UID of the account, which must still exist.
    pub(crate) account: Option<(String, String, String)>,
    /// Set by [`Tokens::add`].
    pub(crate) order: u64,
}

#[derive(Default)]
pub(crate) struct Tokens {
    known: BTreeMap<String, Holder>,
    count: u64,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.known.len())
    }
}

impl Tokens {
    pub(crate) fn get(&self, token: &str) -> Option<&Holder> {
        self.known.get(token)
    }

    /// Keeps a token, and drops the oldest beyond the limit.
    pub(crate) fn add(&mut self, token: String, mut holder: Holder) {
        holder.order = self.count;
        self.count += 1;
        self.known.insert(token, holder);
        if self.known.len() > TOKENS_MAX {
            let oldest = self
                .known
                .iter()
                .min_by_key(|(_, holder)| holder.order)
                .map(|(token, _)| token.clone());
            if let Some(oldest) = oldest {
                self.known.remove(&oldest);
            }
        }
    }
}
