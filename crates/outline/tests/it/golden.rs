//! The whole outline of the small repository, word by word.

use std::{fs, path::Path};

use crate::fixture::Fixture;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/outline.txt");

#[test]
fn the_outline_of_a_mixed_repository() {
    let found = Fixture::mixed().outline("", 10_000);
    assert_eq!((found.files_shown, found.symbols_shown), (found.files, found.symbols), "all of it fits");
    if std::env::var_os("TENURE_BLESS").is_some() {
        fs::write(PATH, &found.text).unwrap();
    }
    let expected = fs::read_to_string(Path::new(PATH)).unwrap_or_default();
    assert_eq!(found.text, expected, "TENURE_BLESS=1 writes it anew");
}

#[test]
fn it_is_the_same_every_time_cached_or_not() {
    let fixture = Fixture::mixed();
    let first = fixture.outline("retries of the ApiClient", 300);
    assert_eq!(fixture.outline("retries of the ApiClient", 300), first);
    std::fs::remove_dir_all(fixture.cache.path()).unwrap();
    assert_eq!(fixture.outline("retries of the ApiClient", 300), first);
    assert_eq!(Fixture::mixed().outline("retries of the ApiClient", 300), first);
}

/// What may be secret, long or nobody's business is not in a signature.
#[test]
fn values_and_bodies_are_not_shown() {
    let text = Fixture::mixed().outline("", 10_000).text;
    for hidden in ["hunter2", "0.19", "LOCAL", "hidden", "inner()", "local"] {
        assert!(!text.contains(hidden), "{hidden} is in\n{text}");
    }
}
