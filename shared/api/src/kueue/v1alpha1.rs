//! Version `v1alpha1` of `kueue.x-k8s.io`, of two kinds: how its schemas differ from those of [`super::v1beta1`].
//!
//! Unlike the anchor: the reference does not serve this version any more, but manifests with `v1alpha1` still exist.

use crate::older::Older;

/// `Cohort`: the parent's field is called `parent`.
pub(crate) fn cohort(schema: &mut Older) {
    schema.rename("spec", "parentName", "parent");
}

/// `Topology`: no difference.
pub(crate) const fn topology(_: &mut Older) {}
