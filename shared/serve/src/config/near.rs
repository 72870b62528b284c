//! The word that the user probably meant.

/// A candidate is similar if at most one in this many of its letters differs.
const LENGTH_PART: usize = 3;
/// This many differing letters are accepted in short words too.
const SLIP_MIN: usize = 2;

/// The candidate most similar to the written word, if one is similar. Case does not count; of equals the first wins.
pub(super) fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let written = written.to_lowercase();
    let distance = |known: &str| strsim::damerau_levenshtein(&written, &known.to_lowercase());
    let (distance, known) = known
        .into_iter()
        .map(|known| (distance(known), known))
        .min_by_key(|(distance, _)| *distance)?;
    (distance <= SLIP_MIN.max(known.len() / LENGTH_PART)).then_some(known)
}

/// Appends the most similar word to an error about an unknown one, which lists the known ones in backticks.
pub(super) fn with_hint(message: String) -> String {
    let unknown = ["unknown key `", "unknown value `"]
        .iter()
        .any(|start| message.starts_with(start));
    let mut words = message.split('`').skip(1).step_by(2);
    let near = words
        .next()
        .filter(|_| unknown)
        .and_then(|written| nearest(written, words));
    match near {
        // Why only with `one of`, which is three known words or more: a message with fewer is short enough to need no hint.
        Some(near) if message.contains("one of") => format!("{message}; did you mean `{near}`?"),
        Some(_) | None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognized_and_other_words_are_not() {
        let known = ["metrics", "namespace", "multiKueue"];
        for (written, near) in [
            ("nmaespace", Some("namespace")),
            ("multikueue", Some("multiKueue")),
            ("metric", Some("metrics")),
            ("webhook", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, known), near, "{written}");
        }
    }

    #[test]
    fn hints_come_from_the_words_of_the_complaint() {
        let hint = |text: &str| with_hint(text.to_owned());
        assert_eq!(
            hint("unknown key `hots`, expected one of `port`, `host`"),
            "unknown key `hots`, expected one of `port`, `host`; did you mean `host`?"
        );
        for same in [
            "unknown key `hots`, expected `host`",
            "`5` is not a duration",
            "unknown key `a`, there are no fields",
        ] {
            assert_eq!(hint(same), same);
        }
    }
}
