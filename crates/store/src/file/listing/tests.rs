//! What a row costs in memory.

use tenure_core::time::Moment;

use super::*;

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
    }
}

#[test]
fn a_row_takes_at_most_500_bytes_with_the_longest_title() {
    let mut rows = Rows::default();
    for n in 0..10_000 {
        rows.put(row(n).trimmed());
    }
    // What an allocator adds to each piece, and the slack of the vector.
    let per_piece = 16;
    let titles: usize = rows.entries.iter().map(|entry| entry.title.as_ref().map_or(0, |t| t.len() + per_piece)).sum();
    let shared: usize = rows.texts.iter().map(|text| text.len() + 16 + per_piece).sum();
    let total = rows.entries.capacity() * size_of::<Entry>() + titles + shared;
    assert!(total / rows.entries.len() <= 500, "{} bytes a row", total / rows.entries.len());
    assert_eq!(rows.texts.len(), 2);
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
