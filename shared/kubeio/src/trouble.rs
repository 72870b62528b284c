//! A trouble that lasts is told once, again when its words change, and when it is over: not at each attempt.

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
    use super::Trouble;

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
