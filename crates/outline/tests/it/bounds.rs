//! The budget is held, ignore rules are held, and what is left out is counted.

use std::{
    os::unix::fs::symlink,
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

use proptest::prelude::*;
use tenure_outline::{FILE_BYTES_MAX, Focus, Skipped, Stop, Stopped, outline, rank, tokens};

use crate::fixture::{Fixture, NEVER, look};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// And it is used: one symbol more would not have fitted.
    #[test]
    fn the_budget_is_held(budget in 0_usize..800) {
        let fixture = Fixture::mixed();
        let survey = fixture.look();
        let ranked = rank(&survey, &Focus::default());
        let found = outline(&survey, &ranked, budget);
        prop_assert!(tokens(&found.text) <= budget);
        if found.symbols_shown < found.symbols {
            let more = (budget..10_000).map(|wider| outline(&survey, &ranked, wider)).find(|wider| wider.symbols_shown > found.symbols_shown);
            prop_assert!(tokens(&more.unwrap().text) > budget);
        }
    }
}

#[test]
fn ignore_rules_are_held() {
    let fixture = Fixture::empty();
    fixture.put(".gitignore", "/built\n*.gen.py\n");
    fixture.put("inner/.gitignore", "!kept.gen.py\nnot.py\n");
    fixture.put(".ignore", "old.py\n");
    let ignored = ["built/a.py", "x.gen.py", "inner/not.py", "old.py", ".hidden/a.py", "node_modules/a/b.js"];
    let kept = ["a.py", "inner/kept.gen.py"];
    ignored.iter().chain(&kept).for_each(|path| drop(fixture.put(path, "def f():\n    pass\n")));
    assert_eq!(fixture.paths(), kept);
}

#[test]
fn rules_above_a_part_hold_in_it() {
    let fixture = Fixture::empty();
    fixture.put(".gitignore", "secretly.py\n");
    fixture.put("part/secretly.py", "x = 1\n");
    fixture.put("part/a.py", "x = 1\n");
    fixture.put("other.py", "x = 1\n");
    let survey = fixture.look_below("part", &NEVER).unwrap();
    assert_eq!(survey.files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["part/a.py"]);
}

#[test]
fn symlinks_are_not_followed() {
    let (fixture, outside) = (Fixture::empty(), Fixture::mixed());
    symlink(outside.root.path(), fixture.root.path().join("folder")).unwrap();
    symlink(outside.root.path().join("py/app.py"), fixture.root.path().join("app.py")).unwrap();
    assert_eq!(fixture.paths(), [] as [&str; 0]);
}

#[test]
fn what_is_left_out_is_counted() {
    let fixture = Fixture::empty();
    fixture.put("large.py", vec![b'#'; usize::try_from(FILE_BYTES_MAX).unwrap() + 1]);
    fixture.put("binary.py", b"a = 1\0\0");
    fixture.put("secrets.py", "KEY = 1\n");
    fixture.put("notes.txt", "no source");
    fixture.put("fine.py", "a = 1\n");
    let survey = fixture.look();
    assert_eq!(survey.skipped, Skipped { large: 1, unreadable: 1, secret: 1, ..Skipped::default() });
    assert_eq!(survey.files.len(), 1);
}

#[test]
fn a_folder_without_sources_is_nothing() {
    let fixture = Fixture::empty();
    fixture.put("readme.md", "# Nothing\n");
    let found = fixture.outline("anything", 1_000);
    assert_eq!((found.text.as_str(), found.files), ("", 0));
    assert_eq!(std::fs::read_dir(fixture.cache.path()).unwrap().count(), 0);
    assert!(look(&fixture.root.path().join("gone"), None, "", &NEVER).unwrap().files.is_empty());
}

#[test]
fn it_gives_up_when_told_and_goes_on_where_it_was() {
    let fixture = Fixture::mixed();
    let late = Stop { is_cancelled: &|| false, deadline: Some(Instant::now()) };
    assert_eq!(fixture.look_below("", &late).err(), Some(Stopped::Late));
    let asked = AtomicUsize::new(0);
    // Often enough to get through the walk and a few files.
    let few = || asked.fetch_add(1, Ordering::SeqCst) > 40;
    let cancelled = Stop { is_cancelled: &few, deadline: None };
    assert_eq!(fixture.look_below("", &cancelled).err(), Some(Stopped::Cancelled));
    let parsed = fixture.look().parsed;
    assert!((1..13).contains(&parsed), "{parsed} of 13 were left to parse");
}
