//! Answers given for always: rules that every new session begins with.

use std::sync::Mutex;

use tenure_core::policy::Rule;

use crate::hub::lock;

/// Keeps standing rules. Writing one that cannot be kept is told to nobody but the log: the session's own grant holds anyway.
pub trait Standing: Send + Sync + 'static {
    fn rules(&self) -> Vec<Rule>;
    fn add(&self, rule: Rule);
}

/// Standing rules that last as long as the process.
#[derive(Debug, Default)]
pub struct MemoryStanding(Mutex<Vec<Rule>>);

impl Standing for MemoryStanding {
    fn rules(&self) -> Vec<Rule> {
        lock(&self.0).clone()
    }

    fn add(&self, rule: Rule) {
        let mut rules = lock(&self.0);
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
}
