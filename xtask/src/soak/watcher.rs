//! A client that only watches, and badly: it comes and goes, begins anywhere, reads slowly or not at all, and hangs up in mid-stream.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::{
    book::{Book, Place, lock},
    chance::Chance,
    seat::Seat,
    world::World,
};

pub fn run(world: &World, mut chance: Chance) {
    while !world.is_over() {
        let book = if world.is_resting() { None } else { world.any(&mut chance) };
        match book {
            Some(book) => watch(world, &book, &mut chance),
            None => thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn watch(world: &World, book: &Arc<Book>, chance: &mut Chance) {
    let (after, stay) = (begin(book, chance), chance.between(50, 4000));
    let until = Instant::now() + stay;
    let Some(mut seat) = Seat::take(world, book, "a watcher", after, stay) else {
        thread::sleep(Duration::from_millis(20));
        return;
    };
    let manner = chance.below(10);
    if manner == 0 {
        // Never reads at all.
        return world.pause(stay);
    }
    while world.is_open() && Instant::now() < until && seat.next().is_some() {
        match manner {
            1 | 2 => thread::sleep(chance.between(1, 40)),
            // Stops reading for a while, at a random item.
            3 if chance.percent(5) => thread::sleep(chance.between(500, 3000)),
            // Hangs up at a random item and comes back at once where it was.
            4 | 5 if chance.percent(4) => {
                let place = seat.place();
                drop(seat);
                match Seat::take(world, book, "a watcher who came back", place, stay) {
                    Some(again) => seat = again,
                    None => return,
                }
            }
            _ => {}
        }
    }
}

/// From the start, from anywhere it was ever seen at, or from the last thing anybody saw.
fn begin(book: &Book, chance: &mut Chance) -> Option<Place> {
    let seen = lock(&book.seen);
    match chance.below(3) {
        0 => None,
        1 => seen.keys().nth(chance.below(seen.len())).copied(),
        _ => seen.keys().next_back().copied(),
    }
}
