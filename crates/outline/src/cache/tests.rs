//! What a cache file is read back as, and that a damaged one is not read.

use super::*;

fn pack() -> Pack {
    let definition = Definition {
        name: "näme".into(),
        signature: "fn näme()".into(),
        first_line: 3,
        last_line: 300_000,
        parent: None,
        shape: Shape::Function,
    };
    let inner = Definition { parent: Some(0), ..definition.clone() };
    let tags = Tags { definitions: vec![definition, inner], references: vec![("x".into(), 7)], too_slow: true };
    let stamp = Stamp { size: 5, modified_ns: -1, changed_ns: i64::MAX, inode: u64::MAX };
    let digest = Digest::of(Language::Rust, b"x");
    let tags = HashMap::from([(digest, Kept { tags: Arc::new(tags), seen: 9 })]);
    Pack { paths: HashMap::from([("a/b.rs".into(), (stamp, digest))]), tags, changes: 10, dirty: false }
}

#[test]
fn it_is_read_back_as_it_was() {
    let (before, after) = (pack(), Pack::decode(&pack().encode()).unwrap());
    assert_eq!((after.changes, &after.paths), (before.changes, &before.paths));
    let tags = |pack: &Pack| {
        pack.tags.iter().map(|(digest, kept)| (*digest, kept.seen, kept.tags.clone())).collect::<Vec<_>>()
    };
    assert_eq!(tags(&after), tags(&before));
}

#[test]
fn every_cut_and_every_flipped_bit_is_noticed() {
    let whole = pack().encode();
    for at in 0..whole.len() {
        assert!(Pack::decode(&whole[..at]).is_none(), "cut at {at}");
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        assert!(Pack::decode(&flipped).is_none(), "flipped at {at}");
    }
}

/// A sum may be right over bytes that make no sense.
#[test]
fn what_makes_no_sense_is_none_and_takes_no_memory() {
    for body in [&[0xff; 40][..], &[1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], &[0]] {
        let bytes = [&VERSION[..], blake3::hash(body).as_bytes(), body].concat();
        assert!(Pack::decode(&bytes).is_none());
    }
}

#[test]
fn the_folder_has_a_bound() {
    let folder = tempfile::tempdir().unwrap();
    for at in 0..PACKS_MAX + 5 {
        let mut pack = pack();
        pack.dirty = true;
        pack.save(folder.path(), Path::new(&format!("/r{at}")));
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), PACKS_MAX);
}

#[test]
fn tags_that_no_file_has_are_kept_for_a_while() {
    let mut pack = pack();
    pack.paths.clear();
    pack.drop_unseen();
    assert_eq!(pack.tags.len(), 1);
    pack.changes += UNSEEN_MAX;
    pack.drop_unseen();
    assert_eq!(pack.tags.len(), 0);
}
