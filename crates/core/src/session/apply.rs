//! Folds events into the state.
