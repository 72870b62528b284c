//! A trouble that lasts is told once, again when its words change, and when it is over: not at each attempt.

/// What was told last of one thing that may fail again and again.
#[derive(Debug, Default)]
pub struct Trouble {
    told: Option<String>,
}

impl Trouble {
    /// It failed in these words. Gives them when they have not been told yet.
    #[must_use]
    pub fn news<'w>(&mut self, words: &'w str) -> Option<&'w str> {
        if self.told.as_deref() == Some(words) {
            return None;
        }
        self.told = Some(words.to_owned());
        Some(words)
    }

    /// It succeeded; tells whether that ends a trouble.
    pub fn ends(&mut self) -> bool {
        self.told.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::Trouble;

    #[test]
    fn a_trouble_is_told_once_in_each_of_its_words_and_again_after_it_had_ended() {
        let mut trouble = Trouble::default();
        assert!(!trouble.ends(), "there was none");
        assert_eq!(trouble.news("refused"), Some("refused"));
        assert_eq!(trouble.news("refused"), None);
        assert_eq!(trouble.news("no answer"), Some("no answer"));
        assert!(trouble.ends() && !trouble.ends());
        assert_eq!(trouble.news("no answer"), Some("no answer"));
    }
}
