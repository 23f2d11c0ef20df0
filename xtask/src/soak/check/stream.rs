//! What clients were shown is what is there: nothing missing, repeated or changed, on any of their connections.

use std::collections::HashMap;

use super::Fresh;
use crate::{
    reader::{check_whole, place},
    soak::{
        book::{Book, Place, Sitting, lock},
        seat::cursor,
        world::World,
    },
};

pub fn check(world: &World, book: &Book, fresh: &Fresh) {
    let whole = check_whole(&fresh.items);
    world.check(whole.is_ok(), || format!("{}: a fresh reader is given a broken stream: {whole:?}", book.session));
    let places: Vec<Place> = fresh.items.iter().filter_map(|item| place(&item.id).ok()).collect();
    let by_place: HashMap<Place, usize> = places.iter().enumerate().map(|(at, place)| (*place, at)).collect();
    for (place, shown) in &*lock(&book.seen) {
        let now = by_place.get(place).and_then(|at| fresh.items.get(*at));
        let same = now.is_some_and(|now| now.kind == shown.kind && now.json == shown.json);
        world.check(same, || {
            let now = now.map_or("nothing", |now| &now.json);
            format!("{}: at {} a client was shown {}, now there is {now}", book.session, cursor(*place), shown.json)
        });
    }
    for sitting in &*lock(&book.sittings) {
        if let Err(wrong) = sat_through(sitting, &places, &by_place) {
            world.find(format!("{}: {} who began after {:?}: {wrong}", book.session, sitting.who, sitting.after));
        }
        world.check(true, String::new);
    }
}

/// What a connection was given is one unbroken piece of the stream, right after its cursor.
fn sat_through(sitting: &Sitting, all: &[Place], by_place: &HashMap<Place, usize>) -> Result<(), String> {
    let from = match sitting.after {
        None => 0,
        Some(after) => by_place.get(&after).ok_or("its cursor is not in the stream any more")? + 1,
    };
    let given = all.get(from..from + sitting.places.len()).unwrap_or(&all[from..]);
    match sitting.places.iter().zip(given).find(|(was, is)| was != is) {
        Some((was, is)) => Err(format!("was given {} where {} stands", cursor(*was), cursor(*is))),
        None if given.len() < sitting.places.len() => Err(format!(
            "was given {} items, of which the last {} are gone",
            sitting.places.len(),
            sitting.places.len() - given.len()
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sitting_is_one_piece_of_the_stream() {
        let all = [(1, 0), (2, 0), (2, 5), (3, 0)];
        let by_place = all.iter().enumerate().map(|(at, place)| (*place, at)).collect();
        let sat = |after, places: &[Place]| {
            sat_through(&Sitting { who: "a test", after, places: places.to_vec() }, &all, &by_place).is_ok()
        };
        assert!(sat(None, &[(1, 0), (2, 0)]));
        assert!(sat(Some((2, 0)), &[(2, 5), (3, 0)]));
        assert!(sat(Some((3, 0)), &[]));
        assert!(!sat(Some((2, 0)), &[(3, 0)]), "a gap");
        assert!(!sat(Some((2, 0)), &[(2, 0), (2, 5)]), "a repeated item");
        assert!(!sat(Some((2, 5)), &[(3, 0), (4, 0)]), "an item that is gone");
        assert!(!sat(Some((2, 7)), &[]), "a cursor that is gone");
    }
}
