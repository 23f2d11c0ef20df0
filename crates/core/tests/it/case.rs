//! One row of a table: given a script, when one more input comes, then these events, wants or this refusal.

use tenure_core::{
    budget::Budgets,
    event::SessionCreated,
    policy::{ApprovalPolicy, PatchReview, Policy},
    session::Decision,
};

use crate::{
    steps::Step,
    world::{World, plain},
};

pub struct Case {
    name: &'static str,
    created: SessionCreated,
    given: Vec<Step>,
}

/// A row for a plain session.
pub fn case(name: &'static str) -> Case {
    Case { name, created: plain(), given: Vec::new() }
}

impl Case {
    pub fn policy(mut self, policy: Policy) -> Case {
        self.created.policy = policy;
        self
    }

    pub fn approval(mut self, change: impl FnOnce(&mut ApprovalPolicy)) -> Case {
        change(&mut self.created.policy.approval);
        self
    }

    /// Changes are looked at before they are made.
    pub fn reviewing(mut self, review: PatchReview) -> Case {
        self.created.policy.patch_review = review;
        self
    }

    pub fn unattended(self) -> Case {
        self.approval(|approval| approval.attended = false)
    }

    /// No call needs a yes.
    pub fn trusting(self) -> Case {
        self.approval(|approval| approval.require_for_kinds.clear())
    }

    pub fn budgets(mut self, budgets: Budgets) -> Case {
        self.created.budgets = budgets;
        self
    }

    /// Every line of the script must be taken.
    pub fn given(mut self, steps: impl IntoIterator<Item = Step>) -> Case {
        self.given.extend(steps);
        self
    }

    pub fn world(&self) -> World {
        let mut world = World::new(self.created.clone());
        for (line, step) in self.given.iter().enumerate() {
            if let Err(refusal) = step_in(&mut world, step) {
                panic!("{}: line {} of the script was refused: {}", self.name, line + 1, refusal.code);
            }
        }
        world
    }

    pub fn when(self, step: Step) -> When {
        let mut world = self.world();
        let before = world.session.clone();
        let outcome = step_in(&mut world, &step);
        if outcome.is_err() {
            assert_eq!(world.session, before, "{}: a refusal changes nothing", self.name);
        }
        When { name: self.name, world, outcome }
    }
}

/// One step told; time alone gives no decision.
fn step_in(world: &mut World, step: &Step) -> Result<Option<Decision>, tenure_core::command::Refusal> {
    match step {
        Step::Wait(ms) => world.now_ms += ms,
        Step::Rewind(ms) => world.now_ms -= ms,
        Step::Tell(input) => return world.tell(input(world)).map(Some),
    }
    Ok(None)
}

pub struct When {
    name: &'static str,
    pub world: World,
    outcome: Result<Option<Decision>, tenure_core::command::Refusal>,
}

impl When {
    fn decision(&self) -> &Decision {
        match &self.outcome {
            Ok(decision) => decision.as_ref().expect("the last line of a script is an input"),
            Err(refusal) => panic!("{}: refused with {}: {refusal}", self.name, refusal.code),
        }
    }

    /// Exactly these events, then exactly these wants.
    pub fn then(self, events: &[&str], wants: &[&str]) -> When {
        let shown = self.world.show_decision(self.decision());
        assert_eq!(shown, events, "{}: events", self.name);
        assert_eq!(self.world.show_wanted(), wants, "{}: wants", self.name);
        self
    }

    pub fn refused(self, code: &str) -> When {
        match &self.outcome {
            Err(refusal) => assert_eq!(refusal.code, code, "{}", self.name),
            Ok(_) => panic!("{}: taken: {:?}", self.name, self.world.show_decision(self.decision())),
        }
        self
    }

    pub fn refusal(&self) -> &tenure_core::command::Refusal {
        self.outcome.as_ref().expect_err("the input is refused")
    }

    pub fn answers(self, answer: &str) -> When {
        let given = self.decision().answer.as_ref().expect("a command is answered");
        assert_eq!(self.world.show_answer(given), answer, "{}: answer", self.name);
        self
    }

    /// The status of the session and of one turn.
    pub fn status(self, session: &str, turn: &str) -> When {
        assert_eq!(self.world.session.status(), session, "{}: session status", self.name);
        let (name, expected) = turn.split_once(' ').expect("a turn and its status");
        let status = self.world.session.turn_status(self.world.turn(name)).expect("the turn is known");
        assert_eq!(crate::show::word(&status), expected, "{}: turn status", self.name);
        self
    }
}
