use super::suffix;

/// Spec: provisioning 5.
#[test]
fn the_suffix_of_a_cut_name_is_the_start_of_its_sha1() {
    // The digest of this text is a known answer (FIPS 180): a9993e36 4706816a ba3e2571 7850c26c 9cd0d89d.
    assert_eq!(suffix("abc"), "a9993");
}
