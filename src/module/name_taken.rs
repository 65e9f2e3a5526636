//! Why the server has refused the module's name: a module of that name is loaded already.
//!
//! The server does not say so: Redis logs "initialization failed", Valkey "Module name is busy".
//! Most often the module itself is named twice, because CONFIG REWRITE writes a `loadmodule` line
//! into the server's file although an included file or the command line has one.

use super::{
    NAME,
    api::{Context, Part},
};

/// Modules that call themselves `bf`, each with a command that those before it do not have.
const MODULES: [(&str, &str); 3] =
    [("bf.import", "this module"), ("cf.reserve", "RedisBloom"), ("bf.load", "valkey-bloom")];

/// Writes a line to the log that says which module is loaded already, and what to do.
pub(super) fn explain(ctx: Context) {
    let commands = MODULES.map(|(command, _)| command);
    let words = [&["INFO"], &commands[..]].concat();
    let reply = ctx.run(c"COMMAND", &words);
    let known = reply.iter().flat_map(|reply| reply.whole().elements());
    let module = known.zip(MODULES).find(|(known, _)| known.is_array()).map(|(_, (_, name))| name);
    let from = path(ctx).map_or(String::new(), |path| format!(", from {path}"));
    ctx.warn(&match module {
        Some(this @ "this module") => format!(
            "bf: not loaded: {this} is loaded already{from}. Keep one of its loadmodule lines and \
             remove the others. CONFIG REWRITE writes one into the server's configuration file, \
             also if an included file or the command line names the module"
        ),
        other => format!(
            "bf: not loaded: {} is loaded already{from}, and a server can have only one module of \
             the name 'bf'. Keep the loadmodule line of one of the two",
            other.unwrap_or("another module")
        ),
    });
}

/// The file of the loaded module that has our name, as MODULE LIST shows it.
fn path(ctx: Context) -> Option<String> {
    let reply = ctx.run(c"MODULE", &["LIST"])?;
    // A module is a list of names and values, in this order: name, ver, path, args.
    reply.whole().elements().find_map(|module| {
        let mut texts = module.elements().map(Part::text);
        let name = texts.nth(1)??;
        let path = texts.nth(3)?;
        path.filter(|_| Some(name.as_str()) == NAME.to_str().ok())
    })
}
