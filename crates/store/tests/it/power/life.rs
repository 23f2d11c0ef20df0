//! One life of a store: it works until the power goes, comes back, is checked against the book, and works on.

use std::sync::Arc;

use tenure_store::{Fault, FaultyStore, Harm, Point, Reason, Remains};

use super::{book::Book, check, dice::Dice};

const CUTS_MAX: u64 = 4;
/// Operations between two cuts, and changes of the disk within which the power goes.
const OPERATIONS_MAX: u64 = 40;
const INSTANTS_MAX: u64 = 150;
/// Tries to open a store before it must work, while the power goes away again and again.
const OPENINGS_MAX: u64 = 3;

pub struct Life {
    pub dice: Dice,
    pub book: Book,
    pub store: Arc<FaultyStore>,
    /// Whether this life's disk refuses things now and then.
    pub refusing: bool,
    pub tally: Tally,
}

/// What a life came to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    pub cuts: u64,
    pub changes: u64,
    pub acknowledged: u64,
}

/// How a store loses its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    Kill,
    Power,
}

/// Lives a whole life; panics where a promise is broken.
pub async fn live(seed: u64) -> Tally {
    let mut dice = Dice::new(seed);
    let refusing = dice.one_in(2);
    let mut life = Life { dice, book: Book::default(), store: FaultyStore::new(), refusing, tally: Tally::default() };
    for _ in 0..1 + life.dice.below(CUTS_MAX) {
        life.work().await;
        life.crash().await;
    }
    // Undisturbed to the end.
    life.refusing = false;
    for _ in 0..OPERATIONS_MAX / 4 {
        life.operate().await;
    }
    life.come_back(Cut::Power).await;
    life.tally.acknowledged = life.book.acknowledged;
    life.tally
}

impl Life {
    pub fn is_stopped(&self) -> bool {
        self.store.disk().is_stopped()
    }

    /// Works until the power goes or the day is over.
    async fn work(&mut self) {
        self.store.stop_after(self.dice.below(INSTANTS_MAX));
        for _ in 0..1 + self.dice.below(OPERATIONS_MAX) {
            if self.is_stopped() {
                break;
            }
            if self.refusing && self.dice.one_in(4) {
                let fault = self.fault();
                self.store.plan(fault);
            }
            self.operate().await;
        }
    }

    async fn crash(&mut self) {
        let cut = if self.dice.one_in(3) { Cut::Kill } else { Cut::Power };
        self.come_back(cut).await;
    }

    /// Comes back after a cut, which may be followed by others while the store is opened and read.
    async fn come_back(&mut self, first: Cut) {
        let (mut worst, mut remains) = (first, self.cut(&self.store.disk(), first));
        self.tally.changes += self.store.changes();
        for _ in 0..self.dice.below(OPENINGS_MAX) {
            remains.stop_after(self.dice.below(30));
            if self.refusing && self.dice.one_in(2) {
                remains.plan(self.fault());
            }
            if let Ok(store) = remains.open() {
                self.store = store;
                check::look(self, worst, &remains, check::Trouble::Expected).await;
            }
            let cut = if self.dice.one_in(2) { Cut::Kill } else { Cut::Power };
            self.tally.changes += remains.changes();
            remains = self.cut(&remains, cut);
            if cut == Cut::Power {
                worst = Cut::Power;
            }
        }
        if self.refusing && self.dice.one_in(2) {
            // The disk may refuse at first, and gets better.
            remains.plan(self.fault());
            if let Ok(store) = remains.open() {
                self.store = store;
                check::look(self, worst, &remains, check::Trouble::Expected).await;
            }
            let cut = *self.dice.pick(&[Cut::Kill, Cut::Power]);
            remains = self.cut(&remains, cut);
            worst = if cut == Cut::Power { cut } else { worst };
        }
        self.store = remains.open().unwrap();
        check::look(self, worst, &remains, check::Trouble::None).await;
    }

    fn cut(&mut self, disk: &Remains, cut: Cut) -> Remains {
        self.tally.cuts += 1;
        match cut {
            Cut::Kill => disk.after_kill(),
            Cut::Power => disk.after_power_cut(self.dice.number()),
        }
    }

    fn fault(&mut self) -> Fault {
        use Point::*;
        let dice = &mut self.dice;
        let point = *dice
            .pick(&[LogWrite, LogSync, LogSync, LogCut, SpoolWrite, SpoolCut, FolderSync, Make, Rename, Other, Other]);
        Fault {
            point,
            after: dice.below(3),
            times: 1 + dice.below(3),
            harm: *dice.pick(&[Harm::Nothing, Harm::Half, Harm::All]),
            reason: *dice.pick(&[Reason::NoSpace, Reason::Io]),
        }
    }
}
