//! What a row costs in memory, and when it is written.

use std::path::Path;

use tenure_core::time::Moment;

use super::{super::layout::Layout, *};
use crate::disk::OsDisk;

fn row(n: u64) -> Row {
    let mut moment = Moment::new(Timestamp::from_ms(1_700_000_000_000 + n), u128::from(n) << 32);
    Row {
        id: moment.session_id(),
        created_at: moment.at,
        updated_at: moment.at,
        status: "waiting_approval".into(),
        workspace_path: "/data/somebody/projects/a-rather-long-name/of-a-workspace".into(),
        title: Some("🦀".repeat(200).into()),
        last_turn_id: Some(moment.turn_id()),
        role: Some("reviewer".into()),
        labels: ["one".into(), "two".into()].into(),
        spent: Spent { steps: 3, micro_usd: 7, ..Spent::default() },
    }
}

#[test]
fn a_row_takes_at_most_700_bytes_with_the_longest_title() {
    let mut rows = Rows::default();
    for n in 0..10_000 {
        rows.put(row(n).trimmed(), false);
    }
    // What an allocator adds to each piece, and the slack of the vector.
    let per_piece = 16;
    let titles: usize = rows.entries.iter().map(|entry| entry.title.as_ref().map_or(0, |t| t.len() + per_piece)).sum();
    let shared: usize = rows.texts.iter().map(|text| text.len() + 16 + per_piece).sum();
    let total = rows.entries.capacity() * size_of::<Entry>() + titles + shared;
    assert!(total / rows.entries.len() <= 700, "{} bytes a row", total / rows.entries.len());
    assert_eq!(rows.texts.len(), 5);
}

#[test]
fn titles_are_cut_between_letters() {
    for (title, chars) in [("short".to_owned(), 5), ("a".repeat(81), 80), ("ä".repeat(100), 80), ("🦀".repeat(81), 64)]
    {
        let row = Row { title: Some(title.clone().into()), ..row(1) };
        let cut = row.trimmed().title.unwrap();
        assert!(title.starts_with(&*cut));
        assert_eq!(cut.chars().count(), chars, "{title}");
    }
}

fn listing(root: &Path) -> Listing {
    std::fs::create_dir_all(root.join("sessions")).unwrap();
    Listing::new(Arc::new(Folder::new(Arc::new(OsDisk { syncs: false }), Layout::new(root.to_owned()))))
}

/// The last turns that the file knows, line by line.
fn written(root: &Path) -> Vec<Option<TurnId>> {
    let text = std::fs::read_to_string(root.join("index.ndjson")).unwrap();
    let turn = |line: &str| match row_line::read(line.as_bytes()) {
        Some(Said::Row(row)) => row.last_turn_id,
        _ => panic!("no row: {line}"),
    };
    text.lines().map(turn).collect()
}

#[tokio::test]
async fn the_begin_of_a_turn_is_listed_at_once_and_written_with_its_end() {
    let root = tempfile::tempdir().unwrap();
    let listing = listing(root.path());
    let (first, begun) = (row(1), Row { last_turn_id: row(2).last_turn_id, ..row(1) });
    let (was, is) = (first.last_turn_id, begun.last_turn_id);
    listing.put(first).await.unwrap();
    listing.put(begun.clone()).await.unwrap();
    assert_eq!(listing.list(None, 10).await.unwrap()[0].last_turn_id, is);
    assert_eq!(written(root.path()), [was]);
    listing.put(Row { updated_at: begun.updated_at.plus_ms(9), ..begun }).await.unwrap();
    assert_eq!(written(root.path()), [was, is]);
    listing.settle(row(1).id).await.unwrap();
    assert_eq!(written(root.path()), [was, is]);
}

#[tokio::test]
async fn a_row_that_waits_is_written_before_its_session_goes() {
    let root = tempfile::tempdir().unwrap();
    let listing = listing(root.path());
    let begun = Row { last_turn_id: row(2).last_turn_id, ..row(1) };
    listing.put(row(1)).await.unwrap();
    listing.put(begun.clone()).await.unwrap();
    listing.settle(begun.id).await.unwrap();
    listing.settle(begun.id).await.unwrap();
    assert_eq!(written(root.path()), [row(1).last_turn_id, begun.last_turn_id]);
}
