//! Rules for jobs that a queue holds or held: the kinds of Ray and Spark have them. *Source*: `spec/jobs.md 7.4`.

use crate::kind::Member;
use crate::labels::queue;
use crate::problem::Problem;

/// The problems of a new object, if a queue holds it.
pub(crate) fn create(job: Member<'_>, problems: impl Fn(Member<'_>) -> Vec<Problem>) -> Vec<Problem> {
    if queue(job.meta).is_some() {
        problems(job)
    } else {
        Vec::new()
    }
}

/// The problems of a changed object, if a queue holds or held it.
///
/// Why also when only the old one has a queue: removing the label must not circumvent the rules.
pub(crate) fn update(
    old: Member<'_>,
    new: Member<'_>,
    problems: impl Fn(Member<'_>) -> Vec<Problem>,
) -> Vec<Problem> {
    if queue(old.meta).or_else(|| queue(new.meta)).is_some() {
        problems(new)
    } else {
        Vec::new()
    }
}
