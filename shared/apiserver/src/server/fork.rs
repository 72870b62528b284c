//! A new server with the objects of another one.

use std::sync::{Arc, Mutex, OnceLock};

use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use super::{Inner, Options, Server, State};
use crate::json;
use crate::tokens::Tokens;

impl State {
    /// The same objects and definitions, without history and tokens, with chance from the options' seed.
    pub(super) fn fork(&self, options: &Options) -> Self {
        Self {
            store: self.store.fork(options.history_max),
            registry: self.registry.clone(),
            tokens: Tokens::default(),
            random: ChaCha8Rng::seed_from_u64(options.seed),
            collected: None,
        }
    }
}

impl Server {
    /// A separate cluster with this one's objects: another clock, another seed, no history, no tokens, and
    /// namespaces with UIDs of its own, which tell clusters apart. Installing definitions once and forking is far
    /// cheaper than installing them again. Objects are shared until they are changed.
    #[must_use]
    pub fn fork(&self, options: Options) -> Self {
        let mut state = self.state().fork(&options);
        let namespaces: Vec<_> = state
            .store
            .all()
            .filter(|(key, _)| &*key.resource == "namespaces")
            .map(|(key, object)| (key.clone(), Arc::clone(object)))
            .collect();
        for (key, object) in namespaces {
            let mut object = Value::clone(&object);
            json::set(&mut object, &["metadata", "uid"], state.uid());
            state.store.put(key, object, "system:apiserver");
        }
        Self(Arc::new(Inner {
            state: Mutex::new(state),
            bells: Mutex::default(),
            asked: OnceLock::new(),
            options,
        }))
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use crate::{Clock, Options, Server};

    fn options(seed: u64) -> Options {
        Options::new(Clock::new(|| Timestamp::UNIX_EPOCH), seed)
    }

    fn identity(server: &Server) -> String {
        let state = server.state();
        let stored = state.find("namespaces", "", "kube-system");
        stored
            .map(|object| object["metadata"]["uid"].to_string())
            .unwrap()
    }

    #[test]
    fn a_fork_is_another_cluster_and_follows_from_its_seed() {
        let template = Server::new(options(1));
        let (one, other) = (template.fork(options(2)), template.fork(options(3)));
        assert_ne!(identity(&one), identity(&template));
        assert_ne!(identity(&one), identity(&other));
        assert_eq!(identity(&one), identity(&template.fork(options(2))));
    }
}
