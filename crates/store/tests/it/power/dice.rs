//! Chance from a seed, counted as the store counts: sequence numbers and positions are 64 bits wide.

pub struct Dice(tenure_fuzzkit::Dice);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(tenure_fuzzkit::Dice::new(seed))
    }

    pub fn number(&mut self) -> u64 {
        self.0.number()
    }

    /// A number below `below`.
    pub fn below(&mut self, below: u64) -> u64 {
        self.number() % below.max(1)
    }

    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        self.0.pick(all)
    }
}
