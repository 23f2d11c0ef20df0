//! In which order the blocks of a reply came. It never holds what they say.

use tenure_core::model::Block;

/// The blocks so far.
#[derive(Debug, Default)]
pub(super) struct Order {
    blocks: Vec<Block>,
    /// The last block is a text that goes on.
    in_text: bool,
    /// Where the thought under way has its place.
    thought_at: Option<usize>,
    /// A text that was over while its end was held back as what might be a secret, and how much that was.
    owed: Option<(usize, usize)>,
}

impl Order {
    /// More of the text can be shown.
    pub(super) fn text(&mut self, clear: &str) {
        let mut rest = clear.len();
        if let Some((at, held)) = self.owed.take_if(|_| rest > 0) {
            let paid = clear.floor_char_boundary(held.min(rest));
            self.lengthen(at, paid);
            rest -= paid;
        }
        if rest == 0 {
            return;
        }
        if !self.in_text {
            self.blocks.push(Block::Text(0));
            self.in_text = true;
        }
        self.lengthen(self.blocks.len() - 1, rest);
    }

    fn lengthen(&mut self, at: usize, by: usize) {
        if let Some(Block::Text(bytes)) = self.blocks.get_mut(at) {
            *bytes += by as u64;
        }
    }

    /// The text is over, with so much of it held back.
    pub(super) fn text_over(&mut self, held: usize) {
        if held > 0 && self.owed.is_none() {
            if !self.in_text {
                self.blocks.push(Block::Text(0));
            }
            self.owed = Some((self.blocks.len() - 1, held));
        }
        self.in_text = false;
    }

    pub(super) fn thought_begun(&mut self) {
        self.thought_at.get_or_insert(self.blocks.len());
    }

    /// The thought under way is kept.
    pub(super) fn thought(&mut self) {
        let at = self.thought_at.take().unwrap_or(self.blocks.len());
        self.blocks.insert(at, Block::Thinking);
        if let Some((owed, _)) = self.owed.as_mut().filter(|(owed, _)| *owed >= at) {
            *owed += 1;
        }
    }

    /// It is not.
    pub(super) fn thought_dropped(&mut self) {
        self.thought_at = None;
    }

    pub(super) fn call(&mut self) {
        self.blocks.push(Block::Call);
    }

    /// The blocks, or nothing where they came in the order that is taken for granted.
    pub(super) fn told(self) -> Vec<Block> {
        let mut blocks: Vec<Block> = self.blocks.into_iter().filter(|block| *block != Block::Text(0)).collect();
        // Nothing tells them apart but what was between them and was not kept.
        let is_usual = blocks.iter().map(rank).is_sorted_by(|one, next| one < next || (one == next && *one != TEXT));
        if is_usual {
            blocks.clear();
        }
        blocks
    }
}

const TEXT: u8 = 1;

/// Thoughts first, then one text, then calls.
fn rank(block: &Block) -> u8 {
    match block {
        Block::Thinking => 0,
        Block::Text(_) => TEXT,
        Block::Call => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_order_is_not_told() {
        let mut order = Order::default();
        assert_eq!(Order::default().told(), []);
        order.thought_begun();
        order.thought();
        order.text("one ");
        order.text("two");
        order.text_over(0);
        order.call();
        order.call();
        assert_eq!(order.told(), []);
    }

    #[test]
    fn every_other_order_is() {
        let mut order = Order::default();
        order.thought();
        order.text("one");
        order.text_over(0);
        order.thought();
        order.call();
        assert_eq!(order.told(), [Block::Thinking, Block::Text(3), Block::Thinking, Block::Call]);
    }

    #[test]
    fn a_thought_stands_where_it_began() {
        let mut order = Order::default();
        order.call();
        order.thought_begun();
        order.text("said meanwhile");
        order.thought();
        assert_eq!(order.told(), [Block::Call, Block::Thinking, Block::Text(14)]);
    }

    #[test]
    fn what_was_held_back_belongs_to_the_text_that_it_ended() {
        let mut order = Order::default();
        order.text("I look for ");
        order.text_over(1);
        order.call();
        order.thought();
        order.text("s\u{e4}ter");
        assert_eq!(order.told(), [Block::Text(12), Block::Call, Block::Thinking, Block::Text(5)]);
        let mut order = Order::default();
        order.thought();
        order.text_over(3);
        order.thought();
        order.call();
        order.text("abc");
        assert_eq!(order.told(), [Block::Thinking, Block::Text(3), Block::Thinking, Block::Call]);
    }
}
