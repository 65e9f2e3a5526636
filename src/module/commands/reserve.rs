//! `BF.RESERVE key error_rate capacity [COUNTING] [EXPANSION n] [NONSCALING] [SEED s]`: makes an empty filter.

use super::{Argument, Call, Command, Row, Uses, args};
use crate::module::{
    api::{Access, Key},
    create,
    effects::{self, Change, Creation, Items, Shape},
    reply::Refusal,
    value::Value,
};

pub(super) struct Reserve;

/// The words after the key that the longest form has.
const MOST_WORDS: usize = 8;
/// Bytes of a word that means nothing, of which the log tells.
const LOGGED: usize = 32;

impl Command for Reserve {
    const ROW: Row = Row {
        name: c"bf.reserve",
        flags: c"write deny-oom",
        arity: -4,
        uses: Uses::Fills,
        categories: "write fast",
        summary: c"Creates an empty Bloom filter for a capacity and an error rate",
        complexity: c"O(1)",
        since: c"1.0.0",
        tips: None,
        arguments: &[
            Argument::Double(c"error_rate"),
            Argument::Integer(c"capacity"),
            Argument::Flag(c"counting", c"COUNTING"),
            Argument::Option(c"expansion", c"EXPANSION", &Argument::Integer(c"expansion")),
            Argument::Flag(c"nonscaling", c"NONSCALING"),
            Argument::Option(c"seed", c"SEED", &Argument::Integer(c"seed")),
        ],
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let (name, words) = call.key_and_rest(2)?;
        if words.len() > MOST_WORDS {
            return Err(Refusal::Arity);
        }
        // Said in the log alone: RedisBloom's clients rely on the silence, people who misspell COUNTING do not.
        let passed_over = |word: &[u8]| {
            let word = String::from_utf8_lossy(word.get(..LOGGED).unwrap_or(word));
            call.ctx
                .warn_seldom(|| format!("BF.RESERVE passed over {word:?}, which is no option"));
        };
        let options = args::reserve(words.iter().map(|word| word.bytes()), passed_over)?;
        let mut key = Key::open(call.ctx, name, Access::Write);
        if Value::in_key(&mut key)?.is_some() {
            return Err(Refusal::Exists);
        }
        let filter = create::filter(call.ctx, options)?;
        let created = Some(Creation::of(&filter));
        Value::Ready(filter).put(&mut key)?;
        drop(key);
        let change = Change {
            created,
            items: Items::These(Vec::new()),
            shape: Shape::default(),
        };
        effects::announce(call.ctx, name, &change);
        call.ctx.reply_ok();
        Ok(())
    }
}
