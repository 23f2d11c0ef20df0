//! The cache is keyed by what is in a file, and is never believed when it is damaged.

use std::{
    fs::{self, File},
    time::{Duration, SystemTime},
};

use crate::fixture::{Fixture, NEVER};

const ALL: usize = 13;

fn pack(fixture: &Fixture) -> std::path::PathBuf {
    let mut entries = fs::read_dir(fixture.cache.path()).unwrap();
    let pack = entries.next().unwrap().unwrap().path();
    assert!(entries.next().is_none());
    pack
}

#[test]
fn what_is_known_is_not_parsed_again() {
    let fixture = Fixture::mixed();
    let first = fixture.look();
    assert_eq!((first.parsed, first.files.len()), (ALL, ALL));
    let second = fixture.look();
    assert_eq!((second.parsed, second.files), (0, first.files));
}

#[test]
fn a_touched_file_is_known_and_a_changed_one_is_not() {
    let fixture = Fixture::mixed();
    fixture.look();
    let app = fixture.root.path().join("py/app.py");
    File::options().write(true).open(&app).unwrap().set_modified(SystemTime::now() + Duration::from_secs(5)).unwrap();
    assert_eq!(fixture.look().parsed, 0);
    fs::rename(&app, fixture.root.path().join("py/other.py")).unwrap();
    assert_eq!(fixture.look().parsed, 0);
    fixture.put("py/app.py", "def other():\n    pass\n");
    assert_eq!(fixture.look().parsed, 1);
}

/// The quick way by stamp must not take one text for another, not even of the same length in the same instant.
#[test]
fn every_change_is_seen() {
    let fixture = Fixture::empty();
    for (at, name) in ["one", "two", "six", "ten"].iter().cycle().take(40).enumerate() {
        fixture.put("a.py", format!("def {name}():\n    pass\n"));
        if at == 20 {
            fixture.settle();
        }
        let survey = fixture.look();
        assert_eq!(&*survey.files[0].tags.definitions[0].name, *name);
    }
}

#[test]
fn a_settled_file_is_known_without_being_read() {
    let fixture = Fixture::mixed();
    fixture.settle();
    fixture.look();
    let open = |_: &str| -> std::io::Result<File> { panic!("nothing has to be read") };
    let root = fixture.root.path();
    let repository = tenure_outline::Repository {
        root,
        below: "",
        open: &open,
        cache: Some(fixture.cache.path()),
        parse_time: tenure_outline::PARSE_TIME_MAX,
    };
    assert_eq!(tenure_outline::survey(&repository, &NEVER).unwrap().files.len(), ALL);
}

#[test]
fn a_damaged_cache_is_made_anew() {
    let fixture = Fixture::mixed();
    let first = fixture.look();
    for damage in [&b""[..], b"nonsense", &[0; 5000]] {
        fs::write(pack(&fixture), damage).unwrap();
        let survey = fixture.look();
        assert_eq!((survey.parsed, &survey.files), (ALL, &first.files));
        assert_eq!(fixture.look().parsed, 0);
    }
    let mut bytes = fs::read(pack(&fixture)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(pack(&fixture), &bytes).unwrap();
    assert_eq!(fixture.look().parsed, ALL);
}

#[test]
fn a_cache_that_cannot_be_written_is_done_without() {
    let fixture = Fixture::mixed();
    let not_a_folder = fixture.put("file", "x");
    let found = crate::fixture::look(fixture.root.path(), Some(&not_a_folder), "", &NEVER).unwrap();
    assert_eq!(found.files.len(), ALL);
}

#[test]
fn a_look_at_a_part_leaves_the_rest_known() {
    let fixture = Fixture::mixed();
    fixture.look();
    fs::remove_file(fixture.root.path().join("py/app.py")).unwrap();
    assert_eq!(fixture.look_below("py", &NEVER).unwrap().parsed, 0);
    let whole = fixture.look();
    assert_eq!((whole.parsed, whole.files.len()), (0, ALL - 1));
}
