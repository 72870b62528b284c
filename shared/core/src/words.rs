//! Texts cut to the length that the API accepts.

/// The longest message of a condition or a check, in bytes. *Source*: `spec/api.md API-1.2`.
pub const MESSAGE_MAX: usize = 32 * 1024;
const ELLIPSIS: char = '…';

/// The text, cut to `most` bytes if it is longer, with a mark that shows the cut. A text that was already cut stays as it is.
pub fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        let end = most.saturating_sub(ELLIPSIS.len_utf8());
        text.truncate(text.floor_char_boundary(end));
        text.push(ELLIPSIS);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_long_text_is_cut_between_two_characters_and_only_once() {
        assert_eq!(cut("äöü".to_owned(), 6), "äöü");
        let short = cut("äöüß".to_owned(), 6);
        assert_eq!(short, "ä…");
        assert_eq!(cut(short, 6), "ä…");
    }
}
