//! What is left of a faulty disk after a kill or a power cut. Only a seed decides; no clock, no real chance.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use super::disk::{Entry, FaultyDisk, State};

impl FaultyDisk {
    /// All that was handed to the operating system; what was not synced still is not.
    pub(super) fn after_kill(&self) -> FaultyDisk {
        let mut state = self.state().clone();
        for file in &mut state.files {
            file.locked = false;
        }
        FaultyDisk(Arc::new(Mutex::new(fresh(state))))
    }

    pub(super) fn after_power_cut(&self, seed: u64) -> FaultyDisk {
        let state = self.state();
        let mut chance = Chance(seed);
        let names = names_after_power_cut(&state, &mut chance);
        let files = state.files.iter().map(|file| file.after_power_cut(&mut chance)).collect();
        let left = State { files, durable_names: names.clone(), names, ..State::default() };
        FaultyDisk(Arc::new(Mutex::new(left)))
    }
}

/// Of the unsynced changes all, none, all up to some instant, or each one for itself.
fn names_after_power_cut(state: &State, chance: &mut Chance) -> BTreeMap<PathBuf, Entry> {
    let mut names = state.durable_names.clone();
    let changes = &state.unsynced_names;
    let (mode, first) = (chance.below(4), chance.below(changes.len() + 1));
    for (at, change) in changes.iter().enumerate() {
        let landed = match mode {
            0 => true,
            1 => at < first,
            _ => chance.below(2) == 0,
        };
        if landed {
            change.apply(&mut names);
        }
    }
    // What lies in a folder that is gone is gone too.
    let all = names.clone();
    names.retain(|path, _| path.ancestors().skip(1).all(|above| above.parent().is_none() || all.contains_key(above)));
    names
}

/// The plans of the life before are over.
fn fresh(state: State) -> State {
    State { faults: vec![], changes: 0, stop_at: None, ..state }
}

/// SplitMix64: small, and the same everywhere.
pub(super) struct Chance(u64);

impl Chance {
    /// A number below `below`; 0 if that is 0.
    pub fn below(&mut self, below: usize) -> usize {
        // The remainder is below a `usize`.
        (self.next() % (below.max(1) as u64)) as usize
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}
