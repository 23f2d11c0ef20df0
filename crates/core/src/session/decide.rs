//! Decides.
pub struct Decision;
pub fn create() {}
