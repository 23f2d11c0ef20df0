//! What people should be told: things cut, mended or found damaged. It never grows without bound.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

/// Notices kept until somebody asks; older ones are only in the program's own trace.
const NOTICES_MAX: usize = 256;

#[derive(Default)]
pub(crate) struct Notices(Mutex<VecDeque<String>>);

impl Notices {
    pub fn add(&self, notice: String) {
        tracing::warn!("{notice}");
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == NOTICES_MAX {
            all.pop_front();
        }
        all.push_back(notice);
    }

    pub fn take(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}
