//! The subcommands: one file each, and one line in [`Subcommand`].

mod check;
mod completion;
mod create;
mod drop;
mod dump;
mod info;
mod load;
mod plan;
mod rebuild;
mod restore;
mod top;
mod verify;

use crate::{
    connection,
    error::{Error, Exit},
    output::{self, Output},
};

/// Plans, loads, checks, watches, saves and restores Bloom filters of Redis and Valkey
#[derive(clap::Parser, Debug)]
#[command(name = "redis-bloom", version, disable_help_flag = true, max_term_width = 100)]
pub(crate) struct Arguments {
    /// Prints help
    #[arg(long, global = true, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    connection: connection::Options,
    #[command(flatten)]
    output: output::Options,
    #[command(subcommand)]
    subcommand: Subcommand,
}

#[derive(clap::Subcommand, Debug)]
enum Subcommand {
    Plan(plan::Arguments),
    Create(create::Arguments),
    Load(load::Arguments),
    Check(check::Arguments),
    Verify(verify::Arguments),
    Info(info::Arguments),
    Top(top::Arguments),
    Dump(dump::Arguments),
    Restore(restore::Arguments),
    Rebuild(rebuild::Arguments),
    Drop(drop::Arguments),
    Completion(completion::Arguments),
    /// Prints the manual page
    #[command(hide = true)]
    Man,
}

impl Arguments {
    pub(crate) fn output(&self) -> Output {
        Output::new(self.output)
    }

    pub(crate) fn run(&self, output: &Output) -> Result<Exit, Error> {
        match &self.subcommand {
            Subcommand::Plan(arguments) => arguments.run(&self.connection, output),
            Subcommand::Create(arguments) => arguments.run(&self.connection, output),
            Subcommand::Load(arguments) => arguments.run(&self.connection, output),
            Subcommand::Check(arguments) => arguments.run(&self.connection, output),
            Subcommand::Verify(arguments) => arguments.run(&self.connection, output),
            Subcommand::Info(arguments) => arguments.run(&self.connection, output),
            Subcommand::Top(arguments) => arguments.run(&self.connection, output),
            Subcommand::Dump(arguments) => arguments.run(&self.connection, output),
            Subcommand::Restore(arguments) => arguments.run(&self.connection, output),
            Subcommand::Rebuild(arguments) => arguments.run(&self.connection, output),
            Subcommand::Drop(arguments) => arguments.run(&self.connection, output),
            Subcommand::Completion(arguments) => arguments.run(),
            Subcommand::Man => completion::manual(),
        }
    }
}
