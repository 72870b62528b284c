//! The kinds of other groups whose controllers are played: the fields that are read and written.

pub(crate) mod jobset;
pub(crate) mod ray;
pub(crate) mod torch;
