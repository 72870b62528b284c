//! A trouble that lasts is told once, again when its words change, and when it is over: not at each attempt.

use std::time::Duration;

use tokio::time::timeout;

use crate::cache::Health;
use crate::latest::Follower;

/// How long a kind of objects may fail to be listed or watched before somebody is told.
const UNREAD_MAX: Duration = Duration::from_secs(10);

/// Tells when a cache could not be kept up for a while, with the words of the API server, and (without words) when it is kept up
/// again. Never ends.
pub async fn tell_unread(mut health: Follower<Health>, tell: impl Fn(Option<&str>)) {
    loop {
        health
            .wait_for(|health| matches!(health, Health::Failing(_)))
            .await;
        let recovers = health.wait_for(|health| *health == Health::Live);
        if timeout(UNREAD_MAX, recovers).await.is_ok() {
            continue;
        }
        if let Health::Failing(why) = health.get() {
            tell(Some(&why));
        }
        health.wait_for(|health| *health == Health::Live).await;
        tell(None);
    }
}

/// What was told last of one thing that may fail again and again.
#[derive(Debug, Default)]
pub struct Trouble {
    told: Option<String>,
}

impl Trouble {
    /// It failed in these words; tells whether they are to be told.
    #[must_use]
    pub fn is_news(&mut self, words: &str) -> bool {
        let is_news = self.told.as_deref() != Some(words);
        if is_news {
            self.told = Some(words.to_owned());
        }
        is_news
    }

    /// It succeeded; tells whether that ends a trouble.
    pub fn ends(&mut self) -> bool {
        self.told.take().is_some()
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
}
