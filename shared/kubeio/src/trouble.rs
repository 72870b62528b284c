//! Logs a lasting failure once, again when its text changes, and when it is over: not at each attempt.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

use crate::cache::Health;
use crate::latest::Follower;

/// How long lists or watches of a kind may fail before it is reported.
const UNREAD_MAX: Duration = Duration::from_secs(10);
/// Limit: how many things one [`Troubles`] remembers.
const TROUBLES_MAX: usize = 100_000;

/// Reports when a cache could not be kept up for a while, with the API server's words, and (without words) when it is kept up
/// again. Never ends.
pub async fn tell_unread(mut health: Follower<Health>, tell: impl Fn(Option<&str>)) {
    loop {
        health
            .wait_for(|health| matches!(health, Health::Failing(_)))
            .await;
        let recovers = health.wait_for(Health::is_settled);
        if timeout(UNREAD_MAX, recovers).await.is_ok() {
            continue;
        }
        if let Health::Failing(why) = health.get() {
            tell(Some(&why));
        }
        health.wait_for(Health::is_settled).await;
        tell(None);
    }
}

/// The last report about one thing that may fail again and again.
#[derive(Debug, Default)]
pub struct Trouble {
    told: Option<String>,
}

impl Trouble {
    /// Notes a failure with this text; tells whether to report it.
    #[must_use]
    pub fn is_news(&mut self, words: &str) -> bool {
        let is_news = self.told.as_deref() != Some(words);
        if is_news {
            self.told = Some(words.to_owned());
        }
        is_news
    }

    /// Notes a success; tells whether that ends a reported failure.
    pub fn ends(&mut self) -> bool {
        self.told.take().is_some()
    }
}

/// As [`Trouble`] for many things, by key, for tasks that share it.
#[derive(Debug)]
pub struct Troubles<K>(Mutex<BTreeMap<K, Lasting>>);

#[derive(Debug, Default)]
struct Lasting {
    trouble: Trouble,
    attempts: u32,
}

impl<K> Default for Troubles<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord> Troubles<K> {
    /// Notes a failure with this text; tells whether to report it.
    #[must_use]
    pub fn is_news(&self, key: K, words: &str) -> bool {
        self.failed(key, words).1
    }

    /// As [`Self::is_news`], with the number of failed attempts up to this one.
    pub(crate) fn failed(&self, key: K, words: &str) -> (u32, bool) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Limit: a new key replaces the first one. The replaced failure is reported once more if it goes on, and its end is not
        // reported.
        if all.len() >= TROUBLES_MAX && !all.contains_key(&key) {
            all.pop_first();
        }
        let lasting = all.entry(key).or_default();
        lasting.attempts = lasting.attempts.saturating_add(1);
        (lasting.attempts, lasting.trouble.is_news(words))
    }

    /// Notes a success; returns the number of failed attempts before it, if any.
    pub fn ends(&self, key: &K) -> Option<u32> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Some(all.remove(key)?.attempts)
    }

    /// The text of the last failure, as long as no success followed.
    pub fn words(&self, key: &K) -> Option<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(key)?.trouble.told.clone()
    }

    /// Keeps only the keys that `keep` accepts. The end of a failure is not reported for an object that is gone.
    pub fn retain(&self, mut keep: impl FnMut(&K) -> bool) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|key, _| keep(key));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::latest::Latest;

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_read_for_a_while_is_told_once_and_so_is_its_end() {
        let (health, told) = (Latest::new(Health::Starting), Mutex::new(Vec::new()));
        let tell = |why: Option<&str>| told.lock().unwrap().push(why.map(str::to_owned));
        let failing = |why: &str| Health::Failing(why.into());
        let play = async {
            let rest = |secs| tokio::time::sleep(Duration::from_secs(secs));
            rest(1).await;
            health.set(failing("passing"));
            rest(5).await;
            health.set(Health::Live);
            rest(60).await;
            assert!(told.lock().unwrap().is_empty());
            health.set(failing("forbidden"));
            rest(5).await;
            health.set(failing("forbidden indeed"));
            rest(60).await;
            health.set(failing("forbidden still"));
            rest(60).await;
            health.set(Health::Live);
            rest(1).await;
        };
        tokio::select! {
            () = play => {}
            () = tell_unread(health.follow(), tell) => {}
        }
        assert_eq!(*told.lock().unwrap(), [Some("forbidden indeed".to_owned()), None]);
    }

    #[test]
    fn a_trouble_is_told_once_in_each_of_its_words_and_again_after_it_had_ended() {
        let mut trouble = Trouble::default();
        assert!(!trouble.ends(), "there was none");
        assert!(trouble.is_news("refused") && !trouble.is_news("refused"));
        assert!(trouble.is_news("no answer"));
        assert!(trouble.ends() && !trouble.ends());
        assert!(trouble.is_news("no answer"));
    }

    #[test]
    fn each_of_many_things_has_a_trouble_of_its_own_and_its_attempts_are_counted() {
        let troubles = Troubles::default();
        assert_eq!(troubles.ends(&"east"), None);
        assert!(troubles.is_news("east", "refused") && troubles.is_news("west", "refused"));
        assert!(!troubles.is_news("east", "refused") && troubles.is_news("east", "no answer"));
        assert_eq!(troubles.words(&"east").as_deref(), Some("no answer"));
        assert_eq!(
            (troubles.ends(&"east"), troubles.ends(&"west")),
            (Some(3), Some(1))
        );
        assert!(troubles.is_news("east", "no answer"));
        troubles.retain(|name| *name != "east");
        assert_eq!(troubles.ends(&"east"), None);
    }

    #[test]
    fn no_more_troubles_are_remembered_than_the_limit() {
        let troubles = Troubles::default();
        for key in 0..=TROUBLES_MAX {
            assert!(troubles.is_news(key, "refused"));
        }
        assert!(troubles.is_news(0, "refused"), "told once more");
        assert!(!troubles.is_news(TROUBLES_MAX, "refused"));
    }
}
