//! Tests of the client through its public door, in one binary.

mod fuzz;
