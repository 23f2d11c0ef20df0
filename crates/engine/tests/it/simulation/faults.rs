//! What a life found broken. Nothing here panics: most checks run inside tasks of the engine, which would catch it.

#[derive(Default)]
pub struct Faults {
    found: Vec<String>,
    /// How many things were looked at.
    pub checks: u64,
}

impl Faults {
    /// Notes the fault unless this holds.
    pub fn need(&mut self, holds: bool, what: impl FnOnce() -> String) {
        self.checks += 1;
        if !holds {
            self.found.push(what());
        }
    }

    /// The first fault: what comes after it may only follow from it.
    pub fn first(&self) -> Option<&str> {
        self.found.first().map(String::as_str)
    }
}
