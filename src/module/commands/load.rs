//! `BF.LOAD key blob`: restores a filter from a rewritten AOF of valkey-bloom.

use super::{Argument, Call, Command, CommandSpec, Uses, import};
use crate::{codec::valkey_bloom, command::refusal::Refusal, module::limit};

pub(super) struct Load;

impl Command for Load {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.load",
        flags: c"write deny-oom",
        arity: 3,
        uses: Uses::Fills,
        categories: "write",
        summary: c"Restores a Bloom filter from the AOF of valkey-bloom",
        complexity: c"O(N), where N is the size of the filter",
        since: c"0.1.0",
        tips: None,
        arguments: &[Argument::String(c"blob")],
    };
    const REDISBLOOMS: bool = false;

    fn run(call: &Call) -> Result<(), Refusal> {
        let (name, [blob]) = call.key_and()?;
        import::put(call, name, || {
            let read = |ceiling| valkey_bloom::read_blob(blob.bytes(), ceiling);
            limit::within(call.ctx, read)
                .map_err(|error| super::refused(call, "BF.LOAD", error, Refusal::of_blob(error)))
        })
    }
}
