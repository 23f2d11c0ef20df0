//! Tests of the reader through its public door, in one binary.

mod fuzz;
