//! What is left of a faulty disk after a kill or a power cut. Only a seed decides; no clock, no real chance.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use super::disk::{Entry, FaultyDisk, NameChange, State};

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
        let mut random = seed;
        let mut chance = move |below: usize| (next(&mut random) % (below.max(1) as u64)) as usize;
        let names = names_after_power_cut(&state, &mut chance);
        let files = state.files.iter().map(|file| file.after_power_cut(&mut chance)).collect();
        let left = State { files, durable_names: names.clone(), names, ..State::default() };
        FaultyDisk(Arc::new(Mutex::new(left)))
    }
}

/// Of each folder a part of its unsynced changes, in order.
fn names_after_power_cut(state: &State, chance: &mut impl FnMut(usize) -> usize) -> BTreeMap<PathBuf, Entry> {
    let mut names = state.durable_names.clone();
    let mut folders: Vec<&Path> = state.unsynced_names.iter().map(|change| change.folder()).collect();
    folders.sort_unstable();
    folders.dedup();
    for folder in folders {
        let changes: Vec<&NameChange> =
            state.unsynced_names.iter().filter(|change| change.folder() == folder).collect();
        for change in &changes[..chance(changes.len() + 1)] {
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
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
