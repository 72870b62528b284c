//! Index lists of Indexed jobs, such as `0-2,5`.

/// The number of different indexes below `limit` in the lists. Parts that are no indexes are ignored.
///
/// Why intervals: a list may name billions of indexes in a few bytes.
pub(super) fn count_below<'a>(lists: impl Iterator<Item = &'a str>, limit: i64) -> i64 {
    let mut intervals: Vec<(i64, i64)> = lists
        .flat_map(|list| list.split(','))
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (
                first.trim().parse::<i64>().ok()?,
                last.trim().parse::<i64>().ok()?,
            );
            Some((first.max(0), last.saturating_add(1).min(limit)))
        })
        .filter(|(first, end)| first < end)
        .collect();
    intervals.sort_unstable();
    let (mut total, mut reached) = (0_i64, 0_i64);
    for (first, end) in intervals {
        let first = first.max(reached);
        if end > first {
            total = total.saturating_add(end - first);
            reached = end;
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::count_below;

    #[test]
    fn overlaps_and_what_lies_beyond_are_counted_once_or_not_at_all() {
        let check = |lists: &[&str], limit, expected| {
            assert_eq!(count_below(lists.iter().copied(), limit), expected, "{lists:?}");
        };
        check(&["0-2", "2,3"], 6, 4);
        check(&["1,3-5,7"], 10, 5);
        check(&["0-9", "2-3"], 4, 4);
        check(&["5-9"], 4, 0);
        check(&["", "x", "3-1", "-"], 9, 0);
        check(&["0-9223372036854775807"], i64::MAX, i64::MAX);
    }
}
