//! Starts the review of a change by a model.

use tenure_core::{
    command::{Input, Partial},
    event::Body,
    ids::{CallId, TurnId},
    message::joined_text,
    model::{Fault, FaultKind},
    session::{CallState, Effect},
};

use super::{Warm, brake::time_up_fault};
use crate::{Error, load, model_call::Bill, review::Reviewing};

impl Warm {
    pub(super) async fn start_review(&mut self, effect: Effect, turn: TurnId, call: CallId, attempt: u32) -> bool {
        match self.reviewing(turn, call, attempt).await {
            Ok(work) => {
                let (token, bill) = (self.shared.stop.child_token(), work.bill.clone());
                let brake = self.brake(effect, token.clone());
                self.bill = Some(bill.clone());
                self.run_beside(effect, &brake.clone(), async move {
                    let input = tokio::select! {
                        biased;
                        input = work.run() => Some(input),
                        () = token.cancelled() => brake.is_time_up().then(|| {
                            let (fault, partial) = (time_up_fault(), bill.so_far());
                            Input::ReviewFailed { turn, call, attempt, fault, partial }
                        }),
                    };
                    (input, Vec::new())
                });
                false
            }
            Err(fault) => {
                let partial = Partial::default();
                self.tell(Input::ReviewFailed { turn, call, attempt, fault, partial }).await
            }
        }
    }

    /// What the reviewer is shown is what the log says of the change, not what a second look at the files would.
    async fn reviewing(&mut self, turn: TurnId, id: CallId, attempt: u32) -> Result<Reviewing, Fault> {
        let bug = || Fault::new(FaultKind::BadRequest, format!("there is nothing to review for {id}"));
        let open = self.state.turn.as_ref().filter(|open| open.id == turn).ok_or_else(bug)?;
        let call = open.call(id).ok_or_else(bug)?;
        let CallState::Reviewing { seq, .. } = call.state else { return Err(bug()) };
        let Body::ReviewStarted(started) = self.body_at(seq).await? else { return Err(bug()) };
        let mut task = Vec::new();
        for message in &open.messages {
            if let Body::MessageAdded(added) = self.body_at(message.seq).await? {
                task.push(joined_text(&added.parts));
            }
        }
        let parts = &self.shared.parts;
        let model = parts.models.resolve(&open.model)?;
        Ok(Reviewing {
            session: self.id,
            turn,
            call: id,
            attempt,
            name: call.call.name.clone(),
            bill: Bill::new(model.clone()),
            model,
            model_name: open.model.clone(),
            task: task.join("\n\n"),
            diff: started.proposed.diff,
            secrets: parts.secrets.clone(),
        })
    }

    async fn body_at(&self, seq: u64) -> Result<Body, Fault> {
        let unread = |error: Error| Fault::new(FaultKind::Server, error.to_string());
        let event = load::event(&*self.shared.parts.store, &self.state, seq).await.map_err(unread)?;
        Ok(event.body)
    }
}
