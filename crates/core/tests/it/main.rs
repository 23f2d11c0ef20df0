//! Table tests of the session machine: given these inputs, when this one comes, then these events and wants.

mod approvals;
mod attachments;
mod budgets;
mod calls;
mod cancel;
mod case;
mod compaction;
mod context;
mod damaged;
mod fork;
mod fuzz;
mod idempotency;
mod laws;
mod properties;
mod queue_steer;
mod recover;
mod resume;
mod retry_backoff;
mod retry_turn;
mod show;
mod steps;
mod turns;
mod update_end;
mod verification;
mod wire;
mod world;
